"""Slides, a quiz and its code, a sheet and its answers, the question before a lesson, and paper, in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.lessons.teaching import codes
from rlhf_studio.lessons.teaching.sheets import sheet
from rlhf_studio.ui.app import Server, launch
from tests.browser.axe import NO_COLOURS, new_contrasts, violations, wear

pytestmark = pytest.mark.browser
QUIZ = "set=lessons:clip.gae,each:1&seed=8"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("teaching"), start=lambda *given, **more: None)  # type: ignore[arg-type, return-value]
    yield running
    running.close()


def test_slides_by_the_keyboard_with_the_answer_after_the_show_of_hands(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=clip&scene=dead_zones&show=slides")
    place, heading = page.locator(".rs-learn-place"), page.get_by_role("heading", name="Four cases, one of them silent")
    expect(page.locator('[data-scene="dead_zones"] .rs-learn-there').first).to_have_text("1.30")
    expect(heading).to_be_visible()
    expect(page.get_by_role("button", name="Slides", exact=True)).to_be_hidden()
    first, of = (int(number) for number in place.inner_text().split(" of "))
    assert of <= 16  # of seven scenes
    question = page.locator('[data-scene="dead_zones"] .rs-learn-question')
    expect(question).to_be_visible()
    expect(question.locator(".rs-learn-verdict")).to_be_hidden()
    result = page.locator('[data-scene="dead_zones"] .rs-learn-figure .rs-learn-result')
    expect(result).to_be_hidden()
    page.get_by_role("slider", name="Ratio").fill("5")  # 0.50: controls work on a slide
    page.get_by_role("slider", name="Ratio").press("ArrowLeft")  # the control's own key: 0.48, and the same slide
    expect(question).to_contain_text("0.48")
    expect(page).to_have_url(re.compile("show=slides"))
    page.keyboard.press("PageDown")  # a clicker's key leads on whatever has the focus: the answer first
    expect(question.locator(".rs-learn-verdict")).to_contain_text("No. The larger of the two losses is the flat one")
    expect(place).to_have_text(re.compile(f"^{first} of "))
    expect(result).to_be_visible()  # beside the text, under the controls
    expect(page.locator('[data-scene="dead_zones"] p', has_text="The slope of its loss")).to_be_visible()
    page.keyboard.press("PageDown")
    expect(question).to_be_hidden()
    expect(page.locator('[data-scene="dead_zones"] .rs-learn-code')).to_be_visible()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    expect(page.locator('[data-scene="dead_zones"] .rs-learn-text .rs-learn-picture')).to_be_visible()  # where it is spoken of
    expect(place).to_be_hidden()
    expect(page.get_by_role("slider", name="Ratio").first).to_be_in_viewport()  # the same place of the lesson
    expect(question.locator(".rs-learn-verdict")).to_be_visible()
    expect(page).not_to_have_url(re.compile("show=slides"))


def test_a_quiz_ends_with_a_code_that_says_how_it_went(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    made = sheet(["clip", "gae"], 1, 8)
    page = open_page(f"?place=teach&show=quiz&{QUIZ}")
    several = [len(question["choices"]) > 2 for question in made["questions"]]
    assert several == [True, True]
    wrong = [key for key, _ in made["questions"][0]["choices"] if key != made["questions"][0]["answer"]]
    for key in wrong[:2]:
        page.locator(f'[data-answer="{key}"]').click()
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Not here.")
    page.locator(f'[data-answer="{made["questions"][0]["answer"]}"]').click(force=True)  # no third try
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Not here.")
    before = page.locator(".rs-learn-asked").inner_text()
    page.get_by_role("button", name="Another one").click()
    expect(page.locator(".rs-learn-asked")).not_to_have_text(before)
    page.get_by_role("button", name="Show me").click()
    page.get_by_role("button", name="Next question").click()
    page.reload()  # what was answered is kept
    expect(page.get_by_text("Question 2 of 2")).to_be_visible()
    page.locator(f'[data-answer="{made["questions"][1]["answer"]}"]').click()
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Right.")
    page.get_by_role("button", name="To the result").click()
    code = page.locator(".rs-learn-outcome").inner_text()
    assert codes.decode(code).outcomes == ("not", "first")
    page.get_by_role("button", name="For teachers").click()
    page.get_by_role("button", name="Results").click()
    page.get_by_role("textbox", name="Result codes").fill(f"Ana: {code}\n{code[:-1]}")
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("row", name="Ana")).to_contain_text("1 of 2")
    expect(page.locator(".rs-learn-found .rs-problem")).to_contain_text("typing error")


def test_a_sheet_of_the_form_and_its_answers(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=teach&show=sheets")
    page.get_by_role("checkbox", name="11 ").check()
    page.get_by_label("Questions of each lesson").fill("2")
    page.get_by_role("button", name="Exercise sheet").click()
    expect(page.locator(".rs-learn-task")).to_have_count(2)
    expect(page.locator("[data-right]")).to_have_count(0)
    page.get_by_role("button", name="Answer sheet").click()
    expect(page.locator("[data-right]")).to_have_count(2)
    words = {key: text for question in sheet(["clip"], 2, 7)["questions"] for key, text in question["words"].items()}
    right = [words.get(one["answer"], one["answer"].capitalize()) for one in sheet(["clip"], 2, 7)["questions"]]
    assert [text.split("\u2002")[1] for text in page.locator("[data-right]").all_inner_texts()] == right
    page.go_back()
    expect(page.locator("[data-right]")).to_have_count(0)


def test_a_link_of_the_plan_leads_to_its_scene(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=teach", width=390)
    link = page.get_by_role("link", name="four cases")
    expect(link).to_have_attribute("href", "?lesson=clip&scene=dead_zones")
    link.click()
    expect(page.get_by_role("heading", name="Four cases, one of them silent")).to_be_in_viewport()
    expect(page.locator('[data-scene="dead_zones"] .rs-learn-there').first).to_have_text("1.30")
    expect(page.get_by_role("heading", name="Four cases, one of them silent")).to_be_in_viewport()


def test_a_lesson_begins_with_a_question_that_can_be_skipped_and_paper_has_the_results(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?lesson=clip")
    opening = page.locator(".rs-learn-opening")
    expect(opening).to_contain_text("One score, and a KL price on every token")
    expect(opening.locator(".rs-learn-asked")).to_be_hidden()
    opening.locator("summary").click()
    expect(opening.locator(".rs-learn-asked")).to_be_visible()
    opening.get_by_role("button", name="Skip it").click()
    expect(opening.locator(".rs-learn-asked")).to_be_hidden()
    result = page.locator('[data-scene="dead_zones"] p', has_text="The slope of its loss")
    expect(result).to_be_hidden()
    page.evaluate("document.body.classList.add('dark'); dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(result).to_be_visible()
    expect(page.locator('[data-scene="dead_zones"] input[type="range"]').first).to_be_hidden()
    expect(page.locator("#pages > .tab-wrapper")).to_be_hidden()
    expect(opening).to_be_hidden()
    assert page.evaluate("document.body.classList.contains('dark')") is False
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(result).to_be_hidden()
    assert page.evaluate("document.body.classList.contains('dark')") is True


def test_axe_finds_nothing_in_plans_sheets_quizzes_and_slides(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=teach")
    wear(page, "light")
    shown = {"show=hour": ".rs-learn-plan", "show=sheets": ".rs-learn-choosing", "show=check": ".rs-learn-lines"}
    shown |= {f"show=answers&{QUIZ}": ".rs-learn-sheet", f"show=quiz&{QUIZ}": ".rs-learn-asked"}
    shown = {**{f"place=teach&{one}": node for one, node in shown.items()}, "lesson=clip&show=slides": ".rs-learn-bar"}
    seen: set[str] = set()

    def show(query: str, theme: str) -> None:
        page.goto(f"{page.url.split('?')[0]}?{query}")
        expect(page.locator(shown[query]).first).to_be_visible()
        assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")

    wrong = []
    for query in shown:
        show(query, "light")
        wrong += [f"{query}: {one}" for one in [*violations(page, ".rs-learn", NO_COLOURS), *new_contrasts(page, ".rs-learn", seen)]]
        slides = query.endswith("slides")
        if slides:
            page.keyboard.press("Escape")  # they cover the switch of themes
        wear(page, "dark")
        if slides:
            show(query, "dark")
        wrong += [f"{query}, dark: {one}" for one in new_contrasts(page, ".rs-learn", seen)]
        if not slides:
            wear(page, "light")
    assert wrong == []
