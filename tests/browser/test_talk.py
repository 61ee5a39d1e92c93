"""Talk and the reward playground: two answers that stream in, coloured tokens, and what goes wrong. The processes are stand-ins."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.inputs.trained import resolve
from tests.browser.conftest import go
from tests.browser.filled import Studio
from tests.ui.fake_run import FakeRun
from tests.waiting import gone, wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


def ask(page: Any, prompt: str) -> Any:
    """Ask, and give the exchange that appears."""
    before = page.locator(".rs-exchange").count()
    page.get_by_label("Your prompt").fill(prompt)
    page.get_by_role("button", name="Ask both").click()
    exchange = page.locator(".rs-exchange").nth(before)
    expect(exchange).to_be_visible()
    return exchange


def test_two_policies_answer_and_a_dead_process_is_replaced(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page(f"?talk={studio.runs['first']}")
    expect(page.get_by_label("Left: step")).to_have_value("start")
    expect(page.get_by_label("Right: step")).to_have_value("20")
    assert page.get_by_label("Right", exact=True).locator("option:checked").inner_text() == "first of all"
    exchange = ask(page, "I think this film")
    left, right = exchange.locator(".rs-answer").all()
    expect(left.locator("h3")).to_have_text("Start")
    expect(right.locator("h3")).to_have_text("Step 20")
    for answer, score, kl in ((left, "1.50", "0.00 nats"), (right, "2.50", "0.30 nats")):
        expect(answer.locator(".rs-token")).to_have_count(5)
        for figure, value in (("Score", score), ("KL", kl), ("Gold", "0.25")):
            expect(answer.locator(f'[data-figure="{figure}"]')).to_have_text(value)
    colours = [token.evaluate("node => getComputedStyle(node).getPropertyValue('--v')") for token in right.locator(".rs-token").all()[:2]]
    assert colours == ["100.0%", "100.0%"] and right.locator(".rs-token").first.get_attribute("data-sign") == "plus"
    assert left.locator(".rs-token").first.evaluate("node => node.style.getPropertyValue('--v')") == "0.0%"
    page.get_by_role("button", name="Log-probability").click()
    expect(right.locator(".rs-tokens")).to_have_attribute("data-scale", "sequential")
    right.locator(".rs-token").nth(2).click()
    card = right.locator(".rs-card")
    expect(card.locator(".rs-card-title")).to_have_text("Token 3 of 5")
    expect(card.locator(".rs-alternatives").first.locator("li")).to_have_count(3)
    expect(card).to_contain_text("<img·src=x")
    page.keyboard.press("ArrowRight")
    expect(card.locator(".rs-card-title")).to_have_text("Token 4 of 5")
    exchange.get_by_role("button", name="Copy").click()
    assert "Prompt: I think this film" in page.evaluate("navigator.clipboard.readText()")

    # stopped, and a process that dies in the middle
    exchange = ask(page, "hang")
    expect(exchange.locator(".rs-token")).to_have_count(1)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(exchange.locator(".rs-answer-status").first).to_have_text("Stopped here")
    again = ask(page, "hang")
    expect(again.locator(".rs-token")).to_have_count(1)
    pid = studio.server.services.talk.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    expect(again.locator(".rs-problem:visible")).to_contain_text("has ended in the middle of this")
    expect(ask(page, "hello").locator(".rs-answer-figures:visible")).to_have_count(2)
    refused = ask(page, "no checkpoint")
    expect(refused.locator(".rs-problem:visible")).to_have_text("The checkpoint of step 3 is no longer there; choose another one.")
    expect(refused.locator(".rs-answer-figures:visible")).to_have_count(1)

    # watched prompts, and settings that cannot be used
    composer, example = page.locator(".rs-talk-composer"), page.locator(".rs-talk-example").first
    temperature = composer.get_by_label("Temperature")
    example.click()
    expect(page.get_by_label("Your prompt")).to_have_value(example.inner_text())
    page.locator(".rs-talk-settings summary").click()
    temperature.fill("0")
    page.get_by_role("button", name="Ask both").click()
    expect(composer.locator(".rs-problem")).to_contain_text("Temperature: ")
    expect(temperature).to_be_focused()
    expect(temperature).to_have_attribute("aria-invalid", "true")
    expect(composer.get_by_label("Top-p")).to_have_attribute("aria-invalid", "false")
    temperature.fill("0.7")
    composer.get_by_label("Same seed for both").uncheck()
    expect(page.locator(".rs-talk-line")).to_have_text(re.compile(r"temperature 0\.7, .*seeds \d+ and \d+"))

    # on a phone answers stand one below the other
    page.set_viewport_size({"width": 390, "height": 844})
    left, right = (answer.bounding_box() for answer in ask(page, "on a phone").locator(".rs-answer").all())
    assert right["y"] >= left["y"] + left["height"]

    # the chosen step stays while a run goes on, and the address leads
    page.set_viewport_size({"width": 1440, "height": 900})
    run = FakeRun(studio.workspace.root, steps=60, name="grows")
    run.run()
    run.step(20)
    later = FakeRun(studio.workspace.root, steps=40, name="later")
    later.run()
    go(page, f"?talk={run.run_id}")
    step, look_again = page.get_by_label("Right: step"), "document.dispatchEvent(new Event('visibilitychange'))"
    expect(step).to_have_value("20")
    run.step(20)  # a checkpoint of step 40
    page.evaluate(look_again)
    expect(step.locator("option")).to_have_text(["Start (step 0)", "Step 20", "Step 40 (newest)"])
    expect(step).to_have_value("20")
    go(page, f"?tab=talk&talk={later.run_id}")
    expect(page.get_by_text("has no checkpoint yet")).to_be_visible()
    expect(step).to_have_value("20")
    later.step(20)
    page.evaluate(look_again)
    for side in ("Left", "Right"):
        expect(page.get_by_label(side, exact=True)).to_have_value(later.run_id)
    expect(page.get_by_text("has no checkpoint yet")).to_be_hidden()
    for one in (run, later):
        one.close()
    page.goto(f"{studio.url}?talk=&view=1")
    expect(page.get_by_role("button", name="Ask both")).to_be_disabled()
    expect(page.locator(".rs-talk-status")).to_contain_text("You can watch runs, not change them.")


@pytest.mark.long
def test_a_reward_model_is_played_with(open_page: Callable[..., Any], studio: Studio, tmp_path: Path) -> None:
    judge = str(studio.workspace.run_dir(studio.runs["reward_model"]) / "checkpoints" / "step-000002" / "reward_model")
    page = open_page(f"?tab=live&run={studio.runs['reward_model']}")
    page.locator("#live-page").get_by_role("link", name="Try it").click()
    chosen = page.locator("#rs-playground-choice")
    expect(chosen).to_have_value(judge)
    expect(chosen.locator("option:checked")).to_have_text("judge of reward_model, step 2")
    expect(page.locator("#rs-playground-model")).to_be_hidden()

    chosen.select_option("bundled/world-reward")
    expect(page.locator(".rs-playground-details")).to_contain_text("GPT2ForSequenceClassification")
    response, score = page.locator("#rs-playground-response"), page.get_by_role("button", name="Score it")
    page.locator("#rs-playground-prompt").fill("A film")
    response.fill(" good film.")
    page.get_by_label("Words to put").fill("superb")
    score.click()
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
    words = page.locator(".rs-playground-words")
    expect(words.locator("tbody tr th b")).to_have_text(["film", "good"])
    expect(words.locator("tbody tr").first).to_contain_text("the same word")
    expect(words).to_contain_text("2 further words of the text not tried.")
    page.get_by_role("button", name="Put “superb” in place of “good”").click()
    expect(response).to_have_value(" superb film.")
    expect(page.get_by_role("button", name="Leave out “film”")).to_be_visible()

    # what goes wrong, and a model without beginnings
    expect(score).to_be_enabled()
    response.fill("both ways")
    response.press("Control+Enter")
    expect(page.locator(".rs-playground-notes")).to_have_text("No.")
    expect(page.locator(".rs-playground-tokens")).to_be_hidden()
    response.fill("die")
    score.click()
    expect(page.get_by_role("alert").filter(has_text="has ended in the middle")).to_be_visible()
    chosen.select_option(label="Another one: type its folder or its name")
    name = page.locator("#rs-playground-model")
    name.fill("nowhere at all")
    name.blur()
    expect(page.get_by_role("alert").filter(has_text="no folder nowhere at all")).to_be_visible()

    # a measured model shows its report
    shutil.copytree(resolve("bundled/world-reward"), tmp_path / "model")
    lengths = {"chosen_tokens": [3] * 20, "rejected_tokens": [4] * 20}
    pairs = {"chosen": [1.0] * 16 + [0.0] * 4, "rejected": [0.0] * 16 + [1.0] * 4, **lengths}
    measured = {"pairs": pairs, "texts": {"16": ["a prompt", "<b>good</b>", "bad"]}}
    (tmp_path / "model" / "measured.json").write_text(json.dumps(measured))
    name.fill(str(tmp_path / "model"))
    name.blur()
    summary = page.locator(".rs-measured summary")
    expect(summary).to_contain_text("80")
    summary.click()
    expect(page.locator(".rs-measured-words li").first).to_contain_text("scores higher in 80 % of 20 held-out pairs")
    expect(page.locator(".rs-measured-worst article").first).to_contain_text("<b>good</b>")
    page.goto(page.url.split("?")[0] + "?tab=talk&reward=gone")
    expect(page.get_by_role("alert").filter(has_text="has kept no reward model")).to_be_visible()
