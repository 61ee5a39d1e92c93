"""Who owns a Space: whoever has logged in at Hugging Face under the name of an owner.

The login is Gradio's (``gradio.oauth``, with the packages of ``gradio[oauth]``). What it learns of a person stands in a signed cookie of
that person's browser.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from rlhf_studio.language import N_, _
from rlhf_studio.ui.hosted.space import own_address
from rlhf_studio.ui.html import small_page

logger = logging.getLogger(__name__)

OWNERS_VARIABLE = "RLHF_STUDIO_OWNERS"
LOGIN, CALLBACK, LOGOUT = "/login/huggingface", "/login/callback", "/logout"
_NEEDED = ("OPENID_PROVIDER_URL", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES", "SPACE_HOST")
REFUSED = N_("The login has expired, was used before, or was given up. Log in again.")
FAILED = N_("Hugging Face did not answer as expected, so nobody was logged in. Try again in a moment.")


@dataclass(frozen=True)
class Login:
    """Where people log in.

    Attributes:
        address: the app's own, such as ``https://someone-studio.hf.space``: there browsers keep the cookie, which they may refuse for a
            page in a frame.
        owners: names of the people who own the app, in lower case.
    """

    address: str
    owners: frozenset[str]


def login_of(environment: Mapping[str, str]) -> Login | None:
    """The login of a Space with ``hf_oauth: true``; None elsewhere."""
    if environment.get("SYSTEM") != "spaces" or not all(environment.get(name, "").strip() for name in _NEEDED):
        return None
    names = [environment.get("SPACE_AUTHOR_NAME", ""), *environment.get(OWNERS_VARIABLE, "").split(",")]
    return Login(own_address(environment).rstrip("/"), frozenset(name.strip().lower() for name in names if name.strip()))


def person_in(session: Mapping[str, Any]) -> str:
    """The name of whoever has logged in with this session; empty for nobody, and when the login has expired."""
    login = session.get("oauth_info")
    if not isinstance(login, dict) or not isinstance(login.get("userinfo"), dict):
        return ""
    ends, name = login.get("expires_at"), login["userinfo"].get("preferred_username")
    return name if isinstance(name, str) and isinstance(ends, int | float) and time.time() < ends else ""


def add_login(app: FastAPI, login: Login) -> None:
    """Give an app the addresses of the login, and each request its session. Middleware that is added later comes before it.

    What belongs to the protocol is loaded here, where somebody can log in.
    """
    from gradio.oauth import attach_oauth

    app.add_middleware(LoginProblems, login=login)
    attach_oauth(app)


class LoginProblems:
    """Middleware that says in one sentence what is wrong with a login, where the protocol's library raises an error."""

    def __init__(self, app: ASGIApp, login: Login) -> None:
        self._app, self._login = app, login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on every request."""
        if scope["type"] != "http" or scope["path"] not in (LOGIN, CALLBACK):
            await self._app(scope, receive, send)
            return
        from authlib.common.errors import AuthlibBaseError

        try:
            await self._app(scope, receive, send)
        except AuthlibBaseError as error:  # the code is of another login, too old, or was used before; or the person said no
            logger.warning("A login failed: %s", error.error)
            await self._page(_(REFUSED), 403)(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - of several libraries: no answer, one that is no JSON, a name that somebody else signed
            logger.warning("The provider of the login failed: %s", type(error).__name__)
            await self._page(_(FAILED), 502)(scope, receive, send)

    def _page(self, text: str, status: int) -> ASGIApp:
        address = self._login.address
        return small_page(text, [(_("Log in again"), address + LOGIN), (_("Open the Space"), f"{address}/")], status)
