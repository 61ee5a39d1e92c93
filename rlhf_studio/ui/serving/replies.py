"""What functions reply, on its way out: for whoever watches without the place of the workspace, and compressed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlhf_studio.ui.serving.shared_reply import COMPRESSION_LEVEL, SMALLEST

SERVER_FUNCTIONS = "/component_server"
FUNCTIONS = "/gradio_api/"  # where all functions are asked for
FILES = "/gradio_api/file="  # scripts and styles: they name no place, and a long one is not held for those who read slowly


class Compressed:
    """Middleware that compresses the replies of server functions for those who read gzip: Gradio compresses files only."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain, self._compressing = app, GZipMiddleware(app, minimum_size=SMALLEST, compresslevel=COMPRESSION_LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        compress = scope["type"] == "http" and scope["path"].rstrip("/").endswith(SERVER_FUNCTIONS) and reads_gzip(Headers(scope=scope))
        await (self._compressing if compress else self._plain)(scope, receive, send)


class WithoutPlaces:
    """Takes the workspace's place out of what functions tell people who are no operators: where it lies on this machine is none of their
    business, and sentences of the store, causes of failures and settings name files in it.

    Args:
        root: the workspace. What is left of a file's path begins there.
    """

    def __init__(self, root: Path) -> None:
        self._written = _as_json_writes(str(root))
        place = b"|".join(map(re.escape, sorted(self._written, key=len, reverse=True)))
        # not in the middle of another path, and with the name's end: a folder beside it may begin like it
        self._place = re.compile(rb"(?:(?<![\w.~/-])|(?<=\\[nrt])|(?<=file://))(?:" + place + rb")(?:/|(?![\w~-]|\.\w|\\+u))")

    def told(self, scope: Scope, send: Send) -> Send:
        """How somebody who is no operator is told the answer to this request.

        A stream is told message by message; any other answer is held until it is whole, because its length may change.
        """
        if FUNCTIONS not in scope["path"] or FILES in scope["path"]:
            return send
        held: list[Message] = []
        body = bytearray()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                held.append(message)
                if Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream"):
                    await send(held.pop())
            elif not held:
                await send({**message, "body": self.shortened(message.get("body", b""))})
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    whole, start = self.shortened(bytes(body)), held.pop()
                    kept = [(name, value) for name, value in start["headers"] if name != b"content-length"]
                    await send({**start, "headers": [*kept, (b"content-length", str(len(whole)).encode())]})
                    await send({"type": "http.response.body", "body": whole})

        return tell

    def shortened(self, body: bytes) -> bytes:
        """A body without the place: paths in the workspace begin in it, and itself is a dot."""
        if not any(place in body for place in self._written):
            return body
        return self._place.sub(lambda found: b"" if found[0].endswith(b"/") else b".", body)


def _as_json_writes(text: str) -> set[bytes]:
    """A text as it may stand in a reply: in JSON, or in JSON that stands in JSON as a text, each with and without escapes."""
    found = {text}
    for _ in range(2):
        found |= {json.dumps(one, ensure_ascii=escaped)[1:-1] for one in found for escaped in (True, False)}
    return {one.encode() for one in found}


def reads_gzip(headers: Headers) -> bool:
    """Whether the sender says that it reads gzip: ``gzip;q=0`` says that it does not (RFC 9110, 12.5.3)."""
    for offer in ",".join(headers.getlist("accept-encoding")).split(","):
        name, *parameters = (part.strip().lower() for part in offer.split(";"))
        if name == "gzip":
            weight = next((value for key, _, value in (one.partition("=") for one in parameters) if key.strip() == "q"), "1")
            return not re.fullmatch(r"\s*0(\.0*)?\s*", weight)
    return False
