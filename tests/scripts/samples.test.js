// What a row of the sample table shows of a prompt.
import assert from "node:assert/strict";
import { test } from "node:test";

const { sharedEnds, shortPrompt } = await import("../../rlhf_studio/ui/assets/live/ends.js");
const { readable } = await import("../../rlhf_studio/ui/assets/shared/format.js");
const { partsOf, sorted } = await import("../../rlhf_studio/ui/assets/live/rows.js");

test("of long prompts a row shows the end of what is their own, and short ones stay whole", () => {
  const chat = (text) =>
    `<|im_start|>system\nYou are helpful<|im_end|>\n<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`;
  const prompts = [chat("What is rain?"), chat("Where do the many small birds go in the winter?"), chat("Who is it?")];
  const shown = (texts) => texts.map((text) => shortPrompt(text, sharedEnds(texts)));
  assert.deepEqual(shown(prompts), ["…What is rain… ", "…he many small birds go in the winter… ", "…Who is it… "]);
  assert.deepEqual(shown([prompts[0], prompts[0]]), ["…", "…"]);
  assert.deepEqual(shown(["A film", "A play"]), ["A film", "A play"]);
});

test("several parts of a reward, or one without a score, can be read and sorted by", () => {
  const row = (sample, score, parts) => ({ sample, score, parts: Object.entries(parts) });
  const rows = [row(0, null, { right: 0, short: null }), row(1, null, { right: 1 }), row(2, null, { right: null })];
  assert.deepEqual(
    partsOf(rows).map(({ label }) => label),
    ["right"],
  );
  const order = (sort, reverse) => sorted(rows, sort, reverse).map(({ sample }) => sample);
  assert.deepEqual(order("reward/right", false), [1, 0, 2]);
  assert.deepEqual(order("reward/right", true), [2, 0, 1]);
  assert.deepEqual(order("order", false), [0, 1, 2]);
  const scored = (parts) => partsOf([...rows, row(3, 0.5, parts)]).map(({ label }) => label);
  assert.deepEqual(scored({ right: 1 }), []);
  assert.deepEqual(scored({ right: 1, short: 2 }), ["right", "short"]);
});

test("the fillers of Hangul, letters that are drawn as nothing, are written by their names", () => {
  assert.equal(readable("a\u115f\u1160\u3164\uffa0\uac00"), "a⟨U+115F⟩⟨U+1160⟩⟨U+3164⟩⟨U+FFA0⟩\uac00");
});
