"""The Talk page in a real browser: two answers that stream in, coloured tokens, and what goes wrong. The process is a stand-in."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.paths import checkpoint_dir
from rlhf_studio.ui.app import Server, launch
from tests.browser.conftest import HOSTILE
from tests.ui.fake_run import FakeRun
from tests.ui.talk_stand_in import COMMAND, run_with_checkpoints
from tests.waiting import gone, wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("workspace")
    run_with_checkpoints(root, hostile=True)
    run_with_checkpoints(root, name="the second")
    running = launch(root)
    running.services.talk_line._command = COMMAND
    yield running
    running.close()


def open_talk(open_page: Callable[..., Any], server: Server, **size: int) -> Any:
    run = next(run for run in server.workspace.runs() if run.name == "the second").run_id
    page = open_page(f"?talk={run}", **size)
    expect(page.locator(".rs-talk-body")).to_be_visible()
    expect(page.get_by_label("Left: step")).to_have_value("start")
    expect(page.get_by_label("Right: step")).to_have_value("20")
    return page


def ask(page: Any, prompt: str) -> Any:
    """Ask, and give the exchange that appears."""
    before = page.locator(".rs-exchange").count()
    page.get_by_label("Your prompt").fill(prompt)
    page.get_by_role("button", name="Ask both").click()
    exchange = page.locator(".rs-exchange").nth(before)
    expect(exchange).to_be_visible()
    return exchange


def test_two_policies_answer_and_a_token_shows_its_numbers(open_page: Callable[..., Any], server: Server) -> None:
    page = open_talk(open_page, server)
    assert page.get_by_label("Right", exact=True).locator("option:checked").inner_text() == "the second"
    exchange = ask(page, "I think this film")
    left, right = exchange.locator(".rs-answer").all()
    expect(left.locator("h3")).to_have_text("Start")
    expect(right.locator("h3")).to_have_text("Step 20")
    for answer, score, kl in ((left, "1.50", "0.00 nats"), (right, "2.50", "0.30 nats")):
        expect(answer.locator(".rs-token")).to_have_count(5)
        expect(answer.locator('[data-figure="Score"]')).to_have_text(score)
        expect(answer.locator('[data-figure="KL"]')).to_have_text(kl)
        expect(answer.locator('[data-figure="Gold"]')).to_have_text("0.25")
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


def test_the_chosen_step_stays_and_the_address_leads(open_page: Callable[..., Any], tmp_path: Path) -> None:
    run = FakeRun(tmp_path, steps=60)
    run.load()
    run.run()
    run.step(40)
    later = FakeRun(tmp_path, steps=40, name="later")
    later.load()
    later.run()
    running = launch(tmp_path)
    running.services.talk_line._command = COMMAND
    try:
        page = open_page(f"?talk={run.run_id}", at=running)
        right = page.get_by_label("Right: step")
        expect(right).to_have_value("40")
        right.select_option("20")
        run.step(20)  # a checkpoint of step 60
        look_again = "document.dispatchEvent(new Event('visibilitychange'))"
        page.evaluate(look_again)
        expect(right.locator("option")).to_have_text(["Start (step 0)", "Step 20", "Step 40", "Step 60 (newest)"])
        expect(right).to_have_value("20")
        page.evaluate(f"history.pushState(null, '', '?tab=talk&talk={later.run_id}')")
        page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
        expect(page.get_by_text("has no checkpoint yet")).to_be_visible()
        expect(right).to_have_value("20")
        later.step(20)
        page.evaluate(look_again)
        for side in ("Left", "Right"):
            expect(page.get_by_label(side, exact=True)).to_have_value(later.run_id)
        expect(page.get_by_text("has no checkpoint yet")).to_be_hidden()
    finally:
        running.close()
        run.close()
        later.close()


def test_watched_prompts_and_settings(open_page: Callable[..., Any], server: Server) -> None:
    page = open_talk(open_page, server)
    composer, example = page.locator(".rs-talk-composer"), page.locator(".rs-talk-example").first
    example.click()
    expect(page.get_by_label("Your prompt")).to_have_value(example.inner_text())
    page.locator(".rs-talk-settings summary").click()
    composer.get_by_label("Temperature").fill("0")
    page.get_by_role("button", name="Ask both").click()
    expect(page.locator(".rs-talk-composer .rs-problem")).to_contain_text("Temperature: ")
    expect(composer.get_by_label("Temperature")).to_be_focused()
    expect(composer.get_by_label("Temperature")).to_have_attribute("aria-invalid", "true")
    expect(composer.get_by_label("Top-p")).to_have_attribute("aria-invalid", "false")
    composer.get_by_label("Temperature").fill("0.7")
    composer.get_by_label("Same seed for both").uncheck()
    expect(page.locator(".rs-talk-line")).to_have_text(re.compile(r"temperature 0\.7, .*seeds \d+ and \d+"))
    page.keyboard.press("Control+Enter")
    page.get_by_role("button", name="Ask both").click()
    expect(page.locator(".rs-answer-figures:visible")).to_have_count(2)


def test_an_answer_can_be_stopped_and_a_dead_process_is_replaced(open_page: Callable[..., Any], server: Server) -> None:
    page = open_talk(open_page, server)
    exchange = ask(page, "hang")
    expect(exchange.locator(".rs-token")).to_have_count(1)
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(exchange.locator(".rs-answer-status").first).to_have_text("Stopped here")
    again = ask(page, "hang")
    expect(again.locator(".rs-token")).to_have_count(1)
    pid = server.services.talk_line.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    expect(again.locator(".rs-problem:visible")).to_contain_text("has ended in the middle of this")
    expect(ask(page, "hello").locator(".rs-answer-figures:visible")).to_have_count(2)
    refused = ask(page, "no checkpoint")
    expect(refused.locator(".rs-problem:visible")).to_have_text("The checkpoint of step 3 is no longer there; choose another one.")
    expect(refused.locator(".rs-answer-figures:visible")).to_have_count(1)


def test_hostile_texts_stay_texts(open_page: Callable[..., Any], server: Server) -> None:
    page = open_talk(open_page, server)
    exchange = ask(page, f"{HOSTILE} \u202e\u0000 <script>window.__pwned=9</script>" + "x" * 60_000)
    expect(exchange.locator(".rs-answer-figures:visible")).to_have_count(2)
    exchange.locator(".rs-token").nth(2).click()
    hostile = next(run.run_id for run in server.workspace.runs() if run.name != "the second")
    page.get_by_label("Left", exact=True).select_option(hostile)
    expect(ask(page, "hello").locator("h3").first).to_contain_text("<b>run</b>")
    assert page.evaluate("window.__pwned") is None
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_on_a_phone_answers_stand_one_below_the_other(open_page: Callable[..., Any], server: Server) -> None:
    page = open_talk(open_page, server, width=390, height=844)
    exchange = ask(page, "hello")
    expect(exchange.locator(".rs-answer-figures:visible")).to_have_count(2)
    left, right = (answer.bounding_box() for answer in exchange.locator(".rs-answer").all())
    assert right["y"] >= left["y"] + left["height"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_viewers_and_workspaces_without_a_checkpoint(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page("?talk=&view=1")
    expect(page.get_by_role("button", name="Ask both")).to_be_disabled()
    expect(page.locator(".rs-talk-status")).to_contain_text("You can watch runs, not change them.")
    for run in server.workspace.runs():
        shutil.rmtree(checkpoint_dir(server.workspace.run_dir(run.run_id), 20))
    empty = open_page("?talk=")
    expect(empty.get_by_role("heading", name="No policy to talk to yet")).to_be_visible()
    empty.get_by_role("button", name="Go to Train").click()
    expect(empty.get_by_role("tab", name="Train")).to_have_attribute("aria-selected", "true")
