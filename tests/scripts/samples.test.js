// What a row of the sample table shows of a prompt.
import assert from "node:assert/strict";
import { test } from "node:test";

const { sharedEnds, shortPrompt } = await import("../../rlhf_studio/ui/assets/live/ends.js");

test("of long prompts a row shows the end of what is their own, and short ones stay whole", () => {
  const chat = (text) =>
    `<|im_start|>system\nYou are helpful<|im_end|>\n<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`;
  const prompts = [chat("What is rain?"), chat("Where do the many small birds go in the winter?"), chat("Who is it?")];
  const shown = (texts) => texts.map((text) => shortPrompt(text, sharedEnds(texts)));
  assert.deepEqual(shown(prompts), ["…What is rain… ", "…he many small birds go in the winter… ", "…Who is it… "]);
  assert.deepEqual(shown([prompts[0], prompts[0]]), ["…", "…"]);
  assert.deepEqual(shown(["A film", "A play"]), ["A film", "A play"]);
});
