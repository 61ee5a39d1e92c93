"""Programs that may not: viewers, pages of other websites, names that are not the app's, and arguments that are files.

The hints of functions for programs must be no strings: no ``from __future__ import annotations`` here.
"""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.api import calling
from rlhf_studio.ui.api.calling import Calls, for_programs
from rlhf_studio.ui.api.mcp import require_mcp
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.door import Door, Functions
from rlhf_studio.ui.roles import PLAYED, Role
from rlhf_studio.ui.serving.bodies import RequestRefused, mcp_message
from rlhf_studio.ui.visiting.modes import Mode
from tests.access import table
from tests.api.sessions import PLAIN, TOKEN, asking
from tests.ui.raw_http import Raw

ACTING = {
    "start_training": {"recipe": "world"},
    "fork_run": {"run": "recording-improves"},
    "stop_training": {"run": "recording-improves"},
    "score_text": {"prompt": "a", "response": "b"},
}


def test_without_the_operators_token_a_program_reads_and_does_nothing(server: Server, raw: Raw) -> None:
    before = server.workspace.runs()
    rating = Feedback(server.workspace.root).rating_link()
    ask = asking(server.url)
    assert ask("run_status", run="recording-improves")["ended"]
    for function, arguments in ACTING.items():
        with pytest.raises(AppError, match="Authorization: Bearer TOKEN"):
            ask(function, **arguments)
    for shown in ({}, {"Authorization": "Bearer another"}, {"X-RLHF-Studio-Rating-Token": rating}):
        assert raw.send("POST", "/gradio_api/call/v2/run_status", {"run": "recording-improves"}, shown)[0] == 200
        for function, arguments in ACTING.items():
            for way in ("call/v2/",) if shown else ("call/v2/", "call/", "run/", "api/"):
                body = {"data": list(arguments.values()), **arguments}
                assert raw.send("POST", f"/gradio_api/{way}{function}", body, shown)[0] in (400, 403, 404)
    assert server.workspace.runs() == before


def test_each_function_looks_at_the_role_itself() -> None:
    """As if no door stood before it: hiding a function protects nothing."""
    started: list[str] = []

    class Program:
        calls = Calls(Access(token="secret", token_only=True))

        @for_programs(Role.OPERATOR, players_in=PLAYED, starts=True)
        def start(self, request: Any, recipe: str) -> dict[str, str]:
            started.append(recipe)
            return {"run": recipe}

    def sender(**headers: str) -> Any:
        return SimpleNamespace(headers=headers, client=SimpleNamespace(host="127.0.0.1"), query_params={})

    for headers in ({}, {"authorization": "Bearer x"}, {"authorization": "Basic secret"}, {"authorization": "Bearer"}):
        with pytest.raises(Exception, match="You can watch runs"):
            asyncio.run(Program().start(sender(**headers), "world"))
    with pytest.raises(Exception, match="another website"):
        asyncio.run(Program().start(sender(authorization="Bearer secret", origin="https://evil.example"), "world"))
    with pytest.raises(Exception, match="recipe must be a text"):
        asyncio.run(Program().start(sender(authorization="Bearer secret"), {"path": "/etc/passwd"}))
    assert started == []
    assert asyncio.run(Program().start(sender(authorization="bearer secret"), "world")) == '{"run":"world"}'


def test_a_page_of_another_website_and_another_name_reach_nothing(raw: Raw) -> None:
    asked = ("GET /gradio_api/info", "GET /agents.md", "GET /config", "POST /gradio_api/queue/join", "POST /gradio_api/mcp/")
    for row in (*asked, *(f"POST /gradio_api/call/v2/{name}" for name in table.PROGRAMS)):
        method, path = row.split()
        body = {} if method == "POST" else None
        shown = {"Authorization": f"Bearer {TOKEN}"}
        assert raw.send(method, path, body, {**shown, "Origin": "https://evil.example"})[0] == 403, row
        assert raw.send(method, path, body, {**shown, "Sec-Fetch-Site": "cross-site"})[0] == 403, row
        assert raw.send(method, path, body, {**shown, "Host": "evil.example"})[0] == 421, row


def test_no_argument_is_a_file(server: Server, raw: Raw, tmp_path: Path) -> None:
    """Neither a file of the server nor one of the program's machine: Gradio would read the one, and keep the other."""
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    client = Client(server.url, **PLAIN)
    with pytest.raises(Exception, match="403"):  # the client wants to upload it
        client.predict(handle_file(str(secret)), api_name="/run_status")
    trick = {"path": str(secret), "meta": {"_type": "gradio.FileData"}}
    index = {event.fn.__name__: number for number, event in server.demo.fns.items()}["run_status"]
    for path, body in (
        ("queue/join", {"data": [trick], "fn_index": index, "session_hash": "x"}),
        ("run/run_status", {"data": [trick], "fn_index": index, "session_hash": "x"}),
        ("call/run_status", {"data": [trick]}),
        ("call/v2/run_status", {"run": trick}),
        ("call/v2/run_status", {"run": "x", "meta": 1}),
    ):
        status, text = raw.send("POST", f"/gradio_api/{path}", body)
        assert status == 400 and b"a secret" not in text, path
    for path in ("upload", "process_recording"):
        assert raw.send("POST", f"/gradio_api/{path}", b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"})[0] == 403
    call = {"method": "tools/call", "params": {"name": "run_status", "arguments": {"run": trick}}}
    with pytest.raises(RequestRefused, match="No argument is a file"):
        mcp_message(call)
    assert mcp_message({"method": "initialize", "params": {"_meta": {"path": 1}}}) and mcp_message({"method": "ping"})


def test_a_long_body_is_refused_before_it_is_read(raw: Raw) -> None:
    for path in ("call/run_status", "call/v2/start_training", "mcp/"):
        announced = {"Content-Length": "1000000", "Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        assert raw.send("POST", f"/gradio_api/{path}", None, announced)[0] == 413, path


def test_mcp_is_refused_where_it_is_not_on_or_not_installed(raw: Raw, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, body = raw.send("POST", "/gradio_api/mcp/", {"jsonrpc": "2.0", "method": "tools/list", "id": 1})
    assert status == 404 and b"--mcp" in body
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'pip install "gradio\[mcp\]"'):
        launch(tmp_path, mcp=True)
    require_mcp(False)


def test_the_door_lets_mcp_through_where_it_is_on(server: Server) -> None:
    """A stand-in for Gradio's own answer; ``tests/api/test_mcp.py`` has the real one."""
    reached: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(json.loads((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    functions = Functions(server.demo)
    functions.is_mcp_server = lambda: True
    door = Door(app, Access(Mode.READ_ONLY), functions, server.workspace.root)

    def status_of(arguments: Any, *headers: tuple[bytes, bytes]) -> int:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_status", "arguments": arguments}}
        answered: list[int] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(message).encode(), "more_body": False}

        async def send(part: Any) -> None:
            answered.extend([part["status"]] if "status" in part else [])

        every = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
        scope = {"type": "http", "method": "POST", "path": "/gradio_api/mcp/", "query_string": b"", "headers": every}
        asyncio.run(door({**scope, "client": ("127.0.0.1", 1)}, receive, send))
        return answered[0]

    assert status_of({"run": "x"}) == 200 and len(reached) == 1
    assert status_of({"run": {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}}) == 400
    assert status_of({"run": "x"}, (b"origin", b"https://evil.example")) == 403
    assert len(reached) == 1


def test_viewers_programs_wait_for_each_other_and_an_operators_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "AT_ONCE", 1)
    monkeypatch.setattr(calling, "WAITING", 1)
    began: list[str] = []

    class Program:
        calls = Calls(Access(token="secret", token_only=True))

        @for_programs(Role.VIEWER)
        async def look(self, request: Any, who: str) -> str:
            began.append(who)
            await asyncio.Event().wait()
            return who

    def sender(**headers: str) -> Any:
        return SimpleNamespace(headers=headers, client=SimpleNamespace(host="10.0.0.1"), query_params={})

    async def all_of_them() -> None:
        tasks = [asyncio.ensure_future(Program().look(sender(), name)) for name in ("first", "second", "third")]
        tasks.append(asyncio.ensure_future(Program().look(sender(authorization="Bearer secret"), "operator")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert began == ["first", "operator"]
        assert "Too many people" in str(tasks[2].exception())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(all_of_them())
