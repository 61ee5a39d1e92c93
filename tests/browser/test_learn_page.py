"""The Learn page in a browser: a question before the result, numbers that follow a control, a link that restores a state, a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from rlhf_studio.ui.app import Server, launch

pytestmark = pytest.mark.browser
LESSONS = [entry.name for entry in shelf.entries()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("learn"), start=lambda *given, **more: None)  # type: ignore[arg-type, return-value]
    yield running
    running.close()


def test_a_reader_predicts_moves_a_control_and_takes_a_link_along(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=clip")
    scene = page.locator('[data-scene="dead_zones"]')
    expect(scene.locator(".rs-learn-slot").first).to_have_text("1.30")
    result = scene.locator(".rs-learn-text p", has_text="The slope of its loss")
    expect(result).to_be_hidden()
    scene.get_by_role("button", name="No", exact=True).click()
    expect(scene.locator(".rs-learn-verdict")).to_contain_text("Not here. Yes.")
    expect(result).to_contain_text("+1.30")
    scene.get_by_role("slider", name="Ratio").fill("5")  # the sixth value, 0.50
    expect(result).to_contain_text("+0.00")
    expect(result).to_contain_text("is silent")
    expect(page).to_have_url(re.compile("lesson=clip.*ratio%3A0.5"))
    page.reload()
    expect(page.locator('[data-scene="dead_zones"] .rs-learn-slot').first).to_have_text("0.50")
    page.locator('[data-scene="dead_zones"]').get_by_role("button", name="Less").first.click()
    expect(page.locator('[data-scene="dead_zones"] .rs-learn-slot').first).to_have_text("0.48")


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_lesson_shows_its_numbers_and_stays_in_its_width(lesson: str, open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page(f"?lesson={lesson}", width=390, height=900)
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of(lesson).title)
    expect(page.locator(".rs-learn-there").first).to_be_visible()
    while page.get_by_role("button", name="Show me").count():  # an answered question has the button no more
        page.get_by_role("button", name="Show me").first.click()
    expect(page.get_by_role("alert")).to_be_hidden()
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_is_slow_is_measured_when_asked_and_its_question_comes_then(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=gae")
    scene = page.locator('[data-scene="dice"]')
    expect(scene.get_by_role("button", name="Measure")).to_be_visible()
    expect(scene.get_by_role("group", name="Question")).to_be_hidden()
    scene.get_by_role("button", name="Measure").click()
    expect(scene.get_by_role("group", name="Question")).to_contain_text("muddled", timeout=60_000)
    result = scene.locator(".rs-learn-text p", has_text="GAE said")
    expect(result).to_be_hidden()
    scene.get_by_role("button", name="Show me").click()
    expect(result).to_be_visible()


def test_a_saying_leads_to_the_scene_that_refutes_it(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=often_said")
    page.locator('[data-scene="outside"]').get_by_role("link", name="Find the silent corners").click()
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("clip").title)
    expect(page).to_have_url(re.compile("lesson=clip&scene=dead_zones"))
    expect(page.locator('[data-scene="dead_zones"]')).to_be_in_viewport()
