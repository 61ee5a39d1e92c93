// What the page looks like before there is a run of one's own: an answer of a recorded run, before training and after.
import { sideBySide } from "../shared/answers.js";
import { el, fill } from "../shared/dom.js";
import { onlyWatches } from "../shared/visit.js";
import { recorded } from "../pictures/recorded.js";
import { ReplayAnswer } from "../replay/answer.js";
import { t } from "../shared/language.js";

const ABOUT = t(
  "One prompt, answered before training and after it. The run had no KL coefficient: it learned to please its judge.",
);

/** @param ask  the server's function for replays; the example stays away where it fails */
export async function showExample(host, ask, run) {
  const payload = await ask({ run, view: onlyWatches() });
  if (payload.problem || !payload.answers.length) return;
  const answers = [payload.steps[0], payload.steps.at(-1)].map((step, index) => {
    const answer = new ReplayAnswer(payload, { compact: true, hero: true });
    answer.show(index ? step : 0);
    for (const word of answer.node.querySelectorAll(".rs-word")) word.setAttribute("tabindex", "0");
    return el("div", { class: "rs-replay rs-box", "data-compact": "true" }, answer.node);
  });
  fill(host, recorded(ABOUT), sideBySide(answers));
}
