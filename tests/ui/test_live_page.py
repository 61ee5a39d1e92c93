"""The Live page's Python side: the buttons' handlers, who may press them, and what the component is made of."""

from __future__ import annotations

import json
import sqlite3
import time

import gradio as gr
import httpx
import pytest

from rlhf_studio.runs import launch
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import html
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.live import page as live_page
from rlhf_studio.ui.live.snapshot import Position
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.fake_run import FakeRun, config
from tests.ui.live_app import LiveApp


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


@pytest.fixture
def run(tmp_path):
    run = FakeRun(tmp_path)
    run.run()
    run.step()
    yield run
    run.close()


def commands(run) -> list[str]:
    return [command.kind for command in run.writer.pending_commands()]


@pytest.mark.parametrize(("action", "kind"), live_page.COMMANDS.items())
def test_buttons_leave_requests_for_the_engine(workspace, run, action, kind):
    live_page.steer(workspace, action, {"run": run.run_id, "changes": {"ppo.kl_coef": 0.2}})
    assert commands(run) == [kind]
    (command,) = run.writer.pending_commands()
    assert command.payload == ({"changes": {"ppo.kl_coef": 0.2}} if kind == "set" else {})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (None, "Nothing was changed"),
        ({}, "Nothing was changed"),
        ({"ppo.steps": 5}, "'ppo.steps' cannot be changed while a run goes on"),
        ({"ppo.learning_rate": 0}, "ppo.learning_rate: Should be above 0"),
        ({"ppo.kl_coef": "0.1"}, "ppo.kl_coef must be a number"),
        ({"ppo.kl_coef": True}, "ppo.kl_coef must be a number"),
        ({"generation.temperature": float("inf")}, "generation.temperature"),
    ],
)
def test_a_change_that_the_settings_do_not_allow_reaches_no_engine(workspace, run, changes, why):
    with pytest.raises(gr.Error, match=why):
        live_page.steer(workspace, "set_run", {"run": run.run_id, "changes": changes})
    assert commands(run) == []


def test_stop_takes_a_waiting_run_out_of_the_queue(workspace):
    waiting = workspace.submit(config(), "waits")
    live_page.steer(workspace, "stop_run", {"run": waiting})
    assert workspace.queue_position(waiting) is None and workspace.status(waiting).state == "stopped"


def test_force_stop_asks_nobody_but_the_system(workspace, run, monkeypatch):
    stops = []
    monkeypatch.setattr(launch, "force_stop", lambda folder, by: stops.append((folder.name, by)))
    live_page.steer(workspace, "force_stop_run", {"run": run.run_id})
    assert stops == [(run.run_id, "an operator")] and commands(run) == []


def test_resume_queues_an_interrupted_run(workspace, run):
    run.lock.release()
    with pytest.raises(gr.Error, match="it has no checkpoint") as refused:
        live_page.steer(workspace, "resume_run", {"run": run.run_id})
    assert "python" not in refused.value.message and str(workspace.root) not in refused.value.message
    live_page.steer(workspace, "resume_run", {"run": run.run_id, "from_start": True})
    assert workspace.queue_position(run.run_id) == 1


@pytest.mark.parametrize(("action", "name"), [("stop_run", "nobody-here"), ("resume_run", "../../etc"), ("checkpoint_run", "")])
def test_a_refusal_of_the_store_becomes_one_sentence(workspace, action, name):
    with pytest.raises(gr.Error):
        live_page.steer(workspace, action, {"run": name})


def test_resume_of_a_running_run_is_refused(workspace, run):
    with pytest.raises(gr.Error, match="only a stopped, failed or interrupted run"):
        live_page.steer(workspace, "resume_run", {"run": run.run_id})


@pytest.mark.parametrize("data", [None, {}, {"run": 5}, {"run": ""}, ["x"]])
def test_a_button_without_a_run_is_refused(workspace, data):
    with pytest.raises(gr.Error, match="There is no such run"):
        live_page.steer(workspace, "pause_run", data)


def test_opening_the_same_run_twice_is_a_change():
    first, second = live_page.value_for("abc"), live_page.value_for("abc")
    assert first != second and first.rsplit("@", 1)[0] == second.rsplit("@", 1)[0] == "abc"


def test_a_reply_puts_the_viewers_part_before_the_shared_bytes():
    watches = {"operator": False, "why_not": 'Only "you" may watch.'}
    reply = json.loads(live_page.poll_reply(Position(run="abc"), b'"same":true', watches, 12.3456))
    assert reply == {"now": 12, "run": "abc", "operator": False, "why_not": 'Only "you" may watch.', "same": True}
    acts = {"operator": True, "why_not": ""}
    replies = [
        json.loads(live_page.poll_reply(Position(insight=held), b'"same":true', acts, 1.0, ("v2", b'{"kind":"improving"}')))
        for held in ("v1", "v2")
    ]
    assert replies[0]["verdict"] == {"kind": "improving"} and replies[0]["insight"] == "v2" and "verdict" not in replies[1]


# --- over HTTP ----------------------------------------------------------------------------------------------------------


CLIENT = httpx.Client(verify=False, trust_env=False, timeout=20)  # one for all requests: to load certificates costs more than a request


def server_function(app, name, data):
    body = {"data": data, "component_id": app.page.component._id, "fn_name": name, "session_hash": "test"}
    return CLIENT.post(f"{app.url}gradio_api/component_server/", json=body).json()


def press(app, action, run_id, **more):
    body = {"data": [], "event_data": {"run": run_id, "changes": {"ppo.kl_coef": 0.2}, **more}, "session_hash": "test"}
    return CLIENT.post(f"{app.url}gradio_api/run/{action}", json=body)


@pytest.fixture(scope="module", params=[Access(), Access(Mode.READ_ONLY)], ids=["operator", "viewer"])
def app(request, tmp_path_factory):
    app = LiveApp(tmp_path_factory.mktemp("live"), request.param)
    app.access = request.param
    yield app
    app.close()


@pytest.fixture
def watched(app):
    """A run under way in the app's workspace."""
    run = FakeRun(app.workspace)
    run.run()
    run.step()
    yield run
    run.close()


def test_only_operators_change_anything(app, watched):
    before = sqlite3.connect(watched.folder / "run.db").execute("SELECT count(*) FROM commands").fetchone()[0]
    if app.access.read_only:
        assert press(app, "force_stop_run", watched.run_id).status_code != 200
    for action in live_page.COMMANDS:
        reply = press(app, action, watched.run_id)
        assert (reply.status_code == 200) is not app.access.read_only, reply.text
        assert press(app, action, watched.run_id, view=True).status_code != 200, "a page that asked to watch"
    after = sqlite3.connect(watched.folder / "run.db").execute("SELECT count(*) FROM commands").fetchone()[0]
    assert after - before == (0 if app.access.read_only else len(live_page.COMMANDS))


def test_server_functions_only_read(app, watched):
    deadline = time.monotonic() + 20
    while "status" not in (reply := server_function(app, "poll", {"run": watched.run_id})):
        assert time.monotonic() < deadline, reply
    assert reply["operator"] is not app.access.read_only and reply["status"]["state"] == "running"
    assert bool(reply["why_not"]) is app.access.read_only
    assert server_function(app, "poll", {"run": watched.run_id, "view": True})["operator"] is False
    page = server_function(app, "fetch", {"kind": "page"})
    assert len(page["charts"]) >= 9 and page["glossary"]["gold/score"]["meaning"]
    assert len(server_function(app, "fetch", {"kind": "samples", "run": watched.run_id, "step": 1})["rows"]) == 12
    too_long = {"kind": "tokens", "run": watched.run_id, "step": 1, "sample": "x" * 10}
    for nonsense in (None, 5, {"kind": "stop", "run": watched.run_id}, too_long):
        assert isinstance(server_function(app, "fetch", nonsense), dict)
        assert isinstance(server_function(app, "resume_question", nonsense), dict)
    assert server_function(app, "fetch", {"kind": "learned", "run": watched.run_id})["traits"][0]["name"] == "length"
    assert server_function(app, "fetch", {"kind": "diagnosis", "run": watched.run_id})["findings"]
    pair = server_function(app, "fetch", {"kind": "answer", "run": watched.run_id, "sample": 1})
    assert pair["before"]["step"] == 0 and "problem" in server_function(
        app, "fetch", {"kind": "answer", "run": watched.run_id, "sample": 99}
    )
    answer = server_function(app, "resume_question", {"run": watched.run_id})
    assert set(answer) == ({"problem"} if app.access.read_only else {"title", "text", "confirm"})
    assert commands(watched) == []


def test_scripts_are_served_and_nothing_else_of_the_package(app):
    for name in (*html.scripts("live"), *html.STYLES["live"]):
        assert CLIENT.get(f"{app.url}gradio_api/file={html.ASSETS / name}").status_code == 200, name
    assert CLIENT.get(f"{app.url}gradio_api/file={html.plotly_script()}").status_code == 200
    assert CLIENT.get(f"{app.url}gradio_api/file={html.ASSETS.parent / 'access.py'}").status_code == 403
