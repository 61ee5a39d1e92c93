"""What holds on every page: nothing that axe finds, no sideways scrolling on a phone, and text of others stays text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from tests.browser.axe import COLOURS_ALONE, violations, wear
from tests.browser.conftest import HOSTILE, go, wait_for_form, width_of
from tests.browser.filled import Studio
from tests.ui.fake_run import HOSTILE as HOSTILE_PIECES
from tests.ui.fake_run import FakeRun
from tests.ui.live_app import LiveApp

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
LESSONS = [entry.name for entry in shelf.entries()]
FITS = "document.documentElement.scrollWidth <= innerWidth"
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
QUIZ = "set=lessons:clip.gae,each:1&seed=8"
NUMBERS_ARE_THERE = """() => [...document.querySelectorAll("[data-scene]")].every((scene) => {
    const question = scene.querySelector(".rs-learn-question");
    return !question || question.offsetParent || scene.querySelector(".rs-learn-measure");
})"""
"""A scene asks its question once its numbers are there; what is slow is measured when a reader asks for it."""


def live_pages(runs: dict[str, str]) -> dict[str, str]:
    """Address of the Live page of each kind, and what is there once it is ready."""
    return {
        f"?tab=live&run={runs['reward_model']}": ".rs-gauges",
        f"?tab=live&run={runs['sft']}": ".rs-verdict-sentence",
        f"?tab=live&run={runs['first']}&step=20&sample=2&token=3": ".rs-card-columns",
    }


def other_pages(runs: dict[str, str]) -> dict[str, str]:
    return {
        "?tab=train": ".rs-figures",
        "?tab=runs": ".rs-run-row",
        f"?tab=runs&compare={runs['first']},{runs['second']}": ".rs-compare-verdict",
        f"?tab=talk&talk={runs['first']}": ".rs-talk-composer",
        "?tab=feedback": ".rs-feedback-list",
        f"?tab=evaluate&evaluation={runs['evaluation']}": ".rs-evaluate-wins li",
        "?tab=road": ".rs-road-card",
    }


PAGES_OF_LEARN = {
    "?tab=learn&lesson=clip": ".rs-learn-there",
    "?tab=learn&place=tour&show=pooling": ".rs-learn-there",
    "?tab=learn&place=break": ".rs-learn-broken",
    "?tab=learn&place=gallery": ".rs-gallery-card",
    "?tab=learn&place=teach&show=hour": ".rs-learn-plan",
    "?tab=learn&place=teach&show=sheets": ".rs-learn-choosing",
    f"?tab=learn&place=teach&show=answers&{QUIZ}": ".rs-learn-sheet",
    f"?tab=learn&place=teach&show=quiz&{QUIZ}": ".rs-learn-asked",
}


DARK_EVERY_DAY = ("?tab=train", "?tab=runs&compare", "?tab=evaluate")
"""These have most of the colours; the others share their rules."""


UNEXPLAINED = """() => {
  const words = {
    gold: /\\bgold\\b/i, nats: /\\bnats\\b/i, whitened: /\\bwhitened\\b/i, k3: /\\bk3\\b/i, advantage: /\\badvantage\\b/i, KL: /\\bKL\\b/,
    "value fit": /\\b(value fit|explained variance)\\b/i, "clipped tokens": /\\b(clipped tokens|clip fraction)\\b/i,
    "win rate": /\\bwin rate\\b/i,
  };
  const names = ".rs-page :is(h2, h3, h4, th, dt, legend, .rs-tile, .rs-key, .rs-segment, .rs-panel-head, .rs-whitened)";
  const places = [...document.querySelectorAll(names)].filter((node) => node.checkVisibility());
  return Object.entries(words).flatMap(([word, form]) => {
    const walk = (node) => document.createTreeWalker(node, NodeFilter.SHOW_TEXT, (text) => form.test(text.data) ? 1 : 3);
    const first = places.map((node) => walk(node).nextNode()?.parentElement).find((node) => node?.checkVisibility());
    const tip = first?.closest("[data-term], [data-tip]");
    return !first || tip?.closest("button, [tabindex]") ? [] : [`${word} is not explained at ${first.outerHTML.slice(0, 120)}`];
  });
}"""
"""Words of the field that have no tip, which a key or a finger can open, in the first heading, label or legend that names them."""
EXPLAIN = ("?tab=live", "?tab=runs", "?tab=evaluate")


def faults_of(page: Any, pages: dict[str, str], in_dark: tuple[str, ...] = ("?",)) -> list[str]:
    """What is wrong on pages: by all rules of axe in light, by its contrasts in dark, and what scrolls sideways on a phone.

    ``in_dark``: beginnings of the addresses that are looked at in dark as well.
    """
    wrong = []
    for address, ready in pages.items():
        go(page, address)
        page.locator(ready).locator("visible=true").first.wait_for()
        wear(page, "light")
        wrong += [f"{address}: {one}" for one in violations(page, "body")]
        if address.startswith(EXPLAIN):
            wrong += [f"{address}: {one}" for one in page.evaluate(UNEXPLAINED)]
        if address.startswith(in_dark):
            wear(page, "dark")
            wrong += [f"{address}, dark: {one}" for one in violations(page, "body", COLOURS_ALONE)]
        page.set_viewport_size(PHONE)
        try:
            page.wait_for_function(FITS, timeout=5000)  # charts become narrow a little later
        except playwright.TimeoutError:
            wrong.append(f"{address}: {width_of(page)} px wide on a phone")
        page.set_viewport_size(DESK)
    return wrong


def test_pages_around_a_run_are_for_everybody_in_light_and_dark_and_on_a_phone(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    page.set_viewport_size(PHONE)
    box = page.get_by_role("button", name="Start run").bounding_box()
    assert box["y"] + box["height"] <= PHONE["height"], "Start is at hand"
    page.evaluate("document.querySelectorAll('.rs-section').forEach((section) => (section.open = true))")
    assert width_of(page) <= PHONE["width"]
    page.evaluate("document.querySelectorAll('.rs-section').forEach((section) => (section.open = false))")
    page.set_viewport_size(DESK)
    wrong = faults_of(page, other_pages(studio.runs), DARK_EVERY_DAY)
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_all_pages_around_a_run_in_dark(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    wrong = faults_of(page, other_pages(studio.runs))
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_live_is_for_everybody_in_light_and_dark_and_on_a_phone(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page(f"?tab=live&run={studio.runs['first']}")
    page.locator("[data-chart=score]").wait_for()  # the page is at work, and can be led
    wrong = faults_of(page, live_pages(studio.runs))
    assert not wrong, "\n".join(wrong)

    # it reads from top to bottom on a phone, cuts nothing, and its menus stay inside
    page.set_viewport_size(PHONE)
    page.wait_for_selector(".rs-answers")
    parts = (".rs-head", ".rs-verdict", ".rs-tiles", "[data-chart=score]", ".rs-answers", ".rs-samples", ".rs-chart-panel")
    tops = [page.locator(part).locator("visible=true").first.bounding_box()["y"] for part in parts]
    assert tops == sorted(tops) and tops[-1] - tops[0] < 3 * PHONE["height"]
    outside = """() => [...document.querySelectorAll('.rs-live *')].filter((node) => !node.closest('.rs-tiles, .rs-plot, .rs-hidden')
      && node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.className)"""
    assert page.evaluate(outside) == []

    # the tokens of a response are in a sheet, which gives the focus back
    row = page.locator(".rs-row").nth(1)
    expect(page.locator(".rs-inspector")).to_be_hidden()
    row.click()
    page.wait_for_selector(".rs-sheet .rs-card-columns")
    assert page.evaluate(outside) == [] and violations(page, ".rs-sheet") == []
    page.locator(".rs-sheet .rs-token").nth(2).click()
    page.wait_for_function("location.search.includes('token=2')")
    page.keyboard.press("Escape")
    expect(page.locator(".rs-inspector")).to_be_hidden()
    expect(row).to_be_focused()
    page.wait_for_function("!location.search.includes('token=')")
    page.locator(".rs-chart-panel").evaluate("(panel) => (panel.open = true)")  # as it is at a desk, or folded as on a phone
    page.locator(".rs-arrange summary").click()
    box = page.locator(".rs-chooser:visible").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]


@pytest.mark.long
def test_pages_of_learn_are_for_everybody_in_light_and_dark_and_on_a_phone(open_page: Callable[..., Any]) -> None:
    page = open_page("?lesson=clip")
    wrong = faults_of(page, PAGES_OF_LEARN)
    page.get_by_role("searchbox").locator("visible=true").fill("null_ref_context")
    page.locator(".rs-learn-result").first.wait_for()
    wrong += violations(page, ".rs-learn-found")
    assert not wrong, "\n".join(wrong)


def test_hostile_text_stays_text(open_page: Callable[..., Any], studio: Studio, live_app: LiveApp) -> None:
    """Names, tags, notes, prompts and pieces of tokens; feedback, evaluations, rewards and data are in their own journeys."""
    hostile = studio.runs["hostile"]
    page = open_page(f"?tab=runs&compare={hostile},{studio.runs['first']}")
    expect(page.locator(".rs-compare-runs a").first).to_have_text(HOSTILE)
    go(page, "?tab=runs")
    expect(page.locator(".rs-run-name > a", has_text=HOSTILE)).to_have_count(1)
    go(page, f"?tab=live&run={hostile}&step=20&sample=0&token=0")
    expect(page.locator("#live-page .rs-name")).to_have_text(HOSTILE)
    page.wait_for_selector(".rs-card-columns")
    go(page, f"?tab=talk&talk={hostile}")
    prompt = f"{HOSTILE} \u202e\u0000 <script>window.__pwned=9</script>" + "x" * 60_000
    page.get_by_label("Your prompt").fill(prompt)
    page.get_by_role("button", name="Ask both").click()
    expect(page.locator(".rs-answer-figures:visible")).to_have_count(2)
    page.locator(".rs-exchange .rs-token").nth(2).click()
    assert width_of(page) <= 1440
    assert page.evaluate("window.__pwned") is None

    run = FakeRun(live_app.workspace, hostile=True)
    run.run()
    run.writer.set_state("running", device="\u202eW" * 300)
    run.step(6)
    page = open_page(f"?run={run.run_id}&step=6&sample=0&token=0", at=live_app)
    page.wait_for_selector(".rs-card-columns")
    shown = page.locator(".rs-token").all_inner_texts()
    for index, text in enumerate(HOSTILE_PIECES):
        if len(text) < 80 and text.isprintable():
            assert shown[index].replace("·", " ") == text
    assert shown[HOSTILE_PIECES.index("\ud800")] == "U+D800" and shown[HOSTILE_PIECES.index("\x00")] == "␀"
    assert shown[HOSTILE_PIECES.index("\u202eabc")].startswith("U+202E")
    assert "+9840 characters" in shown[HOSTILE_PIECES.index("w" * 10_000)]
    for index in range(len(HOSTILE_PIECES)):
        page.keyboard.press("Home") if index == 0 else page.locator(".rs-token").nth(index).click()
        title = f"Token {index + 1} of"
        page.wait_for_function("(text) => document.querySelector('.rs-card-title').textContent.startsWith(text)", arg=title)
    device = page.locator(".rs-run-device").inner_text()
    assert "\u202e" not in device and "U+202E" in device and len(device) < 1500
    assert page.locator(".rs-name").inner_text() == '<b>run</b> <a href="javascript:window.__pwned=5">x</a>'
    assert HOSTILE_PIECES[0] in page.locator(".rs-response").first.text_content()
    page.locator("[data-chart=kl] .rs-plot-frame").hover()
    for quantity in "12345678":
        page.keyboard.press(quantity)
    assert page.evaluate("window.__pwned") is None
    assert page.evaluate("document.querySelectorAll('.rs-live img, .rs-live script, .rs-live a:not([href^=\"?\"])').length") == 0
    assert width_of(page) <= 1440
    run.close()


@pytest.mark.long
def test_every_lesson_by_all_rules_in_both_themes_and_as_a_phone(open_page: Callable[..., Any]) -> None:
    page = open_page(f"?lesson={LESSONS[-1]}")
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    wrong = []
    for lesson in LESSONS:
        page.set_viewport_size({"width": 1440, "height": 900})
        page.locator(f'[data-entry="{lesson}"]').click()
        expect(page.locator(".rs-learn-title")).to_have_text(shelf.text_of(lesson).title)
        expect(page.locator(".rs-learn-there").first).to_be_visible()
        page.wait_for_function(NUMBERS_ARE_THERE)
        shown = page.locator(".rs-learn-lesson").get_by_role("button", name="Show me")
        shown.evaluate_all("(buttons) => buttons.forEach((one) => one.click())")
        expect(page.get_by_role("alert")).to_be_hidden()
        for theme in ("light", "dark"):
            wear(page, theme)
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                place = f"{lesson}, {theme}, {width} px"
                wrong += [f"{place}: {one}" for one in violations(page, "body")]
                wrong += [f"{place}: the page is {width_of(page)} px wide"] if width_of(page) > width else []
            page.set_viewport_size({"width": 1440, "height": 900})
    assert wrong == [] and errors == []
