"""The main path with nothing replaced: the real app, the real engine, the bundled world, a real browser.

Start, watch, inspect a token, kill and restart the app, kill the engine, resume, stop, reload.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.liveness import holder_pid
from rlhf_studio.runs.workspace import Workspace
from tests.browser.conftest import PATIENCE
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.browser


class App:
    """``python app.py`` as a person starts it."""

    def __init__(self, workspace: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.workspace = workspace
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        command = [sys.executable, "app.py", "--port", str(self.port), "--workspace", str(self.workspace)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert str(self.port) in line, line

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path / "workspace")
    yield app
    app.kill()
    for status in Workspace(app.workspace).runs():
        pid = holder_pid(Workspace(app.workspace).run_dir(status.run_id))
        if pid:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def page(browser: Any, app: App) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(app.url)
    yield page
    page.context.close()
    assert faults == []


def until(condition: Callable[[], bool], seconds: float = PATIENCE / 1000) -> None:
    wait_until(condition, seconds, every=0.05)


def wait_for_state(page: Any, state: str) -> None:
    page.wait_for_selector(f".rs-live[data-state={state}]")


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_the_main_path(app: App, page: Any) -> None:
    workspace = Workspace(app.workspace)
    page.locator('[data-section="ppo"] > summary').click()
    page.locator("#setting-ppo-steps").fill("30")
    press(page, "Start run")
    page.wait_for_selector(".rs-tile")  # the first numbers are there
    (run,) = workspace.runs()
    assert f"run={run.run_id}" in page.url
    run_dir, reader = workspace.run_dir(run.run_id), workspace.reader(run.run_id)

    def stored_step() -> int:
        return reader.status().step

    # watch: curves grow, samples and the starting policy's answers stand side by side
    until(lambda: stored_step() >= 3)
    page.wait_for_function("document.querySelector('[data-chart=kl] .rs-plot')?.data?.[0].x.length >= 2")
    page.wait_for_selector(".rs-row")

    # inspect: the pinned token shows its numbers, alternatives and the formula
    page.locator(".rs-token").nth(1).click()
    assert page.locator(".rs-card-title").inner_text().startswith("Token 2 of")
    assert page.locator(".rs-equation").count() >= 2

    # the app dies; the run goes on; a new app finds it
    app.kill()
    before = stored_step()
    until(lambda: stored_step() > before)
    app.start()
    wait_for_state(page, "running")
    assert holder_pid(run_dir) is not None

    # the engine dies; the page says so; resume goes on from the checkpoint, or asks before it starts again from step 0
    pid = holder_pid(run_dir)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_for_state(page, "interrupted")
    saved = bool(reader.checkpoints())
    press(page, "Resume")
    if not saved:
        page.get_by_text("Begin this run again at step 1?").wait_for()
        press(page, "Go back")
        assert reader.status().state == "interrupted"
        press(page, "Resume")
        press(page, "Begin again")
    wait_for_state(page, "running")
    until(lambda: stored_step() >= 1)

    # stop keeps a checkpoint; a reload shows the same
    press(page, "Stop")
    page.get_by_role("menuitem", name="Stop and save").click()
    wait_for_state(page, "stopped")
    step = stored_step()
    assert reader.checkpoints()[-1].step == step
    page.reload()
    wait_for_state(page, "stopped")
    page.wait_for_function("(text) => document.querySelector('.rs-step').textContent.startsWith(text)", arg=f"step {step} of")
    assert re.search(r"run=" + run.run_id, page.url)

    # resume, and close the browser: the run goes on
    press(page, "Resume")
    wait_for_state(page, "running")
    page.close()
    until(lambda: stored_step() >= step + 2)
    steps = [number for number, _ in reader.metrics_since(0)]
    assert steps == list(range(1, len(steps) + 1))
