"""Who may change things: every kind of request that should not, and the link that makes an operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from rlhf_studio.ui.access import COOKIE, HEADER, Access, token_in_cookies, with_our_cookie_only
from rlhf_studio.ui.hosts import Hosts, hosts_of, is_loopback
from rlhf_studio.ui.roles import Role
from rlhf_studio.ui.visiting.links import Links
from rlhf_studio.ui.visiting.modes import Mode

TOKEN = "a-long-secret"
LOCAL = Access(loopback=True, token=TOKEN)
OPEN = Access(loopback=False, token=TOKEN)


def request(client: str = "127.0.0.1", cookies: dict[str, str] | None = None, query: dict[str, str] | None = None, **headers: str) -> Any:
    sent = {"host": "127.0.0.1:7860", **{key.replace("_", "-"): value for key, value in headers.items()}}
    if cookies:
        cookie = "; ".join(f"{name}={value}" for name, value in {"_xsrf": '"a\\"b', **cookies}.items())
        sent["cookie"] = cookie.encode("utf-8", "surrogatepass").decode("latin-1")
    return SimpleNamespace(headers=Headers(sent), client=SimpleNamespace(host=client), query_params=query or {})


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "localhost", "[::1]:7860", "127.1.2.3"])
def test_whoever_sits_at_the_machine_is_an_operator(host: str) -> None:
    assert LOCAL.is_operator(request(host=host))
    assert LOCAL.is_operator(request(host=host, origin=f"http://{host}"))
    assert LOCAL.is_operator(request("::1", host=host))


VIEWERS = {
    "another machine": request("192.168.1.5"),
    "no client": request(""),
    "a foreign name that points here": request(host="evil.example:7860"),
    "no host": request(host=""),
    "another website": request(origin="http://evil.example"),
    "a website on another port": request(origin="http://127.0.0.1:8000"),
    "an opaque origin": request(origin="null"),
    "another website, said by the browser": request(sec_fetch_site="cross-site"),
    "another name of this site": request(sec_fetch_site="same-site"),
    "a proxy": request(x_forwarded_for="10.0.0.1"),
    "a proxy, standard header": request(forwarded="for=10.0.0.1"),
    "a proxy that tells the scheme alone": request(x_forwarded_proto="http"),
    "a proxy that names itself": request(via="1.1 lab"),
    "a tunnel": request(cf_connecting_ip="192.0.2.7"),
    "a viewer's link": request(query={"view": "1"}),
    "nobody": None,
}


@pytest.mark.parametrize("case", VIEWERS)
def test_everyone_else_may_only_watch(case: str) -> None:
    assert not LOCAL.is_operator(VIEWERS[case])
    with pytest.raises(gr.Error, match="operator link"):
        LOCAL.require_operator(VIEWERS[case])


def test_a_server_that_others_can_reach_wants_the_token_even_from_this_machine() -> None:
    assert not OPEN.is_operator(request())
    assert OPEN.is_operator(request(cookies={COOKIE: TOKEN}))
    assert OPEN.is_operator(request("10.0.0.9", host="lab.example", **{HEADER: TOKEN}))
    assert OPEN.is_operator(
        request("10.0.0.9", cookies={COOKIE: TOKEN}, host="lab.example", origin="https://lab.example", x_forwarded_for="1.2.3.4")
    )
    OPEN.require_operator(request(cookies={COOKIE: TOKEN}))


@pytest.mark.parametrize("token", ["", "a-long-secre", TOKEN + "x", "é", "\ud800"])
def test_a_wrong_token(token: str) -> None:
    assert not OPEN.is_operator(request(cookies={COOKIE: token}))


@pytest.mark.parametrize("data", [None, {}, {"view": False}, {"view": "1"}, ["view"], "view"])
def test_a_page_that_does_not_ask_to_watch_keeps_its_role(data: object) -> None:
    assert LOCAL.is_operator(request(), data)


def test_a_page_that_asks_to_watch_is_a_viewers() -> None:
    assert not LOCAL.is_operator(request(), {"view": True, "run": "a"})
    with pytest.raises(gr.Error, match="You can watch runs"):
        LOCAL.require_operator(request(), {"view": True})
    assert not OPEN.is_operator(request(cookies={COOKIE: TOKEN}), {"view": True})


def test_the_token_does_not_help_another_website_nor_a_viewers_link() -> None:
    assert not OPEN.is_operator(request(cookies={COOKIE: TOKEN}, host="lab.example", origin="https://evil.example"))
    assert not OPEN.is_operator(request(cookies={COOKIE: TOKEN}, query={"view": "1"}))


def test_behind_a_proxy_the_forwarded_name_counts_as_ours() -> None:
    assert OPEN.is_operator(
        request(cookies={COOKIE: TOKEN}, host="10.0.0.2:7860", x_forwarded_host="lab.example", origin="https://lab.example")
    )


def test_a_token_that_a_person_set_is_wanted_on_this_machine_too() -> None:
    """Several people work on it, or a proxy that adds no header lets everyone look like one of them."""
    shared = Access(loopback=True, token=TOKEN, token_only=True)
    assert not shared.is_operator(request()) and shared.role_of(request()) is Role.VIEWER
    assert shared.is_operator(request(cookies={COOKIE: TOKEN})) and shared.is_operator(request(**{HEADER: TOKEN}))


def test_the_token_is_found_among_other_cookies() -> None:
    assert token_in_cookies(f"a=1; {COOKIE}={TOKEN};b=2", COOKIE) == TOKEN
    assert token_in_cookies(f"a; ;=; x{COOKIE}=1; {COOKIE}=old; {COOKIE} = new ", COOKIE) == "new"
    assert [token_in_cookies(header, COOKIE) for header in ("", "a=1", f"{COOKIE}x=1", f"x={COOKIE}=1")] == [""] * 4
    for token in (TOKEN, "a+b/c=", "-._~"):  # as this program's own answer writes it
        answer = client(token=token).get("/", params={"operator": token})
        assert token_in_cookies(answer.headers["set-cookie"], COOKIE) == token


def test_only_our_own_cookie_is_passed_on() -> None:
    def passed_on(*cookies: bytes) -> list[Any]:
        headers = [(b"host", b"x"), *((b"cookie", cookie) for cookie in cookies)]
        return with_our_cookie_only({"type": "http", "headers": headers})["headers"]

    ours = f"{COOKIE}={TOKEN}".encode()
    for cookies in ((b"a=1; " + ours + b'; _xsrf="2\\3"',), (b"a=1", ours), (ours,)):
        assert passed_on(*cookies) == [(b"host", b"x"), (b"cookie", ours)]
    for cookies in ((b'a="' + b"\\" * 1000 + b'"',), (ours.split(b"=")[0] + b'="\\"',), (b"\xff",), ()):
        assert passed_on(*cookies) == [(b"host", b"x")]


def test_roles_follow_each_other() -> None:
    assert Role.ANYONE < Role.VIEWER < Role.PLAYER < Role.OPERATOR < Role.NOBODY
    assert LOCAL.role_of(request()) is Role.OPERATOR
    assert LOCAL.role_of(request("192.168.1.5")) is Role.VIEWER
    assert LOCAL.role_of(request(query={"view": "1"})) is Role.VIEWER
    assert Access(Mode.READ_ONLY).role_of(request()) is Role.VIEWER
    for page in (request(origin="http://evil.example"), request(sec_fetch_site="cross-site"), request(sec_fetch_site="same-site"), None):
        assert LOCAL.role_of(page) is Role.ANYONE


def test_a_name_that_was_allowed_is_ours_in_an_origin_too_with_its_port() -> None:
    behind = Access(loopback=True, token=TOKEN, hosts=Hosts(frozenset({"lab.example"}), given=frozenset({"lab.example", "b.example:81"})))
    assert behind.role_of(request(origin="https://lab.example", x_forwarded_for="10.0.0.1")) is Role.VIEWER
    assert behind.role_of(request(origin="http://b.example:81", x_forwarded_for="10.0.0.1")) is Role.VIEWER
    for other in ("http://lab.example:8000", "http://b.example", "http://lab.example.evil", "http://["):
        assert behind.role_of(request(origin=other)) is Role.ANYONE


def test_an_empty_token_admits_nobody() -> None:
    assert not Access(loopback=False).is_operator(request(cookies={COOKIE: ""}))


def test_read_only_holds_for_everyone() -> None:
    access = Access(Mode.READ_ONLY, loopback=True, token=TOKEN)
    assert not access.is_operator(request(cookies={COOKIE: TOKEN}))
    with pytest.raises(gr.Error, match="started read-only"):
        access.require_operator(request())


def test_loopback_names() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "[::1]")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "192.168.0.1", "localhost.evil.example", "", "::")] == [False] * 5


# --- names ---------------------------------------------------------------------------------------------------------------------

LOOPBACK = ["localhost", "localhost:7860", "127.0.0.1:7860", "127.9.9.9", "[::1]", "[::1]:7860", "LOCALHOST"]
FOREIGN = ["evil.example", "evil.example:7860", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1.evil.example"]
BROKEN = ["", "[", "[::1", "a b", "a,b", "localhost:x", "127.0.0.1:1:2", "x@localhost", "localhost/", "é", "localhost\n"]


def test_an_app_for_this_machine_answers_under_its_own_names_only() -> None:
    hosts = hosts_of("127.0.0.1", (), {})
    assert [name for name in LOOPBACK if not hosts.knows(name)] == []
    assert [name for name in (*FOREIGN, *BROKEN, "192.168.0.1", "0.0.0.0", "8.8.8.8:7860") if hosts.knows(name)] == []


def test_an_app_on_every_address_answers_under_addresses_and_the_machines_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Lab.uni.example")
    for everywhere in ("0.0.0.0", "::"):
        hosts = hosts_of(everywhere, (), {})
        known = [*LOOPBACK, "192.168.0.1:80", "10.0.0.1", "[fe80::1]:7860", "lab", "lab.uni.example:7860", "LAB.local", "lab.uni.example."]
        assert [name for name in known if not hosts.knows(name)] == []
        assert [name for name in (*FOREIGN, *BROKEN, "uni.example", "other.local") if hosts.knows(name)] == []


def test_names_that_were_told() -> None:
    listening = hosts_of("lab.example", (), {})
    assert listening.knows("lab.example:7860") and listening.knows("localhost") and not listening.knows("10.0.0.1")
    environment = {"RLHF_STUDIO_HOSTS": "one.example, two.example:8443", "SPACE_HOST": "someone-studio.hf.space"}
    hosts = hosts_of("127.0.0.1", ["Three.example"], {**environment, "GRADIO_ROOT_PATH": "https://four.example/studio"})
    assert all(hosts.knows(name) for name in ("one.example", "two.example", "three.example:1", "someone-studio.hf.space", "four.example"))
    assert not any(hosts.knows(name) for name in FOREIGN)
    assert hosts.given == {"one.example", "two.example:8443", "three.example", "someone-studio.hf.space", "four.example"}
    assert hosts_of("127.0.0.1", (), {"GRADIO_ROOT_PATH": "/studio"}).given == set()
    for wrong in ("http://lab.example", "lab example", "*", "lab.example:port"):
        with pytest.raises(ValueError, match="is not the name of a host"):
            hosts_of("127.0.0.1", [wrong], {})


# --- the operator link ---------------------------------------------------------------------------------------------------------


def client(token: str = TOKEN, base_url: str = "http://lab.example") -> TestClient:
    async def page(_: Any) -> PlainTextResponse:
        return PlainTextResponse("page")

    app = Starlette(
        routes=[Route("/", page, methods=["GET", "POST"]), Route("/sub/", page)], middleware=[Middleware(Links, access=Access(token=token))]
    )
    return TestClient(app, base_url=base_url, follow_redirects=False)


def test_the_link_sets_a_cookie_and_takes_the_token_out_of_the_address() -> None:
    answer = client().get("/sub/", params={"operator": TOKEN, "run": "a b", "x": ""})
    assert (answer.status_code, answer.headers["location"]) == (303, "?run=a+b&x=")
    cookie = answer.headers["set-cookie"].lower()
    assert f"{COOKIE}={TOKEN}" in cookie and "httponly" in cookie and "samesite=strict" in cookie and "secure" not in cookie
    assert client().get("/", params={"operator": TOKEN}).headers["location"] == "./"


def test_a_plus_sign_in_a_token_survives_the_address() -> None:
    assert client(token="a+b/c=").get("/?operator=a+b/c=").status_code == 303


def test_the_cookie_is_kept_to_https_where_there_is_https() -> None:
    assert "secure" in client(base_url="https://lab.example").get("/", params={"operator": TOKEN}).headers["set-cookie"].lower()
    proxied = client().get("/", params={"operator": TOKEN}, headers={"x-forwarded-proto": "https"})
    assert "secure" in proxied.headers["set-cookie"].lower()


def test_a_wrong_link_is_refused_without_a_cookie() -> None:
    answer = client().get("/", params={"operator": "guess"})
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    assert "operator link is not valid" in answer.text


def test_other_requests_pass() -> None:
    assert client().get("/").text == "page"
    assert client().post("/", params={"operator": TOKEN}).text == "page"
    assert client(token="").get("/", params={"operator": ""}).text == "page"


def test_the_choice_of_a_response_token_is_no_operator_link() -> None:
    assert client().get("/", params={"run": "a", "step": "3", "token": "1"}).text == "page"
