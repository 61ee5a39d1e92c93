// Numbers and model text as people read them. Pure functions: no document in here.
import { language, t, tn, tp } from "./language.js";

const MINUS = "\u2212";
export const NONE = "\u2013"; // what stands for a number that is not there

/** "3840.2512" -> "3,840.2512": grouped as the server groups, decimals never. */
const grouped = (text) => text.replace(/\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));

/** A number with `digits` decimals and a real minus sign, and 0 without one; an en dash when there is no number. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return exponent(value);
  // as score_text in units.py: the last bits of a sum decide no half
  const text = Number(size.toPrecision(12)).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + grouped(text);
}

/** How many decimals the marks of a colour scale have: its ends and its quarters stand beside each other. */
export const scaleDigits = ({ limit }) => (limit < 0.1 ? 3 : limit < 10 ? 2 : limit < 100 ? 1 : 0);

/** How many decimals are needed beside numbers of this size: what they do not show is noise there. 2 beside zeros. */
export const decimals = (size) =>
  size >= 100 ? 0 : size >= 0.1 || size === 0 ? 2 : size >= 0.01 ? 3 : size >= 0.001 ? 4 : 6;

function exponent(value) {
  return value.toExponential(1).replace(/^-/, MINUS).replace("e+", "e");
}

/** Exactly `digits` decimals, never an exponent: for sums that must add up as shown. */
export function fixed(value, digits) {
  if (!Number.isFinite(value)) return NONE;
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? MINUS : "") + text;
}

/** For the middle of a sentence: "Log-ratio" becomes "log-ratio", "KL" stays. */
export const lower = (title) => title.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase());
export const signed = (value, digits = 2) => (value > 0 ? "+" : "") + number(value, digits);
export const percent = (value, digits = 1) =>
  value === null || value === undefined ? NONE : `${number(100 * value, digits)}${t("\u202f%")}`;
/** A probability of a token: two decimals of a percent below 1 %. Empty when there is none. */
export const chance = (share) => (Number.isFinite(share) ? percent(share, share < 0.01 ? 2 : 1) : "");
export const integer = (value) => (Number.isFinite(value) ? grouped(String(Math.round(value))) : NONE);

/** "1 run", "3 runs"; the plural is `one` with an s. */
export const counted = (value, one) => {
  const word = tp("count", one);
  return `${integer(value)} ${word !== one || value === 1 ? word : `${one}s`}`;
};

const STATES = {
  queued: t("queued"),
  loading: t("loading"),
  running: t("running"),
  paused: t("paused"),
  finished: t("finished"),
  stopped: t("stopped"),
  failed: t("failed"),
  interrupted: t("interrupted"),
};

/** What the state of a run is called. */
export const stateWord = (state) => STATES[state] ?? state;

/** 75 -> "1:15", 3700 -> "1:01:40". */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return NONE;
  const total = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  const two = (part) => String(part).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export function bytes(value) {
  if (!Number.isFinite(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let index = 0;
  while (value >= 1000 && index < units.length - 1) [value, index] = [value / 1000, index + 1];
  return `${value.toFixed(value < 10 && index ? 1 : 0)} ${units[index]}`;
}

/** The last part of a path or of a name on the hub; `none` when there is none. */
export const shortName = (text, none) =>
  String(text ?? "")
    .replace(/[/\\]+$/, "")
    .split(/[/\\]/)
    .pop() || none;

/** Time of the day, from seconds since 1970. */
export const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString([], { hour12: false });

/** How dates are written: as the browser does, or as the page's language does where that is another one. */
export const locale = () => (navigator.language.startsWith(language()) ? [] : language());

/** A run's name with the time of its start. */
export function withStart({ name, started_at: started, created_at: created }) {
  const then = new Date(1000 * (started || created));
  const time = then.toLocaleString(locale(), { dateStyle: "medium", timeStyle: "medium" });
  return t("{name}, started {time}", { name, time });
}

/** A run's name, with what tells it from others of that name. */
export const called = ({ name, apart }) => (apart ? t("{name} ({settings})", { name, settings: apart }) : name);

/** Runs for a menu: those of one name are told apart by settings where these are known, else by when they started. */
export function toldApart(runs) {
  const count = new Map();
  for (const { name } of runs) count.set(name, (count.get(name) || 0) + 1);
  const own = (run) => (run.apart || !run.created_at ? called(run) : withStart(run));
  return runs.map((run) => (count.get(run.name) > 1 ? { ...run, name: own(run) } : run));
}

const NAMED = { 0x20: "\u00b7", 0x0a: "\u23ce", 0x09: "\u21e5", 0x0d: "\u240d", 0xa0: "\u237d" };

const SPACES = Object.fromEntries(
  Object.entries(NAMED).map(([code, glyph]) => [glyph, String.fromCodePoint(Number(code))]),
);

const HANGUL_FILLERS = [0x115f, 0x1160, 0x3164, 0xffa0]; // letters that are drawn as nothing

/** Whether a character has no picture of its own, or would change how its neighbours are drawn. */
function invisible(code) {
  return (
    code < 0x20 ||
    (code >= 0x7f && code <= 0x9f) ||
    code === 0xad ||
    code === 0x61c ||
    HANGUL_FILLERS.includes(code) ||
    (code >= 0x200b && code <= 0x200f) ||
    (code >= 0x2028 && code <= 0x202e) ||
    (code >= 0x2060 && code <= 0x206f) ||
    code === 0xfeff ||
    (code >= 0xd800 && code <= 0xdfff) ||
    (code >= 0xe0000 && code <= 0xe007f)
  );
}

function nameOf(code) {
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** What is said beside something that was made of fewer steps than are shown now; empty where it is of the newest. */
export const asOf = (step, newest) => (step > 0 && step < newest ? t("as of step {step}", { step }) : "");

/**
 * A token's text as parts for display: [{text, kind}], where kind is "text", "space", "break" or "code" (an invisible
 * character, given by its name). At most `limit` characters are given; `rest` says how many were left out.
 */
export function pieces(text, limit = 160) {
  const parts = [];
  let taken = 0;
  let marks = 0;
  const push = (value, kind) => {
    const last = parts.at(-1);
    if (last && last.kind === kind && kind === "text") last.text += value;
    else parts.push({ text: value, kind });
  };
  for (const character of text) {
    if (taken >= limit) break;
    taken += character.length;
    const code = character.codePointAt(0);
    marks = /\p{M}/u.test(character) ? marks + 1 : 0;
    if (marks > 4) continue; // many marks on one letter would be drawn over the lines above and below
    if (NAMED[code]) push(NAMED[code], code === 0x0a ? "break" : "space");
    else if (invisible(code)) push(nameOf(code), "code");
    else push(character, "text");
  }
  return { parts, rest: text.length - taken };
}

/**
 * Longer model text as people can read it: whitespace stays, invisible characters are written by their names, at most
 * four combining marks stay on a letter, and at most `limit` characters are shown.
 */
export function readable(text, limit = 4000) {
  const { parts, rest } = pieces(text, limit);
  const shown = parts.map((part) =>
    part.kind === "text" ? part.text : part.kind === "code" ? `⟨${part.text}⟩` : SPACES[part.text],
  );
  return shown.join("") + (rest > 0 ? t("… (+{rest} characters)", { rest }) : "");
}

const POLICY = /^(.*)@(start|\d+)$/s;

/** Whether all of these policies are of one run: then its name tells nothing. */
export function ofOneRun(policies) {
  const runs = new Set(policies.map((policy) => POLICY.exec(policy)?.[1]));
  return runs.size === 1 && !runs.has(undefined);
}

/**
 * A policy's name in words: "Tiny world@30", the policy of step 30 of that run, as "Tiny world, step 30".
 * @param alone  its run is known: "after 30 steps"
 */
export function policyName(policy, alone = false) {
  const [, name, step] = POLICY.exec(policy) || [];
  if (name === undefined) return readable(policy, 60);
  if (alone)
    return step === "start" ? t("before training") : tn("after {count} step", "after {count} steps", Number(step));
  return readable(
    step === "start" ? t("{name}, at its start", { name }) : t("{name}, step {step}", { name, step }),
    60,
  );
}

/** A token as one line of plain text, for labels read aloud. */
export function spoken(text) {
  const { parts, rest } = pieces(text, 40);
  return parts.map((part) => (part.text === "\u00b7" ? " " : part.text)).join("") + (rest > 0 ? "…" : "");
}
