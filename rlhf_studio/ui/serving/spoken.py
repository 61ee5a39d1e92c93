"""The language of an answer: that of the page's address (``?lang=zh``), else what was chosen in the menu, else what the browser likes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rlhf_studio.language import ENGLISH, LANGUAGES, N_, TAGS, _, language, messages, preferred, speaking
from rlhf_studio.ui import html, roles

COOKIE = "rlhf_studio_language"  # also in assets/shell/language.js
SPOKEN = "rlhf_studio.spoken"  # the key under which a request keeps its language: the door lets no cookie through but our tokens
TABS = (N_("Learn"), N_("Train"), N_("Live"), N_("Runs"), N_("Talk"), N_("Feedback"), N_("Evaluate"), N_("Road"))
"""The names of the tabs."""
_HTML = re.compile(rb'<html\s+lang="en"')


def asked_in(headers: Mapping[str, str], query: str = "") -> str:
    """The language of a request. Questions of a page name it as the one that they come from (Referer)."""
    for address in (query, urlsplit(headers.get("referer", "")).query):
        if "lang=" in address and (named := parse_qs(address, max_num_fields=50).get("lang", [""])[0]) in LANGUAGES:
            return named
    chosen = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
    return chosen if chosen in LANGUAGES else preferred(headers.get("accept-language", ""))


class Spoken:
    """Middleware: whatever answers a request speaks its language."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            name = asked_in(Headers(scope=scope), scope["query_string"].decode("latin-1"))
        except ValueError:  # an address that is none
            name = ENGLISH
        scope[SPOKEN] = name
        with speaking(name):
            await self._app(scope, receive, send)


def in_language(page: bytes) -> bytes:
    """Gradio's page in the language that is spoken now: what it says of itself, and the names of the tabs; English stays as it is."""
    now = language()
    if now == ENGLISH:
        return page
    page = _HTML.sub(f'<html lang="{TAGS[now]}" data-words="{now}.json?{_script_words(now)[1]}"'.encode(), page, count=1)
    for name in TABS:
        page = page.replace(f'"label":"{name}"'.encode(), f'"label":{json.dumps(_(name))}'.encode())
    for sentence in html.LATE:
        page = page.replace(sentence.encode(), json.dumps(_(sentence))[1:-1].encode())
    return page


@cache
def _script_words(name: str) -> tuple[bytes, str]:
    """The sentences of the scripts as JSON, and their version."""
    words = {message.key: message.text for message in messages(name) if any(place.endswith(".js") for place in message.places)}
    body = json.dumps(words, ensure_ascii=False, separators=(",", ":")).encode()
    return body, hashlib.sha256(body).hexdigest()[:12]


def words_route() -> Route:
    """The address of the sentences that scripts say in another language; kept for good, as its version is a part of it."""

    async def words(request: Request) -> Response:
        name = request.path_params["language"]
        if name not in LANGUAGES or name == ENGLISH:
            return Response(status_code=404)
        body, version = _script_words(name)
        kept = "public, max-age=31536000, immutable" if request.url.query == version else "no-cache"
        return Response(body, media_type="application/json", headers={"Cache-Control": kept})

    return Route(roles.WORDS_ROUTE, words, methods=["GET"])
