// Calls functions of the scripts that need no page: numbers as text, and the page's copy of a run's series.
// node pure_functions.mjs ASSETS; prints what they give as JSON.
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(`${process.argv[2]}/${name}`));
const { asOf, chance, duration, integer, number, percent, readable } = await load("shared/format.js");
const { SeriesStore, smooth } = await load("live/store.js");

const store = new SeriesStore();
store.apply(
    {
        names: ["episode", "a"],
        x: [[10, 20, 40]],
        at: [0, 0],
        y: [
            [100, 200, 400],
            [null, 2, 4],
        ],
    },
    true,
    40,
);
store.apply({ names: ["a"], x: [[50]], at: [0], y: [[null]] }, false, 50);
console.log(
    JSON.stringify({
        numbers: [
            number(-1.005, 2),
            number(0.00312, 2),
            number(null),
            number(-0.0000001, 2),
            number(123456.4, 0),
            number(1060.1934, 4),
            integer(1000),
            integer(7e9),
        ],
        dated: [asOf(4, 8), asOf(8, 8), asOf(undefined, 8), asOf(4, 0)],
        share: percent(0.0913),
        durations: [duration(75), duration(3700), duration(NaN)],
        smooth: [smooth([1, null, 3], 0), smooth([2, 2, 2], 0.9)],
        axis: [store.toAxis(30, "episode"), store.fromAxis(300, "episode"), store.at("a", 45), store.last("a")],
        steps: store.get("a").x,
        chances: [chance(0.0012), chance(0.25), chance(null)],
        text: readable("a\u0000b\u202ec d\ud800" + "e\u0301\u0301\u0301\u0301\u0301\u0301"),
    }),
);
