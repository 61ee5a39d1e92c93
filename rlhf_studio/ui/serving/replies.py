"""Replies of functions on their way out: without the workspace's path for people who are no operators, and compressed."""

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
FILES = "/gradio_api/file="  # scripts and styles: they contain no path, and a long one is not held for slow readers
COMPRESSION_LEVEL = 1  # a quarter of the time of level 9, for almost the same size
SMALLEST = 1000  # bytes; what fits one packet anyway is not compressed
LARGEST_CACHED = 200_000  # bytes of a reply that is kept compressed


class WithoutRoot:
    """Removes the workspace's path from replies to people who are no operators. Sentences of the store, causes of failures and settings
    name files in the workspace; where it lies on this machine concerns operators only.

    Args:
        root: the workspace. The rest of a file's path begins there.
    """

    def __init__(self, root: Path) -> None:
        self._written = _as_json_writes(str(root))
        root_pattern = b"|".join(map(re.escape, sorted(self._written, key=len, reverse=True)))
        # not in the middle of another path, and only the whole name: a folder beside it may begin with the same letters
        self._root = re.compile(rb"(?:(?<![\w.~/-])|(?<=\\[nrt])|(?<=file://))(?:" + root_pattern + rb")(?:/|(?![\w~-]|\.\w|\\+u))")

    def sender(self, scope: Scope, send: Send) -> Send:
        """A ``send`` that removes the path from the answer to this request.

        A stream is changed message by message. Any other answer is held until it is complete, because its length may change.
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
                    shortened, start = self.shortened(bytes(body)), held.pop()
                    other_headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
                    await send({**start, "headers": [*other_headers, (b"content-length", str(len(shortened)).encode())]})
                    await send({"type": "http.response.body", "body": shortened})

        return tell

    def shortened(self, body: bytes) -> bytes:
        """A body without the workspace's path: paths in the workspace begin below it, and the workspace itself is a dot."""
        if not any(written in body for written in self._written):
            return body
        return self._root.sub(lambda match: b"" if match[0].endswith(b"/") else b".", body)


def _as_json_writes(text: str) -> set[bytes]:
    """A text as it may stand in a reply: in JSON, or in JSON that stands in JSON as a text, each with and without escapes."""
    written = {text}
    for _ in range(2):
        written |= {json.dumps(inner, ensure_ascii=escaped)[1:-1] for inner in written for escaped in (True, False)}
    return {inner.encode() for inner in written}


def reply_of(answer: Any, headers_sent: Headers, without_root: WithoutRoot | None) -> Response:
    """A function's answer as a response to the sender of these request headers. With ``without_root``, the workspace's path is removed.

    A long reply is compressed for browsers that read gzip. The same bytes are compressed once, however many people ask for them: everybody
    who follows a run gets the same, see :meth:`rlhf_studio.ui.live.feed.LiveFeed.poll`.
    """
    reply = answer if isinstance(answer, Response) else _as_json(answer)
    body = without_root.shortened(bytes(reply.body)) if without_root is not None else bytes(reply.body)
    headers = {name: value for name, value in reply.headers.items() if name != "content-length"}
    if len(body) >= SMALLEST:
        headers["vary"] = "Accept-Encoding"
        if reads_gzip(headers_sent):
            headers["content-encoding"] = "gzip"
            body = _cached(body) if len(body) <= LARGEST_CACHED else _compressed(body)
    return Response(body, reply.status_code, headers)


def _as_json(answer: Any) -> Response:
    """The answer as JSON. orjson refuses a text with half of a surrogate pair; such a text is written with escapes."""
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
