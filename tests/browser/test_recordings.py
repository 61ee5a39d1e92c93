"""Recordings in a real browser: Live offers them where there is no run, and Runs shows them as its rule says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.inputs.bundled import RECORDINGS
from rlhf_studio.recipes import load_recipe
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.visiting.modes import Mode

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser

NAMES = [recording.name for recording in RECORDINGS]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("workspace"), start=lambda folder, mode: pytest.fail("nothing is started here"))
    running.dispatcher.stop()  # a queued run stays queued
    yield running
    running.close()


def test_a_response_without_token_numbers_leads_to_the_lesson_that_computes_them(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page(f"?run={RECORDINGS[1].run_id}&step=30&sample=33&token=4")
    recorded = server.workspace.reader(RECORDINGS[1].run_id).rollout(30, 33)
    expect(page.locator(".rs-inspector .rs-plain-text")).to_have_text(recorded.prompt + recorded.response)
    page.get_by_role("link", name="Open it under the microscope").click()
    expect(page.locator('[data-scene="beside"] .rs-learn-value')).to_have_text(["30", "34", "5"])
    expect(page.locator('[data-scene="beside"] .rs-learn-piece').first).to_be_visible()


def test_a_read_only_app_offers_recordings_and_nothing_that_cannot_be_done(
    open_page: Callable[..., Any], server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    watched = launch(tmp_path_factory.mktemp("empty"), mode=Mode.READ_ONLY)
    try:
        page = open_page("?tab=live", at=watched)
        expect(page.locator(".rs-recordings a")).to_have_text(NAMES)
        expect(page.get_by_text("No run yet")).to_have_count(0)
        expect(page.get_by_role("button", name="Open Train")).to_have_count(0)
        page.get_by_role("tab", name="Train", exact=True).click()
        expect(page.locator(".rs-watch-first button")).to_have_text(NAMES)
        expect(page.get_by_text("This app was started read-only").locator("visible=true")).to_have_count(1)
        page.get_by_role("tab", name="Feedback", exact=True).click()
        expect(page.locator(".rs-feedback-empty")).to_have_text("No task yetTasks that ask people to rate responses are listed here.")
    finally:
        watched.close()


def test_live_offers_a_recording_and_runs_lists_them(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page("?tab=train")
    page.get_by_role("button", name=NAMES[1]).click()
    expect(page.locator(".rs-head .rs-name")).to_have_text(NAMES[1])
    expect(page.locator(".rs-inspector .rs-token").first).to_be_visible()
    expect(page.get_by_role("region", name="Before and now")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare 2 runs")).to_be_visible()
    page = open_page("?tab=live")
    expect(page.locator(".rs-recordings a")).to_have_text(NAMES)
    page.get_by_role("link", name=NAMES[2]).click()
    expect(page.locator(".rs-head .rs-name")).to_have_text(NAMES[2])
    expect(page.locator(".rs-head .rs-chip")).to_have_text("Recording")
    expect(page.locator(".rs-verdict")).to_contain_text("Collapsed")
    expect(page.locator(".rs-banner")).to_contain_text("This recording came with the program.")
    buttons = [text for text in page.locator(".rs-ending button").all_inner_texts() if text]
    assert buttons == ["Train with its settings", "Take it home", "Compare"]
    page.wait_for_url(f"**run={RECORDINGS[2].run_id}**")
    page.go_back()

    page.get_by_role("tab", name="Runs", exact=True).click()
    rows = page.locator(".rs-run-row")
    expect(rows.locator(".rs-run-name > a")).to_have_text(NAMES)
    expect(rows.locator(".rs-chip")).to_have_text(["Recording"] * 3)
    expect(page.locator(".rs-no-runs")).to_be_visible()
    rows.first.get_by_role("button", name="Actions").click()
    expect(page.get_by_role("menuitem")).to_have_text(["Open", "Settings", "Copy settings to Train", "Take home"])
    page.keyboard.press("Escape")

    server.workspace.submit(load_recipe("world").config, "mine")
    expect(rows.locator(".rs-run-name > a")).to_have_text(["mine"])
    page.get_by_label("Show recordings").check()
    expect(rows.locator(".rs-run-name > a")).to_have_text(["mine", *NAMES])
