"""The one module that writes HTML, and the one that makes ``gr.HTML`` components.

Three rules, because ``gr.HTML`` runs its templates as code (a ``${...}`` in them is executed, even when it came out of
``{{...}}`` and was escaped):

* templates and ``js_on_load`` are constants of this module; no data is ever put into them;
* text of people, files and models reaches a page only by ``textContent`` in our own JavaScript, or through :func:`text_block`,
  which escapes it and uses the default template, whose value is not evaluated again;
* scripts live in ``assets/`` as plain files; the bootstrap here only imports them.
"""

from __future__ import annotations

import html
import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

ASSETS = Path(__file__).resolve().parent / "assets"

LIVE_EVENTS = ("stop_run", "force_stop_run", "checkpoint_run", "pause_run", "continue_run", "resume_run", "open_train", "open_runs")
LIVE_STYLES = ("live.css", "inspector.css")
LIVE_SCRIPTS = (
    *("live.js", "before.js", "card.js", "charts.js", "dialogs.js", "dom.js", "events.js", "format.js", "header.js", "inspector.js"),
    *("poll.js", "samples.js", "store.js", "strip.js", "tiles.js", "tips.js", "tokens.js", "traces.js", "work.js"),
)
_LIVE_TEMPLATE = '<div class="rs-live-root"><p class="rs-hint">Opening the Live page</p></div>'

_BOOTSTRAP = """
const config = window.gradio_config || {};
const root = location.origin + new URL(config.root || ".", document.baseURI).pathname.replace(/[/]$/, "");
const api = root + (config.api_prefix || "/gradio_api");
const file = (path) => api + "/file=" + path;
const assets = file(ASSETS + "/");
const host = element.querySelector(".rs-live-root");
(async () => {
  // The server sends no cache rules, so browsers would guess: ask once whether each file is still the same.
  await Promise.all(FILES.map((name) => fetch(assets + name, { cache: "no-cache" })));
  const page = await import(assets + ENTRY);
  const stylesheets = STYLES.map((name) => assets + name);
  await page.mount({ host, trigger, props, server, watch, api, events: EVENTS, stylesheets, plotly: file(PLOTLY) });
})().catch((error) => {
  console.error(error);
  host.textContent = "This page could not load its scripts. Reload the page; if that does not help, restart the app.";
});
"""


def escape(text: str) -> str:
    """Text made safe for HTML content and attributes."""
    return html.escape(text, quote=True)


def text_block(text: str, *, css_class: str = "", elem_id: str | None = None) -> gr.HTML:
    """A component that shows plain text, line breaks kept. Safe for any text."""
    return gr.HTML(text_markup(text, css_class), elem_id=elem_id, apply_default_css=False, js_on_load=None)


def text_markup(text: str, css_class: str = "") -> str:
    """The value for :func:`text_block`, for updating it."""
    return f'<div class="rs-text {escape(css_class)}">{escape(text)}</div>'


def plotly_script() -> Path:
    """``plotly.min.js`` of the installed plotly, found without importing it. Raises FileNotFoundError."""
    spec = importlib.util.find_spec("plotly")
    path = Path(next(iter(spec.submodule_search_locations or [])), "package_data", "plotly.min.js") if spec else Path("plotly.min.js")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; reinstall plotly (pip install --force-reinstall plotly)")
    return path


def static_paths() -> list[Path]:
    """What the server must offer as static files: our assets and Plotly's script."""
    return [ASSETS, plotly_script()]


def _constants(**values: Any) -> str:
    # "</" never occurs in an HTML context here, and json is valid JavaScript for strings and lists of strings
    return "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())


def live_component(server_functions: Sequence[Callable[..., Any]], **props: Any) -> gr.HTML:
    """The Live page's component. Its value is ``<run id>@<number>``: the run that Python wants to be shown, see live_page."""
    script = _constants(
        ASSETS=ASSETS.as_posix(),
        FILES=[*LIVE_SCRIPTS, *LIVE_STYLES],
        ENTRY="live.js",
        STYLES=list(LIVE_STYLES),
        PLOTLY=plotly_script().as_posix(),
        EVENTS=list(LIVE_EVENTS),
    )
    return gr.HTML(
        value="",
        html_template=_LIVE_TEMPLATE,
        js_on_load=script + _BOOTSTRAP,
        apply_default_css=False,
        elem_id="live-page",
        server_functions=list(server_functions),
        **props,
    )
