"""The app as a whole: what it loads, how it is served, and what a request that did not come from our page can do."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.child_process.environment import NO_HUB_TOKEN
from rlhf_studio.cli.main import main as command_line
from rlhf_studio.config import NOTHING_ALLOWED
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import app as app_module
from rlhf_studio.ui import html
from rlhf_studio.ui.access import TOKEN_VARIABLE, Access
from rlhf_studio.ui.app import Server, access_for, build_app, launch, main
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.hosted.launching import web_app
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.services import Context, Services, services_of
from rlhf_studio.ui.serving.server import AppServer
from rlhf_studio.ui.visiting.greeting import greeting
from rlhf_studio.ui.visiting.modes import Mode
from tests.access import table
from tests.ui.train_helpers import install_world, start_stand_in
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        install_world(tmp_path_factory.mktemp("world"), patch)
        running = launch(tmp_path_factory.mktemp("workspace"), start=start_stand_in)
        yield running
        running.close()


def parts(root: Path, access: Access) -> tuple[Context, Services]:
    workspace = Workspace(root)
    context = Context(workspace, LiveFeed(workspace), access)
    return context, services_of(context, Feedback(root))


def built(root: Path, access: Access) -> gr.Blocks:
    """The app of a workspace, not served."""
    return build_app(*parts(root, access))


WITHOUT_TORCH = """
import gc, sys
gc.disable()
from pathlib import Path
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.faults import shelf as experiments
from rlhf_studio.lessons.teaching import codes, plan
from rlhf_studio.lessons.teaching.questions import Selection, two_back
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.app import build_app
from rlhf_studio.ui.learn.search import results_of
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.services import Context, services_of
root = Path(sys.argv[1])
workspace = Workspace(root)
context = Context(workspace, LiveFeed(workspace), Access())
build_app(context, services_of(context, Feedback(root)))
assert [shelf.text_of(one.name) for one in shelf.entries()]
plan.plans()
two_back("clip", 1)
codes.decode(codes.encode(Selection.of(["clip"], 1, 1), ["first"]))
assert [experiments.text_of(one["name"]) for one in experiments.entries()]
assert results_of("null_ref_context")
heavy = {"torch", "transformers", "datasets", "tokenizers", "plotly", "peft", "accelerate", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
gc.freeze()
"""


def test_the_app_its_lessons_plans_codes_experiments_and_search_load_neither_torch_nor_transformers(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, str(tmp_path)], check=True)


def test_every_event_of_a_page_is_private(tmp_path: Path) -> None:
    """Those that have no target are for programs."""
    demo = built(tmp_path, Access())
    assert {function.api_visibility for function in demo.fns.values() if function.targets} == {"private"}
    assert {function.fn.__name__ for function in demo.fns.values() if function.api_visibility != "private"} == table.PROGRAMS


def test_an_idle_app_leaves_the_machine_to_the_run(server: Server) -> None:
    """Gradio's queue looks for work a thousand times a second, which keeps a twentieth of a CPU busy: it starts where an event needs it."""
    assert [event.fn.__name__ for event in server.demo.fns.values() if event.queue] == []
    running = {thread.name for thread in threading.enumerate()}
    assert "app-server" in running
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.02


def test_what_gradio_is_told(tmp_path: Path) -> None:
    """Nothing is shared, recorded, monitored or open that the pages do not need."""
    for local in (True, False):
        demo = built(tmp_path, Access(token="secret"))
        web_app(demo, Access(loopback=local, token="secret"), tmp_path, [])
        assert (demo.run_history, demo.enable_monitoring, demo.ssr_mode, demo.allowed_paths, demo.space_id) == (
            False,
            False,
            False,
            [],
            None,
        )
        assert (demo.show_error, demo.max_file_size, demo.state_session_capacity) == (local, 5 * 1024**2, 1000)


def test_no_data_goes_into_templates(tmp_path: Path) -> None:
    demo = built(tmp_path, Access(token="secret"))
    for block in demo.blocks.values():
        if isinstance(block, gr.HTML):
            assert "{{" not in block.html_template and "${" not in block.html_template.replace("${value}", "")
    assert "secret" not in json.dumps(demo.get_config_file(), default=str)


# --- over HTTP, as anyone can ----------------------------------------------------------------------------------------------------


def http(server: Server, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(server.url.rstrip("/") + path, None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def function_index(server: Server, name: str) -> int:
    return next(index for index, function in server.demo.fns.items() if function.fn is not None and function.fn.__name__ == name)


def event(server: Server, name: str, event_data: Any, **headers: str) -> dict[str, Any]:
    """Send an event of ours, as the page does, through Gradio's queue where it is one of the queue, and wait for its end."""
    index = function_index(server, name)
    body = {"data": [], "event_data": event_data, "fn_index": index, "session_hash": "s1"}
    queued = server.demo.fns[index].queue
    status, text = http(server, "/gradio_api/queue/join" if queued else "/gradio_api/run/predict", body, **headers)
    assert status == 200, text
    if not queued:
        return {"success": True, "output": json.loads(text)}
    with urllib.request.urlopen(server.url.rstrip("/") + "/gradio_api/queue/data?session_hash=s1", timeout=30) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                message = json.loads(line[5:])
                if message["msg"] == "process_completed":
                    return message
    raise AssertionError("the stream ended without an answer")


def settings_of_page(**changes: Any) -> dict[str, Any]:
    values = values_of(load_recipe("world").config)
    return {"values": {**values, **{name.replace("__", "."): value for name, value in changes.items()}}, "basis": "world", "nonce": "n"}


def runs_of(server: Server) -> list[str]:
    return [run.run_id for run in server.workspace.runs()]


def test_the_page_answers_without_reaching_out(server: Server) -> None:
    status, text = http(server, "/")
    assert status == 200 and "RLHF Studio" in text
    for name in ("train/train.js", "runs/runs.js", "train/train.css", "shared/page.css"):
        assert http(server, f"/gradio_api/file={html.ASSETS.as_posix()}/{name}")[0] == 200
    assert http(server, f"/gradio_api/file={Path(__file__).as_posix()}")[0] == 403


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "true", "1e999", '"x"', "null", "[]"])
def test_numbers_that_no_widget_would_send_start_nothing(value: str, server: Server) -> None:
    """A number that is not finite is refused at the door, whatever it is for; a finite one by its setting."""
    number = json.loads(value)
    settings = settings_of_page(ppo__kl_coef=number)
    if isinstance(number, float) and not math.isfinite(number):
        body = {"data": [], "event_data": settings, "fn_index": function_index(server, "start_run"), "session_hash": "s1"}
        status, text = http(server, "/gradio_api/run/predict", body)
        assert status == 400 and "not finite" in text
    else:
        outcome = json.loads(event(server, "start_run", settings)["output"]["data"][0])
        assert [problem["field"] for problem in outcome["problems"]] == ["ppo.kl_coef"]
    assert runs_of(server) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://localhost:1"},
        {"X_Forwarded_For": "10.0.0.1"},
        {"query": "?view=1"},
    ],
    ids=str,
)
def test_requests_that_did_not_come_from_an_operator_start_nothing(headers: dict[str, str], server: Server) -> None:
    body = {"data": [], "event_data": settings_of_page(ppo__steps=2), "fn_index": function_index(server, "start_run"), "session_hash": "s1"}
    status, text = http(server, f"/gradio_api/run/predict{headers.pop('query', '')}", body, **headers)
    assert status == 403 and ("operator link" in text or "another website" in text)
    assert runs_of(server) == []


def test_a_start_opens_the_live_page_and_the_run_finishes(server: Server) -> None:
    message = event(server, "start_run", settings_of_page(ppo__steps=2))
    outcome, tabs, live = message["output"]["data"]
    run_id = json.loads(outcome)["run_id"]
    assert tabs["selected"] == "live" and live["value"].startswith(f"{run_id}@")
    wait_until(lambda: server.workspace.status(run_id).state == "finished")
    assert event(server, "act_on_run", {"action": "delete", "run": run_id})["success"]
    assert runs_of(server) == []


# --- starting and stopping -------------------------------------------------------------------------------------------------------


class Stub:
    """Enough of a server for :func:`main`."""

    def __init__(self, url: str = "http://127.0.0.1:7860/", token: str = "secret", root: Path = Path("/work")):
        self.url, self.access, self.closed, self.dispatcher, self.keeper = url, Access(token=token), False, None, None
        self.workspace = Workspace(root)

    def wait(self) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.closed = True


def test_the_command_serves_until_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options_seen: dict[str, Any] = {}
    stub = Stub(root=tmp_path)
    monkeypatch.setattr(app_module, "launch", lambda root, **options: options_seen.update(root=root, **options) or stub)
    monkeypatch.setenv("GRADIO_SERVER_PORT", "7001")
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", "elsewhere")
    monkeypatch.setenv(NO_HUB_TOKEN, "")  # so that it is put back afterwards
    plain = {
        "permissions": NOTHING_ALLOWED,
        "allow_hosts": [],
        "prepare_lessons": True,
        "browse": [],
        "mcp": False,
        **(main.__kwdefaults__ or {}),
    }
    assert main([]) == 0
    assert options_seen == {
        "root": Path("elsewhere"),
        "host": "127.0.0.1",
        "port": 7001,
        "mode": Mode.LOCAL,
        **plain,
        "keep_hub_token": True,
    }
    assert stub.closed
    out = capsys.readouterr().out
    assert "RLHF Studio is at http://127.0.0.1:7860/" in out and "Runs that were working go on" in out and "secret" not in out
    monkeypatch.setenv("GRADIO_SERVER_NAME", "0.0.0.0")
    main(["--port", "8000", "--workspace", "w", "--read-only"])
    assert options_seen == {"root": Path("w"), "host": "0.0.0.0", "port": 8000, "mode": Mode.READ_ONLY, **plain, "keep_hub_token": False}


@pytest.mark.parametrize(
    ("flags", "environment", "keeps"),
    [
        ([], {}, True),
        (["--host", "::1"], {}, True),
        (["--host", "0.0.0.0"], {}, False),
        (["--host", "192.168.0.2"], {}, False),
        ([], {"SPACE_ID": "someone/studio"}, False),
        ([], {"SYSTEM": "spaces"}, False),
        (["--host", "0.0.0.0", "--share-hub-token"], {"SPACE_ID": "someone/studio"}, True),
    ],
)
def test_the_hub_token_serves_whoever_started_the_app(
    flags: list[str], environment: dict[str, str], keeps: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a machine of one person, runs may use the token. Where others start runs, even the app's own checks do not use it, unless a flag
    asks for it."""
    for name in ("SPACE_ID", "SYSTEM", "GRADIO_SERVER_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, NO_HUB_TOKEN: ""}.items():
        monkeypatch.setenv(name, value)
    options_seen: dict[str, Any] = {}
    monkeypatch.setattr(app_module, "launch", lambda root, **options: options_seen.update(options) or Stub(root=tmp_path))
    assert main(["--workspace", str(tmp_path), *flags]) == 0
    assert options_seen["keep_hub_token"] == keeps
    assert bool(os.environ[NO_HUB_TOKEN]) != keeps


def test_the_greeting_says_who_is_an_operator_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def greeting_of(host: str, mode: Mode = Mode.LOCAL, token: str = "") -> str:
        access = access_for(host, mode, (), {TOKEN_VARIABLE: token})
        first, *lines = greeting("http://lab:7860/", tmp_path, access, host)
        assert first.startswith("RLHF Studio is at http://lab:7860/ ")
        return "\n".join(lines).replace(access.token, "TOKEN")

    assert greeting_of("127.0.0.1").startswith("Operators, who may start and change runs: whoever uses this machine. ")
    assert greeting_of("127.0.0.1").endswith(f"set {TOKEN_VARIABLE}.")
    link = "Operators, who may start and change runs, open the operator link:\n  http://lab:7860/?operator="
    hidden = f"...  (the value of {TOKEN_VARIABLE})"
    assert greeting_of("localhost", token="secret") == f"Whoever uses this machine may watch. {link}{hidden}"
    assert greeting_of("0.0.0.0") == f"Everyone who reaches this address may watch. {link}TOKEN"
    assert greeting_of("0.0.0.0", token="secret") == f"Everyone who reaches this address may watch. {link}{hidden}"
    on_a_space = access_for("0.0.0.0", Mode.SPACE, (), {TOKEN_VARIABLE: "secret", "SPACE_HOST": "ann-studio.hf.space,other.example"})
    assert greeting("http://lab:7860/", tmp_path, on_a_space, "0.0.0.0")[0].startswith("RLHF Studio is at https://ann-studio.hf.space/ ")
    assert greeting_of("0.0.0.0", Mode.SPACE).startswith("Visitors may watch, and start small runs of their own. The owner, ")
    for host, token in (("127.0.0.1", ""), ("127.0.0.1", "secret"), ("0.0.0.0", "")):
        assert greeting_of(host, Mode.READ_ONLY, token) == "Read-only: nobody is an operator; runs can be watched, not started or changed."


@pytest.mark.parametrize("token", ["two words", "Grüße", "a;b", 'a"b', "a\nb", "x" * 201])
def test_a_token_that_a_cookie_cannot_carry_is_refused_at_the_start(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    assert main(["--workspace", str(tmp_path / "w")]) == 2
    errors = capsys.readouterr().err
    assert f"{TOKEN_VARIABLE} must be" in errors and token not in errors
    assert not (tmp_path / "w").exists()


def test_a_workspace_or_port_that_cannot_be_used(tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--workspace", str(tmp_path / "file")]) == 2
    assert "the app could not start" in capsys.readouterr().err
    port = server.url.rstrip("/").rsplit(":", 1)[1]
    assert main(["--workspace", str(tmp_path / "w"), "--port", port]) == 2
    assert port in capsys.readouterr().err


def test_a_server_waits_until_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, services = parts(tmp_path, Access())
    server = Server("", context.access, gr.Blocks(), context.workspace, context.feed, None, services)
    server.close()
    server.wait()
    assert start_engine is not None


def test_a_read_only_app_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AppServer, "start", lambda self: None)
    reading = launch(tmp_path, mode=Mode.READ_ONLY)
    assert reading.dispatcher is None and not reading.access.is_operator(None)
    working = launch(tmp_path)
    assert working.dispatcher is not None and len(working.access.token) >= 32
    for server in (reading, working):
        server.close()


@pytest.mark.parametrize(
    ("environment", "terminal", "opens"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"DISPLAY": ":0"}, False, False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "a"}, True, False),
        ({}, True, False),
    ],
)
def test_the_program_alone_opens_the_app_and_the_browser_where_a_person_sits(
    environment: dict[str, str], terminal: bool, opens: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    opened: list[str] = []
    monkeypatch.setattr(app_module.webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(app_module, "launch", lambda root, **options: Stub(root=tmp_path))
    monkeypatch.chdir(tmp_path)
    assert command_line([]) == 0
    assert opened == (["http://127.0.0.1:7860/"] if opens else [])
