"""The replay of a run as one HTML file: the player of the pages with its data inside. It needs no network, and not this program.

Its rules allow the one script that is in it, by its hash, and nothing from anywhere else. The data is no script: what a model wrote in it
reaches the page as text alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rlhf_studio import __version__
from rlhf_studio.jobs.export.html import Html, tag
from rlhf_studio.jobs.export.modules import ASSETS, modules_of, one_script
from rlhf_studio.language import ENGLISH, N_, TAGS, _, language, messages, together

PLAYER = "replay/replay.js"
STYLES = ("tokens.css", "theme.css", "shared/page.css", "shared/colours.css", "replay/replay.css")
SCORES = N_(
    "Score is what the model is trained to raise. Gold is a score that it never sees: where the two part, it pleases its judge alone."
)
KL = N_("KL says how far it has moved from where it began.")
BEGIN = """
const payload = JSON.parse(document.getElementById("payload").textContent);
globalThis.rsWords = payload.words;
document.documentElement.dataset.words = document.documentElement.lang.split("-")[0];
"""
START = f"""
const dark = matchMedia("(prefers-color-scheme: dark)");
const turn = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", turn);
turn();
modules[{json.dumps(PLAYER)}].startReplay(document.getElementById("replay"), payload, {{ autoplay: true }});
"""
# What Gradio's theme gives to the pages of the app (rlhf_studio/ui/theme.py), and how this page lies.
STYLE = """
:root {
  --body-text-color: #1a1d24; --body-text-color-subdued: #566070; --border-color-primary: #e3e6eb; --input-border-color: #cbd2db;
  --body-background-fill: #f7f8fa; --block-background-fill: #fff; --input-background-fill: #fff; --background-fill-secondary: #f7f8fa;
}
.dark {
  --body-text-color: #e6e9ef; --body-text-color-subdued: #a3adbb; --border-color-primary: #2a303c; --input-border-color: #3a4352;
  --body-background-fill: #0f1218; --block-background-fill: #171b23; --input-background-fill: #12161d; --background-fill-secondary: #0f1218;
}
body { margin: 0; background: var(--body-background-fill); font-family: ui-sans-serif, system-ui, "Segoe UI", Roboto, Arial, "PingFang SC",
  "Microsoft YaHei", "Noto Sans CJK SC", sans-serif; }
main { display: grid; gap: var(--rs-space-m); max-width: 1100px; margin: 0 auto; padding: var(--rs-space-l) var(--rs-space-m); }
main > h1 { margin: 0; font-size: var(--rs-text-title); }
main > footer { color: var(--rs-quiet); font-size: var(--rs-text-small); }
"""


def replay_page(payload: Mapping[str, Any]) -> str:
    """The whole file as text, from what :func:`~rlhf_studio.analysis.replay.replay_of` gives."""
    script, style = BEGIN + one_script(PLAYER) + START, "".join(map(_asset, STYLES)) + STYLE
    rules = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; form-action 'none'; base-uri 'none'"
    title = _("{title} – replay").format(title=payload["title"])
    meta = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=rules),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
    ]
    page = tag(
        "main",
        tag("h1", payload["title"]),
        tag("div", id="replay"),
        tag("noscript", _("This replay plays in a browser that runs scripts.")),
        tag("footer", _how_to_read(payload["series"]), tag("br"), _("Recorded with RLHF Studio {version}.").format(version=__version__)),
        class_="rs-page",
    )
    data = tag("script", Html(_as_data({**payload, **_words()})), type="application/json", id="payload")
    body = tag("body", page, data, tag("script", Html(script)))
    return (
        "<!doctype html>\n"
        + tag("html", tag("head", meta, tag("title", title), tag("style", Html(style))), body, lang=TAGS[language()])
        + "\n"
    )


def _words() -> dict[str, dict[str, str]]:
    """``words``: what the player says in the language that is spoken now, by its English text; in English nothing."""
    now, own = language(), {f"rlhf_studio/ui/assets/{name}" for name in modules_of(PLAYER)}
    return {} if now == ENGLISH else {"words": {one.key: one.text for one in messages(now) if own.intersection(one.places)}}


def _how_to_read(series: Mapping[str, Any]) -> str:
    return together(_(SCORES) if series["gold"] else "", _(KL) if any(value is not None for value in series["kl"]) else "")


def _as_data(payload: Mapping[str, Any]) -> str:
    """JSON in which nothing can end its element or begin another one."""
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
