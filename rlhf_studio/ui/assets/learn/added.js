// Questions and answers that people have added to a lesson or station: asked for when they come near.
import { el } from "../shared/dom.js";
import { t } from "../shared/language.js";

const NEAR = "600px";

/** What stands below a lesson (`clip`) or a station (`tour.gae`). */
export function addedTo(place, server) {
  const node = el("section", { class: "rs-learn-added", hidden: true, "aria-label": t("Questions and answers") });
  const sign = el("div", { class: "rs-learn-added-sign" }); // a hidden section never comes near
  const near = new IntersectionObserver(
    async (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      near.disconnect();
      const { Added } = await import("../added/below.js");
      new Added(node, place, server).look();
    },
    { rootMargin: NEAR },
  );
  near.observe(sign);
  return el("div", {}, sign, node);
}
