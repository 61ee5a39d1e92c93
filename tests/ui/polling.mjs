// Runs assets/shared/poll.js and visit.js with a clock of its own: minutes pass at once, and chance is what a test says.
// node polling.mjs ASSETS SCENARIO; prints what the scenario gives as JSON.
import { readFileSync } from "node:fs";

const [assets, scenario] = process.argv.slice(2);

/** A script of `assets/shared/` as an address that can be imported, with all that it imports. */
const asUrl = (name) => {
    const text = readFileSync(`${assets}/shared/${name}`, "utf-8").replace(/(?<=from ")\.\/([^"]+)/g, (_, other) => asUrl(other));
    return `data:text/javascript;base64,${Buffer.from(text).toString("base64")}`;
};
const realSetImmediate = setImmediate;
const settle = () => new Promise((resolve) => realSetImmediate(resolve));

let [now, chance, number] = [0, 0.5, 0];
const timers = new Map();
Date.now = () => now;
Math.random = () => chance;
globalThis.setTimeout = (action, wait) => (timers.set(++number, { at: now + wait, action }), number);
globalThis.clearTimeout = globalThis.clearInterval = (one) => timers.delete(one);
globalThis.setInterval = (action, wait) => (timers.set(++number, { at: now + wait, action, every: wait }), number);
const visible = { state: "visible", listeners: [] };
globalThis.document = {
    get visibilityState() {
        return visible.state;
    },
    addEventListener: (_, action) => visible.listeners.push(action),
    removeEventListener: () => {},
};
console.debug = () => {};

async function pass(milliseconds) {
    const until = now + milliseconds;
    for (;;) {
        const due = [...timers].filter(([, timer]) => timer.at <= until).sort((a, b) => a[1].at - b[1].at)[0];
        if (!due) break;
        const [name, timer] = due;
        now = timer.at;
        if (timer.every) timer.at += timer.every;
        else timers.delete(name);
        timer.action();
        await settle();
    }
    now = until;
}

const { Poller, setPace } = await import(asUrl("poll.js"));
const { functionsOf } = await import(asUrl("visit.js"));

/** A poller whose questions `answer` answers; the moments of its questions in seconds. */
async function polling(answer, options = {}) {
    const [asked, lost] = [[], []];
    const poller = new Poller({
        ask: async () => (asked.push(now / 1000), answer()),
        onreply: () => undefined,
        onlost: (what) => lost.push(what && "lost"),
        awake: () => visible.state === "visible",
        ...options,
    });
    poller.wake();
    await settle();
    return { asked, lost, poller };
}

const refuse = (restFor) => () => {
    throw Object.assign(new Error("no answer"), restFor ? { restFor } : {});
};

const SCENARIOS = {
    async usual() {
        const { asked } = await polling(() => ({}));
        await pass(3000);
        setPace(2.5);
        await pass(5600);
        return asked;
    },
    async apart() {
        chance = 0;
        const early = await polling(() => ({}));
        await pass(2000);
        early.poller.stop();
        const began = now / 1000;
        chance = 1;
        const late = await polling(() => ({}));
        await pass(2300);
        return [early.asked, late.asked.map((at) => at - began)];
    },
    async failures() {
        let works = false;
        const { asked, lost } = await polling(() => (works ? {} : refuse()()));
        await pass(60000);
        works = true;
        await pass(17000);
        return { asked, back: lost.at(-1) };
    },
    async tooMuch() {
        const { asked } = await polling(refuse(20000));
        await pass(70000);
        return asked;
    },
    async hidden() {
        const quiet = await polling(() => ({}));
        const follows = await polling(() => ({}), { follows: () => true });
        await pass(2500);
        visible.state = "hidden";
        await pass(60000);
        const before = [quiet.asked.length, follows.asked.length];
        visible.state = "visible";
        visible.listeners.forEach((action) => action());
        await settle();
        return { before, after: [quiet.asked.length, follows.asked.length] };
    },
    async functions() {
        const sent = [];
        const replies = {
            fine: { ok: true, json: async () => null },
            busy: { ok: false, status: 503, headers: new Headers({ "Retry-After": "7" }) },
            many: { ok: false, status: 429, headers: new Headers() },
            wrong: { ok: false, status: 404, headers: new Headers({ "Retry-After": "7" }) },
        };
        globalThis.fetch = async (address, { body }) => {
            const { session_hash: session, ...rest } = JSON.parse(body);
            sent.push({ address, session: /^[\d-]+$/.test(session), ...rest });
            return replies[rest.fn_name];
        };
        const server = functionsOf("/api", { id: 7, props: { server_fns: Object.keys(replies) } });
        const rest = (name) => server[name]({}).then(String, (error) => error.restFor ?? error.message);
        return {
            fine: await server.fine({ a: 1 }),
            sent: sent[0],
            errors: [await rest("busy"), await rest("many"), await rest("wrong")],
        };
    },
};

console.log(JSON.stringify(await SCENARIOS[scenario]()));
process.exit(0);
