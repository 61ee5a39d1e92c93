"""The door: garbage is answered quietly, bodies are bounded, and viewers cannot keep the app busy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.datastructures import Headers

from rlhf_studio.ui import door as door_module
from rlhf_studio.ui import html, roles
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.door import UNKNOWN_NAME, VIEWERS_AT_ONCE, VIEWERS_WAITING, Door, Functions
from rlhf_studio.ui.html import ASSETS, assets_at_start
from rlhf_studio.ui.serving import bodies
from rlhf_studio.ui.serving.bodies import RequestRefused
from tests.ui.raw_http import Raw

VIEWER = {"X-Forwarded-For": "10.0.0.1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("workspace"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def raw(server: Server) -> Raw:
    return Raw(int(re.search(r":(\d+)/", server.url)[1]))


def train_page_of(server: Server) -> int:
    """The Train page's component."""
    return next(index for index, block in server.demo.blocks.items() if block.elem_id == "train-page")


# --- garbage -----------------------------------------------------------------------------------------------------------------------


FILES: list[Any] = [
    {"path": "/etc/passwd"},
    {"path": "\0", "meta": {"_type": "gradio.FileData"}},
    {"path": "x" * 60_000},
    {"path": "http://[", "url": "x"},
    {"run": [{"a": {"path": "../x", "meta": {"_type": "gradio.FileData"}}}]},
    {"meta": {"_type": "gradio.FileData"}, "url": "/x"},
]
"""What Gradio takes for files."""


def garbage(server: Server) -> list[bytes]:
    """Bodies that no page sends: some are no JSON, some have wrong types, some name what does not exist."""
    queued = next(index for index, event in server.demo.fns.items() if event.fn.__name__ == "start_run")
    direct = next(index for index, event in server.demo.fns.items() if event.fn.__name__ == "open_run")
    train = train_page_of(server)
    event = {"data": [], "fn_index": queued, "session_hash": "x", "event_data": None}
    ask = {"component_id": train, "fn_name": "boot", "session_hash": "x", "data": {}}
    wrong: list[Any] = [None, True, 1.5, "7", -1, 99, 10**30, [7], {}, "\ud800", "", "../x", "x" * 1000]
    shapes = [
        {**event, "fn_index": index, key: value} for index in (queued, direct) for key in ("fn_index", "session_hash") for value in wrong
    ]
    shapes += [{**event, "data": value} for value in (None, {}, "x", [1], [1] * 5)]
    shapes += [{**event, "trigger_id": value} for value in ("x", [], 1.5)]
    shapes += [{**event, "fn_index": direct, "event_data": {"run": value}} for value in wrong]
    shapes += [{**event, "fn_index": index, "event_data": value} for index in (queued, direct) for value in (*FILES, 7, "x", [7])]
    shapes += [{**ask, "fn_name": name, "data": value} for name in ("boot", "check", "preview", "to_yaml") for value in FILES]
    shapes += [{**event, "fn_index": direct, "event_data": {"run": value}} for value in FILES]
    shapes += [{**ask, key: value} for key in ("component_id", "fn_name", "session_hash") for value in wrong]
    shapes += [{**ask, "fn_name": name} for name in ("__class__", "__init__", "postprocess", "server_fns", "get_config")]
    odd = [
        {"model": 1, "engine": []},
        {"data": 1},
        {"model.policy": "\0"},
        {"name": "\ud800"},
        {"ppo": {"steps": "\ud800"}},
        {"ppo.\ud800": 1},
        1,
        [],
        "x",
    ]
    shapes += [{**ask, "fn_name": name, "data": {"values": values}} for name in ("check", "preview", "to_yaml") for values in odd]
    shapes += [[], 1, "x", None, {}, {"data": []}, {"event_id": 1}, {"session_hash": "x", "fn_index": queued, "event_id": []}]
    nested = json.dumps(ask).replace("{}", "[" * 900 + "]" * 900).encode()
    return [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 20_000,
        b'{"a":' * 20_000,
        b"1" * 5000,
        nested,
        *(json.dumps(shape).encode() for shape in shapes),
    ]


READ_WHOLE = ("/gradio_api/run/{api_name}", "/gradio_api/component_server")  # what is asked for at other addresses is read by the same code

GETS = [
    *("/%00", "/nope", "/assets/%00", "/assets/" + "a" * 300, "/static/" + "a/" * 3000, "/static/..%2f..%2fx", "/?page=x", "/?deep_link=x"),
    *(
        "/config?page=x",
        "/config?deep_link=%00",
        "/gradio_api/file=%00",
        "/gradio_api/file=http://127.0.0.1:1/x",
        "/gradio_api/file=/etc/passwd",
    ),
    *(f"/gradio_api/file={ASSETS.as_posix()}/{name}" for name in ("", "../app.py", "nothing.js", "%00", "a" * 300, "./train/train.js")),
    *(f"/gradio_api/file={ASSETS.as_posix()}@{name}" for name in ("", "/", "x/../app.py", "x/../../app.py", "x/nothing.js", "x/y@/z")),
    *("/gradio_api/queue/data", "/gradio_api/queue/data?session_hash=nobody", "/gradio_api/queue/data?session_hash=%00"),
]
HEADERS = [
    *({"Range": value} for value in ("bytes=1-2-3", "bytes=5-1", "bytes=a-b")),
    *({"Origin": value} for value in ("http://[", "null", "x", "http://127.0.0.1:99999999")),
    *({name: "["} for name in ("X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Referer", "Cookie", "Accept-Language")),
]


def test_garbage_is_a_quiet_refusal(server: Server, raw: Raw, capfd: pytest.CaptureFixture[str]) -> None:
    bodies_sent = garbage(server)
    for row in roles.ROUTES:
        method, path = row.split(" ", 1)
        if method != "POST" or path.endswith("/"):
            continue
        for body in bodies_sent if path in READ_WHOLE else bodies_sent[:8]:
            status, text = raw.send("POST", re.sub(r"{[^}]+}", "x", path), body)
            assert status < 500 or b"There is no such run" in text, (path, body[:200], text)
    for path in GETS:
        assert 400 <= raw.send("GET", path)[0] < 500, path
    for headers in HEADERS:
        for path in ("/", "/config", f"/gradio_api/file={ASSETS.as_posix()}/train/train.js"):
            assert raw.send("GET", path, headers=headers)[0] < 500, (path, headers)
    output = capfd.readouterr()
    assert output.err == "" and "Traceback" not in output.out


@pytest.mark.parametrize(
    ("at", "rule"), [(f"@{assets_at_start().version}", "public, max-age=31536000, immutable"), ("@older", "no-cache"), ("", "no-cache")]
)
def test_a_browser_keeps_only_what_never_changes(server: Server, at: str, rule: str) -> None:
    with urllib.request.urlopen(f"{server.url}gradio_api/file={ASSETS.as_posix()}{at}/shared/dom.js", timeout=30) as answer:
        assert answer.headers["cache-control"] == rule and answer.read() == (ASSETS / "shared" / "dom.js").read_bytes()


def test_a_script_that_changed_since_the_start_is_not_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "state_of", lambda path: (0, 0))
    address = f"{server.url}gradio_api/file={ASSETS.as_posix()}@{assets_at_start().version}/shared/dom.js"
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert answer.headers["cache-control"] == "no-cache"


def test_what_does_not_exist_is_said_to_be_missing(server: Server, raw: Raw) -> None:
    ask = {"component_id": 10**6, "fn_name": "boot", "session_hash": "x", "data": {}}
    assert raw.send("POST", "/gradio_api/component_server/", ask) == (404, b'{"detail":"There is no such function."}')
    event = {"fn_index": 10**6, "data": [], "session_hash": "x"}
    assert raw.send("POST", "/gradio_api/run/predict", event) == (404, b'{"detail":"There is no such event."}')
    assert raw.send("GET", "/gradio_api/queue/data?session_hash=x") == (404, b'{"detail":"Nothing was started in this session."}')


@pytest.mark.parametrize("value", FILES)
def test_nothing_in_an_event_stands_for_a_file(value: Any) -> None:
    event = {"fn_index": 3, "session_hash": "x", "data": []}
    assert bodies.event_call({**event, "event_data": {"run": "path"}}, {3: 0})["event_data"] == {"run": "path"}
    assert bodies.event_call(event, {3: 0})["event_data"] is None
    for sent, inputs in (({**event, "event_data": value}, 0), ({**event, "data": [value]}, 1), ({**event, "event_data": [value]}, 0)):
        with pytest.raises(RequestRefused, match="The event is not valid"):
            bodies.event_call(sent, {3: inputs})


def test_a_member_that_is_given_twice_cannot_ask_for_something_else(server: Server, raw: Raw) -> None:
    """Gradio gets what was checked, whichever of two equal members its own reader would take."""
    index = {event.fn.__name__: index for index, event in server.demo.fns.items()}
    rest = '"data": [], "session_hash": "x"'
    for first, second in (("act_on_run", "go_train"), ("go_train", "act_on_run")):
        body = f'{{"fn_index": {index[first]}, {rest}, "fn_index": {index[second]}}}'.encode()
        status, _ = raw.send("POST", "/gradio_api/run/predict", body, VIEWER)
        assert status == (200 if second == "go_train" else 403)


def test_other_types_of_body_are_refused(raw: Raw) -> None:
    """Another website may send text and forms without permission; our page sends JSON."""
    ask = json.dumps({"component_id": 4, "fn_name": "boot", "session_hash": "x", "data": {}}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"):
        assert raw.send("POST", "/gradio_api/component_server/", ask, {"Content-Type": kind})[0] == 415


# --- uploads and long bodies -----------------------------------------------------------------------------------------------------------


def pushed(raw: Raw, head: str, piece: bytes, most: int) -> tuple[int, bytes]:
    """(bytes that the server took before it closed or ``most`` were sent, its answer)."""
    taken = 0
    answer = b""
    with socket.create_connection(("127.0.0.1", raw.port), timeout=20) as connection:
        connection.sendall(f"{head}\r\nHost: 127.0.0.1:{raw.port}\r\n\r\n".encode())
        try:
            while not answer and taken < most:
                connection.sendall(piece)
                taken += len(piece)
                connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    answer += connection.recv(4096)
                connection.settimeout(20)
            while more := connection.recv(4096):
                answer += more
        except ConnectionError:
            pass
    return taken, answer


CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
MULTIPART = "Content-Type: multipart/form-data; boundary=b"


@pytest.mark.parametrize("sender", ["operator", "viewer"])
@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/upload?upload_id=x", "/gradio_api/process_recording"])
def test_an_upload_is_refused_before_it_is_read(sender: str, path: str, raw: Raw) -> None:
    who = "" if sender == "operator" else "\r\nX-Forwarded-For: 10.0.0.1"
    for length in ("Content-Length: 1000000000", "Transfer-Encoding: chunked"):
        taken, answer = pushed(raw, f"POST {path} HTTP/1.1\r\n{MULTIPART}\r\n{length}{who}", CHUNK, 200_000_000)
        assert not answer or answer.startswith(b"HTTP/1.1 403"), answer[:100]
        assert taken < 20_000_000  # what fits into the sockets' own memory
    status, text = raw.send("POST", path, b"--b\r\n\r\n--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"})
    assert (status, b"nobody may use it" in text) == (403, True)


def test_a_body_without_end_is_cut_off(raw: Raw) -> None:
    head = "POST /gradio_api/component_server/ HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    taken, answer = pushed(raw, head, CHUNK, 200_000_000)
    assert taken < 20_000_000 and (not answer or answer.startswith(b"HTTP/1.1 413"))


def test_bodies_are_bounded_and_viewers_bodies_more_so(server: Server, raw: Raw) -> None:
    train = train_page_of(server)

    def ask(length: int) -> Any:
        return {"component_id": train, "fn_name": "check", "session_hash": "x", "data": {"values": {"name": "a" * length}}}

    path = "/gradio_api/component_server/"
    assert [raw.send("POST", path, ask(length), VIEWER)[0] for length in (60_000, 70_000)] == [200, 413]
    assert raw.send("POST", path, ask(900_000))[0] == 200
    announced = {"Content-Length": "1000001", "Content-Type": "application/json"}
    assert raw.send("POST", path, None, announced)[0] == 413  # at once, before anything is sent


def read(messages: list[Any], most: int = 100, **headers: str) -> bytes:
    async def receive() -> Any:
        if messages:
            return {"type": "http.request", "more_body": bool(messages[1:]), "body": messages.pop(0)}
        await asyncio.Event().wait()

    sent = Headers({"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}})
    return asyncio.run(bodies.read_body(sent, receive, most))


def test_a_body_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SECONDS", 0.01)
    assert read([b"a" * 60, b"b" * 40]) == b"a" * 60 + b"b" * 40
    for messages, headers, status in (
        ([], {}, 408),
        ([b"a" * 60, b"b" * 41], {}, 413),
        ([], {"content_length": "101"}, 413),
        ([], {"content_length": "x"}, 413),
    ):
        with pytest.raises(RequestRefused) as caught:
            read(messages, **headers)
        assert caught.value.status == status


def test_depth_is_measured_outside_of_texts_and_before_anything_recurses() -> None:
    deepest = b'{"a":' + b"[" * (bodies.DEEPEST - 1) + b"]" * (bodies.DEEPEST - 1) + b"}"
    assert bodies.read_object(deepest)["a"]
    assert bodies.read_object(json.dumps({"a": '["\\' * 1000}).encode())
    for body in (deepest.replace(b"[", b"[[", 1).replace(b"]", b"]]", 1), b"[" * 10**6, b'{"a":' * 10**5):
        with pytest.raises(RequestRefused, match="nested too deeply"):
            bodies.read_object(body)


def test_depth_is_that_of_the_lists_and_objects() -> None:
    chance = random.Random(1)

    def text() -> str:
        return "".join(chance.choices('[]{}"\\a,\n', k=chance.randrange(6)))

    def anything(depth: int) -> Any:
        inside = [anything(depth - 1) for _ in range(chance.randrange(3))] if depth else []
        return chance.choice([text(), inside, {text(): value for value in inside}])

    def depth_of(value: Any) -> int:
        if not isinstance(value, (list, dict)):
            return 0
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)

    for _ in range(2000):
        value = anything(4)
        assert bodies._depth(json.dumps(value).encode()) == depth_of(value), value


def test_another_encoding_hides_no_depth() -> None:
    with pytest.raises(RequestRefused, match="not JSON"):
        bodies.read_object(json.dumps({"a": 1}).encode("utf-16"))


def spoken(raw: Raw, sent: bytes) -> bytes:
    """What the server answers to these bytes, up to the end of the connection or a second of silence."""
    answer = b""
    with socket.create_connection(("127.0.0.1", raw.port), timeout=20) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(sent)
        while more := connection.recv(65_536):
            answer += more
    return answer


def test_what_no_browser_sends_makes_nobody_more_and_fills_nothing(server: Server, raw: Raw, capfd: pytest.CaptureFixture[str]) -> None:
    """Headers after the body, heads without an end, garbage, and a wish for a websocket."""
    assert spoken(raw, b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000_000)[:12] in (b"", b"HTTP/1.1 400")
    host = f"Host: 127.0.0.1:{raw.port}\r\nConnection: close\r\n"
    ask = {"component_id": train_page_of(server), "fn_name": "from_yaml", "session_hash": "x", "data": {"text": "a: 1"}}
    head = f"POST /gradio_api/component_server/ HTTP/1.1\r\n{host}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    body = json.dumps(ask)
    for late, status in (("X-Forwarded-For: 10.0.0.1\r\n", b"200"), ("", b"200")):
        sent = f"{head}\r\n{len(body):x}\r\n{body}\r\n0\r\n{late}\r\n"
        assert spoken(raw, sent.encode()).startswith(b"HTTP/1.1 " + status)
    sent = f"{head}X-Forwarded-For: 10.0.0.1\r\n\r\n{len(body):x}\r\n{body}\r\n0\r\nX-RLHF-Studio-Token: {server.access.token}\r\n\r\n"
    assert spoken(raw, sent.encode()).startswith(b"HTTP/1.1 403")
    assert spoken(raw, b"\x16\x03\x01 no words\r\n\r\n").startswith(b"HTTP/1.1 400")
    upgrade = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{raw.port}\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n"
    assert spoken(raw, upgrade.encode()).startswith(b"HTTP/1.1 200")
    assert capfd.readouterr().err == ""


# --- headers ---------------------------------------------------------------------------------------------------------------------------


def test_headers_and_addresses_are_bounded_before_anything_reads_them(raw: Raw, capfd: pytest.CaptureFixture[str]) -> None:
    for headers in ({"Cookie": 'a="' + "\\" * 20_000 + '"'}, {"Origin": "x" * 8_000}, {f"X-{n}": "x" * 2_000 for n in range(9)}):
        for path in ("/", "/nope", "/gradio_api/startup-events"):
            assert raw.send("GET", path, headers=headers)[0] == 431
    assert raw.send("GET", "/?" + "a=1&" * 2_001)[0] == 414
    assert raw.send("GET", "/?" + "a=1&" * 1_999, headers={"Cookie": "a=" + "b" * 7_900})[0] == 200
    assert capfd.readouterr().err == ""


# --- health ----------------------------------------------------------------------------------------------------------------------------


def test_health_is_told_to_everybody_and_nothing_else_is(raw: Raw) -> None:
    for sender in ({}, {"Sec-Fetch-Site": "cross-site"}, VIEWER, {"Host": "10.0.0.9"}):
        known = sender.get("Host") is None  # the app listens on this machine alone, so it knows no other address
        assert raw.send("GET", "/health", headers=sender) == ((200, b"ok\n") if known else (421, UNKNOWN_NAME.encode()))
    assert raw.send("HEAD", "/health") == (200, b"")
    assert raw.send("POST", "/health", {})[0] == 404


# --- turns -----------------------------------------------------------------------------------------------------------------------------


def test_a_few_viewers_calls_run_at_once_and_an_operators_never_waits(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that never end stand for calls that are slow."""
    train = train_page_of(server)
    entered: list[str] = []

    async def never(function: Any, data: Any, request: Any) -> None:
        entered.append(request.headers["x-who"])
        await asyncio.Event().wait()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the door answers itself")

    monkeypatch.setattr(door_module, "run_in_threadpool", never)
    door = Door(app, Access(), Functions(server.demo), server.workspace.root)
    body = json.dumps({"component_id": train, "fn_name": "check", "session_hash": "x", "data": {}}).encode()
    answered: list[int] = []

    async def call(who: str, forwarded: bool) -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answered.append(message["status"])
                if message["status"] == 503:
                    assert (b"retry-after", b"3") in message["headers"]

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"x-who", who.encode())]
        headers += [(b"x-forwarded-for", b"10.0.0.1")] if forwarded else []
        path = "/gradio_api/component_server/"
        await door(
            {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1)},
            receive,
            send,
        )

    async def all_of_them() -> None:
        over = 3
        waiting = [asyncio.ensure_future(call("viewer", True)) for _ in range(VIEWERS_AT_ONCE + VIEWERS_WAITING + over)]
        waiting.append(asyncio.ensure_future(call("operator", False)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert sorted(entered) == ["operator"] + ["viewer"] * VIEWERS_AT_ONCE and answered == [503] * over
        for task in waiting[:VIEWERS_AT_ONCE]:
            task.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        assert entered.count("viewer") == 2 * VIEWERS_AT_ONCE  # the next ones have their turn
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(all_of_them())
