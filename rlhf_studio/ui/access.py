"""Who sends a request: its :class:`~rlhf_studio.ui.roles.Role`. Everyone who reaches the page may watch; operators may also start,
stop and delete.

What each role may call is in :mod:`rlhf_studio.ui.roles`, and :mod:`rlhf_studio.ui.door` holds everyone to it before Gradio sees
a request. The methods that change something call :meth:`Access.require_operator` as well, for callers that do not come by HTTP.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

import gradio as gr
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rlhf_studio.ui.hosts import Hosts, host_name, is_loopback
from rlhf_studio.ui.roles import Role
from rlhf_studio.ui.sent import only_watches

COOKIE = "rlhf_studio_operator"
HEADER = "x-rlhf-studio-token"
QUERY = "operator"  # not "token": the Live page keeps the chosen token of a response under that name
TOKEN_VARIABLE = "RLHF_STUDIO_TOKEN"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,200}")
_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True)
class Access:
    """The rules of one running app.

    Attributes:
        read_only: nobody may change anything.
        loopback: the server listens on this machine only; whoever sits at it is an operator.
        token: what makes anyone else an operator, sent as cookie or header; empty admits nobody.
        token_only: a person set the token: whoever sits at the machine shows it too. Several people may work on it, and a proxy
            that adds no header looks like one of them.
        hosts: what the app is called.
    """

    read_only: bool = False
    loopback: bool = True
    token: str = field(default="", repr=False)
    token_only: bool = False
    hosts: Hosts = Hosts()

    def role_of(self, request: Any) -> Role:
        """Who sends this request (Gradio's or Starlette's). A page of another website may not even watch."""
        if request is None or not self._from_our_page(request.headers):
            return Role.ANYONE
        return Role.OPERATOR if self.is_operator(request) else Role.VIEWER

    def is_operator(self, request: Any, data: Any = None) -> bool:
        """Whether the sender of this request (Gradio's or Starlette's) may change things.

        ``data`` is what the page sent with its question. A page that was opened with ``?view=1`` is a viewer's, whoever opened it:
        the request for the page shows that in its address, and later ones in what they send.
        """
        if self.read_only or request is None or not self._from_our_page(request.headers):
            return False
        if only_watches(data) or dict(getattr(request, "query_params", None) or {}).get("view") == "1":
            return False
        shown = request.headers.get(HEADER) or token_in_cookies(request.headers.get("cookie", ""))
        if self.token and hmac.compare_digest(shown.encode("utf-8", "replace"), self.token.encode()):
            return True
        return self.loopback and not self.token_only and _from_this_machine(request)

    def _from_our_page(self, headers: Any) -> bool:
        """False for requests that another website made a browser send. Programs outside a browser send neither header."""
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        origin = headers.get("origin")
        if origin is None:
            return True
        _, _, page = origin.partition("://")
        hosts = {headers.get("host", ""), headers.get("x-forwarded-host", "").split(",")[0].strip(), *self.hosts.told}
        return page.lower() in {host.lower() for host in hosts} - {""}

    def require_operator(self, request: Any, data: Any = None) -> None:
        """Raises :class:`gradio.Error`, which the page shows, when the sender may only watch. Arguments as :meth:`is_operator`."""
        if not self.is_operator(request, data):
            raise gr.Error(self.why_not(), title="You are watching", print_exception=False)

    def why_not(self) -> str:
        """One sentence for a viewer: why, and what would change it."""
        if self.read_only:
            return "This app was started read-only: runs can be watched, not changed."
        return "You can watch runs, not change them. Where the app printed an operator link at its start, that link lets you do both."


def _from_this_machine(request: Any) -> bool:
    """A direct connection under a local name.

    A proxy in between could be forwarding for anyone, and a foreign name may have been made to point here (DNS rebinding).
    """
    if any(header in request.headers for header in _PROXY_HEADERS):
        return False
    host = host_name(request.headers.get("host", ""))
    client = getattr(request.client, "host", None) or ""
    return is_loopback(host) and is_loopback(client)


def token_in_cookies(header: str) -> str:
    """The token in the value of a Cookie header; empty when there is none.

    Python's own reader of cookies takes minutes over some headers, so nothing from outside is passed to it.
    """
    shown = ""
    for cookie in header.split(";"):
        name, _, value = cookie.partition("=")
        if name.strip() == COOKIE:
            shown = value.strip()
    quoted = len(shown) > 1 and shown[0] == shown[-1] == '"'  # a token with "/" or "=" is written in quotes
    return shown[1:-1] if quoted else shown


def with_our_cookie_only(scope: Scope) -> Scope:
    """The request without cookies that are not ours: other programs of this machine set some, and nothing here needs them."""
    cookies = "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    token = token_in_cookies(cookies)
    ours = [(b"cookie", f"{COOKIE}={token}".encode("latin-1"))] if _TOKEN.fullmatch(token) else []
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"cookie"] + ours}


def token_of(environment: Mapping[str, str]) -> str:
    """The token that a person set; empty when there is none. Raises ValueError for one that a cookie cannot carry."""
    token = environment.get(TOKEN_VARIABLE, "")
    if token and not _TOKEN.fullmatch(token):
        raise ValueError(f"{TOKEN_VARIABLE} must be at most 200 letters, digits and characters of -._~+/= without spaces")
    return token


def serves_one_person(host: str, environment: Mapping[str, str]) -> bool:
    """Whether only the person at this machine can start runs, so that runs may use that person's hub token.

    A Space is never such an app, whatever address it listens on: others reach it through a proxy.
    """
    return is_loopback(host) and not environment.get("SPACE_ID") and environment.get("SYSTEM") != "spaces"


class OperatorLink:
    """Middleware that turns ``?operator=...`` into a cookie and removes it from the address, so that it is not copied along by accident."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that carries a token; pass on all others."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True) if scope["type"] == "http" else []
        shown = dict(query).get(QUERY)
        shown = shown if shown is None else shown.replace(" ", "+")  # "+" stands for a space in an address, and no token has a space
        if shown is None or scope["method"] != "GET" or not self._token:
            await self._app(scope, receive, send)
            return
        if not hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode()):
            response: Any = PlainTextResponse("This operator link is not valid. Ask for the current one; without it you can watch.\n", 403)
        else:
            rest = urlencode([(key, value) for key, value in query if key != QUERY])
            response = RedirectResponse(f"?{rest}" if rest else "./", 303)
            secure = scope["scheme"] == "https" or Headers(scope=scope).get("x-forwarded-proto") == "https"
            response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", secure=secure)
        await response(scope, receive, send)
