"""Requests with a body, before Gradio gets them: read within limits, checked, and written again with nothing else in them.

Gradio gets exactly what was checked: a member that is given twice, or that we do not know, does not reach it.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive

DEEPEST = 32  # lists and objects inside each other; the form's values need 7
SECONDS = 15.0  # to send a body
REST_SECONDS = 3  # after which a page asks again that was refused because of too much work
LONGEST_WHOLE = 23  # characters of a whole number; JavaScript gives those of 1e21 and more an exponent
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OF_FILES = ("path", "meta")  # an object with one of these members is a file to Gradio


class RequestRefused(Exception):
    """A request that is not answered by the app: HTTP ``status`` and one sentence; with 503, pages rest for some seconds."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail
        self.headers = {"connection": "close"} | ({"retry-after": str(REST_SECONDS)} if status == 503 else {})


async def read_body(headers: Headers, receive: Receive, most: int) -> bytes:
    """The JSON body of a request. Raises :class:`RequestRefused` for another type, more than ``most`` bytes, and a slow sender."""
    if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise RequestRefused(415, "The body must be application/json.")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length[:20]) > most:
        raise RequestRefused(413, f"The body may have {most} bytes at most.")
    try:
        async with asyncio.timeout(SECONDS):
            return await _all_of(receive, most)
    except TimeoutError:
        raise RequestRefused(408, "The body did not arrive in time.") from None


async def _all_of(receive: Receive, most: int) -> bytes:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(400, "The body ended early.")
        body += message.get("body", b"")
        if len(body) > most:
            raise RequestRefused(413, f"The body may have {most} bytes at most.")
        more = message.get("more_body", False)
    return bytes(body)


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body holds. Raises :class:`RequestRefused` for anything else and for one that is nested too deeply."""
    if _depth(body) > DEEPEST:
        raise RequestRefused(400, "The body is nested too deeply.")
    try:
        data = _JSON.decode(body.decode())  # from bytes it would also read UTF-16 and UTF-32, whose brackets _depth does not count
        if rb"\u" in body:
            json.dumps(data, ensure_ascii=False).encode()  # fails for half of a surrogate pair, which could not be sent back
    except (ValueError, RecursionError):
        raise RequestRefused(400, "The body is not JSON.") from None
    except OverflowError as error:
        raise RequestRefused(400, str(error)) from None
    if not isinstance(data, dict):
        raise RequestRefused(400, "The body must be an object.")
    return data


def _finite(digits: str) -> float:
    """A number as JSON writes it. No page sends one that is not finite: their own JSON has none."""
    number = float(digits)
    if not math.isfinite(number):
        raise OverflowError("A number in the body is not finite.")
    return number


def _whole(digits: str) -> int:
    """A whole number; pages write larger ones with an exponent."""
    if len(digits) > LONGEST_WHOLE:
        raise OverflowError(f"A number in the body has more than {LONGEST_WHOLE - 1} digits.")
    return int(digits)


_JSON = json.JSONDecoder(parse_float=_finite, parse_int=_whole, parse_constant=_finite)


def _depth(body: bytes) -> int:
    """The largest number of lists and objects of a JSON text that lie inside each other.

    The escaped quotes are removed, and the text is split at every quote: the pieces are in turn outside and inside of strings, and brackets
    inside of strings do not count. Each step reads the text once, so no text takes long.
    """
    pieces = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
    brackets = b"".join(pieces[::2]).translate(None, _NOT_BRACKETS)
    return max(accumulate(_STEP[bracket] for bracket in brackets), default=0)


def session_of(value: Any) -> str:
    """The name of a page's session. Raises :class:`RequestRefused` for anything that no page sends."""
    if not isinstance(value, str) or not _SESSION.fullmatch(value):
        raise RequestRefused(400, "The session is not valid.")
    return value


def component_call(sent: Mapping[str, Any]) -> dict[str, Any]:
    """A call of a server function, with ``component_id`` and ``fn_name`` of the right types. Raises :class:`RequestRefused`."""
    component, name = sent.get("component_id"), sent.get("fn_name")
    if type(component) is not int or not isinstance(name, str):
        raise RequestRefused(400, "There is no such function.")
    return {"component_id": component, "fn_name": name, "session_hash": session_of(sent.get("session_hash")), "data": sent.get("data")}


def event_call(sent: Mapping[str, Any], inputs: Mapping[int, int]) -> dict[str, Any]:
    """An event of the page. ``inputs`` is how many inputs the handler of each index takes. Raises :class:`RequestRefused`."""
    index, data, trigger = sent.get("fn_index"), sent.get("data"), sent.get("trigger_id")
    if type(index) is not int or index not in inputs:
        raise RequestRefused(404, "There is no such event.")
    if not isinstance(data, list) or len(data) != inputs[index] or not (trigger is None or type(trigger) is int):
        raise RequestRefused(400, "The event is not valid.")
    event = sent.get("event_data")
    if not (event is None or isinstance(event, dict)) or _names_a_file([data, event]):
        raise RequestRefused(400, "The event is not valid.")
    session = session_of(sent.get("session_hash"))
    return {"fn_index": index, "data": data, "trigger_id": trigger, "event_data": event, "session_hash": session}


def named_call(sent: Mapping[str, Any], names: Mapping[str, Any], *, by_name: bool) -> list[Any]:
    """The arguments of a call at a function's own address, in order. Raises :class:`RequestRefused`.

    Args:
        names: the function's arguments by name, each with its default; ``...`` for one that must be given.
        by_name: whether they are the members of the body; else the body's ``data`` is the list of all of them.
    """
    if _names_a_file([sent]):
        raise RequestRefused(400, "No argument is a file.")
    if not by_name:
        data = sent.get("data")
        if not isinstance(data, list) or len(data) > len(names):
            raise RequestRefused(400, f"The body must have data: a list of the arguments {', '.join(names)}.")
        sent = dict(zip(names, data, strict=False))
    if unknown := [name for name in sent if name not in names]:
        raise RequestRefused(400, f"There is no argument {unknown[0][:80]}; there are: {', '.join(names) or 'none'}.")
    if missing := [name for name, default in names.items() if default is ... and name not in sent]:
        raise RequestRefused(400, f"The argument {missing[0]} is missing.")
    return [sent.get(name, default) for name, default in names.items()]


def mcp_message(sent: Mapping[str, Any]) -> dict[str, Any]:
    """A message of MCP. Raises :class:`RequestRefused` for one that gives a tool something that looks like a file.

    Gradio would read a file of this machine for it, and give its content away.
    """
    parameters = sent.get("params")
    if not isinstance(parameters, dict | None) or _names_a_file((parameters or {}).get("arguments")):
        raise RequestRefused(400, "No argument is a file.")
    return dict(sent)


def _names_a_file(value: Any) -> bool:
    """Whether an object in here is one that Gradio would take for a file: no page sends one, and Gradio looks for the file."""
    if isinstance(value, dict):
        return any(member in value for member in _OF_FILES) or any(_names_a_file(item) for item in value.values())
    return isinstance(value, list) and any(_names_a_file(item) for item in value)


def cancel_call(sent: Mapping[str, Any]) -> dict[str, Any]:
    """A page that gives up an event. Raises :class:`RequestRefused`."""
    index = sent.get("fn_index")
    if type(index) is not int:
        raise RequestRefused(400, "There is no such event.")
    return {"fn_index": index, "session_hash": session_of(sent.get("session_hash")), "event_id": session_of(sent.get("event_id"))}


def reset_call(sent: Mapping[str, Any]) -> dict[str, Any]:
    """A page that starts an event anew. Raises :class:`RequestRefused`."""
    return {"event_id": session_of(sent.get("event_id"))}
