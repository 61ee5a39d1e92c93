// When the pages ask the server again, on a clock of the test's own: minutes pass at once, and chance is what a test says.
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";

const page = { visibilityState: "visible", listeners: [] };
globalThis.document = /** @type {any} */ ({
  get visibilityState() {
    return page.visibilityState;
  },
  addEventListener: (_, listener) => page.listeners.push(listener),
  removeEventListener: () => {},
});
const { Poll, REST, setPace } = await import("../../rlhf_studio/ui/assets/shared/poll.js");
const { functionsOf } = await import("../../rlhf_studio/ui/assets/shared/visit.js");

const settle = () => new Promise((resolve) => setImmediate(resolve));
const chance = mock.method(Math, "random", () => 0.5);
const setChance = (value) => chance.mock.mockImplementation(() => value);
const now = () => Date.now() / 1000;

beforeEach(() => {
  mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  setChance(0.5);
  setPace(1);
});
afterEach(() => mock.timers.reset());

async function pass(seconds) {
  for (let step = 0; step < seconds * 10; step++) {
    mock.timers.tick(100);
    await settle();
  }
}

const seen = () => page.visibilityState === "visible";

/** A poll with one part, whose questions `answer` answers, and the moments of its questions in seconds. */
async function polling(answer, { receive = () => undefined, ...options } = {}) {
  const asked = [];
  const lost = [];
  const poll = new Poll({ onlost: (what) => lost.push(what && "lost"), awake: seen, ...options });
  const part = poll.add({
    ask: async () => {
      asked.push(now());
      return answer();
    },
    receive,
  });
  part.wake();
  await settle();
  return { asked, lost, poll, part };
}

const refuse = (restFor) => () => {
  throw Object.assign(new Error("no answer"), restFor ? { restFor } : {});
};

test("pages ask once a second, and as much slower as the server says", async () => {
  const { asked, poll } = await polling(() => ({}));
  await pass(3);
  setPace(2.5); // the next question after the one that is planned already waits so long
  await pass(5.6);
  poll.stop();
  assert.deepEqual(asked, [0, 1, 2, 3, 4, 6.5]);
});

test("two viewers do not stay in step", async () => {
  setChance(0);
  const early = await polling(() => ({}));
  await pass(2);
  early.poll.stop();
  const began = now();
  setChance(1);
  const late = await polling(() => ({}));
  await pass(2.3);
  late.poll.stop();
  assert.deepEqual(early.asked, [0, 0.9, 1.8]);
  assert.deepEqual(
    late.asked.map((at) => Math.round(10 * (at - began)) / 10),
    [0, 1.1, 2.2],
  );
});

test("after failures pages ask less and less often, until there is an answer", async () => {
  let works = false;
  const { asked, lost, poll } = await polling(() => (works ? {} : refuse()()));
  await pass(60);
  works = true;
  await pass(17);
  poll.stop();
  assert.deepEqual(asked.slice(0, 10), [0, 1, 3, 7, 15, 30, 45, 60, 75, 76]);
  assert.equal(lost.at(-1), null);
});

test("pages rest as long as the server asks for, and never shorter", async () => {
  const { asked, poll } = await polling(refuse(20000));
  await pass(70);
  poll.stop();
  assert.deepEqual(asked, [0, 22, 44, 66]);
});

test("a page out of sight asks nothing unless it has something to tell", async () => {
  const quiet = await polling(() => ({}));
  const follows = await polling(() => ({}), { follows: () => true });
  await pass(2.5);
  page.visibilityState = "hidden";
  await pass(60);
  assert.deepEqual([quiet.asked.length, follows.asked.length], [3, 6]); // every 15 seconds, for the title and a notification
  page.visibilityState = "visible";
  page.listeners.forEach((listener) => listener());
  await settle();
  assert.deepEqual([quiet.asked.length, follows.asked.length], [4, 7]);
  quiet.poll.stop();
  follows.poll.stop();
});

test("what ends is asked for until its end, or until there were no answers for too long", async () => {
  const left = [{ more: true }, { more: true }, {}];
  const poll = new Poll({ awake: seen });
  const receive = ({ more }) => (more ? 150 : REST);
  const ended = poll.until({ ask: async () => left.shift(), receive });
  await pass(1);
  const given = poll.until({ ask: refuse(), receive });
  await pass(60);
  poll.stop();
  assert.deepEqual([await ended, left.length, await given], [true, 0, false]);
});

test("what a person has changed is asked for again after the answer that is on its way", async () => {
  const asked = [];
  const poll = new Poll({ awake: seen });
  const part = poll.add({
    ask: () => new Promise((answer) => setTimeout(answer, 500, asked.push(now()))),
    receive: () => REST,
    asleep: true,
  });
  poll.wake(); // the page is seen: nothing is wanted of this part yet
  await pass(1);
  part.wake();
  await pass(0.2);
  part.wake();
  poll.wake();
  await pass(5);
  poll.remove(part);
  part.wake();
  await pass(1);
  poll.stop();
  assert.deepEqual(asked, [1, 1.6]); // the clock of these tests has steps of a tenth
});

test("the parts of a page share what is known of the connection, and nothing is said when none asks any more", async () => {
  const { lost, poll, part } = await polling(() => ({}));
  const failing = poll.add({ ask: async () => refuse()(), receive: () => undefined });
  failing.wake();
  await pass(30);
  assert.equal(lost.includes("lost"), false); // the other part is answered
  poll.remove(part);
  await pass(40);
  assert.equal(lost.at(-1), "lost");
  poll.remove(failing);
  await pass(1);
  poll.stop();
  assert.equal(lost.at(-1), null);
});

test("a function of the page answers, or rejects with the rest that the server wants", async () => {
  const sent = [];
  const replies = {
    fine: { ok: true, json: async () => null },
    busy: { ok: false, status: 503, headers: new Headers({ "Retry-After": "7" }) },
    many: { ok: false, status: 429, headers: new Headers() },
    wrong: { ok: false, status: 404, headers: new Headers({ "Retry-After": "7" }) },
  };
  mock.method(globalThis, "fetch", async (address, { body }) => {
    const { session_hash: session, ...rest } = JSON.parse(body);
    sent.push({ address, session: /^[\d-]+$/.test(session), ...rest });
    return replies[rest.fn_name];
  });
  const server = functionsOf("/api", { id: 7, props: { server_fns: Object.keys(replies) } });
  const rest = (name) => server[name]({}).then(String, (error) => error.restFor ?? error.message);
  assert.equal(await server.fine({ a: 1 }), null);
  assert.deepEqual(sent[0], { address: "/api", session: true, data: { a: 1 }, component_id: 7, fn_name: "fine" });
  const errors = [await rest("busy"), await rest("many"), await rest("wrong")];
  assert.deepEqual(errors, [7000, 5000, "the app answered wrong with HTTP 404"]);
});

test("what a page cannot do without is asked for after ever longer waits, and a late answer counts", async () => {
  const poll = new Poll({ awake: seen });
  const asked = [];
  const answers = [];
  const first = poll.first(() => {
    asked.push(now());
    return new Promise((resolve) => answers.push(resolve));
  });
  await pass(70);
  assert.equal(asked.length, 3);
  assert.ok(asked[1] - asked[0] >= 20 && asked[2] - asked[1] >= 40);
  answers[0]("the first");
  assert.equal(await first, "the first");
  const refused = poll.first(() => Promise.reject(Object.assign(new Error("no"), { refused: "Not you." })));
  await assert.rejects(refused, { refused: "Not you." });
  let open = true;
  const left = poll.first(
    async () => refuse()(),
    () => open,
  );
  await settle();
  open = false;
  await pass(5);
  assert.equal(await left, null);
  assert.equal(poll.parts.length, 0);
});
