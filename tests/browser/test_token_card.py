"""The card of a token on the Live page: by axe's rules in both themes, and there at once from token to token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import violations
from tests.ui.fake_run import FakeRun
from tests.ui.live_app import LiveApp

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    """A run that is over, so that the page asks for nothing by itself."""
    run = FakeRun(tmp_path_factory.mktemp("workspace"), steps=8)
    run.load()
    run.run()
    run.step(8)
    run.finish()
    return run


@pytest.fixture(scope="module")
def server(run: FakeRun) -> Iterator[LiveApp]:
    app = LiveApp(Path(run.folder).parent.parent)
    yield app
    app.close()


def test_from_token_to_token_the_card_is_there_at_once(open_page: Any, run: FakeRun) -> None:
    """The sums of the whole response came with it: moving asks the app for nothing more of it."""
    page = open_page(f"?run={run.run_id}&step=8&sample=2&token=0")
    page.wait_for_selector(".rs-card-columns")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data or ""))
    page.locator(".rs-token").first.focus()
    letters = page.locator(".rs-equation .rs-lhs")
    assert [text.strip() for text in letters.all_text_contents()] == ["Aₜ", "δₜ", "rₜ", "Rₜ"]
    count = page.locator(".rs-token").count()
    for place in range(2, count + 1):
        page.keyboard.press("ArrowRight")
        shown = page.evaluate("document.querySelector('.rs-card-title').textContent")  # without waiting
        assert shown == f"Token {place} of {count}"
    assert "−β klₜ + score" in page.locator(".rs-formulas").inner_text()
    assert "Last token: nothing follows, so Aₜ₊₁ and Vₜ₊₁ are 0." in page.locator(".rs-formulas").inner_text()
    page.keyboard.press("8")  # the clip flag: bars of the ratio around 1, and the edges that the app names
    assert page.locator(".rs-strip-key").first.inner_text().startswith("ratio per token, dashed: the edge of the clip range")
    axis = [float(text) for text in page.locator(".rs-strip-axis").first.locator("span").all_text_contents()]
    assert axis[0] > axis[1] == 1 > axis[2] and axis[0] - 1 == pytest.approx(1 - axis[2])
    assert not [body for body in asked if '"tokens"' in body or '"samples"' in body]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_axe_finds_on_live_with_an_open_card(theme: str, open_page: Any, run: FakeRun) -> None:
    page = open_page(f"?run={run.run_id}&step=8&sample=2&token=3&__theme={theme}")
    page.wait_for_selector(".rs-card-columns")
    assert violations(page, ".rs-page") == []
