"""The exported page of a replay: it plays from a file, asks nobody, and what a model wrote in it stays text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.jobs.export.replay_page import replay_page
from tests.browser.conftest import HOSTILE, watch

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
SAMPLE = Path(__file__).parents[1] / "replay" / "exploits.json"


def test_it_plays_from_a_file_and_nothing_in_it_acts(browser: Any, tmp_path: Path) -> None:
    payload = json.loads(SAMPLE.read_text(encoding="utf-8")) | {"title": HOSTILE}
    payload["answers"][0]["frames"][0]["tokens"][0] = HOSTILE
    file = tmp_path / "replay.html"
    file.write_text(replay_page(payload), encoding="utf-8")
    context = browser.new_context(reduced_motion="reduce")
    try:
        page, faults = context.new_page(), list[str]()
        watch(page, faults, lambda url: url == file.as_uri())
        page.goto(file.as_uri())
        step = page.locator(".rs-replay-step")
        expect(step).to_have_text("step 1 of 36")
        page.get_by_role("button", name="Next step").click()
        expect(step).to_have_text("step 2 of 36")
        assert page.locator(".rs-replay-tokens").inner_text().count(HOSTILE) == 1
        expect(page.locator("h1")).to_have_text(HOSTILE)
        accent = page.locator(".rs-replay-button").first.evaluate("(node) => getComputedStyle(node).backgroundColor")
        assert accent == "rgb(79, 70, 229)", "the page has its own styles"
        assert page.evaluate("window.__pwned") is None and faults == []
    finally:
        context.close()
