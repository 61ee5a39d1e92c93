"""The one module that writes HTML, and the one that makes ``gr.HTML`` components.

Three rules, because ``gr.HTML`` runs its templates as code (a ``${...}`` in them is executed, even when it came out of
``{{...}}`` and was escaped):

* templates and ``js_on_load`` are constants of this module; no data is ever put into them;
* text of people, files and models reaches a page only by ``textContent`` in our own JavaScript;
* scripts live in ``assets/`` as plain files, in a folder for each page and one that they share; :data:`_BOOTSTRAP` only
  imports them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import gradio as gr
from starlette.responses import HTMLResponse

from rlhf_studio.language import N_, TAGS, language

ASSETS = Path(__file__).resolve().parent / "assets"

# The stylesheets of each page, in the order in which their rules follow each other.
_SHARED_STYLES = ("shared/page.css", "shared/segments.css", "shared/answers.css")
TOKEN_STYLES = ("shared/colours.css", "shared/inspector.css", "shared/card.css")  # of pages that show tokens
STYLES = {
    "train": (
        *_SHARED_STYLES,
        "shared/colours.css",
        *("train/train.css", "train/form.css", "train/rewards.css", "train/devices.css", "train/trial.css", "train/picker/picker.css"),
        "replay/replay.css",
    ),
    "live": (
        *_SHARED_STYLES,
        *TOKEN_STYLES,
        *("live/live.css", "live/header.css", "live/story.css", "live/charts.css", "live/samples.css", "live/measures.css"),
        *("live/ending.css", "live/diary.css"),
        "export/take_home.css",
        "replay/replay.css",
    ),
    "runs": (*_SHARED_STYLES, *TOKEN_STYLES, "runs/runs.css", "runs/forms.css", "runs/compare.css", "export/take_home.css"),
    "talk": (
        *(*_SHARED_STYLES, *TOKEN_STYLES, "talk/talk.css", "talk/exchange.css", "playground/playground.css"),
        *("pictures/shares.css", "replay/replay.css"),
    ),
    "feedback": (*_SHARED_STYLES, "pictures/shares.css", "feedback/feedback.css", "feedback/rate.css"),
    "road": (*_SHARED_STYLES, "pictures/shares.css", "road/road.css"),
    "evaluate": (*_SHARED_STYLES, "shared/colours.css", "pictures/shares.css", "evaluate/evaluate.css"),
    "learn": (
        *_SHARED_STYLES,
        "shared/colours.css",
        "learn/learn.css",
        "learn/lesson/reading.css",
        "learn/search.css",
        "learn/tour.css",
        "learn/teaching/teaching.css",
        "learn/lesson/slides.css",
        "learn/breaking.css",
        "gallery/gallery.css",
        "help/help.css",
        "pictures/view.css",
    ),
    "shell": (*_SHARED_STYLES, "shared/colours.css", "shell/shell.css", "classroom/classroom.css", "rounds/card.css"),
}
_TEMPLATES = {
    "train": '<div class="rs-page rs-train"></div>',
    "live": '<div class="rs-page rs-live"></div>',
    "runs": '<div class="rs-page rs-runs"></div>',
    "shell": '<div class="rs-page rs-shell"><h1 class="rs-brand">RLHF Studio</h1></div>',
    "talk": '<div class="rs-page rs-talk"></div>',
    "road": '<div class="rs-page rs-road"></div>',
    "feedback": '<div class="rs-page rs-feedback"></div>',
    "evaluate": '<div class="rs-page rs-evaluate"></div>',
    "learn": '<div class="rs-page rs-learn"></div>',
}

_SMALL_PAGE = """<!doctype html>
<html lang="{lang}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>RLHF Studio</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto 0; padding: 0 1.5rem }}
li {{ margin: 0.5rem 0 }}
</style>
<main>
<h1>RLHF Studio</h1>
<p>{text}</p>
<ul>{links}</ul>
</main>
</html>
"""
Link = tuple[str, str]
"""Words, and the address that they lead to."""

LATE = (
    N_("This page takes long to open. The app is asked again; a reload may help."),
    N_("Reload the page"),
    N_("This page could not load its scripts. Reload it; if that does not help, restart the app."),
)
"""What :data:`_BOOTSTRAP` says, which is translated with the page (:func:`.serving.spoken.in_language`)."""

_IMPORTED = re.compile(r'^(?:import|\}) .*from "(\.[^"]+)";$', re.MULTILINE)

_BOOTSTRAP = """
const config = window.gradio_config || {};
const root = location.origin + new URL(config.root || ".", document.baseURI).pathname.replace(/[/]$/, "");
const api = root + (config.api_prefix || "/gradio_api");
const file = (path) => api + "/file=" + path;
const asset = (name) => file(ASSETS + "/" + name);
const host = element.querySelector(".rs-page");
const [FIRST_PAUSE, LAST_PAUSE, STYLES_LATE, LATE] = [500, 4000, 12000, 15000]; // milliseconds
const rest = (wait) => new Promise((resolve) => setTimeout(resolve, wait));
// what was lost on its way is asked for again, after a growing pause
const again = (load, pause = FIRST_PAUSE) =>
  load().catch((error) => {
    if (pause > LAST_PAUSE) throw error;
    return rest(pause).then(() => again(load, 2 * pause));
  });
const loadStyle = (name) =>
  new Promise((resolve, reject) => {
    if (document.querySelector(`link[data-studio="${name}"]`)) return resolve();
    const link = document.createElement("link");
    const lost = () => (link.remove(), reject(new Error(`${name} was not loaded`)));
    Object.assign(link, { rel: "stylesheet", href: asset(name), onload: resolve, onerror: lost });
    link.dataset.studio = name;
    document.head.append(link);
  });
// a page without some of its rules can be read, so it does not wait for them for ever
const loadStyles = () => Promise.race([Promise.allSettled(STYLES.map((name) => again(() => loadStyle(name)))), rest(STYLES_LATE)]);
const notice = document.createElement("p");
const sayLate = () => host.clientWidth && offerReload("This page takes long to open. The app is asked again; a reload may help. ");
const offerReload = (text) => {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "rs-button", textContent: "Reload the page", onclick: () => location.reload() });
  notice.className = "rs-opening";
  notice.setAttribute("role", "status");
  notice.replaceChildren(text, button);
  host.after(notice);
};
// all scripts at once, not one import after the other; what several pages share is loaded once
const preload = (name) => {
  if (document.querySelector(`link[data-script="${name}"]`)) return;
  const link = document.createElement("link");
  Object.assign(link, { rel: "modulepreload", href: asset(name) });
  link.dataset.script = name;
  document.head.append(link);
};
// a page is loaded when its tab is first shown: who comes to watch a run does not fetch the form for a new one. Gradio shows the first tab
// before the address is followed, so the address is asked first.
const shown = new Promise((resolve) => {
  const look = () => host.clientWidth && (sizes.disconnect(), resolve());
  const sizes = new ResizeObserver(look);
  sizes.observe(host);
});
const open = async () => {
  let late = setTimeout(sayLate, LATE);
  try {
    const { address } = await again(() => import(asset("shared/address.js")));
    await address.turn(PAGE);
    SCRIPTS.forEach(preload);
    if (PAGE === "shell") document.querySelector("meta[name=rs-scripts]")?.content.split(" ").forEach(preload);
    await shown;
    const { words } = document.documentElement.dataset;
    const learned = () => import(asset("shared/language.js")).then(({ learn }) => learn(root + "/words/" + words));
    if (words) await again(learned).catch(console.error);
    clearTimeout(late);
    late = setTimeout(sayLate, LATE);
    const scripts = [asset(ENTRY), asset("shared/visit.js")].map((name) => again(() => import(name)));
    const [page, { functionsOf }] = await Promise.all([...scripts, loadStyles()]);
    const own = config.components.find((component) => component.props.elem_id === PAGE + "-page");
    const server = functionsOf(api + "/component_server/", own);
    await page.mount({ host, server, trigger, watch, props, api, plotly: file(PLOTLY) });
  } finally {
    clearTimeout(late);
    notice.remove();
  }
};
open().catch((error) => {
  console.error(error);
  host.textContent = error.refused || "This page could not load its scripts. Reload it; if that does not help, restart the app.";
  offerReload("");
});
"""


def heading(functions: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
    """The line above the tabs: the product's name, the theme, the sheet of shortcuts. Its script gives every tab an address."""
    return panel("shell", [], functions)


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


class AssetsAtStart(NamedTuple):
    """The scripts and styles as they were when the app started.

    Attributes:
        version: a short hash of all of them, which is part of their addresses.
        states: when each file was changed, and its size: see :func:`state_of`.
    """

    version: str
    states: Mapping[str, tuple[int, int]]


@cache
def assets_at_start() -> AssetsAtStart:
    """Read once, when the first page is built."""
    digest, states = hashlib.sha256(), {}
    for path in sorted(path for path in ASSETS.rglob("*") if path.is_file()):
        digest.update(path.relative_to(ASSETS).as_posix().encode() + b"\0" + path.read_bytes())
        states[path.as_posix()] = state_of(path)
    return AssetsAtStart(digest.hexdigest()[:12], states)


def state_of(path: Path) -> tuple[int, int]:
    """When a file was changed (nanoseconds), and its size in bytes. Raises OSError."""
    now = path.stat()
    return now.st_mtime_ns, now.st_size


def small_page(text: str, links: Sequence[Link], status: int) -> HTMLResponse:
    """What people see whom an address leads nowhere: a page that says ``text``, with ``links`` to where they can go on; one without an
    address is left out. Of what is given, nothing is markup."""
    written = "".join(f'<li><a href="{escape(address)}">{escape(words)}</a></li>' for words, address in links if address)
    return HTMLResponse(_SMALL_PAGE.format(lang=TAGS[language()], text=escape(text), links=written), status, {"Cache-Control": "no-store"})


@cache
def scripts(page: str) -> tuple[str, ...]:
    """The scripts of a page, relative to :data:`ASSETS`: its entry, and all that it imports."""
    return scripts_from(f"{page}/{page}.js")


_LEADING = {"talk": "talk", "lesson": "learn", "place": "learn", "run": "live", "replay": "live"}
"""Parameters that lead to a page where no tab is named, as in ``assets/shared/address.js``."""


def begun_early(query: str) -> bytes:
    """For the head of Gradio's page: the scripts of the page that the address leads to. The line above the tabs asks for them behind its
    own; else they would be asked for only when that line has chosen a tab and Gradio has drawn it."""
    try:
        asked = parse_qs(query, max_num_fields=50)
    except ValueError:  # an address that leads nowhere
        return b""
    named = asked.get("tab", [""])[0]
    led = named if named in STYLES else next((page for key, page in _LEADING.items() if key in asked), "")
    return f'<meta name="rs-scripts" content="{" ".join(scripts(led))}">'.encode() if led else b""


def scripts_from(entry: str) -> tuple[str, ...]:
    """A script, and all that it imports, relative to :data:`ASSETS`."""
    paths, waiting = set(), [ASSETS / entry]
    while waiting:
        path = waiting.pop()
        paths.add(path)
        imported = {(path.parent / name).resolve() for name in _IMPORTED.findall(path.read_text(encoding="utf-8"))}
        waiting += imported - paths
    return tuple(sorted(path.relative_to(ASSETS).as_posix() for path in paths))


def panel(page: str, events: Sequence[str], functions: Sequence[Callable[..., Any]]) -> gr.HTML:
    """The component of a page: an element with the id ``<page>-page`` that ``assets/<page>/<page>.js`` fills in.

    Args:
        page: a folder of ``assets/``: ``train``, ``live`` ...
        events: what the script may trigger; each becomes a listener of the component.
        functions: what the script may ask the server, by the functions' names: each is given what the script sends, and the request.

    The component's value is never shown: it carries news from Python to the script, which watches it.
    """
    constants = {
        "ASSETS": f"{ASSETS.as_posix()}@{assets_at_start().version}",
        "PAGE": page,
        "ENTRY": f"{page}/{page}.js",
        "SCRIPTS": scripts(page),
        "STYLES": STYLES[page],
        "PLOTLY": plotly_script().as_posix(),
        "EVENTS": events,  # Gradio looks for the quoted names in this code
    }
    # JSON of strings and lists of strings is valid JavaScript; this code is never part of an HTML page, where "</" would matter
    script = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in constants.items())
    return gr.HTML(
        value="",
        html_template=_TEMPLATES[page],
        js_on_load=script + _BOOTSTRAP,
        apply_default_css=False,
        elem_id=f"{page}-page",
        server_functions=[_as_function(ask) for ask in functions],
    )


def _as_function(ask: Callable[..., Any]) -> Callable[..., Any]:
    """A method as a function of the same name: Gradio marks the functions that a page may call, which methods do not allow."""
    if not inspect.ismethod(ask):
        return ask
    if inspect.iscoroutinefunction(ask):

        @wraps(ask)
        async def wait(data: Any, request: gr.Request) -> Any:
            return await ask(data, request)

        return wait

    @wraps(ask)
    def call(data: Any, request: gr.Request) -> Any:
        return ask(data, request)

    return call
