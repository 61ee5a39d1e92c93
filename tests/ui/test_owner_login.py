"""The login of a Space's owner against a stand-in for the provider, which checks what the protocol asks for."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from rlhf_studio.ui.access import Access, with_our_cookie_only
from rlhf_studio.ui.visiting import owner
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.ui.visiting.owner import Provider, Sessions, login_routes, provider_of
from rlhf_studio.ui.visiting.owner_login import OwnerLogin
from tests.ui.test_access import request

ADDRESS = "https://ann-studio.hf.space"
SECRET = "canary-client-secret"
ENVIRONMENT = {
    "OPENID_PROVIDER_URL": "https://provider.example",
    "OAUTH_CLIENT_ID": "client-1",
    "OAUTH_CLIENT_SECRET": SECRET,
    "SPACE_HOST": "ann-studio.hf.space",
    "SPACE_AUTHOR_NAME": "Ann",
    "SPACE_ID": "ann/studio",
}


@dataclass
class StandIn:
    """The provider: gives out codes for the person who is logged in there, and exchanges each once."""

    person: str = "ann"
    down: bool = False
    challenges: dict[str, str] = field(default_factory=dict)
    seen: list[httpx.Request] = field(default_factory=list)

    def authorize(self, address: str) -> dict[str, str]:
        """What a browser brings back from the page to which it was led."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (
            query["response_type"] == "code" and query["client_id"] == "client-1" and query["redirect_uri"] == f"{ADDRESS}/login/callback"
        )
        assert query["code_challenge_method"] == "S256" and set(query["scope"].split()) == {"openid", "profile"}
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = query["code_challenge"]
        return {"code": code, "state": query["state"]}

    def answer(self, sent: httpx.Request) -> httpx.Response:
        self.seen.append(sent)
        if self.down:
            return httpx.Response(503)
        if sent.url.path == "/.well-known/openid-configuration":
            base = "https://provider.example"
            names = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "userinfo_endpoint": "/userinfo"}
            return httpx.Response(200, json={name: base + path for name, path in names.items()})
        if sent.url.path == "/token":
            form = {name: values[0] for name, values in parse_qs(sent.content.decode()).items()}
            assert sent.headers["authorization"] == "Basic " + base64.b64encode(f"client-1:{SECRET}".encode()).decode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            if self.challenges.pop(form["code"], "") != digest:
                return httpx.Response(400, json={"error": "invalid_grant"})
            return httpx.Response(200, json={"access_token": "canary-access-token", "token_type": "bearer", "expires_in": 60})
        assert sent.url.path == "/userinfo" and sent.headers["authorization"] == "Bearer canary-access-token"
        return httpx.Response(200, json={"sub": "1", "preferred_username": self.person})


@pytest.fixture
def provider() -> StandIn:
    return StandIn()


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def browser(provider: StandIn, sessions: Sessions) -> Iterator[TestClient]:
    known = provider_of(ENVIRONMENT)
    assert known is not None
    login = OwnerLogin(known, sessions, httpx.MockTransport(provider.answer))
    with TestClient(Starlette(routes=login.routes()), base_url=ADDRESS, follow_redirects=False) as client:
        yield client


def log_in(browser: TestClient, provider: StandIn, **changed: str) -> Any:
    """From the page's link to the answer of the callback."""
    begun = browser.get("/login/huggingface")
    assert begun.status_code == 303
    return browser.get("/login/callback", params={**provider.authorize(begun.headers["location"]), **changed})


def test_the_owner_gets_a_cookie_that_makes_an_operator(browser: TestClient, provider: StandIn, sessions: Sessions) -> None:
    answer = log_in(browser, provider)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    value = browser.cookies[owner.COOKIE]
    cookie = next(line for line in answer.headers.get_list("set-cookie") if line.startswith(owner.COOKIE)).lower()
    assert "httponly" in cookie and "secure" in cookie and "samesite=lax" in cookie and "max-age=28800" in cookie
    space = Access(Mode.SPACE, loopback=False, token="t", owners=sessions)
    assert space.is_operator(request("10.0.0.1", cookies={owner.COOKIE: value}))
    assert not Access(Mode.LOCAL, loopback=False, token="t", owners=sessions).is_operator(request(cookies={owner.COOKIE: value}))
    assert not Access(Mode.READ_ONLY, token="t", owners=sessions).is_operator(request(cookies={owner.COOKIE: value}))
    assert "canary" not in value and "canary" not in answer.text


def test_the_door_lets_the_cookies_of_the_login_through() -> None:
    sent = [(b"cookie", f"{owner.COOKIE}=12.{'x' * 43}; {owner.LOGIN_COOKIE}={'y' * 30}.{'z' * 64}; other=1".encode())]
    ((_, kept),) = with_our_cookie_only({"type": "http", "headers": sent})["headers"]
    assert kept.count(b"=") == 2 and b"other" not in kept


def test_a_stranger_is_logged_in_nowhere(browser: TestClient, provider: StandIn) -> None:
    provider.person = "bob"
    answer = log_in(browser, provider)
    assert answer.status_code == 403 and "belongs to somebody else" in answer.text
    links = [f'href="{ADDRESS}/"', 'href="https://huggingface.co/spaces/ann/studio?duplicate=true"']
    assert answer.headers["content-type"].startswith("text/html") and all(link in answer.text for link in links)
    assert owner.COOKIE not in browser.cookies


def test_further_owners_can_be_named(provider: StandIn, sessions: Sessions) -> None:
    known = provider_of({**ENVIRONMENT, "RLHF_STUDIO_OWNERS": "Bob, eve"})
    assert known is not None and known.owners == {"ann", "bob", "eve"}


@pytest.mark.parametrize("changed", [{"state": "forged"}, {"state": ""}, {"code": ""}])
def test_a_forged_answer_is_refused(changed: dict[str, str], browser: TestClient, provider: StandIn) -> None:
    answer = log_in(browser, provider, **changed)
    assert answer.status_code == 403 and owner.COOKIE not in browser.cookies
    assert all(sent.url.path != "/token" for sent in provider.seen)


def test_the_code_of_another_browser_is_refused(browser: TestClient, provider: StandIn) -> None:
    """An attacker's code with the state of the victim: the provider sees that the verifier is not the code's."""
    attackers = provider.authorize(browser.get("/login/huggingface").headers["location"])
    own = provider.authorize(browser.get("/login/huggingface").headers["location"])
    answer = browser.get("/login/callback", params={"code": attackers["code"], "state": own["state"]})
    assert answer.status_code == 403 and "expired" in answer.text and owner.COOKIE not in browser.cookies


def test_without_the_cookie_of_its_begin_a_login_does_not_end(browser: TestClient, provider: StandIn) -> None:
    back = provider.authorize(browser.get("/login/huggingface").headers["location"])
    browser.cookies.clear()
    answer = browser.get("/login/callback", params=back)
    assert answer.status_code == 403 and f'href="{ADDRESS}/"' in answer.text


def test_a_code_is_good_once(browser: TestClient, provider: StandIn) -> None:
    begun = browser.get("/login/huggingface")
    back, cookie = provider.authorize(begun.headers["location"]), browser.cookies[owner.LOGIN_COOKIE]
    assert browser.get("/login/callback", params=back).status_code == 303
    browser.cookies.clear()
    browser.cookies.set(owner.LOGIN_COOKIE, cookie, path="/login")
    assert browser.get("/login/callback", params=back).status_code == 403


@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_provider_that_does_not_answer(when: str, browser: TestClient, provider: StandIn) -> None:
    provider.down = when == "begin"
    begun = browser.get("/login/huggingface")
    if when == "end":
        back = provider.authorize(begun.headers["location"])
        provider.down = True
        begun = browser.get("/login/callback", params=back)
    assert begun.status_code == 502 and "Try again" in begun.text and owner.COOKIE not in browser.cookies


def test_a_session_ends(provider: StandIn) -> None:
    now = [1000.0]
    sessions = Sessions(lambda: now[0])
    value = sessions.new()
    assert sessions.admits(value)
    for forged in ("", value[:-1], value[:-1] + ("A" if value[-1] != "A" else "B"), "9" + value, value[::-1], "é"):
        assert not sessions.admits(forged)
    assert not Sessions(lambda: now[0]).admits(value)
    now[0] += owner.SESSION_SECONDS - 1
    assert sessions.admits(value)
    now[0] += 1
    assert not sessions.admits(value)


def test_where_nobody_logs_in_the_addresses_say_so() -> None:
    assert provider_of({**ENVIRONMENT, "OAUTH_CLIENT_SECRET": ""}) is None
    client = TestClient(Starlette(routes=login_routes(None, Sessions())), base_url=ADDRESS)
    for path in (owner.LOGIN, owner.CALLBACK, owner.LOGOUT):
        assert client.get(path).status_code == 404


def test_a_provider_hides_its_secret() -> None:
    known = provider_of(ENVIRONMENT)
    assert isinstance(known, Provider) and SECRET not in repr(known)
