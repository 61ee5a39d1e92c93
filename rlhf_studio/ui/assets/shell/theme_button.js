// Light, dark, or as the system has it: chosen with one button and remembered on this machine.
import { el } from "../shared/dom.js";
import { lasting } from "../shared/lasting.js";

const ORDER = ["system", "light", "dark"];
const SIGNS = { system: "\u25d0", light: "\u25cb", dark: "\u25cf" };
const NAMES = { system: "as the system", light: "light", dark: "dark" };
const system = matchMedia("(prefers-color-scheme: dark)");

function apply(theme) {
  document.body.classList.toggle("dark", theme === "dark" || (theme === "system" && system.matches));
}

export function themeButton() {
  let theme = lasting.get("theme", "system");
  if (!ORDER.includes(theme)) theme = "system";
  const sign = el("span", { "aria-hidden": "true" });
  const words = el("span", { class: "rs-hidden" });
  const button = el("button", { type: "button", class: "rs-tool rs-theme" }, sign, words);
  const draw = () => {
    sign.textContent = SIGNS[theme];
    words.textContent = button.title = `Theme: ${NAMES[theme]}`;
  };
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    lasting.set("theme", theme);
    apply(theme);
    draw();
  });
  system.addEventListener("change", () => apply(theme));
  // an address may ask for a theme (?__theme=dark, Gradio's own parameter): then it stays until the button is used
  if (!new URLSearchParams(location.search).has("__theme")) apply(theme);
  draw();
  return button;
}
