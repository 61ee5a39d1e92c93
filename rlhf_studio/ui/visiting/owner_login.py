"""The owner of a Space shows who they are by logging in at Hugging Face (OAuth 2 with OpenID Connect).

The page leads to ``/login/huggingface`` at the Space's own address and in a tab of its own, where browsers keep cookies. The provider
sends the browser back to ``/login/callback`` with a code; the app exchanges it, asks whose it is, and gives the owner a cookie that is
ends after some hours. Nobody else gets one, and no token of the provider is kept.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import secrets
from urllib.parse import urlencode

import httpx
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rlhf_studio.ui.html import Link, small_page
from rlhf_studio.ui.visiting.owner import CALLBACK, COOKIE, LOGIN, LOGIN_COOKIE, LOGOUT, SESSION_SECONDS, Provider, Sessions
from rlhf_studio.ui.visiting.tokens import is_token

logger = logging.getLogger(__name__)

LOGIN_SECONDS = 600  # from the login's begin to its end
PATIENCE = 15.0  # seconds for each answer of the provider
SCOPE = "openid profile"
_LOGIN_VALUE = re.compile(r"([A-Za-z0-9_-]{20,60})\.([A-Za-z0-9_-]{43,86})")
NO_COOKIE = (
    "The login could not be finished: your browser kept no cookie, the login took more than ten minutes, or this address was opened "
    "without one. Open the Space at its own address, and log in there."
)
EXPIRED = "The login has expired or was used before. Log in again."
FAILED = "Hugging Face did not answer as expected, so nobody was logged in. Try again in a moment."
STRANGER = (
    "You are logged in at Hugging Face, but this Space belongs to somebody else. Learning, watching and small runs need no login. "
    "In a copy of your own, you are the owner."
)


class Refused(Exception):
    """The provider does not take a code: it is of another login, too old, or was used before."""


def challenge_of(verifier: str) -> str:
    """What shows the provider that who began a login ends it (RFC 7636, S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class OwnerLogin:
    """The three addresses of the login.

    Args:
        provider: where people log in.
        transport: for the requests to the provider; replaced in tests.
    """

    def __init__(self, provider: Provider, sessions: Sessions, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._provider, self._sessions, self._transport = provider, sessions, transport

    def routes(self) -> list[Route]:
        """For the app."""
        handlers = {LOGIN: self.begin, CALLBACK: self.finish, LOGOUT: self.end}
        return [Route(path, handler, methods=["GET"]) for path, handler in handlers.items()]

    async def begin(self, request: Request) -> Response:
        """Lead to the provider; the browser keeps what the end of the login is checked against."""
        state, verifier = secrets.token_urlsafe(24), secrets.token_urlsafe(48)
        try:
            async with self._client() as client:
                place = (await self._places(client))["authorization_endpoint"]
        except (httpx.HTTPError, KeyError, ValueError) as error:
            return self._provider_failed(error)
        asked = {
            "response_type": "code",
            "client_id": self._provider.client_id,
            "redirect_uri": self._provider.redirect_uri,
            "scope": SCOPE,
        }
        proof = {"state": state, "code_challenge": challenge_of(verifier), "code_challenge_method": "S256"}
        response = RedirectResponse(f"{place}?{urlencode({**asked, **proof})}", 303)
        cookie = f"{state}.{verifier}"
        response.set_cookie(LOGIN_COOKIE, cookie, max_age=LOGIN_SECONDS, path="/login", httponly=True, secure=True, samesite="lax")
        return response

    async def finish(self, request: Request) -> Response:
        """The provider has sent the browser back: whoever is an owner gets the cookie."""
        kept = _LOGIN_VALUE.fullmatch(request.cookies.get(LOGIN_COOKIE, ""))
        code, state = (request.query_params.get(name, "") for name in ("code", "state"))
        if kept is None or not code or not is_token(state, kept[1]):
            return self._ended(small_page(NO_COOKIE, [self._space()], 403))
        try:
            person = await self._person(code, kept[2])
        except Refused as error:
            logger.warning("A login failed: %s", error)
            return self._ended(small_page(EXPIRED, [self._again(), self._space()], 403))
        except (httpx.HTTPError, KeyError, ValueError) as error:
            return self._ended(self._provider_failed(error))
        if person.lower() not in self._provider.owners:
            copy = ("Duplicate this Space", self._provider.duplicate)
            return self._ended(small_page(STRANGER, [self._space(), copy], 403))
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, self._sessions.new(), max_age=SESSION_SECONDS, httponly=True, secure=True, samesite="lax")
        return self._ended(response)

    async def end(self, request: Request) -> Response:
        """End the owner's session, and forget its cookie in this browser."""
        self._sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE, httponly=True, secure=True, samesite="lax")
        return response

    def _space(self) -> Link:
        return "Open the Space", f"{self._provider.address}/"

    def _again(self) -> Link:
        return "Log in again", self._provider.address + LOGIN

    def _provider_failed(self, error: Exception) -> Response:
        logger.warning("The provider of the login failed: %s", error)
        return small_page(FAILED, [self._again(), self._space()], 502)

    async def _person(self, code: str, verifier: str) -> str:
        """Whose code this is. Raises Refused for a code that the provider does not take, and as :meth:`_places`."""
        provider = self._provider
        async with self._client() as client:
            places = await self._places(client)
            form = {"grant_type": "authorization_code", "code": code, "redirect_uri": provider.redirect_uri, "code_verifier": verifier}
            given = await client.post(places["token_endpoint"], data=form, auth=(provider.client_id, provider.client_secret))
            if given.status_code in (400, 401):  # RFC 6749, section 5.2
                raise Refused(f"the provider refused the code with status {given.status_code}")
            token = given.raise_for_status().json()["access_token"]
            answer = await client.get(places["userinfo_endpoint"], headers={"Authorization": f"Bearer {token}"})
            person = answer.raise_for_status().json()["preferred_username"]
        if not isinstance(person, str):
            raise ValueError("the provider gave no name")
        return person

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, timeout=PATIENCE)

    async def _places(self, client: httpx.AsyncClient) -> dict[str, str]:
        """The provider's own addresses. Raises httpx.HTTPError, KeyError and ValueError for an answer that is none."""
        answer = await client.get(f"{self._provider.url}/.well-known/openid-configuration")
        found = answer.raise_for_status().json()
        return {name: str(found[name]) for name in ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")}

    @staticmethod
    def _ended(response: Response) -> Response:
        """A login is good for one try."""
        response.delete_cookie(LOGIN_COOKIE, path="/login", httponly=True, secure=True, samesite="lax")
        return response
