"""Who a visitor is: a cookie with a random number, so that people may stop what they started. It says nothing about the person.

In a frame on another website, browsers may refuse cookies. Then all people behind one network address count as one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.ui.visiting.modes import Mode

COOKIE = "rlhf_studio_visitor"
VALUE = re.compile(r"[A-Za-z0-9_-]{22}")
_SHOWN = re.compile(rf"(?:^|;)\s*{COOKIE}=[A-Za-z0-9_-]{{22}}\s*(?:;|$)")
COOKIE_SECONDS = 24 * 3600
_SALT = secrets.token_bytes(16)  # addresses of one start of the app cannot be compared with those of another


def new_value() -> str:
    """The value of a new visitor's cookie."""
    return secrets.token_urlsafe(16)


def key_of(value: str) -> str:
    """What is kept of a cookie's value: enough to tell people apart, not enough to be one of them. Empty for what is no such value."""
    return hashlib.sha256(value.encode()).hexdigest()[:24] if VALUE.fullmatch(value) else ""


def address_of(mode: Mode, headers: Mapping[str, str], client: str) -> str:
    """A keyed hash of the sender's network address. Only on a Space is a header believed: there, the proxy in front of the app wrote it."""
    found = forwarded_for(headers) if mode is Mode.SPACE else ""
    return hmac.new(_SALT, _household(found or client).encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:24]


def forwarded_for(headers: Mapping[str, str]) -> str:
    """The address that the outermost proxy of the Space saw; empty where none was told.

    Every proxy adds the address of whoever it hears to the end of ``X-Forwarded-For``, and keeps what stood there before. So the end is
    true, and the beginning is whatever the sender wrote. From the end, addresses of private networks are the Space's own proxies; the first
    public one is the visitor's.
    """
    entries = ",".join(value for name, value in headers.items() if name.lower() == "x-forwarded-for").split(",")
    for entry in reversed(entries):
        try:
            address = ipaddress.ip_address(entry.strip())
        except ValueError:
            return ""  # no proxy writes that: what stands before it is not true either
        if address.is_global:
            return str(address)
    return ""


def _household(address: str) -> str:
    """What is counted as one address: of version 6 the network, because one person has 2^64 addresses of it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def starter_of(mode: Mode, shown: str, request: Any) -> Starter:
    """Who starts something, as the run keeps it. ``shown`` is the value of the cookie, empty where there is none."""
    address = address_of(mode, request.headers, getattr(request.client, "host", None) or "")
    role = "visitor" if mode is Mode.SPACE else "student"
    return Starter(role, key=key_of(shown) or f"address:{address}", address=address)


def is_known(request: Any) -> bool:
    """Whether the sender shows a visitor's cookie: everyone does who has opened the page, and whose browser keeps it."""
    return _SHOWN.search(request.headers.get("cookie", "")) is not None


class NewVisitors:
    """Middleware that gives whoever opens the page without the cookie a new one.

    On a Space the page stands in a frame of another website: there the cookie is one of that website's own (``Partitioned``), which
    browsers allow where they refuse others.
    """

    def __init__(self, app: ASGIApp, mode: Mode, path: str = "/") -> None:
        self._app, self._mode, self._path = app, mode, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on everything; answers to a first visit get the cookie."""
        first = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/" and not _shows_cookie(scope)
        await self._app(scope, receive, self._with_cookie(send) if first else send)

    def _with_cookie(self, send: Send) -> Send:
        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message = {**message, "headers": [*message["headers"], (b"set-cookie", self._cookie().encode("latin-1"))]}
            await send(message)

        return with_cookie

    def _cookie(self) -> str:
        cookie: SimpleCookie = SimpleCookie()
        cookie[COOKIE] = new_value()
        rules: dict[str, Any] = {"httponly": True, "max-age": COOKIE_SECONDS, "path": self._path, "samesite": "Lax"}
        cookie[COOKIE].update(rules)
        if self._mode is not Mode.SPACE:
            return cookie[COOKIE].OutputString()
        in_a_frame: dict[str, Any] = {"samesite": "None", "secure": True}
        cookie[COOKIE].update(in_a_frame)
        return f"{cookie[COOKIE].OutputString()}; Partitioned"


def _shows_cookie(scope: Scope) -> bool:
    """A value that the app did not give is none: whoever has it gets a right one in its place."""
    return any(name == b"cookie" and _SHOWN.search(value.decode("latin-1")) for name, value in scope["headers"])
