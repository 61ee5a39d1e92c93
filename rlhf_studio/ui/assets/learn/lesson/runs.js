// Which run a lesson looks at: the bundled one, or one of the workspace that has its responses on record.
import { each, el, setText, show } from "../../shared/dom.js";
import { counted, readable } from "../../shared/format.js";
import { NO_ANSWER } from "../../shared/visit.js";
import { t } from "../../shared/language.js";

const BUNDLED = t("The bundled run");
let count = 0;

export class RunPicker {
  /**
   * @param run     the id of the run that is shown; empty for the bundled one
   * @param server  lists the runs
   * @param choose  called with the id of another run
   */
  constructor(run, server, choose) {
    this.run = run;
    const id = `rs-learn-runs-${(count += 1)}`;
    this.list = el("select", { id, class: "rs-input", onchange: () => choose(this.list.value) });
    this.note = el("p", { class: "rs-muted", hidden: true });
    this.problem = el("p", { class: "rs-message rs-problem", role: "status", hidden: true });
    this.node = el(
      "div",
      { class: "rs-learn-run" },
      el("div", { class: "rs-learn-pick rs-middle" }, el("label", { for: id }, t("Run")), this.list),
      this.note,
      this.problem,
    );
    this.offer([]);
    this.load(server);
  }

  async load(server) {
    const reply = await server.learn_runs({}).catch((error) => {
      console.error(error);
      return { runs: [], error: NO_ANSWER };
    });
    this.offer(reply.runs);
    if (reply.error) this.tell(reply.error);
  }

  offer(runs) {
    const shown = [{ run: "", label: BUNDLED }, ...runs.map((one) => ({ run: one.run, label: labelOf(one) }))];
    if (!shown.some(({ run }) => run === this.run)) shown.push({ run: this.run, label: readable(this.run, 60) });
    each(this.list, shown, ({ run, label }) => el("option", { value: run }, label));
    this.list.value = this.run;
    const alive = runs.some(({ run, alive }) => run === this.run && alive);
    setText(this.note, alive ? t("This run still trains. Load the page again to see its later steps.") : "");
    show(this.note, alive);
  }

  /** Why the lesson cannot show this run; an empty text takes it away. */
  tell(problem) {
    setText(this.problem, problem);
    show(this.problem, Boolean(problem));
  }
}

const labelOf = ({ run, name, steps }) => `${readable(name || run, 60)}, ${counted(steps, "step")}`;
