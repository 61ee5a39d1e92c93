// What the table of runs calls a model, and how Compare writes a figure.
import assert from "node:assert/strict";
import { test } from "node:test";

const { COLUMNS } = await import("../../rlhf_studio/ui/assets/runs/columns.js");
const { figure } = await import("../../rlhf_studio/ui/assets/runs/values.js");

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

test("a figure of Compare is rounded as the sentence above it", () => {
  const said = {
    0.064: "0.064",
    "-0.0123": "\u22120.012",
    0.004: "0.004",
    0.0001: "0.00",
    0.58: "0.58",
    0.1: "0.10",
    1234.6: "1,235",
  };
  for (const [value, text] of Object.entries(said)) assert.equal(figure(Number(value)), text);
});
