"""A chat model of one's own, whose turns end with another token than the tokenizer's end token: chosen, trained and talked to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.ui.app import Server, launch
from tests.cases.chat_models import last_policy, questions, save_chat_model, save_questions, teach_chat_model

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("workspace"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def policy(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    return last_policy(teach_chat_model(save_chat_model("llama3", folder / "model"), folder / "taught"))


def test_own_chat_model_stops_at_its_turns_end(open_page: Callable[..., Any], server: Server, policy: Path, tmp_path: Path) -> None:
    page = open_page()
    page.get_by_role("radio", name="Your own model").click()
    page.get_by_role("button", name="All settings").click()
    page.locator("#setting-model-policy").fill(str(policy))
    page.locator('[data-setting="data.prompts"] input').first.fill(str(save_questions(tmp_path / "questions.jsonl", answered=False)))
    page.locator("#setting-data-chat_template").check()
    page.locator(".rs-add").get_by_text("Length", exact=True).click()
    page.get_by_role("button", name="Remove component 1", exact=True).click()
    for name, value in (("ppo-steps", "2"), ("ppo-batch_size", "16"), ("ppo-mini_batch_size", "8"), ("generation-response_length", "16")):
        section = page.locator(f'[data-section="{name.split("-")[0]}"]')
        if section.get_attribute("open") is None:
            section.locator("summary").click()
        page.locator(f"#setting-{name}").fill(value)
    expect(page.locator(".rs-outlook")).to_contain_text("<|eot_id|> (4) or <|end_of_text|> (1)")
    page.get_by_role("button", name="Start run").click()

    live = page.locator("#live-page")
    page.wait_for_selector(".rs-live[data-state=finished]")
    (run,) = server.workspace.runs()
    expect(live.locator(".rs-row").first).to_contain_text("Paris")
    expect(live.locator(".rs-row .rs-chip").get_by_text("cut", exact=True)).to_have_count(0)
    expect(live.locator(".rs-tokens").first).to_contain_text("<|eot_id|>")

    page.goto(f"{server.url}?talk={run.run_id}")
    page.get_by_label("Your prompt").fill(questions()[3])
    page.get_by_role("button", name="Ask both").click()
    for answer in page.locator(".rs-answer").all():
        expect(answer.locator(".rs-token").last).to_contain_text("<|eot_id|>")
        assert answer.locator(".rs-token").count() < 16
