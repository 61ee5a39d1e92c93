"""The Gradio components behind the Train and Runs pages: an empty element that a script of ours fills in.

The rules of :mod:`rlhf_studio.ui.html` hold here too: templates and scripts are constants, no value ever goes into them, and
texts reach the document as text nodes only (``assets/dom.js``).
"""

from __future__ import annotations

import json
from collections.abc import Callable

import gradio as gr

from rlhf_studio.ui.html import ASSETS

STYLES = ["train.css", "rewards.css", "devices.css"]
SCRIPTS = {
    "train.js": [
        "train.js",
        "composer.js",
        "devices.js",
        "dom.js",
        "form.js",
        "format.js",
        "outlook.js",
        "plan.js",
        "preview.js",
        "sections.js",
        "tryit.js",
    ],
    "runs.js": ["runs.js", "dialogs.js", "dom.js", "format.js", "handover.js", "poll.js"],
}
_HEADING = '<h1 class="rt-brand">RLHF Studio</h1>'

_BOOTSTRAP = """
const config = window.gradio_config || {};
const root = location.origin + new URL(config.root || ".", document.baseURI).pathname.replace(/[/]$/, "");
const assets = root + (config.api_prefix || "/gradio_api") + "/file=" + ASSETS + "/";
const host = element.querySelector(".rt-root");
const loadStyle = (name) =>
  new Promise((resolve) => {
    if (document.querySelector(`link[data-studio="${name}"]`)) return resolve();
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: assets + name, onload: resolve, onerror: resolve });
    link.dataset.studio = name;
    document.head.append(link);
  });
(async () => {
  // The server sends no cache rules, so browsers would guess: ask once whether each file is still the same.
  await Promise.all([...FILES, ...STYLES].map((name) => fetch(assets + name, { cache: "no-cache" })));
  await Promise.all(STYLES.map(loadStyle));
  const page = await import(assets + FILES[0]);
  await page.mount({ host, server, trigger, watch, props });
})().catch((error) => {
  console.error(error);
  host.textContent = "This page could not load its scripts. Reload the page; if that does not help, restart the app.";
});
"""


def panel(script: str, name: str, events: list[str], functions: list[Callable]) -> gr.HTML:
    """An element with id ``name``, drawn by ``assets/<script>``, with server functions to ask and events to send.

    The component's value carries the last event's outcome to the page as JSON text; it is never shown.
    """
    constants = {"ASSETS": ASSETS.as_posix(), "FILES": SCRIPTS[script], "STYLES": STYLES, "EVENTS": events}
    return gr.HTML(
        value="",
        html_template='<div class="rt-root"></div>',
        js_on_load="".join(f"const {key} = {json.dumps(value)};\n" for key, value in constants.items()) + _BOOTSTRAP,
        apply_default_css=False,
        elem_id=name,
        server_functions=functions,
    )


def page_css() -> str:
    """Rules that must hold before any script has run: the product's name and the tabs beside it. Plain selectors only."""
    return (ASSETS / "pages.css").read_text(encoding="utf-8")


def heading() -> gr.HTML:
    """The product's name above the tabs."""
    return gr.HTML(_HEADING, js_on_load=None, apply_default_css=False, elem_id="brand")
