"""The login of a Space's owner at the served app, with a login provider on this machine: what each visitor's browser gets."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from rlhf_studio.ui.visiting import owner
from tests.access import table
from tests.access.apps import SECRETS, SPACE, ServedApp, contents, inhabited, served

ACCESS_TOKEN = "canary-of-the-person-2b9e"
KEY, FOREIGN_KEY = (ECKey.generate_key("P-256", {"kid": "1"}) for _ in range(2))


class Provider(BaseHTTPRequestHandler):
    """A login provider: it knows who is logged in, gives a code for each login, and accepts each code once."""

    person: Any = "ann"
    seconds, key, down = 3600, KEY, False
    codes: dict[str, str] = {}  # with the nonce of each login

    def do_GET(self) -> None:
        base = f"http://127.0.0.1:{self.server.server_address[1]}"
        if self.path == "/jwks":
            self.answer(200, {"keys": [KEY.as_dict(private=False)]})
        else:
            ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
            about = {"issuer": base, "id_token_signing_alg_values_supported": ["ES256"]}
            self.answer(200, {name: f"{base}/{path}" for name, path in ends.items()} | about)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        client = base64.b64encode(f"client-1:{SECRETS['OAUTH_CLIENT_SECRET']}".encode()).decode()
        nonce = self.codes.pop(form["code"][0], "")
        if self.down:
            self.answer(503, {})
        elif self.headers["Authorization"] != f"Basic {client}" or not nonce:
            self.answer(400, {"error": "invalid_grant"})
        else:
            about = {"iss": f"http://127.0.0.1:{self.server.server_address[1]}", "aud": "client-1", "sub": "1", "nonce": nonce}
            now = int(time.time())
            claims = {**about, "iat": now, "exp": now + 600, "preferred_username": self.person}
            token = jwt.encode({"alg": "ES256", "kid": "1"}, claims, self.key)
            self.answer(200, {"access_token": ACCESS_TOKEN, "token_type": "bearer", "id_token": token, "expires_in": self.seconds})

    def answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    folder, url = tmp_path_factory.mktemp("space"), f"http://127.0.0.1:{provider.server_address[1]}"
    with served(table.SPACE, folder / "workspace", folder / "world", OPENID_PROVIDER_URL=url) as made, inhabited(made):
        made.called = SPACE["SPACE_HOST"]
        yield made
    provider.shutdown()
    provider.server_close()


class Browser:
    """Follows the redirects of a login, and keeps cookies unless it blocks them."""

    def __init__(self, app: ServedApp, person: Any = "ann", *, seconds: int = 3600, blocks: bool = False) -> None:
        self.app, self.blocks, self.cookies = app, blocks, dict[str, str]()
        Provider.person, Provider.seconds, Provider.key, Provider.down = person, seconds, KEY, False

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        status, headers, text = self.app.send("GET", path, None, self.headers)
        assert ACCESS_TOKEN.encode() not in text
        assert "evil" not in urlsplit(headers.get("location", "")).netloc
        for line in headers["set-cookie"].splitlines():
            assert "secure" in line.lower() and "httponly" in line.lower(), line
            if not self.blocks:
                self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(line).items()}
        return status, headers, text

    def begin(self) -> dict[str, str]:
        """The parameters with which the provider sends the browser back."""
        status, headers, _ = self.get("/login/huggingface?_target_url=//evil.example")
        assert status == 302
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(headers["location"]).query).items()}
        assert parameters["redirect_uri"].startswith(f"https://{SPACE['SPACE_HOST']}/login/callback")
        assert (parameters["client_id"], set(parameters["scope"].split())) == ("client-1", {"openid", "profile"})
        code = f"code-{parameters['state']}"
        Provider.codes[code] = parameters["nonce"]
        return {"code": code, "state": parameters["state"], "_target_url": "//evil.example"}

    def finish(self, back: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return self.get(f"/login/callback?{urlencode(back)}")

    def owns(self) -> bool:
        """Whether the browser may do what operators may: both what the line above the pages says, and what the app allows."""
        _, reply = self.app.call("shell-page.where", {}, self.headers)
        status, _ = self.app.call("runs-page.loss", {"run": self.app.runs["ended"]}, self.headers)
        owner = b"You are the owner" in reply
        assert owner == (status == 200)
        return owner


def test_the_owner_logs_in_and_out(app: ServedApp) -> None:
    browser = Browser(app)
    assert not browser.owns()
    status, headers, _ = browser.finish(browser.begin())
    assert status == 307 and re.fullmatch(r"/[^/]*", headers["location"])  # a page of the app, whatever the address asked for
    assert browser.owns()
    foreign = {**browser.headers, "Sec-Fetch-Site": "cross-site"}  # the cookie is sent along by other websites' pages too
    assert app.call("runs-page.loss", {"run": app.runs["ended"]}, foreign)[0] == 403
    assert b"Log out" in app.call("shell-page.where", {}, browser.headers)[1]
    browser.get("/logout")
    assert not browser.owns()


def test_a_stranger_stays_a_visitor_and_is_told_why(app: ServedApp) -> None:
    for person in ("bob", "an", "ann ", "ann\x00", "", None, ["ann"]):
        browser = Browser(app, person)
        browser.finish(browser.begin())
        assert not browser.owns(), person
        reply = app.call("shell-page.where", {}, browser.headers)[1]
        assert (b"belongs to somebody else" in reply) == (isinstance(person, str) and bool(person))


def test_a_login_ends(app: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(app, seconds=100)
    browser.finish(browser.begin())
    assert browser.owns()
    now = time.time()
    monkeypatch.setattr(owner.time, "time", lambda: now + 101)
    assert not browser.owns()


def test_what_another_login_began_ends_none(app: ServedApp) -> None:
    """A forged or replayed state, another browser's code, a code that was used, a name that somebody else signed, a cookie that somebody
    else made."""
    victim, attacker = Browser(app), Browser(app)
    before = contents(app.root)
    own, other = victim.begin(), attacker.begin()
    victim.finish({**own, "state": other["state"]})
    assert not victim.owns()
    own = victim.begin()
    assert victim.finish({**own, "code": other["code"]})[0] == 502 and not victim.owns()  # its nonce is of another login
    own = victim.begin()
    assert victim.finish({**own, "code": "made up"})[0] == 403 and not victim.owns()
    assert victim.get("/login/callback?error=access_denied")[0] == 403 and not victim.owns()
    own = victim.begin()
    Provider.key = FOREIGN_KEY
    assert victim.finish(own)[0] == 502 and not victim.owns()
    Provider.key = KEY
    own, cookies = victim.begin(), dict(victim.cookies)
    assert victim.finish(own)[0] == 307 and victim.owns()
    replay = Browser(app)
    replay.cookies = cookies
    assert replay.finish(own)[0] == 403 and not replay.owns()
    good = victim.cookies["session"]
    made = {"oauth_info": {"userinfo": {"preferred_username": "ann"}, "expires_at": 10**11}}
    session = base64.b64encode(json.dumps(made).encode()).decode()
    changed = good[:-2] + ("A" if good[-2] != "A" else "B") + good[-1]  # of the last one, two bits mean nothing
    for value in ("x", session, f"{session}.{good.split('.', 1)[1]}", changed, f'"{good[1:]}"', "\\" * 99):
        forged = Browser(app)
        forged.cookies = {"session": value}
        assert not forged.owns(), value
    assert contents(app.root) == before


def test_a_provider_that_does_not_answer_and_a_browser_without_cookies(app: ServedApp) -> None:
    browser = Browser(app)
    back = browser.begin()
    Provider.down = True
    status, _, text = browser.finish(back)
    assert status == 502 and b"Try again" in text and not browser.owns()
    blocking = Browser(app, blocks=True)
    back = blocking.begin()
    for _ in range(5):  # it is led to the beginning, and at last to the Space's own address
        status, headers, _ = blocking.finish(back)
        assert status == 307 and headers["location"].split("?")[0].endswith("/login/huggingface")
        back["_nb_redirects"] = parse_qs(urlsplit(headers["location"]).query)["_nb_redirects"][0]
    assert headers["location"].startswith(f"https://{SPACE['SPACE_HOST']}/") and not blocking.owns()
    assert app.call("runs-page.runs", {}, blocking.headers)[0] == 200  # and may go on watching


def test_neither_secrets_nor_tokens_are_kept(app: ServedApp, caplog: pytest.LogCaptureFixture) -> None:
    browser = Browser(app)
    browser.finish(browser.begin())
    assert browser.owns()
    for secret in (ACCESS_TOKEN, SECRETS["OAUTH_CLIENT_SECRET"], browser.cookies["session"]):
        assert secret not in caplog.text
        assert [path for path in Path(app.root).rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []


def test_where_nobody_logs_in_there_is_no_login() -> None:
    complete = {**SPACE, "SYSTEM": "spaces", "OAUTH_CLIENT_SECRET": "x", "OPENID_PROVIDER_URL": "https://provider.example"}
    login = owner.login_of({**complete, "RLHF_STUDIO_OWNERS": "Bob, eve"})
    assert login is not None and login.owners == {"ann", "bob", "eve"} and login.address == "https://ann-studio.hf.space"
    for name in ("SYSTEM", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES", "OPENID_PROVIDER_URL", "SPACE_HOST"):
        assert owner.login_of({**complete, name: ""}) is None
