// Settings handed over: loaded from a YAML file, asked for by a link, or sent by another page.
import { el, fill, memory, pushButton } from "../shared/dom.js";
import { colon, listing, t } from "../shared/language.js";
import { isOnScreen } from "../shared/visit.js";
import { askedFor, kindsOf, NO_FORM } from "./state.js";

const LARGEST = 64e3; // bytes; also in train_page.py

/** What is wrong with a chosen file before it is read; empty for nothing. */
export const tooLarge = (file) =>
  file.size > LARGEST
    ? t("{name} is larger than 64 kB; a settings file has a few kilobytes.", { name: file.name })
    : "";

/** Problems as one text. */
export const inOne = (problems) =>
  problems.map(({ field, message }) => (field ? colon(field, message) : message)).join(t("; "));

/** The two buttons; `onload` gets the file that was chosen. */
export function fileButtons({ operator, onload, onsave }) {
  const chosen = () => {
    const [file] = input.files;
    input.value = "";
    if (file) onload(file);
  };
  const input = el("input", { type: "file", accept: ".yaml,.yml", hidden: true, onchange: chosen });
  const button = (label, act) => pushButton("rs-quiet", label, act);
  const node = el("span", { class: "rs-files rs-wrap" });
  return fill(
    node,
    operator && button(t("Load settings"), () => input.click()),
    button(t("Save settings"), onsave),
    input,
  );
}

/** The form as a link, or another page, asks for it: a recipe with some values of its settings. */
export function takeRecipe(page) {
  const asked = askedFor();
  if (!asked) return;
  const { state } = page;
  if (!state.has(asked.recipe)) return void page.say(t("The link names a recipe that there is not."), true);
  const { values, unknown } = state.withTexts(asked.recipe, asked.texts, kindsOf(page.boot));
  page.choose(asked.recipe, values);
  for (const [name] of asked.texts) page.sections.openAt(name);
  const { title } = state.own.get(asked.recipe) || state.recipe;
  const left = unknown.length ? t(" There is no such setting: {join}.", { join: listing(unknown) }) : "";
  page.say(
    t("Filled in for you: {title}. Look it over, then press Start run.{left}", { title, left }),
    unknown.length > 0,
  );
}

/** Settings of another run, handed over by another page. */
export function take(page, { basis, values, name, cause, origin, stage = "ppo" }) {
  const own = page.boot.recipes.filter((recipe) => recipe.stage === stage);
  if (!own.length)
    return void page.say(t("The settings of {name} cannot be shown here. {no_form}", { name, no_form: NO_FORM }), true);
  page.choose((own.find((recipe) => recipe.name === basis) || own[0]).name, values, origin);
  page.say(whose(name, cause));
  showWanted(page);
}

/** Say whose settings were handed over, lead to the one that is to be looked at, and say there why. */
export function showWanted(page) {
  const wanted = memory.get("train.wanted", null);
  if (!wanted || !isOnScreen(page.root)) return;
  memory.set("train.wanted", null);
  if (!wanted.name) return void seek(page, wanted.field);
  page.say(whose(wanted.name, wanted.cause));
  if (page.sections.mark(wanted.field, wanted.cause)) page.sections.reveal(wanted.field);
  else if (wanted.cause)
    page.say(t("These are the settings of {name}, which failed: {cause}", { name: wanted.name, cause: wanted.cause }));
}

/** Show a setting that somebody searched for; in place of one that has no use now, the one that gives it a use. */
function seek(page, name) {
  const { sections } = page;
  const field = sections.find(name);
  if (field && !sections.used(field.spec)) {
    page.say(t("{name} has no use yet; this setting gives it one.", { name: sections.title(name) }));
    return seek(page, field.spec.used_when.name);
  }
  sections.unmark();
  sections.marked = field; // so it stays in sight while the form shows the basic settings alone
  sections.refresh();
  return page.reveal(name);
}

const whose = (name, cause) =>
  t("These are the settings of {name}{cause}.", { name, cause: cause ? t(", which failed") : "" });
