"""Links that say who somebody is: ``?operator=...``, ``?rate=...`` and ``?class=...``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rlhf_studio.language import N_, _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.ui.access import CLASS_COOKIE, CLASS_QUERY, COOKIE, QUERY, RATER_COOKIE, RATER_QUERY, Access
from rlhf_studio.ui.html import small_page
from rlhf_studio.ui.visiting import identity
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.ui.visiting.tokens import is_token

RATER_SECONDS = 30 * 24 * 3600  # a class goes on next week with the same link


@dataclass(frozen=True)
class Link:
    """What a parameter of the address becomes.

    Attributes:
        cookie: in which the token is kept.
        age: for how many seconds; None until the browser is closed.
        tab: the page that is shown when the address names none.
        refused: what is said, in one sentence or two, of a token that is not right.
    """

    cookie: str
    age: int | None
    tab: str
    refused: str


LINKS = {
    QUERY: Link(COOKIE, None, "", N_("This operator link is not valid any more. Ask for the current one; without it you can watch.")),
    RATER_QUERY: Link(RATER_COOKIE, RATER_SECONDS, "feedback", N_("This rating link is not valid any more. Ask for the current one.")),
    CLASS_QUERY: Link(CLASS_COOKIE, None, "", N_("This class link is not valid any more. Ask your teacher for the current one.")),
}
OF_TEACHER = N_("This teacher's link is not valid any more. The current one is printed where the app was started.")
WITHOUT = N_("Open RLHF Studio without this link")


class Links:
    """Middleware that turns the token in a link into a cookie and removes it from the address, so that it is not copied along by
    accident. In a read-only app nobody becomes anything."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that carries a token; pass on all others."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True) if scope["type"] == "http" else []
        # "+" stands for a space in an address, and no token has a space
        tokens = {key: value.replace(" ", "+") for key, value in query if key in LINKS}
        if not tokens or scope["method"] != "GET" or self._access.read_only or not self._access.operator_token:
            await self._app(scope, receive, send)
            return
        name = next(key for key in LINKS if key in tokens)
        link = LINKS[name]
        rest = [(key, value) for key, value in query if key not in tokens]
        if not await self._is_right(name, tokens[name]):
            refused = _(OF_TEACHER) if name == QUERY and self._access.mode is Mode.CLASSROOM else _(link.refused)
            response: Any = small_page(refused, [(_(WITHOUT), _address(rest))], 403)
        else:
            if link.tab and not any(key == "tab" for key, _ in rest):
                rest = [("tab", link.tab), *rest]
            response = RedirectResponse(_address(rest), 303)
            secure = scope["scheme"] == "https" or Headers(scope=scope).get("x-forwarded-proto") == "https"
            cookie_options = {"max_age": link.age, "path": self._access.path, "secure": secure}
            response.set_cookie(link.cookie, tokens[name], httponly=True, samesite="strict", **cookie_options)
            if name == CLASS_QUERY:
                response = await self._let_in(Headers(scope=scope), tokens[name], response, cookie_options)
        await response(scope, receive, send)

    async def _let_in(self, headers: Headers, token: str, response: Response, cookie_options: dict[str, Any]) -> Response:
        """Let a student in: a browser without a student's cookie gets one, so that students can be told apart."""
        visitors, key = self._access.visitors, self._access.visitors.key_in(headers)

        def admitted() -> bool:  # the link may have been renewed while this student waited
            return self._access.room.admits(token)

        value = "" if key else visitors.new_value()
        try:
            await asyncio.to_thread(self._access.room.students.come, key or visitors.key_of(value), admitted)
        except StoreError as error:
            return small_page(told(error), [], 503)
        if value:
            age = {"max_age": identity.STUDENTS_COOKIE_SECONDS}
            response.set_cookie(identity.COOKIE, value, httponly=True, samesite="strict", **{**cookie_options, **age})
        return response

    async def _is_right(self, name: str, token: str) -> bool:
        if name == QUERY:
            return is_token(token, self._access.operator_token)
        if name == CLASS_QUERY:
            return self._access.mode is Mode.CLASSROOM and self._access.room.admits(token)
        return await asyncio.to_thread(self._access.raters.admits, token)


def _address(query: list[tuple[str, str]]) -> str:
    """The same page with what follows ``?``, seen from here: a proxy may serve the app below a path."""
    return f"?{urlencode(query)}" if query else "./"
