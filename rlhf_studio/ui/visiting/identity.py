"""Who a visitor is: a cookie with a random number and this app's signature. With it, people may stop what they started, and nobody can
pretend to be more people than have got a cookie. It says nothing about the person.

Visitors of a Space get the cookie with the page, students with the class link. In a frame on another website, browsers may refuse cookies;
then all people behind one network address count as one person.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.ui.visiting.tokens import token_in_cookies

COOKIE = "rlhf_studio_visitor"
VALUE = re.compile(r"([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{22})")
"""A random number of 128 bits and its signature, both in base64 without padding."""
COOKIE_SECONDS = 24 * 3600
STUDENTS_COOKIE_SECONDS = 30 * 24 * 3600  # a student who comes back for the next lesson is the same student
_SALT = secrets.token_bytes(16)  # addresses of one start of the app cannot be compared with those of another


class Visitors:
    """Gives visitors their cookies, and recognizes the cookies that it has given.

    Args:
        secret: signs the cookies. Another app with the same secret knows them too. Empty: a new secret is made.
    """

    def __init__(self, secret: str = "") -> None:
        self._secret = (secret or secrets.token_urlsafe(32)).encode()

    def new_value(self) -> str:
        """The value of a new visitor's cookie."""
        return self.signed(secrets.token_urlsafe(16))

    def signed(self, number: str) -> str:
        """The value of the cookie with this number: the number and its signature, 128 bits of HMAC-SHA256 (RFC 2104)."""
        return f"{number}.{self._signature(number)}"

    def key_of(self, value: str) -> str:
        """What is stored of a cookie's value: enough to tell people apart, not enough to pretend to be one of them. Empty for a value that
        this app did not give."""
        parts = VALUE.fullmatch(value)
        known = parts is not None and hmac.compare_digest(parts[2], self._signature(parts[1]))
        return key_of(parts[1]) if parts and known else ""

    def key_in(self, headers: Mapping[str, str]) -> str:
        """The same for the cookies that a request shows."""
        return self.key_of(token_in_cookies(headers.get("cookie", ""), COOKIE))

    def _signature(self, number: str) -> str:
        digest = hmac.new(self._secret, f"{COOKIE} {number}".encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest[:16]).decode().rstrip("=")


def key_of(number: str) -> str:
    """What is kept of a cookie's number."""
    return hashlib.sha256(number.encode()).hexdigest()[:24]


def address_of(mode: Mode, headers: Mapping[str, str], client: str) -> str:
    """A keyed hash of the sender's network address. Only on a Space is a header believed: there, the proxy in front of the app wrote it."""
    forwarded = forwarded_for(headers) if mode is Mode.SPACE else ""
    return hmac.new(_SALT, _household(forwarded or client).encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:24]


def forwarded_for(headers: Mapping[str, str]) -> str:
    """The address that the outermost proxy of the Space saw; empty when there is none.

    Every proxy adds the address of its sender to the end of ``X-Forwarded-For``, and keeps what stood there before. So the end is true, and
    the beginning is whatever the visitor wrote. Read from the end: addresses of private networks are the Space's own proxies, and the first
    public address is the visitor's.
    """
    entries = ",".join(value for name, value in headers.items() if name.lower() == "x-forwarded-for").split(",")
    for entry in reversed(entries):
        try:
            address = ipaddress.ip_address(entry.strip())
        except ValueError:
            return ""  # no proxy writes that, so everything before it may be false, too
        if address.is_global:
            return str(address)
    return ""


def _household(address: str) -> str:
    """The part of an address that counts as one person: for version 6 the network, because one person has 2^64 addresses in it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))


def starter_of(mode: Mode, key: str, request: Any) -> Starter:
    """Who starts something, as the run keeps it. ``key`` is what is kept of the cookie, empty where there is none.

    In a class no address is kept: a whole school may be behind one.
    """
    if mode is Mode.CLASSROOM:
        return Starter("student", key=key)
    address = address_of(mode, request.headers, getattr(request.client, "host", None) or "")
    return Starter("visitor", key=key or f"address:{address}", address=address)


class NewVisitors:
    """Middleware that gives whoever opens the page of a Space without the cookie a new one.

    There the page stands in a frame of another website, and the cookie is one of that website's own (``Partitioned``), which browsers
    allow where they refuse others.
    """

    def __init__(self, app: ASGIApp, visitors: Visitors, path: str = "/") -> None:
        self._app, self._visitors, self._path = app, visitors, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on everything; answers to a first visit get the cookie."""
        visits = scope["type"] == "http" and scope["method"] == "GET" and scope["path"] == "/"
        first = visits and not self._visitors.key_in(Headers(scope=scope))
        await self._app(scope, receive, self._with_cookie(send) if first else send)

    def _with_cookie(self, send: Send) -> Send:
        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message = {**message, "headers": [*message["headers"], (b"set-cookie", self._cookie().encode("latin-1"))]}
            await send(message)

        return with_cookie

    def _cookie(self) -> str:
        cookie: SimpleCookie = SimpleCookie()
        cookie[COOKIE] = self._visitors.new_value()
        in_a_frame = {"samesite": "None", "secure": True}
        rules: dict[str, Any] = {"httponly": True, "max-age": COOKIE_SECONDS, "path": self._path, **in_a_frame}
        cookie[COOKIE].update(rules)
        return f"{cookie[COOKIE].OutputString()}; Partitioned"
