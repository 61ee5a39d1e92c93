"""The main paths with nothing replaced: the real app, real engines, a real browser.

In the bundled world: start, watch, inspect a token, kill and restart the app, kill the engine, resume, stop, reload.
With a chat model of one's own: fine-tuning, a reward model from its result, PPO with both.
"""

from __future__ import annotations

import json
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

from rlhf_studio.config import RunConfig
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
    page.faults = faults
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


# --- a model of one's own ------------------------------------------------------------------------------------------------------------


def fill_in(page: Any, values: dict[str, str]) -> None:
    """Put values into the form, whose sections are all opened."""
    page.evaluate("document.querySelectorAll('.rs-section').forEach((section) => (section.open = true))")
    for name, value in values.items():
        page.locator(f'[data-setting="{name}"]').locator("input, textarea").first.fill(value)


def start_and_finish(page: Any, workspace: Workspace) -> str:
    """Press Start, and see the run to its end on the Live page. Returns its id."""
    before = {run.run_id for run in workspace.runs()}
    page.wait_for_selector(".rs-outlook:not([aria-busy]) .rs-start:not(.rs-blocked)")
    press(page, "Start run")
    until(lambda: len(workspace.runs()) > len(before))
    (run,) = (run.run_id for run in workspace.runs() if run.run_id not in before)
    page.wait_for_url(f"**run={run}**")
    wait_for_state(page, "finished")
    return run


def test_a_model_of_ones_own_from_fine_tuning_to_ppo(app: App, page: Any, tmp_path: Path) -> None:
    from tests.cases.chat_models import save_chat_model

    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    model, workspace = save_chat_model("chatml", tmp_path / "model"), Workspace(app.workspace)
    asked = [f"what is the capital of {number} ?" for number in range(24)]
    rows = {
        "demonstrations": [{"prompt": one, "response": "Paris I love it ."} for one in asked],
        "pairs": [{"prompt": one, "chosen": "Paris I love it .", "rejected": "no"} for one in asked],
        "prompts": [{"prompt": one} for one in asked],
    }
    files = {name: tmp_path / f"{name}.jsonl" for name in rows}
    for name, file in files.items():
        file.write_text("\n".join(json.dumps(row) for row in rows[name]))

    # what is missing on the first card of one's own is forgotten with its stage
    page.locator('[data-recipe="own"]').click()
    page.get_by_text("Still to fill in").wait_for()
    press(page, "Supervised fine-tuning")
    page.locator('[data-recipe="own-sft"]').click()
    press(page, "All settings")
    short = {"batch_size": "8", "micro_batch_size": "8", "max_steps": "3", "warmup_steps": "0"}
    named = {"model.policy": str(model), "data.source": str(files["demonstrations"])}
    fill_in(page, {**named, **{f"sft.{name}": value for name, value in short.items()}, "generation.response_length": "8"})
    page.locator('[data-setting="data.chat_template"] input').check()
    fine_tuned = start_and_finish(page, workspace)

    page.get_by_role("link", name="Train a reward model on it").click()
    page.locator('[data-recipe="own-reward_model"][aria-checked="true"]').wait_for()
    fill_in(page, {"data.source": str(files["pairs"]), **{f"reward_model.{name}": value for name, value in short.items()}})
    judge = start_and_finish(page, workspace)

    page.get_by_role("link", name="Use it as the reward in PPO").click()
    page.locator('[data-recipe="own"][aria-checked="true"]').wait_for()
    short = {"steps": "2", "batch_size": "8", "mini_batch_size": "4", "micro_batch_size": "4", "ppo_epochs": "1"}
    fill_in(page, {"data.prompts": str(files["prompts"]), **{f"ppo.{name}": value for name, value in short.items()}})
    fill_in(page, {"generation.response_length": "8"})
    trained = start_and_finish(page, workspace)
    page.locator(".rs-row").first.wait_for()

    policy, reward = (Path(workspace.reader(run).policies()[-1].path) for run in (fine_tuned, judge))
    config = workspace.reader(trained).config()
    assert isinstance(config, RunConfig)
    assert Path(config.model.policy).parent == policy
    assert [Path(name).parent for name in config.reward.components[0].model_names()] == [reward]
    assert config.data.chat_template, "prompts are written as the policy and its judge have learned them"
    assert workspace.status(trained).step == 2
