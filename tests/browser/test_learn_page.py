"""The Learn page in a browser: a question before the result, numbers that follow a control, a link that restores a state, a phone.

One walk opens every lesson, light and dark, wide and as a phone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from rlhf_studio.ui.app import Server, launch
from tests.browser.axe import NO_COLOURS, new_contrasts, violations, wear

pytestmark = pytest.mark.browser
LESSONS = [entry.name for entry in shelf.entries()]
WIDE, PHONE = 1440, 390
THEMES = ("light", "dark")


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


NUMBERS_ARE_THERE = """() => [...document.querySelectorAll("[data-scene]")].every((scene) => {
    const question = scene.querySelector(".rs-learn-question");
    return !question || question.offsetParent || scene.querySelector(".rs-learn-measure");
})"""
"""A scene asks its question once its numbers are there; what is slow is measured when a reader asks for it."""


def choose(page: Any, lesson: str) -> None:
    """Open a lesson from the list, wait for its numbers, and reveal what stands behind its questions."""
    from playwright.sync_api import expect

    page.locator(f'[data-entry="{lesson}"]').click()
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of(lesson).title)
    expect(page.locator(".rs-learn-there").first).to_be_visible()
    page.wait_for_function(NUMBERS_ARE_THERE)
    page.locator(".rs-learn-lesson").get_by_role("button", name="Show me").evaluate_all(
        "(buttons) => buttons.forEach((one) => one.click())"
    )
    expect(page.get_by_role("alert")).to_be_hidden()


@contextmanager
def quiet_console(page: Any) -> Iterator[list[str]]:
    """The errors on the page's console while it is open; at the end there may be none."""
    errors: list[str] = []

    def hear(message: Any) -> None:
        if message.type == "error":
            errors.append(message.text)

    page.on("console", hear)
    yield errors
    page.remove_listener("console", hear)
    assert errors == []


def walk(page: Any, check: Callable[[str, str, int], list[str]]) -> list[str]:
    """Every lesson, light and dark, wide and as a phone: what ``check`` finds wrong, and what is wider than the page."""
    wrong = []
    for lesson in LESSONS:
        page.set_viewport_size({"width": WIDE, "height": 900})
        choose(page, lesson)
        for theme in THEMES:
            wear(page, theme)
            for width in (WIDE, PHONE):
                page.set_viewport_size({"width": width, "height": 900})
                place = f"{lesson}, {theme}, {width} px: "
                if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                    wrong.append(f"{place}the page is {wide} px wide")
                wrong += [place + one for one in check(lesson, theme, width)]
            page.set_viewport_size({"width": WIDE, "height": 900})
    return wrong


def test_every_lesson_in_both_themes_and_as_a_phone(open_page: Callable[..., Any]) -> None:
    """No error on the console, no sideways scrolling, and nothing that axe finds: all its rules in light, the colours in dark."""
    page = open_page(f"?lesson={LESSONS[-1]}")
    seen: set[str] = set()

    def check(_lesson: str, theme: str, width: int) -> list[str]:
        if width != WIDE:
            return []
        others = violations(page, ".rs-learn-lesson", NO_COLOURS) if theme == "light" else []
        return others + new_contrasts(page, ".rs-learn-lesson", seen)

    with quiet_console(page):
        assert walk(page, check) == []
        assert violations(page, "body") == []  # with the list of lessons and what stands around it


@pytest.mark.long
def test_every_lesson_by_all_rules_everywhere(open_page: Callable[..., Any]) -> None:
    """All of axe's rules in each theme and width, for the page and all around it."""
    page = open_page(f"?lesson={LESSONS[-1]}")
    with quiet_console(page):
        assert walk(page, lambda *_: violations(page, "body")) == []


def test_what_is_slow_is_measured_when_asked_and_its_question_comes_then(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=gae")
    scene = page.locator('[data-scene="dice"]')
    expect(scene.get_by_role("button", name="Measure")).to_be_visible()
    expect(scene.get_by_role("group", name="Question")).to_be_hidden()
    scene.get_by_role("button", name="Measure").click()
    expect(scene.get_by_role("group", name="Question")).to_contain_text("muddled")
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
