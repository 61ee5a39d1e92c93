"""Who is told of a run's end and alarms, and that nothing of an address is told to anybody."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import DESKTOP, Permissions, RunConfig, permissions_from_environment, permissions_from_flags
from rlhf_studio.config.permissions import VARIABLE
from rlhf_studio.engine.process import notify
from rlhf_studio.engine.process.notify import Notifier
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.exit_codes import BAD_INPUT
from rlhf_studio.inputs.checks.notified import notified_problems
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord

UNSTABLE = EventRecord("warning", "unstable", "Not stable: the KL passed its target.")


class Listener:
    """An address that keeps what it is told, and answers with ``status``."""

    def __init__(self) -> None:
        heard: list[dict[str, Any]] = []
        self.heard, self.status = heard, 204

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                heard.append(json.loads(handler.rfile.read(int(handler.headers["content-length"]))))
                handler.send_response(self.status)
                handler.end_headers()

            def log_message(handler, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/s3cret"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.close()


def config_with(names: str, **more: Any) -> RunConfig:
    return RunConfig.model_validate({"engine": {"notify": names}, **more})


def test_an_address_is_told_of_the_end_and_once_of_each_kind_of_alarm(tmp_path: Path, listener: Listener) -> None:
    events: list[EventRecord] = []
    told = Notifier(tmp_path / "run-1", "seed 1", config_with(" lab ,lab"), Permissions(notify={"lab": listener.url}), events.append)
    told.alarms([EventRecord("info", "early_stop", "It ended early."), UNSTABLE], 2)
    told.alarms([UNSTABLE, EventRecord("warning", "health", "The KL is clearly negative.")], 3)
    told.ended("failed", "no room", 3, {"total_steps": 20})
    first, second, last = listener.heard
    assert (first["event"], first["kind"], first["step"], first["run"], first["name"]) == ("alarm", "unstable", 2, "run-1", "seed 1")
    assert first["text"] == first["content"] == f"seed 1: {UNSTABLE.text}" and second["kind"] == "health"
    assert (last["event"], last["state"], last["step"], last["total_steps"]) == ("end", "failed", 3, 20)
    assert last["text"] == "seed 1: failed after step 3: no room" and events == []


def test_what_does_not_arrive_is_said_once_without_the_address(tmp_path: Path, listener: Listener) -> None:
    listener.status = 500
    events: list[EventRecord] = []
    gone = "http://127.0.0.1:1/s3cret"

    def show(title: str, text: str) -> None:
        raise OSError("there is no notify-send on this machine")

    people = Permissions(notify={"lab": listener.url, "gone": gone, "odd": "http://x/s3cret\x01"})
    told = Notifier(tmp_path, "seed 1", config_with(f"lab,gone,odd,{DESKTOP}"), people, events.append, show=show)
    told.alarms([UNSTABLE], 1)
    told.ended("finished", "", 2, {})
    assert [event.kind for event in events] == ["notify"] * 4 and len(listener.heard) == 2
    texts = [event.text for event in events]
    assert "status 500" in texts[0] and "it cannot be reached: Connection refused" in texts[1] and "no notify-send" in texts[3]
    assert not any("s3cret" in text or "127.0.0.1" in text for text in texts)


def test_of_an_answer_the_status_alone_is_read_and_the_time_is_limited_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that never ends, and one whose head comes a byte at a time."""
    sent = [0]

    def serve(server: socket.socket, head: bytes, part: bytes) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(head)
            while sent[0] < 10_000_000:
                connection.sendall(part)
                sent[0] += len(part)
                time.sleep(0.001)

    monkeypatch.setattr(notify, "SECONDS", 0.2)
    for head, part, arrives in ((b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536, True), (b"HTTP/1.1 200 OK\r\nx: ", b"x", False)):
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=serve, args=(server, head, part), daemon=True)
            thread.start()
            with contextlib.nullcontext() if arrives else pytest.raises(ComponentError, match=r"did not answer within 0\.2 s"):
                notify.post(f"http://127.0.0.1:{server.getsockname()[1]}/", {"text": "hello"})
            thread.join(10)
            assert not thread.is_alive()  # nobody reads any more
    assert sent[0] < 10_000_000


def test_the_desktop_gets_a_list_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(notify.shutil, "which", lambda name: name)
    monkeypatch.setattr(subprocess, "run", lambda command, **rest: ran.append((command, rest.get("shell"))))
    for system in ("Linux", "Darwin"):
        monkeypatch.setattr(notify.platform, "system", lambda system=system: system)
        notify.show("RLHF Studio", '--x "; rm -rf / <b>')
    (linux, shell), (mac, _) = ran
    assert linux[-3:] == ["--", "RLHF Studio", '--x "; rm -rf / &lt;b&gt;'] and not shell
    assert mac[-2:] == ["RLHF Studio", '--x "; rm -rf / <b>'] and "rm" not in mac[2]
    monkeypatch.setattr(notify.shutil, "which", lambda name: None)
    with pytest.raises(OSError, match="there is no osascript"):
        notify.show("a", "b")


def test_only_who_was_named_at_the_start_is_told() -> None:
    given = permissions_from_flags([], [], notify=["lab=https://hooks.example/s3cret"])
    assert permissions_from_environment({VARIABLE: given.as_text()}) == given and "s3cret" not in repr(given)
    assert list(notified_problems(config_with(f"lab,{DESKTOP}"), given)) == []
    (problem,) = notified_problems(config_with("lab,tutor"), given)
    assert (problem.field, problem.message) == (
        "engine.notify",
        "nobody is called tutor; start the program with --notify-url tutor=URL; known here: lab, desktop",
    )
    for text, part in (("lab", "write NAME=URL"), ("lab=ftp://x/s3cret", "lab: the address must"), ("desktop=http://x", "choose another")):
        with pytest.raises(ValueError, match="--notify-url") as caught:
            permissions_from_flags([], [], notify=[text])
        assert part in str(caught.value) and "s3cret" not in str(caught.value)


def test_a_run_tells_how_it_ended(tmp_path: Path, listener: Listener) -> None:
    """One that cannot begin, which is the shortest; and one that names somebody unknown does not begin either."""
    broken = {"reward": {"components": [{"kind": "http", "server": "nobody"}]}}
    create_run(tmp_path / "run", config_with("lab", **broken), name="seed 1", state="loading")
    assert run_engine(tmp_path / "run", permissions=Permissions(notify={"lab": listener.url})) == BAD_INPUT
    (message,) = listener.heard
    assert message["state"] == "failed" and "--reward-url nobody=URL" in message["text"] and message["run"] == "run"
    create_run(tmp_path / "other", config_with("tutor"), name="seed 2", state="loading")
    assert run_engine(tmp_path / "other") == BAD_INPUT
    assert "--notify-url tutor=URL" in RunReader(tmp_path / "other").status().cause and len(listener.heard) == 1
