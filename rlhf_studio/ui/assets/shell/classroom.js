// A class: the teacher's place, which students may follow, and the teacher's dialog with the class link.
import { address } from "../shared/address.js";
import { el, fill, memory, setText, show, svg } from "../shared/dom.js";
import { Poller } from "../shared/poll.js";
import { onlyWatches } from "../shared/visit.js";

const LOOK = 2000; // milliseconds between two looks at where the teacher is

/** A switch for students: follow the teacher from page to page, with a way back to one's own place. */
export function followSwitch(server) {
  const box = el("input", { type: "checkbox", checked: memory.get("follow", true) });
  const back = el("button", { type: "button", class: "rs-link", hidden: true }, "Back to my own place");
  const node = el("span", { class: "rs-follow", hidden: true }, el("label", {}, box, " Follow the teacher"), " ", back);
  let [seen, own] = [0, null];

  const go = ({ page, params }) => {
    own ??= { page: address.here, params: address.params(address.here) };
    address.lead(page, params);
    show(back, true);
  };
  back.addEventListener("click", () => {
    box.checked = false;
    memory.set("follow", false);
    address.lead(own.page, own.params);
    own = null;
    show(back, false);
  });
  let last = null;
  box.addEventListener("change", () => {
    memory.set("follow", box.checked);
    if (box.checked && last?.seq) go(last);
  });

  const poller = new Poller({
    ask: () => server.class_now({}),
    onreply: (reply) => {
      last = reply;
      show(node, last.seq > 0);
      if (box.checked && last.seq > seen) go(last);
      seen = Math.max(seen, last.seq);
      return LOOK;
    },
    onlost: () => {}, // the page says elsewhere that the app does not answer
    awake: () => document.visibilityState === "visible",
  });
  poller.wake();
  return node;
}

/** The teacher's button: it opens the class link, and says whether the class is led. */
export function classButton(host, server) {
  const button = el("button", { type: "button", class: "rs-button rs-small" }, "Class");
  let leading = false;
  const tell = (change) => server.class_change({ ...change, view: onlyWatches() });
  const here = () => ({ page: address.here, params: address.params(address.here) });
  address.onmove(() => leading && tell({ lead: here() }).catch((error) => console.error(error)));
  button.addEventListener("click", async () => {
    const dialog = new ClassDialog(await server.class_link({}), {
      renew: () => tell({ renew: true }),
      runs: (may) => tell({ runs: may }),
      lead: (on) => {
        leading = on;
        setText(button, on ? "Class: leading" : "Class");
        return tell({ lead: on ? here() : null });
      },
    });
    host.append(dialog.node);
    dialog.node.showModal();
  });
  return button;
}

class ClassDialog {
  /** @param actions  {renew(), runs(may), lead(on)}, each gives the class anew */
  constructor(answer, actions) {
    this.link = el("code", { class: "rs-class-link", tabindex: "0" });
    this.picture = el("div", {});
    this.status = el("p", { class: "rs-help", role: "status" });
    const runs = el("input", { type: "checkbox", checked: answer.runs });
    const lead = el("input", { type: "checkbox", checked: answer.leads });
    runs.addEventListener("change", () => this.do(() => actions.runs(runs.checked)));
    lead.addEventListener("change", () => this.do(() => actions.lead(lead.checked)));
    const renew = el("button", { type: "button", class: "rs-button" }, "New link");
    renew.addEventListener("click", () =>
      this.do(() => actions.renew(), "The old link has ended. Students need this one."),
    );
    const close = el("button", { type: "button", class: "rs-button rs-primary" }, "Close");
    close.addEventListener("click", () => this.node.close());
    this.node = el(
      "dialog",
      { class: "rs-dialog rs-class", "aria-labelledby": "rs-class-title" },
      el("h2", { id: "rs-class-title" }, "Your class"),
      el("p", {}, "Students open this link, or point a phone at the code. They need no account."),
      this.picture,
      el("p", {}, this.link),
      el("label", {}, lead, " Lead the class: who follows sees the page that you see"),
      el("label", {}, runs, " Students may start small runs of their own"),
      this.status,
      el("div", { class: "rs-dialog-buttons" }, renew, close),
    );
    this.node.addEventListener("close", () => this.node.remove());
    this.draw(answer);
  }

  async do(action, said = "") {
    const answer = await action().catch((error) => (console.error(error), null));
    setText(this.status, answer ? said : "The app did not answer. Try again in a moment.");
    if (answer) this.draw(answer);
  }

  draw({ link, code }) {
    setText(this.link, link);
    const size = code.length + 8; // with the border that cameras need
    const dark = code.flatMap((row, y) =>
      [...row].flatMap((one, x) => (one === "1" ? `M${x + 4} ${y + 4}h1v1h-1z` : [])),
    );
    fill(
      this.picture,
      svg(
        "svg",
        { class: "rs-class-code", viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "The link as a QR code" },
        svg("path", { d: dark.join("") }),
      ),
    );
  }
}
