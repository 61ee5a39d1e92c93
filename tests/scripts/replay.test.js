// When a replay is where, what it draws between two steps, and how strong its colours are.
import assert from "node:assert/strict";
import { test } from "node:test";

const { ReplayClock, placeOf } = await import("../../rlhf_studio/ui/assets/replay/clock.js");
const { endOf, frameAt, nextOf, rangeOf, recordedAt, strengthOf, valueAt } =
  await import("../../rlhf_studio/ui/assets/replay/sums.js");

test("steps share the time that the pauses leave, and a pause comes after its step is reached", () => {
  const clock = new ReplayClock(11, 30, [4, 4, 8], 5); // two moments of one step are one pause
  assert.deepEqual([clock.total, clock.perStep], [30, 2]);
  const places = [0, 3, 8, 12.9, 13, 15, 21, 26, 28, 30, 99].map((time) => clock.placeAt(time));
  assert.deepEqual(places, [0, 1.5, 4, 4, 4, 5, 8, 8, 9, 10, 10]);
  assert.deepEqual(
    [0, 4, 5, 8, 10].map((place) => clock.timeOf(place)),
    [0, 8, 15, 21, 30],
  );
});

test("a step that is not shown is at the place of the one before it", () => {
  assert.deepEqual(
    [0, 1, 4, 5, 9, 12].map((step) => placeOf([1, 5, 9], step)),
    [0, 0, 0, 1, 2, 2],
  );
});

test("a value between two steps lies on their line, and stays what it was where the next one is not known", () => {
  const series = [1, 3, null, 5];
  assert.deepEqual(
    [0, 0.5, 1, 1.25, 2, 2.5, 3].map((place) => valueAt(series, place)),
    [1, 2, 3, 3, null, null, 5],
  );
});

test("what is written is the value on record at the step that is reached, wherever the drawing is", () => {
  const series = [1, 3, null, 5];
  assert.deepEqual(
    [0, 0.5, 0.99, 1 - 1e-9, 1.25, 2.5, 3].map((place) => recordedAt(series, place)),
    [1, 1, 1, 3, 3, null, 5],
  );
});

test("a range has room, does not go below zero for numbers that do not, and is not empty", () => {
  const near = (found, wanted) => found.forEach((value, place) => assert.ok(Math.abs(value - wanted[place]) < 1e-9));
  near(rangeOf([[1, null], [-1]]), [-1.16, 1.16]);
  near(rangeOf([[0, 10]]), [0, 10.8]);
  near(rangeOf([[2, 2]]), [1.84, 2.16]);
  assert.deepEqual(rangeOf([[null], []]), [0, 1]);
});

test("an answer stands until the next one, and the first one also before its step", () => {
  const frames = [{ step: 4 }, { step: 8 }];
  assert.deepEqual(
    [1, 4, 7, 8, 99].map((step) => frameAt(frames, step).step),
    [4, 4, 4, 8, 8],
  );
});

test("a colour has half its strength at a quarter of the limit, and none where nothing is known", () => {
  const strengths = [1, 3, 0.5, 9, null].map((value) => strengthOf(value, { centre: 1, limit: 2 }));
  assert.deepEqual(strengths, [0, 100, 50, 100, 0]);
  assert.equal(strengthOf(0, { centre: 0, limit: 0 }), 0);
});

test("the last token is the end of an answer only where the answer stopped and all of it is shown", () => {
  const ends = [
    { stopped: true, left_out: 0 },
    { stopped: true, left_out: 260 },
    { stopped: null, left_out: 0 },
  ];
  assert.deepEqual(
    ends.map((frame) => endOf({ tokens: ["a", "b"], ...frame })),
    [1, -1, -1],
  );
});

test("the next answer is named where steps are shown until then", () => {
  const frames = [0, 1, 5, 10].map((step) => ({ step }));
  const steps = [1, 2, 3, 4, 5, 10];
  const next = frames.map((frame) => nextOf(frames, frame, steps)?.step ?? null);
  assert.deepEqual(next, [null, 5, null, null]);
});
