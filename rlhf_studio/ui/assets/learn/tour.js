// The tour: our own code along the way of the data through a step. A map of the stations, and the station that is open.
import { address } from "../shared/address.js";
import { el, fill } from "../shared/dom.js";
import { addedTo } from "./added.js";
import { Scene } from "./lesson/scene.js";
import { blocks } from "./lesson/text.js";
import { colon, t } from "../shared/language.js";

const PLACE = "tour";
const CARRIED = ["step", "sample"]; // what a reader has chosen stays the same from station to station

const shortOf = ({ name }) => name.slice(PLACE.length + 1);

export class Tour {
  /** @param page  (stations, article, need(name), describe(question), ask(question), tell(problem), choose(params)) */
  constructor(page) {
    this.page = page;
    this.name = "";
    this.scene = null;
  }

  /** Show the station that the address names; the first one where it names none. */
  async go(params) {
    const { stations } = this.page;
    const station = stations.find((one) => shortOf(one) === params.show) || stations[0];
    if (!station || (station.name === this.name && !params.set)) return;
    this.name = station.name;
    const wanted = () => this.name === station.name;
    const text = await this.page.need("learn_text", { lesson: station.name }, wanted);
    if (!wanted()) return;
    this.page.tell(text.error || "");
    if (text.error) return;
    this.draw(station, text);
    const described = await this.page.describe({ lesson: station.name }, wanted);
    if (this.name === station.name && described) this.scene.begin(described.scenes[this.scene.name], params);
  }

  leave() {
    this.name = "";
  }

  draw(station, text) {
    const { stations, article, choose } = this.page;
    const lead = { lesson: (other) => choose.call(this.page, { lesson: other }), tour: (show) => this.visit(show) };
    const [scene] = text.scenes;
    this.scene = new Scene(scene, {
      ...lead,
      words: text.words,
      ask: (question) => this.page.ask({ ...question, lesson: station.name }),
      moved: (set, seed) => address.put("learn", { place: PLACE, show: shortOf(station), set, seed }),
      share: () => {},
    });
    besideCode(this.scene.node);
    const at = stations.indexOf(station);
    fill(
      article,
      this.map(at),
      el("h2", { class: "rs-learn-title" }, text.title),
      el("div", { class: "rs-learn-text" }, blocks(text.introduction, lead)),
      el("div", { class: "rs-learn-station" }, this.scene.node),
      addedTo(station.name, this.page.server),
      el("div", { class: "rs-learn-turn rs-wrap" }, this.turn(at - 1, t("Previous")), this.turn(at + 1, t("Next"))),
    );
    this.reach(article.querySelector("[aria-current=step]"));
  }

  /** The way of the data, a button for each station. The tab key stops at one of them; arrows lead to the others. */
  map(at) {
    const stops = this.page.stations.map((station, place) =>
      el(
        "li",
        { class: "rs-learn-stop" },
        el(
          "button",
          {
            type: "button",
            tabindex: place === at ? "0" : "-1",
            "aria-current": place === at ? "step" : null,
            onclick: () => this.visit(shortOf(station)),
          },
          el("span", { class: "rs-learn-dot", "aria-hidden": "true" }, String(place + 1)),
          el("span", {}, station.title.split(":")[0]),
        ),
      ),
    );
    const walk = (event) => {
      const buttons = stops.map((stop) => stop.firstChild);
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = by && buttons[buttons.indexOf(document.activeElement) + by];
      if (!next) return;
      event.preventDefault();
      next.focus();
    };
    const list = el("ol", { class: "rs-learn-way", onkeydown: walk }, stops);
    return el("nav", { class: "rs-learn-map", "aria-label": t("Stations of the tour") }, list);
  }

  /** Scroll the map, and nothing else, until the open station is seen. */
  reach(stop) {
    const map = stop.closest(".rs-learn-map");
    const by = stop.getBoundingClientRect().left - map.getBoundingClientRect().left;
    map.scrollLeft += by - (map.clientWidth - stop.offsetWidth) / 2;
  }

  visit(show) {
    const values = Object.entries(this.scene?.values || {}).filter(([name]) => CARRIED.includes(name));
    const set = values.map(([name, value]) => `${name}:${value}`).join(",");
    return this.page.choose({ place: PLACE, show, set });
  }

  turn(place, word) {
    const station = this.page.stations[place];
    if (!station) return el("span", {});
    const attributes = { type: "button", class: "rs-button rs-small", onclick: () => this.visit(shortOf(station)) };
    return el("button", attributes, colon(word, station.title));
  }
}

/** Put each piece of code beside the paragraphs that stand before it. */
function besideCode(node) {
  for (const code of node.querySelectorAll(".rs-learn-text > .rs-learn-code")) {
    const notes = [];
    for (let one = code.previousElementSibling; one?.tagName === "P"; one = one.previousElementSibling)
      notes.unshift(one);
    const pair = el("div", { class: "rs-learn-pair" });
    code.replaceWith(pair);
    pair.append(el("div", { class: "rs-learn-note" }, notes), code);
  }
}
