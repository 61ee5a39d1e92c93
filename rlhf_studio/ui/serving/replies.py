"""What functions reply, on its way out: for whoever watches without the place of the workspace, and compressed."""

from __future__ import annotations

import gzip
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from rlhf_studio.ui.sent import as_json

FUNCTIONS = "/gradio_api/"  # where all functions are asked for
FILES = "/gradio_api/file="  # scripts and styles: they name no place, and a long one is not held for those who read slowly
COMPRESSION_LEVEL = 1  # a quarter of the time of level 9, for almost the same size
SMALLEST = 1000  # bytes; what fits one packet anyway is not compressed
LARGEST_CACHED = 200_000  # bytes of a reply that is kept compressed


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
        return self._place.sub(lambda match: b"" if match[0].endswith(b"/") else b".", body)


def _as_json_writes(text: str) -> set[bytes]:
    """A text as it may stand in a reply: in JSON, or in JSON that stands in JSON as a text, each with and without escapes."""
    written = {text}
    for _ in range(2):
        written |= {json.dumps(inner, ensure_ascii=escaped)[1:-1] for inner in written for escaped in (True, False)}
    return {inner.encode() for inner in written}


def reply_of(answer: Any, asked: Headers, places: WithoutPlaces | None) -> Response:
    """What a function gave, as it is sent to whoever asked with these headers; with ``places`` without the place of the workspace.

    A long reply is compressed for those who read gzip. The same bytes are compressed once, however many ask for them: all who follow a run
    get the same, see :meth:`rlhf_studio.ui.live.feed.LiveFeed.poll`.
    """
    reply = answer if isinstance(answer, Response) else _as_json(answer)
    body = places.shortened(bytes(reply.body)) if places is not None else bytes(reply.body)
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    if len(body) >= SMALLEST:
        headers["vary"] = "Accept-Encoding"
        if reads_gzip(asked):
            headers["content-encoding"] = "gzip"
            body = _cached(body) if len(body) <= LARGEST_CACHED else _compressed(body)
    return Response(body, reply.status_code, headers)


def _as_json(answer: Any) -> Response:
    """Where a text holds half of a surrogate pair, which orjson refuses, with escapes."""
    try:
        return Response(orjson.dumps(answer), media_type="application/json")
    except TypeError:
        return as_json(answer)


def _compressed(body: bytes) -> bytes:
    return gzip.compress(body, COMPRESSION_LEVEL, mtime=0)


_cached = lru_cache(maxsize=64)(_compressed)


def reads_gzip(headers: Headers) -> bool:
    """Whether the sender says that it reads gzip: ``gzip;q=0`` says that it does not (RFC 9110, 12.5.3)."""
    for offer in ",".join(headers.getlist("accept-encoding")).split(","):
        name, *parameters = (part.strip().lower() for part in offer.split(";"))
        if name == "gzip":
            weight = next((value for key, _, value in (part.partition("=") for part in parameters) if key.strip() == "q"), "1")
            return not re.fullmatch(r"\s*0(\.0*)?\s*", weight)
    return False
