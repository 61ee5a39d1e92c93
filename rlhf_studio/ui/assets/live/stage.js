// What the page shows of a run that is no PPO run: words, and which parts are there at all.
import { counted } from "../shared/format.js";
import { t } from "../shared/language.js";

const LEARNS = {
  sft: t("The model reads a batch of examples and learns to write their answers."),
  reward_model: t(
    "The model scores both responses of each pair in a batch, and learns to score the preferred one higher.",
  ),
  dpo: t(
    "The policy compares both responses of each pair in a batch with its reference, and learns to prefer the " +
      "better one.",
  ),
  evaluation: t("The policies answer a batch of prompts."),
};

/** What happens in the first step, while nothing is there to draw. */
export function firstStep(stage, batch) {
  const many = batch ? counted(batch, "response") : t("a batch of responses");
  const ppo = t(
    "The policy writes {many}; they are scored, every token gets its reward and advantage, and the policy " +
      "learns from them.",
    { many },
  );
  return t("{what} The first points appear right after.", { what: LEARNS[stage] || ppo });
}

const ALIVE = new Set(["loading", "running", "paused"]);

/** Whether an engine works on a run in this state. */
export const isAlive = (state) => ALIVE.has(state);

/** "step 7 of 300" where it is known how many steps a run has. */
export const stepOf = ({ step, total }) =>
  total ? t("step {step} of {total}", { step, total }) : t("step {step}", { step });

/** Show the parts of the page that a run of this stage has. */
export function applyStage(page, stage) {
  const ppo = stage === "ppo";
  page.host.dataset.stage = stage;
  const own = page.page.quantities.filter((quantity) => quantity.stages.includes(stage));
  page.work.inspector.offer(own, ppo);
  page.answers.offer(own);
  page.learned.node.classList.toggle("rs-gone", !ppo);
  page.guide.start.classList.toggle("rs-gone", !ppo);
  // an evaluation has no course, and no numbers for tokens: its result is the verdict's sentence
  for (const part of [page.tiles.node, page.work.place.node]) part.classList.toggle("rs-gone", stage === "evaluation");
  page.measures.offer(stage === "reward_model");
}
