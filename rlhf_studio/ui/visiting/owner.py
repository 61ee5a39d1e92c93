"""Who owns a Space, and the cookie that says so: whoever has logged in (:mod:`.owner_login`) has it for some hours."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rlhf_studio.ui.hosted.space import duplicate_link, own_address

OWNERS_VARIABLE = "RLHF_STUDIO_OWNERS"
COOKIE = "rlhf_studio_owner"
LOGIN_COOKIE = "rlhf_studio_login"
SESSION_SECONDS = 8 * 3600
LOGIN, CALLBACK, LOGOUT = "/login/huggingface", "/login/callback", "/login/out"


@dataclass(frozen=True)
class Provider:
    """Where people log in, as a Space's environment says it; a client's secret never leaves this process.

    Attributes:
        url: of the provider, such as ``https://huggingface.co``.
        address: the app's own, such as ``https://someone-studio.hf.space``.
        owners: names of the people who own the app, in lower case.
        duplicate: where others make a copy of the Space; empty where it is not known.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    address: str = ""
    owners: frozenset[str] = frozenset()
    duplicate: str = ""

    @property
    def redirect_uri(self) -> str:
        """The one address to which the provider sends people back."""
        return self.address + CALLBACK


def provider_of(environment: Mapping[str, str]) -> Provider | None:
    """The provider of a Space with ``hf_oauth: true``; None elsewhere."""
    names = ("OPENID_PROVIDER_URL", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "SPACE_HOST")
    url, client, secret, host = (environment.get(name, "").strip() for name in names)
    if not (url and client and secret and host):
        return None
    told = [environment.get("SPACE_AUTHOR_NAME", ""), *environment.get(OWNERS_VARIABLE, "").split(",")]
    owners = frozenset(name.strip().lower() for name in told if name.strip())
    return Provider(url.rstrip("/"), client, secret, own_address(environment).rstrip("/"), owners, duplicate_link(environment))


class Sessions:
    """Who is logged in: the hash of each owner's cookie, and until when. It is kept in memory, so the app's end ends all sessions.

    Args:
        now: the time in seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._until: dict[str, float] = {}
        self._now = now

    def new(self) -> str:
        """The value of a cookie that is valid from now on."""
        self._until = {key: until for key, until in self._until.items() if self._now() < until}
        value = secrets.token_urlsafe(32)
        self._until[_key(value)] = self._now() + SESSION_SECONDS
        return value

    def admits(self, value: str) -> bool:
        """Whether this is such a value, and still valid."""
        return self._now() < self._until.get(_key(value), 0.0)

    def end(self, value: str) -> None:
        """Whoever logs out ends the session, also where somebody else has its cookie."""
        self._until.pop(_key(value), None)


def _key(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def login_routes(provider: Provider | None, sessions: Sessions) -> list[Route]:
    """The addresses of the login; where nobody can log in they say so, and nothing of the protocol is loaded."""
    if provider is not None:
        from rlhf_studio.ui.visiting.owner_login import OwnerLogin

        return OwnerLogin(provider, sessions).routes()

    async def nobody(_: Request) -> Response:
        return PlainTextResponse("Nobody logs in here: this app is not a Space with a login. Operators open the operator link.\n", 404)

    return [Route(path, nobody, methods=["GET"]) for path in (LOGIN, CALLBACK, LOGOUT)]
