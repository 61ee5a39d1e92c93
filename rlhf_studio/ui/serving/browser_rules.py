"""What browsers are told of a page: who may frame it, and from where it may load and run anything."""

from __future__ import annotations

import base64
import hashlib
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlhf_studio.ui import html
from rlhf_studio.ui.serving.spoken import in_language

POLICY = "Content-Security-Policy"
# Gradio compiles templates and the scripts of its HTML components while the page runs ('unsafe-eval'), and writes styles into the page, as
# Plotly does. Pictures of charts are data: and blob: addresses.
_RULES = (
    "default-src 'none'",
    "font-src 'self'",
    "img-src 'self' data: blob:",
    "manifest-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'none'",
)
_SCRIPT = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


class BrowserRules:
    """Middleware that gives every answer a content security policy, unless it has one of its own.

    A page is held until it is whole: its policy names the scripts that the server wrote into it, by their hash, so that no other script
    and no ``onclick`` that gets into the page is run (https://www.w3.org/TR/CSP3/#match-element-to-source-list).

    Args:
        hub: the website in whose pages a Space stands: it alone may frame the app, and Gradio's script asks it whether the Space is awake.
            Empty: no website. In a frame of a foreign page, somebody's click on what they do not see could start a run.
    """

    def __init__(self, app: ASGIApp, hub: str = "") -> None:
        self._app, self._hub = app, hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and give the answer its rules."""
        held: list[Message] = []
        body = bytearray()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                if Headers(raw=message["headers"]).get("content-type", "").startswith("text/html"):
                    held.append(message)
                else:
                    await send(self._with_rules(message, b""))
            elif held:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    page = in_language(bytes(body))
                    if b"window.gradio_config" in page:
                        page = page.replace(b"</head>", html.begun_early(scope["query_string"].decode("latin-1")) + b"</head>", 1)
                    await send(self._with_rules(held.pop(), page))
                    await send({"type": "http.response.body", "body": page})
            else:
                await send(message)

        await self._app(scope, receive, tell if scope["type"] == "http" else send)

    def _with_rules(self, start: Message, page: bytes) -> Message:
        headers = MutableHeaders(raw=list(start["headers"]))
        if page and "content-length" in headers:
            headers["content-length"] = str(len(page))
        hashes = "".join(f" 'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in _SCRIPT.findall(page))
        whom = (f"connect-src 'self' {self._hub}".rstrip(), f"frame-ancestors {self._hub}" if self._hub else "frame-ancestors 'none'")
        scripts = f"script-src 'self' 'unsafe-eval'{hashes}"
        headers.setdefault(POLICY, "; ".join([*_RULES, scripts, *whom]))
        if not self._hub:
            headers["X-Frame-Options"] = "DENY"  # for browsers, and checkers, that do not know frame-ancestors
        return {**start, "headers": headers.raw}
