"""A Space goes to sleep and wakes up: what the app does with its runs at its end, and, with real processes, that a run goes on after it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs.hosted.ending import BY, end_runs
from rlhf_studio.runs.visitors.limits import Admission
from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.app import launch
from rlhf_studio.ui.hosted import ending
from rlhf_studio.ui.visiting import identity
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.fake_run import FakeRun
from tests.ui.test_visiting import ANN, BOB, press
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SPACE = {"SYSTEM": "spaces", "SPACE_ID": "ada/rlhf-studio", "SPACE_HOST": "ada-rlhf-studio.hf.space", "SPACE_AUTHOR_NAME": "ada"}


def test_runs_end_with_the_app_where_the_machine_does() -> None:
    space, variable = {"SPACE_ID": "a/b"}, ending.VARIABLE
    assert [ending.stops_runs(given) for given in ({}, space, {variable: "1"}, {**space, variable: "0"})] == [False, True, True, False]
    with pytest.raises(ValueError, match=variable):
        ending.stops_runs({variable: "yes"})


def test_the_first_signal_ends_the_app_and_a_second_one_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ending.told_to_end():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # until the process has ended
    signal.signal(signal.SIGTERM, before)


def test_an_app_that_ends_with_its_machine_asks_its_runs_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ending, "STOP_SECONDS", 0.0)
    run = FakeRun(tmp_path)
    run.run()
    server: Any = SimpleNamespace(workspace=Workspace(tmp_path), dispatcher=None, keeper=None)
    ending.say_goodbye(server, stop_runs=False)
    assert run.writer.pending_commands() == []
    ending.say_goodbye(server, stop_runs=True)
    assert [command.kind for command in run.writer.pending_commands()] == ["stop"]
    assert f"The run {run.run_id} was still at work" in capsys.readouterr().out
    run.close()


# --- with real processes -------------------------------------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPACE", "RLHF_STUDIO"))}
    command = [sys.executable, "app.py", "--workspace", str(tmp_path)]
    with (tmp_path / "app.log").open("w") as log:
        started = subprocess.Popen(command, cwd=ROOT, env={**kept, **SPACE}, stdout=log, stderr=log, text=True)
    yield started
    started.kill()
    started.wait()


def small_world() -> RunConfig:
    config = load_recipe("world").config
    assert isinstance(config, RunConfig)
    return config.model_copy(update={"ppo": config.ppo.model_copy(update={"steps": 12, "batch_size": 8, "mini_batch_size": 8})})


@pytest.mark.long
def test_a_run_ends_with_a_checkpoint_when_the_space_sleeps_and_its_visitor_lets_it_go_on(
    app: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    wait_until(lambda: "operator link" in (tmp_path / "app.log").read_text(), 60)
    run = workspace.submit(small_world(), by=Admission(Starter("visitor", key=identity.key_of(ANN))))
    wait_until(lambda: workspace.status(run).step >= 2, 120, every=0.05)
    app.send_signal(signal.SIGTERM)
    assert app.wait(60) == 0
    slept = workspace.status(run)
    assert (slept.state, slept.cause) == ("stopped", "The Space was restarted") and slept.step < 12
    assert workspace.reader(run).checkpoints()[-1].step == slept.step
    assert f"Stopped: asked by {BY}." in [event.text for event in workspace.reader(run).events_since(0)]
    assert f"The run {run} has stopped." in (tmp_path / "app.log").read_text()

    for name, value in SPACE.items():
        monkeypatch.setenv(name, value)
    woken = launch(tmp_path, mode=Mode.SPACE)
    try:
        assert press(woken, BOB, "resume_run", run) != 200
        assert press(woken, ANN, "resume_run", run) == 200
        wait_until(lambda: workspace.status(run).state in ("finished", "failed"), 120, every=0.05)
    finally:
        woken.close()
    assert (workspace.status(run).state, workspace.status(run).cause, workspace.status(run).step) == ("finished", "", 12)


@pytest.mark.long
def test_a_run_whose_engine_was_killed_says_so_and_goes_on_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host took everything away at once: SIGKILL for the engine, and nobody noted anything."""
    for name, value in SPACE.items():
        monkeypatch.setenv(name, value)
    server = launch(tmp_path, mode=Mode.SPACE)
    try:
        workspace = server.workspace
        run = workspace.submit(small_world(), by=Admission(Starter("visitor", key=identity.key_of(ANN))))
        wait_until(lambda: workspace.status(run).step >= 2, 120, every=0.05)
        os.kill(workspace.status(run).pid or 0, signal.SIGKILL)
        wait_until(lambda: workspace.status(run).state == "interrupted")
        assert "killed" in workspace.status(run).cause
        assert press(server, BOB, "resume_run", run, from_start=True) != 200
        assert press(server, ANN, "resume_run", run, from_start=True) == 200  # it had no checkpoint yet; the page asks first
        wait_until(lambda: workspace.status(run).state == "running", 60)
        assert end_runs(workspace, 60) == ([run], [])
        assert end_runs(workspace, 0) == ([], [])
    finally:
        server.close()
