// The memory plan: one line for the total against what is free, and the parts on demand.
import { el, fill, memory, setText, show } from "../shared/dom.js";
import { t } from "../shared/language.js";

const STATES = { fits: t("fits"), tight: t("may not fit"), too_large: t("does not fit"), unknown: "" };

export class MemoryPlan {
  constructor() {
    this.total = el("span");
    this.state = el("b", { class: "rs-plan-state" });
    this.body = el("tbody");
    this.advice = el("p", { class: "rs-plan-advice", role: "status" });
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, t("Part")),
      el("th", { scope: "col" }, t("Weights")),
      el("th", { scope: "col" }, t("Memory")),
    );
    const table = el("table", {}, el("thead", {}, head), this.body);
    this.details = el(
      "details",
      { open: memory.get("train.plan", false) },
      el(
        "summary",
        { class: "rs-bare" },
        el("h3", {}, t("Memory"), el("i", { "aria-hidden": "true" })),
        el("div", {}, this.total, this.state),
      ),
      table,
    );
    this.details.addEventListener("toggle", () => memory.set("train.plan", this.details.open));
    this.node = el("section", { class: "rs-plan", "aria-label": t("Memory"), hidden: true }, this.details, this.advice);
  }

  show(plan) {
    show(this.node, Boolean(plan));
    if (!plan) return;
    setText(this.total, plan.free ? t("{total} of {free}", { total: plan.total, free: plan.free }) : plan.total);
    setText(this.state, STATES[plan.state] || "");
    this.node.dataset.state = plan.state;
    const row = (part) =>
      el(
        "tr",
        { title: part.help },
        el("th", { scope: "row" }, part.name),
        el("td", {}, part.parameters),
        el("td", {}, part.size),
      );
    fill(this.body, plan.rows.map(row));
    setText(this.advice, plan.advice);
    show(this.advice, Boolean(plan.advice));
  }
}
