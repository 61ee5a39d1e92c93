"""The reward playground in a real browser: coloured tokens, the table of words, and what goes wrong. The process is a stand-in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.inputs.bundled import resolve
from rlhf_studio.ui.app import Server, launch
from tests.ui.fake_stages import pairs_run
from tests.ui.playground_stand_in import COMMAND
from tests.ui.test_stages import give_model

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("workspace"))
    running.services.playground_line._command = COMMAND
    yield running
    running.close()


def open_playground(open_page: Callable[..., Any], **size: int) -> Any:
    page = open_page("?tab=talk", **size)
    page.get_by_role("button", name="Reward model", exact=True).click()
    expect(page.get_by_label("Reward model", exact=True).last).to_have_value("bundled/world-reward")
    return page


def test_tokens_and_words(open_page: Callable[..., Any]) -> None:
    page = open_playground(open_page)
    expect(page.locator(".rs-playground-details")).to_contain_text("GPT2ForSequenceClassification")
    page.locator("#rs-playground-prompt").fill("A film")
    page.locator("#rs-playground-response").fill(" good film.")
    page.get_by_label("Words to put").fill("superb")
    page.get_by_role("button", name="Score it").click()
    expect(page.locator(".rs-playground-score")).to_contain_text("0.900")
    expect(page.locator(".rs-playground-score")).to_contain_text("token 5 of 5")
    tokens = page.locator(".rs-playground .rs-token")
    expect(tokens).to_have_count(3)
    expect(tokens.first).to_have_text("·<b>good</b>")
    expect(tokens.first).to_have_attribute("aria-label", "Token 1 “ <b>good</b>”, change by this token 1.000")
    assert [token.get_attribute("data-sign") for token in tokens.all()] == ["plus", "minus", "plus"]
    tokens.first.click()
    expect(page.locator(".rs-playground-card")).to_contain_text("score if the text ended here 1.100, change by this token +1.000")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".rs-playground-card")).to_contain_text("Token 2 of the response")
    rows = page.locator(".rs-playground-words tbody tr")
    expect(rows.locator("th b")).to_have_text(["film", "good"])
    expect(rows.first).to_contain_text("the same word")
    expect(page.locator(".rs-playground-words")).to_contain_text("2 further words of the text not tried.")
    page.get_by_role("button", name="Put “superb” in place of “good”").click()
    expect(page.locator("#rs-playground-response")).to_have_value(" superb film.")
    expect(page.get_by_role("button", name="Leave out “film”")).to_be_visible()


def test_what_goes_wrong_and_a_model_without_beginnings(open_page: Callable[..., Any]) -> None:
    page = open_playground(open_page, width=390, height=844)
    page.locator("#rs-playground-response").fill("both ways")
    page.locator("#rs-playground-response").press("Control+Enter")
    expect(page.locator(".rs-playground-notes")).to_have_text("No.")
    expect(page.locator(".rs-playground-tokens")).to_be_hidden()
    page.locator("#rs-playground-response").fill("die")
    page.get_by_role("button", name="Score it").click()
    expect(page.get_by_role("alert").filter(has_text="has ended in the middle")).to_be_visible()
    page.get_by_label("Reward model", exact=True).select_option(label="Another one: type its folder or its name")
    page.locator("#rs-playground-model").fill("nowhere at all")
    page.locator("#rs-playground-model").blur()
    expect(page.get_by_role("alert").filter(has_text="no folder nowhere at all")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_measured_model_shows_its_report(open_page: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(resolve("bundled/world-reward"), folder)
    lengths = {"chosen_tokens": [3] * 20, "rejected_tokens": [4] * 20}
    pairs = {"chosen": [1.0] * 16 + [0.0] * 4, "rejected": [0.0] * 16 + [1.0] * 4, **lengths}
    (folder / "measured.json").write_text(json.dumps({"pairs": pairs, "texts": {"16": ["a prompt", "<b>good</b>", "bad"]}}))
    page = open_playground(open_page)
    page.get_by_label("Reward model", exact=True).select_option(label="Another one: type its folder or its name")
    page.locator("#rs-playground-model").fill(str(folder))
    page.locator("#rs-playground-model").blur()
    summary = page.locator(".rs-measured summary")
    expect(summary).to_contain_text("80")
    summary.click()
    expect(page.locator(".rs-measured-words li").first).to_contain_text("scores higher in 80 % of 20 held-out pairs")
    expect(page.locator(".rs-measured-worst article").first).to_contain_text("<b>good</b>")


def test_a_trained_reward_model_is_in_the_list_and_its_run_leads_to_it(open_page: Callable[..., Any], server: Server) -> None:
    runs = [pairs_run(server.workspace.root, "reward_model", steps=4, name="judge") for _ in range(2)]
    folders = [give_model(run, "reward_model") for run in runs]
    page = open_page(f"?tab=live&run={runs[0].run_dir.name}")
    page.locator("#live-page").get_by_role("link", name="Try it").click()
    chosen = page.locator("#rs-playground-choice")
    expect(chosen).to_have_value(str(folders[0]))
    expect(chosen.locator("option:checked")).to_have_text(f"judge, step 2 \u00b7 {runs[0].run_dir.name}")
    expect(page.locator("#rs-playground-model")).to_be_hidden()
    page.goto(page.url.split("?")[0] + "?tab=runs")
    page.locator("[data-action=menu]").first.click()
    page.get_by_role("menuitem", name="Try it").click()
    expect(chosen).to_have_value(str(folders[1]))
    page.goto(page.url.split("?")[0] + "?tab=talk&reward=gone")
    expect(page.get_by_role("alert").filter(has_text="has kept no reward model")).to_be_visible()
