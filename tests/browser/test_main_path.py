"""The main path with nothing replaced: the app as a person starts it, a real engine, and an app that is killed in the middle."""

from __future__ import annotations

import json
import os
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
from tests.browser.conftest import wait_for_form
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
    page.locator(".rs-verdict", has_text="early").or_(page.locator(".rs-verdict", has_text="Early")).wait_for()

    # a report to take home, and the table of runs
    press(page, "Take it home")
    page.get_by_role("dialog", name="Take it home").get_by_role("button", name="Report").click()
    link = page.locator(".rs-take-files a").first
    link.wait_for()
    with page.expect_download() as download:
        link.click()
    assert "<html" in Path(download.value.path()).read_text(encoding="utf-8")[:500]
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Runs", exact=True).click()
    page.locator(".rs-run-row", has_text="finished").wait_for()
    page.reload()
    page.locator(".rs-run-row", has_text="finished").wait_for()


@pytest.mark.long
def test_a_model_of_ones_own_from_fine_tuning_to_ppo_and_talk(app: App, open_page: Callable[..., Any], tmp_path: Path) -> None:
    """Its turns end with another token than the tokenizer's end token."""
    from playwright.sync_api import expect

    from tests.cases.chat_models import last_policy, questions, save_chat_model, save_questions, teach_chat_model

    policy = last_policy(teach_chat_model(save_chat_model("llama3", tmp_path / "model"), tmp_path / "taught"))
    asked = [f"what is the capital of {number} ?" for number in range(24)]
    rows = {
        "demonstrations": [{"prompt": one, "response": "Paris I love it ."} for one in asked],
        "pairs": [{"prompt": one, "chosen": "Paris I love it .", "rejected": "no"} for one in asked],
    }
    files = {name: tmp_path / f"{name}.jsonl" for name in rows}
    for name, file in files.items():
        file.write_text("\n".join(json.dumps(row) for row in rows[name]))

    page = open_page("?tab=train", at=app)
    press(page, "Supervised fine-tuning")
    page.locator('[data-recipe="own-sft"]').click()
    press(page, "All settings")
    short = {"batch_size": "8", "micro_batch_size": "8", "max_steps": "3", "warmup_steps": "0"}
    fill_in(page, {"model.policy": str(policy), "data.source": str(files["demonstrations"]), "generation.response_length": "8"})
    fill_in(page, {f"sft.{name}": value for name, value in short.items()})
    page.locator('[data-setting="data.chat_template"] input').check()
    fine_tuned = start_run(page, app)
    wait_for_state(page, "finished")
    page.get_by_role("link", name="Train a reward model on it").click()
    page.locator('[data-recipe="own-reward_model"][aria-checked="true"]').wait_for()
    fill_in(page, {"data.source": str(files["pairs"]), **{f"reward_model.{name}": value for name, value in short.items()}})
    judge = start_run(page, app)
    wait_for_state(page, "finished")
    page.get_by_role("link", name="Use it as the reward in PPO").click()
    page.locator('[data-recipe="own"][aria-checked="true"]').wait_for()
    short = {"steps": "2", "batch_size": "8", "mini_batch_size": "4", "micro_batch_size": "4", "ppo_epochs": "1"}
    prompts = save_questions(tmp_path / "questions.jsonl", answered=False)
    fill_in(page, {"data.prompts": str(prompts), "generation.response_length": "16", **{f"ppo.{name}": short[name] for name in short}})
    expect(page.locator(".rs-outlook")).to_contain_text("<|eot_id|> (4) or <|end_of_text|> (1)")
    trained = start_run(page, app)
    wait_for_state(page, "finished")
    expect(page.locator("#live-page .rs-row .rs-chip").get_by_text("cut", exact=True)).to_have_count(0)
    expect(page.locator("#live-page .rs-tokens").first).to_contain_text("<|eot_id|>")

    kept_policy, kept_judge = (Path(app.workspace.reader(run).policies()[-1].path) for run in (fine_tuned, judge))
    config = app.workspace.reader(trained).config()
    assert isinstance(config, RunConfig)
    assert Path(config.model.policy).parent == kept_policy
    assert [Path(name).parent for name in config.reward.components[0].model_names()] == [kept_judge]
    assert config.data.chat_template, "prompts are written as the policy and its judge have learned them"
    page.goto(f"{app.url}?talk={trained}")
    page.get_by_label("Your prompt").fill(questions()[3])
    press(page, "Ask both")
    for answer in page.locator(".rs-answer").all():
        expect(answer.locator(".rs-token").last).to_contain_text("<|eot_id|>")
        assert answer.locator(".rs-token").count() < 16
