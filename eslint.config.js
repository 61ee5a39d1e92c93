import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["rlhf_studio/ui/assets/**/*.js"],
    languageOptions: { globals: globals.browser },
    rules: {
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({
          property,
          message: "Texts reach the page through textContent.",
        })),
        ...["_fullLayout", "_fullData", "_context"].map((property) => ({
          property,
          message: "This is private to Plotly.",
        })),
      ],
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      eqeqeq: ["error", "always", { null: "ignore" }],
      "prefer-const": "error",
      "no-var": "error",
      "no-restricted-globals": ["error", { name: "setInterval", message: "Who asks again waits by shared/poll.js." }],
    },
  },
  {
    // the poller itself, and the clock that is shown
    files: ["rlhf_studio/ui/assets/shared/poll.js", "rlhf_studio/ui/assets/live/live.js"],
    rules: { "no-restricted-globals": "off" },
  },
  { files: ["tests/scripts/**/*.js"], languageOptions: { globals: globals.node } },
];
