"""What the addresses of the login say to people whom they lead nowhere: a small page with links to where one can go on."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from starlette.responses import HTMLResponse

_PAGE = """<!doctype html>
<html lang="en">
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


def login_answer(text: str, links: Sequence[Link], status: int) -> HTMLResponse:
    """A page that says ``text``, with ``links`` below; one without an address is left out."""
    written = "".join(f'<li><a href="{escape(address)}">{escape(words)}</a></li>' for words, address in links if address)
    return HTMLResponse(_PAGE.format(text=escape(text), links=written), status, {"Cache-Control": "no-store"})
