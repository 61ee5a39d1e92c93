"""The login of a Space's owner at the served app, with a provider of this machine: what each visitor's browser gets out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.access import table
from tests.access.apps import SECRETS, SPACE, Place, contents, inhabited, served

ACCESS_TOKEN = "canary-of-the-person-2b9e"


class Provider(BaseHTTPRequestHandler):
    """Knows who is logged in there; gives a code for each login, and exchanges it once, for whoever began that login."""

    person = "ann"
    challenges: dict[str, str] = {}

    def do_GET(self) -> None:
        base = f"http://127.0.0.1:{self.server.server_address[1]}"
        if self.path == "/.well-known/openid-configuration":
            ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "userinfo_endpoint": "userinfo"}
            self.answer(200, {name: f"{base}/{path}" for name, path in ends.items()})
        else:
            own = self.headers["Authorization"] == f"Bearer {ACCESS_TOKEN}"
            self.answer(200 if own else 401, {"preferred_username": self.person} if own else {})

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        client = base64.b64encode(f"client-1:{SECRETS['OAUTH_CLIENT_SECRET']}".encode()).decode()
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"][0].encode()).digest()).rstrip(b"=").decode()
        good = self.headers["Authorization"] == f"Basic {client}" and self.challenges.pop(form["code"][0], "") == proof
        self.answer(200 if good else 400, {"access_token": ACCESS_TOKEN, "token_type": "bearer"} if good else {"error": "invalid_grant"})

    def answer(self, status: int, said: dict[str, str]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *said: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    folder, url = tmp_path_factory.mktemp("space"), f"http://127.0.0.1:{provider.server_address[1]}"
    with served(table.SPACE, folder / "workspace", folder / "world", OPENID_PROVIDER_URL=url) as made, inhabited(made):
        made.called = SPACE["SPACE_HOST"]
        yield made
    provider.shutdown()
    provider.server_close()


class Browser:
    """Follows the way of a login, and keeps cookies unless it blocks them."""

    def __init__(self, place: Place, person: str = "ann", *, blocks: bool = False) -> None:
        self.place, self.blocks, self.cookies = place, blocks, dict[str, str]()
        Provider.person = person

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        status, headers, text = self.place.send("GET", path, None, self.headers)
        assert ACCESS_TOKEN.encode() not in text and ACCESS_TOKEN not in str(headers)
        for line in headers["set-cookie"].splitlines():
            if not self.blocks:
                self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(line).items()}
        return status, headers, text

    def begin(self) -> dict[str, str]:
        """What the provider sends the browser back with."""
        status, headers, _ = self.get("/login/huggingface?next=//evil.example&redirect_uri=//evil.example")
        assert status == 303
        asked = {name: values[0] for name, values in parse_qs(urlsplit(headers["location"]).query).items()}
        assert asked["redirect_uri"] == f"https://{SPACE['SPACE_HOST']}/login/callback"
        code = f"code-{asked['state']}"
        Provider.challenges[code] = asked["code_challenge"]
        return {"code": code, "state": asked["state"]}

    def finish(self, back: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return self.get(f"/login/callback?{urlencode(back)}")

    def owns(self) -> bool:
        """Whether it may do what operators may: by what it is told, and by what it can ask."""
        _, told = self.place.call("shell-page.where", {}, self.headers)
        status, _ = self.place.call("runs-page.loss", {"run": self.place.runs["ended"]}, self.headers)
        owner = b"You are the owner" in told
        assert owner == (status == 200)
        return owner


def test_the_owner_logs_in_and_out(place: Place) -> None:
    browser = Browser(place)
    status, headers, _ = browser.finish(browser.begin())
    assert (status, headers["location"]) == (303, "/") and browser.owns()
    thief = Browser(place)
    thief.cookies = dict(browser.cookies)
    assert thief.owns()
    status, headers, _ = browser.get("/login/out?next=//evil.example")
    assert (status, headers["location"]) == (303, "/") and not browser.owns()
    assert not thief.owns()  # whoever logs out ends the session, wherever its cookie is


def test_two_sessions_of_one_moment_are_two(place: Place) -> None:
    browsers = [Browser(place), Browser(place)]
    for browser in browsers:
        browser.finish(browser.begin())
    browsers[0].get("/login/out")
    assert [browser.owns() for browser in browsers] == [False, True]


def test_a_stranger_stays_a_visitor(place: Place) -> None:
    for person in ("bob", "an", "ann ", "ann\x00", ""):
        browser = Browser(place, person)
        assert browser.finish(browser.begin())[0] in (403, 502), person
        assert not browser.owns()


def test_a_session_that_has_expired_is_a_visitor_s(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(place)
    browser.finish(browser.begin())
    assert browser.owns()
    sessions = place.server.access.owners
    later = sessions._now() + 8 * 3600
    monkeypatch.setattr(sessions, "_now", lambda: later)
    assert not browser.owns()


def test_what_another_login_began_ends_none(place: Place) -> None:
    """A forged or replayed state, another browser's code, a code that was used, and an answer that the provider never gave."""
    victim, attacker = Browser(place), Browser(place)
    before = contents(place.root)
    own, other = victim.begin(), attacker.begin()
    assert victim.finish({**own, "state": other["state"]})[0] == 403 and not victim.owns()
    own = victim.begin()
    assert victim.finish({**own, "code": other["code"]})[0] == 403 and not victim.owns()
    own = victim.begin()
    for extra in ("&state=x", "&code=x"):  # the last of two counts, for everyone who reads it
        assert victim.get(f"/login/callback?{urlencode(own)}{extra}")[0] == 403 and not victim.owns()
        own = victim.begin()
    kept = dict(victim.cookies)
    assert victim.finish(own)[0] == 303 and victim.owns()
    replay = Browser(place)
    replay.cookies = kept
    assert replay.finish(own)[0] == 403 and not replay.owns()
    for value in ("x", "x" * 24 + "." + "y" * 64, kept["rlhf_studio_login"] + "x", "rlhf_studio_login"):
        forged = Browser(place)
        forged.cookies = {"rlhf_studio_login": value, "rlhf_studio_owner": value}
        assert forged.finish({"code": "code", "state": value.split(".")[0]})[0] == 403 and not forged.owns()
    assert contents(place.root) == before


def test_a_browser_that_keeps_no_cookies_is_told_where_to_go(place: Place) -> None:
    browser = Browser(place, blocks=True)
    status, _, text = browser.finish(browser.begin())
    assert status == 403 and f"https://{SPACE['SPACE_HOST']}".encode() in text and not browser.owns()
    assert place.call("runs-page.runs", {}, browser.headers)[0] == 200  # and may go on watching


def test_neither_secrets_nor_tokens_are_kept(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    browser = Browser(place)
    browser.finish(browser.begin())
    owner = browser.cookies["rlhf_studio_owner"]
    for secret in (ACCESS_TOKEN, SECRETS["OAUTH_CLIENT_SECRET"], owner):
        assert secret not in caplog.text
        assert [path for path in Path(place.root).rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []
