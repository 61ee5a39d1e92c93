// Light, dark, or as the system has it: chosen in the menu and remembered on this machine.
import { lasting } from "../shared/lasting.js";
import { Segments } from "../shared/segments.js";
import { t } from "../shared/language.js";

const THEMES = [
  { value: "light", label: t("Light") },
  { value: "dark", label: t("Dark") },
  { value: "system", label: t("As the system") },
];
const system = matchMedia("(prefers-color-scheme: dark)");

function apply(theme) {
  document.body.classList.toggle("dark", theme === "dark" || (theme === "system" && system.matches));
}

/** The three choices; the one that was made before is in force at once. */
export function themeChoice() {
  let theme = lasting.get("theme", "system");
  if (!THEMES.some(({ value }) => value === theme)) theme = "system";
  const choose = (value) => {
    theme = value;
    lasting.set("theme", theme);
    apply(theme);
  };
  system.addEventListener("change", () => apply(theme));
  // an address may ask for a theme (?__theme=dark, Gradio's own parameter): then it stays until another is chosen
  if (!new URLSearchParams(location.search).has("__theme")) apply(theme);
  return new Segments({ "aria-label": t("Theme") }, THEMES, theme, choose, { radio: true, framed: true }).node;
}
