"""The first hour of somebody who reads Chinese, with nothing replaced: no screen on the way says an English sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import go
from tests.browser.filled import Studio
from tests.browser.test_everywhere import PAGES_OF_LEARN, live_pages, other_pages
from tests.browser.test_main_path import App, app, fill_in  # noqa: F401  (the fixture)

pytestmark = [pytest.mark.browser, pytest.mark.long]

# What a model or the data wrote, and what names things.
OTHERS = (
    "code, pre, kbd, script, style, noscript, math, textarea, .rs-token, .rs-answer, .rs-response, .rs-replay-prompt, "
    ".rs-learn-slot, .rs-learn-settings, .rs-pair-prompt, .rs-road-prompt, .rs-road-said, .rs-talk-example, .rs-shifts, "
    ".rs-disagreement, .rs-kappas, .rs-share-name, .rs-preview td, .rs-prompt, .rs-cell-response, .rs-tokens, .rs-phrases, "
    ".rs-gap-text, .rs-exchange-prompt, q, article > h3, th > span, footer:not(main *), [lang=en]"
)
ENGLISH = """(others) => {
  const row = /(?<![\\w/.-])[A-Za-z]['’A-Za-z]*(?:[,;:.]? +[A-Za-z]['’A-Za-z]*){2,}(?![\\w/-])/;
  const names = /Hugging Face Hub|“[^”]*”|Rule \\d, [a-z ]+/g; // and raters of the recorded example
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = new Set();
  while (walker.nextNode()) {
    const text = walker.currentNode.data.replaceAll(names, ""), parent = walker.currentNode.parentElement;
    const visible = parent.checkVisibility({ visibilityProperty: true });
    if (row.test(text) && visible && !parent.closest(others)) found.add(text.trim());
  }
  return [...found];
}"""
SETTLE = "() => document.fonts.ready.then(() => new Promise((done) => setTimeout(done, 400)))"


class Reader:
    """Goes from screen to screen, and notes the English on each."""

    def __init__(self, page: Any, others: str = OTHERS):
        self.page, self.others = page, others
        self.english: dict[str, list[str]] = {}

    def of(self, page: Any) -> Reader:
        """The same reader before another page."""
        other = Reader(page)
        other.english = self.english
        return other

    def look(self, screen: str, shown: str = "") -> None:
        """Open all that is folded, and read what there is."""
        if shown:
            self.page.locator(shown).first.wait_for()
        self.page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        self.page.evaluate(SETTLE)
        if found := self.page.evaluate(ENGLISH, self.others):
            self.english[screen] = found


def test_no_english_sentence_is_left_in_the_first_hour(app: App, open_page: Callable[..., Any], tmp_path: Path) -> None:  # noqa: F811
    page = open_page("?lang=zh", at=app)
    reader = Reader(page)
    reader.look("the first screen", ".rs-first-ways")
    for tab in ("feedback", "evaluate", "road"):
        page.goto(f"{app.url}?lang=zh&tab={tab}")
        reader.look(tab, f".rs-{tab}")
    page.goto(f"{app.url}?lang=zh&tab=train")
    page.locator(".rs-first-ways button", has_text="设置").first.click()
    reader.look("the form", ".rs-sections")
    fill_in(page, {"ppo.steps": "0", "model.policy": "/not/there"})
    reader.look("what is wrong with the form", ".rs-problems, .rs-problem")
    fill_in(page, {"ppo.steps": "3", "model.policy": "bundled/world-policy", "generation.response_length": "8"})
    page.locator(".rs-outlook:not([aria-busy]) .rs-start:not(.rs-blocked)").click()
    page.wait_for_url("**run=*")
    while page.locator(".rs-live[data-state=finished]").count() == 0:
        reader.look(f"a run that begins: {page.locator('.rs-phase').inner_text()}", ".rs-live")
    page.locator(".rs-token").nth(1).click()
    reader.look("a finished run", ".rs-card-title")
    run = re.findall("run=([^&]+)", page.url)[0]
    _exported(page, reader, tmp_path)
    page.goto(f"{app.url}?lang=zh&tab=runs")
    reader.look("runs", ".rs-run-row")
    page.goto(f"{app.url}?lang=zh&talk={run}")
    page.locator(".rs-talk-composer textarea").fill("I think this film")
    page.locator(".rs-talk-composer button[type=submit]").click()
    reader.look("an answer", ".rs-answer [data-figure=KL]")
    for lesson in ("rlhf", "query_and_response", "sampling"):
        page.goto(f"{app.url}?lang=zh&lesson={lesson}")
        reader.look(f"the lesson {lesson}", ".rs-learn-scene")
    left = [f"{screen}: {text}" for screen, texts in reader.english.items() for text in texts]
    assert not left, "\n".join(left)


def test_no_english_sentence_is_left_on_pages_that_have_something_to_show(open_page: Callable[..., Any], studio: Studio) -> None:
    named = ", .rs-run-name, .rs-name, .rs-run-head, .rs-event-text, .rs-plain-text, .rs-compare-prompt, .rs-evaluate-answer, .rs-said"
    page = open_page("?lang=zh")
    reader = Reader(page, OTHERS + named)  # stand-ins have named their runs, and told what happened
    pages = {**live_pages(studio.runs), **other_pages(studio.runs), **PAGES_OF_LEARN}
    for address, ready in pages.items():
        if address == "?tab=train":  # its form is read above
            continue
        go(page, f"{address}&lang=zh")
        reader.look(address, f"{ready} >> visible=true")
    left = [
        f"{screen}: {text}"
        for screen, texts in reader.english.items()
        for text in texts
        if not re.search("(first|second) of all|who is better", text)
    ]
    assert not left, "\n".join(left)


def _exported(page: Any, reader: Reader, folder: Path) -> None:
    """Take the report and the replay home, and read them."""
    page.get_by_role("button", name="发送或保存").click()
    for name in ("报告", "回放"):
        with page.expect_download() as download:
            page.get_by_role("dialog").get_by_role("button", name=name).click()
        download.value.save_as(folder / f"{name}.html")
    reader.look("what can be taken home")
    alone = page.context.new_page()  # its files are from no server, and nothing watches what it asks for
    for name in ("报告", "回放"):
        alone.goto((folder / f"{name}.html").as_uri())
        reader.of(alone).look(f"the exported file {name}", "main")
    alone.close()
