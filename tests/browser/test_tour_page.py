"""Tour and search in a browser: a question in plain words leads to a scene, a name of TRL is answered, stations follow each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from rlhf_studio.ui.app import Server, launch
from tests.browser.axe import COLOURS_ALONE, violations, wear

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("tour"), start=lambda *given, **more: None)  # type: ignore[arg-type, return-value]
    yield running
    running.close()


def test_search_leads_to_a_scene_and_answers_names_of_trl(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=clip")
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("clip").title)
    page.keyboard.press("/")
    field = page.get_by_role("searchbox")
    expect(field).to_be_focused()
    page.keyboard.type("why is KL negative")
    first = page.locator(".rs-learn-result").first
    expect(first).to_contain_text("Why is my KL negative?")
    expect(page.locator(".rs-learn-lesson")).to_be_hidden()
    field.press("ArrowDown")
    expect(first).to_be_focused()
    first.press("Enter")
    scene = page.locator('[data-scene="cut"]')
    expect(scene.get_by_role("heading").first).to_be_focused()
    expect(scene).to_be_in_viewport()
    expect(page).to_have_url(re.compile("lesson=rewards&scene=cut"))
    page.reload()
    expect(page.locator('[data-scene="cut"]')).to_be_in_viewport()

    page.get_by_role("searchbox").fill("null_ref_context")
    answer = page.locator(".rs-learn-result").first
    expect(answer).to_contain_text("In TRL:")
    expect(answer).to_contain_text("rlhf_studio/engine/models/reference.py")
    page.get_by_role("searchbox").press("Escape")
    expect(page.locator(".rs-learn-lesson")).to_be_visible()
    page.get_by_role("searchbox").fill("null_ref_context")
    page.locator(".rs-learn-result").first.get_by_role("button", name="Reference.active").click()
    expect(page).to_have_url(re.compile("place=tour&show=reference"))
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("tour.reference").title)


def test_stations_follow_each_other_keep_the_line_and_are_restored(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=tour&show=rewards")
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("tour.rewards").title)
    expect(page.locator(".rs-learn-there").first).to_be_visible()
    slot = page.locator(".rs-learn-text p", has_text="The score is").locator(".rs-learn-slot").first
    before = slot.text_content()
    page.get_by_role("slider", name="Response").fill("4")  # the fifth response
    expect(page).to_have_url(re.compile("sample%3A5"))
    expect(slot).not_to_have_text(before)
    score = slot.text_content()
    page.get_by_role("button", name=re.compile("^Next: GAE")).click()
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("tour.gae").title)
    expect(page.get_by_role("slider", name="Response")).to_have_attribute("aria-valuetext", "5")
    page.get_by_role("button", name=re.compile("^Previous: Rewards")).click()
    expect(slot).to_have_text(score)
    page.reload()
    expect(slot).to_have_text(score)
    stops = page.get_by_role("navigation", name="Stations of the tour").get_by_role("button")
    expect(stops).to_have_count(len(shelf.entries(shelf=shelf.TOUR)))
    page.locator('.rs-learn-way [aria-current="step"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("tour.gae").title)
    page.go_back()
    expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of("tour.rewards").title)


def test_notes_stand_beside_the_code_and_above_it_on_a_phone(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=tour&show=sampling", width=390, height=844)
    expect(page.locator(".rs-learn-there").first).to_be_visible()
    note, code = (page.locator(f".rs-learn-pair > {one}").nth(1) for one in (".rs-learn-note", ".rs-learn-code"))
    for width, beside in ((390, False), (768, True), (1440, True)):
        page.set_viewport_size({"width": width, "height": 900})
        left, right = note.bounding_box(), code.bounding_box()
        assert (right["x"] >= left["x"] + left["width"]) is beside and (right["y"] >= left["y"] + left["height"]) is not beside
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 390, "height": 844})
    pre = code.locator("pre")
    assert pre.evaluate("node => node.scrollWidth > node.clientWidth")  # the code scrolls sideways, the page does not


def test_axe_finds_nothing_wrong_on_a_station_and_among_results(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=tour&show=pooling")
    expect(page.locator(".rs-learn-there").first).to_be_visible()
    page.get_by_role("button", name="Show me").first.click()
    for shown in (".rs-learn-lesson", ".rs-learn-found"):
        if shown == ".rs-learn-found":
            page.get_by_role("searchbox").fill("null_ref_context")
            expect(page.locator(".rs-learn-result").first).to_be_visible()
        wear(page, "light")
        assert violations(page, "body") == []
        wear(page, "dark")
        assert violations(page, shown, COLOURS_ALONE) == []
