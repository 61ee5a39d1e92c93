"""The main path with nothing replaced: the app as a person starts it, a real engine, and an app that is killed in the middle."""

from __future__ import annotations

import os
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
from tests.browser.conftest import wait_for_form
from tests.browser.filled import Studio
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.browser


class App:
    """``python app.py`` as a person starts it."""

    def __init__(self, workspace: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.workspace = Workspace(workspace)
        self.url = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "app.py", "--port", str(self.port), "--workspace", str(self.workspace.root)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert str(self.port) in line, line

    def kill(self) -> None:
        with self.process:  # closes its pipe, and waits
            self.process.kill()


@pytest.fixture
def app(browser: Any, tmp_path: Path) -> Iterator[App]:
    app = App(tmp_path / "workspace")
    yield app
    app.kill()
    for status in app.workspace.runs():
        pid = holder_pid(app.workspace.run_dir(status.run_id))
        if pid:
            os.kill(pid, signal.SIGKILL)


def press(page: Any, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def fill_in(page: Any, values: dict[str, str]) -> None:
    """Put values into the form, whose sections are all opened."""
    page.evaluate("document.querySelectorAll('.rs-section').forEach((section) => (section.open = true))")
    for name, value in values.items():
        page.locator(f'[data-setting="{name}"]').locator("input, textarea").first.fill(value)


def start_run(page: Any, app: App) -> str:
    """Press Start; the id of the run that appears on the Live page."""
    before = {run.run_id for run in app.workspace.runs()}
    page.wait_for_selector(".rs-outlook:not([aria-busy]) .rs-start:not(.rs-blocked)")
    press(page, "Start run")
    wait_until(lambda: len(app.workspace.runs()) > len(before), 60)
    (run,) = (run.run_id for run in app.workspace.runs() if run.run_id not in before)
    page.wait_for_url(f"**run={run}**")
    return run


def wait_for_state(page: Any, state: str) -> None:
    page.wait_for_selector(f".rs-live[data-state={state}]")


def test_the_main_path(app: App, open_page: Callable[..., Any]) -> None:
    page = open_page("?tab=train", at=app)
    wait_for_form(page)
    fill_in(page, {"ppo.steps": "3", "generation.response_length": "8"})
    run = start_run(page, app)
    reader = app.workspace.reader(run)

    # the app dies; the run goes on; a new app finds it
    wait_until(lambda: holder_pid(app.workspace.run_dir(run)) is not None, 60)
    app.kill()
    wait_until(lambda: reader.status().step >= 1, 120)
    app.start()
    wait_for_state(page, "finished")
    assert reader.status().step == 3 and [number for number, _ in reader.metrics_since(0)] == [1, 2, 3]

    # the pinned token shows its numbers, alternatives and the formula; the verdict is the real doctor's
    page.wait_for_function("document.querySelector('[data-chart=kl] .rs-plot')?.data?.[0].x.length === 3")
    page.locator(".rs-token").nth(1).click()
    assert page.locator(".rs-card-title").inner_text().startswith("Token 2 of")
    assert page.locator(".rs-equation").count() >= 2
    page.locator(".rs-verdict", has_text="Cannot be told: the run had too few steps.").wait_for()

    # the table of runs
    page.get_by_role("tab", name="Runs", exact=True).click()
    page.locator(".rs-run-row", has_text="finished").wait_for()


@pytest.mark.long
def test_a_report_is_taken_home(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page(f"?tab=live&run={studio.runs['first']}")
    press(page, "Send or save")
    with page.expect_download() as download:
        page.get_by_role("dialog", name="Send or save").get_by_role("button", name="Report").click()
    assert download.value.suggested_filename.endswith("-report.html")
    assert "<html" in Path(download.value.path()).read_text(encoding="utf-8")[:500]
