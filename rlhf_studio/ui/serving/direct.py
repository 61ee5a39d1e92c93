"""Async server functions answered at the door, without the way through Gradio's routes, which costs more than most answers do.

They look at memory and wait for nothing that Gradio gives: no session, no thread of its pool. Polls are of this kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import gradio as gr
from gradio.routes import ORJSONResponse
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from rlhf_studio.ui.sent import as_json
from rlhf_studio.ui.serving.replies import WithoutPlaces, reads_gzip
from rlhf_studio.ui.serving.shared_reply import SharedReply

Direct = Callable[[Any, Any], Awaitable[Any]]


def direct_of(function: Callable[..., Any]) -> Direct | None:
    """A server function as one of what was sent and the request; None for one that needs a thread."""
    if not inspect.iscoroutinefunction(function):
        return None
    takes_request = len(inspect.signature(function).parameters) > 1
    return function if takes_request else lambda data, request: function(data)


async def answer(function: Direct, data: Any, scope: Scope, receive: Receive, send: Send, places: WithoutPlaces | None) -> None:
    """Call it, and send what it gives; ``places``: the place of the workspace is taken out of it."""
    try:
        given = await function(data, Request(scope, receive))
    except gr.Error:  # as Gradio answers it; the page says in its own words that something failed
        given = PlainTextResponse("Internal Server Error", 500)
    if isinstance(given, SharedReply):
        packed = given.told(reads_gzip(Headers(scope=scope)), *([places.shortened] if places else []))
        await packed(scope, receive, send)
    else:
        response = given if isinstance(given, Response) else _as_json(given)
        await response(scope, receive, places.told(scope, send) if places else send)


def _as_json(given: Any) -> Response:
    """As Gradio writes it; where a text holds half of a surrogate pair, which orjson refuses, with escapes."""
    try:
        return ORJSONResponse(given)
    except TypeError:
        return as_json(given)
