// Light, dark, or as the system has it: chosen in the menu and remembered on this machine.
import { lasting } from "../shared/lasting.js";
import { Segments } from "../shared/segments.js";

const THEMES = [
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
  { value: "system", label: "As the system" },
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
  return new Segments({ "aria-label": "Theme" }, THEMES, theme, choose, { radio: true, framed: true }).node;
}
