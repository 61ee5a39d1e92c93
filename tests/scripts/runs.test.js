// What the table of runs calls a model.
import assert from "node:assert/strict";
import { test } from "node:test";

const { COLUMNS } = await import("../../rlhf_studio/ui/assets/runs/columns.js");

test("models whose folders are called alike are told apart by the folders around them", () => {
  const { value } = COLUMNS.find(({ key }) => key === "model");
  const names = {
    "Qwen/Qwen3-0.6B": "qwen3-0.6b",
    "bundled/world-policy": "world-policy",
    "/home/me/tries/second/model/": "second/model",
    "/ws/runs/own/checkpoints/step-000020/policy": "own/checkpoints/step-000020/policy",
    "C:\\models\\small\\checkpoint-100": "small/checkpoint-100",
    "/model": "model",
    "": "–",
  };
  for (const [model, name] of Object.entries(names)) assert.equal(value({ model }), name);
});
