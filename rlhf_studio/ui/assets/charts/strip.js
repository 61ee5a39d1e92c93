// Bars of the chosen quantity, one per token, with the value head's line over them.
import { el, fill, show, svg } from "../shared/dom.js";
import { lower, number } from "../shared/format.js";
import { extent, scaleOf, valuesOf } from "../shared/tokens.js";
import { t } from "../shared/language.js";

const HEIGHT = 92;
const INSET = 6;
const SAME = 1; // the ratio of a token whose probability did not change: the middle of its picture

export class Strip {
  constructor(onpick, onhover) {
    this.onpick = onpick;
    this.picture = svg("svg", { class: "rs-strip-svg", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.left = el("div", { class: "rs-strip-axis rs-column" });
    this.right = el("div", { class: "rs-strip-axis rs-right rs-column" });
    this.caption = el("div", { class: "rs-strip-caption" });
    this.node = el(
      "div",
      { class: "rs-strip" },
      this.left,
      el("div", { class: "rs-strip-middle" }, this.picture),
      this.right,
      this.caption,
    );
    const index = (event) => {
      const box = this.picture.getBoundingClientRect();
      const at = Math.floor(((event.clientX - box.left) / box.width) * this.count);
      return at >= 0 && at < this.count ? at : null;
    };
    this.picture.addEventListener("click", (event) => index(event) !== null && onpick(index(event)));
    this.picture.addEventListener("pointermove", (event) => onhover(index(event)));
    this.picture.addEventListener("pointerleave", () => onhover(null));
  }

  /**
   * For the clip flag the bars show what the flag comes from: the ratio, from 1 on, and over each bar the one edge of
   * the clip range that its advantage lets count. `given` is the scale of the colours, see scaleOf(), and
   * `one` what a bar stands for.
   */
  update(sample, quantity, given = null, one = "token") {
    const flag = quantity.scale === "flag";
    const values = valuesOf(sample.tokens, flag ? "ratio" : quantity.name);
    const edges = flag && sample.tokens.card ? edgesOf(sample.tokens.card, SAME) : [];
    const line = valuesOf(sample.tokens, "values");
    this.count = values.length;
    const around = flag && values.map((value) => (value === null ? null : value - SAME));
    const scale = flag ? { centre: SAME, limit: extent(around, quantity.noise) } : scaleOf(values, quantity, given);
    const { centre } = scale;
    const nearest = Math.min(...edges.filter(Number.isFinite).map(Math.abs));
    const limit = flag && scale.limit > nearest / 2 ? Math.max(scale.limit, 1.1 * nearest) : scale.limit;
    const signed = quantity.scale !== "sequential";
    const y = (value, size) =>
      signed
        ? HEIGHT / 2 - (value / size) * (HEIGHT / 2 - INSET)
        : HEIGHT - INSET - (Math.max(0, value) / size) * (HEIGHT - 2 * INSET);
    const zero = y(0, 1);
    const bar = (value, index) =>
      !Number.isFinite(value) || value === centre
        ? ""
        : `M${index + 0.14} ${zero}H${index + 0.86}V${y(value - centre, limit).toFixed(2)}H${index + 0.14}Z`;
    const path = (keep) => values.map((value, index) => (keep(value) ? bar(value, index) : "")).join("");
    this.picture.setAttribute("viewBox", `0 0 ${Math.max(1, this.count)} ${HEIGHT}`);
    this.hovered = svg("rect", { class: "rs-hover", y: "0", width: "1", height: HEIGHT, x: "-2" });
    this.pinned = svg("rect", { class: "rs-pinned", y: "0", width: "1", height: HEIGHT, x: "-2" });
    const same = quantity.name === "values";
    const width = extent(line, quantity.noise);
    const middle = (value) => HEIGHT / 2 - (value / width) * (HEIGHT / 2 - INSET);
    const points = line
      .map((value, index) => (value === null ? "" : `${index + 0.5},${middle(value).toFixed(2)}`))
      .join(" ");
    fill(
      this.picture,
      this.pinned,
      this.hovered,
      svg("line", { class: "rs-zero", x1: "0", x2: String(this.count), y1: String(zero), y2: String(zero) }),
      svg("path", { class: signed ? "rs-plus" : "rs-sequential", d: path((value) => value > centre) }),
      svg("path", { class: "rs-minus", d: path((value) => value < centre) }),
      ...edges.flatMap((edge, index) =>
        edge === null || Math.abs(edge) > limit
          ? []
          : [
              svg("line", {
                class: "rs-edge",
                x1: String(index),
                x2: String(index + 1),
                y1: String(y(edge, limit)),
                y2: String(y(edge, limit)),
              }),
            ],
      ),
      same ? "" : svg("polyline", { class: "rs-value", points }),
    );
    const digits = (size) => (size < 0.1 ? 3 : size < 10 ? 2 : 1);
    fill(
      this.left,
      signed
        ? [limit, 0, -limit].map((side) => tick(centre + side === 0 ? "0" : number(centre + side, digits(limit))))
        : [number(limit, digits(limit)), "", "0"].map(tick),
    );
    const lined = !same && line.some(Number.isFinite);
    show(this.right, lined);
    fill(this.right, [number(width, digits(width)), "0", number(-width, digits(width))].map(tick));
    fill(
      this.caption,
      el(
        "span",
        { class: "rs-strip-key" },
        flag
          ? t("ratio per token, dashed: the edge of the clip range on the side of its advantage")
          : quantity.centred
            ? t("{label} per {token}, from the mean of the step", { label: lower(quantity.label), token: t(one) })
            : t("{label} per {token}", { label: lower(quantity.label), token: t(one) }),
      ),
      !lined
        ? null
        : el("span", { class: "rs-strip-key rs-strip-line", "data-term": "values" }, t("value, right axis")),
    );
  }

  pin(index) {
    this.pinned?.setAttribute("x", index === null ? "-2" : String(index));
  }

  hover(index) {
    this.hovered?.setAttribute("x", index === null ? "-2" : String(index));
  }
}

/** The edge of the clip range that counts for each token, from the middle of the picture on; null for none. */
const edgesOf = ({ signs, edges }, centre) => [...signs].map((sign) => (sign in edges ? edges[sign] - centre : null));

const tick = (text) => el("span", {}, text);
