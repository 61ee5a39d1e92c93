"""A sheet of questions as one HTML file that needs no network: the page's own scripts and styles, and the sheet as data."""

from __future__ import annotations

import base64
import html as escaping
import json
import re
from typing import Any

from rlhf_studio.language import ENGLISH, TAGS, _, language, messages
from rlhf_studio.ui.html import ASSETS, STYLES, scripts_from

ENTRY = "learn/teaching/sheet.js"
_IMPORT = re.compile(r'^((?:import|\}) .*from )"(\.[^"]+)";$', re.MULTILINE)
# What Gradio's theme would give; a sheet is black on white.
_THEME = """
:root { color-scheme: light; --body-text-color: #111; --body-text-color-subdued: #444; --border-color-primary: #bbb;
  --block-background-fill: #fff; --body-background-fill: #fff; --background-fill-secondary: #f3f3f3; --input-background-fill: #fff;
  --input-border-color: #888; --rs-accent: #333; --rs-on-accent: #fff; --rs-state-running: #0f766e; --rs-state-failed: #b42318; }
body { margin: 0 auto; padding: 24px; max-width: 820px; font-family: system-ui, sans-serif; }
"""
_FILE = """<!doctype html>
<html lang="%(lang)s">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'">
<title>%(title)s</title>
<style>%(style)s</style>
<script>globalThis.rsWords = %(words)s;</script>
<script type="importmap">%(scripts)s</script>
<script type="application/json" id="sheet">%(sheet)s</script>
</head>
<body>
<main class="rs-page rs-learn"><noscript>%(noscript)s</noscript></main>
<script type="module">
import { sheetNode } from "%(entry)s";
document.querySelector("main").replaceChildren(sheetNode(JSON.parse(document.getElementById("sheet").textContent)));
</script>
</body>
</html>
"""


def page_of(sheet: dict[str, Any]) -> str:
    """The file of a sheet, as :func:`rlhf_studio.lessons.teaching.sheets.sheet` makes it. Equal sheets give equal files."""
    style = "\n".join([*((ASSETS / name).read_text(encoding="utf-8") for name in ("tokens.css", *STYLES["learn"])), _THEME])
    kind, scripts = _("Answers") if sheet["with_answers"] else _("Exercises"), scripts_from(ENTRY)
    own = {f"rlhf_studio/ui/assets/{name}" for name in scripts}
    parts = {
        "lang": TAGS[language()],
        "words": _in_script({} if language() == ENGLISH else {one.key: one.text for one in messages(language()) if own & {*one.places}}),
        "noscript": escaping.escape(_("This sheet is drawn by a script inside this file. Please switch scripts on.")),
        "title": escaping.escape(f"{kind} {sheet['seed']}: {', '.join(sheet['lessons'])}"),
        "style": style,
        "scripts": _in_script({"imports": {name: _as_address(name) for name in scripts}}),
        "sheet": _in_script(sheet),
        "entry": ENTRY,
    }
    return _FILE % parts


def _as_address(name: str) -> str:
    """A script as a data address. What it imports is named from :data:`ASSETS` on, as the import map has it."""
    path = ASSETS / name

    def from_assets(match: re.Match[str]) -> str:
        return f'{match[1]}"{(path.parent / match[2]).resolve().relative_to(ASSETS).as_posix()}";'

    source = _IMPORT.sub(from_assets, path.read_text(encoding="utf-8"))
    return "data:text/javascript;base64," + base64.b64encode(source.encode()).decode()


def _in_script(data: Any) -> str:
    """JSON that no part of can end the element that it stands in."""
    return json.dumps(data, sort_keys=True).replace("<", "\\u003c")
