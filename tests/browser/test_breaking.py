"""Break it in a browser: a prediction before anything runs, one button for both runs, and the way to the line of code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.lessons.faults import shelf
from rlhf_studio.ui.app import Server, launch
from tests.browser.axe import violations
from tests.ui.breaking_stand_in import start_stand_in

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("breaking"), start=start_stand_in)  # type: ignore[arg-type]
    yield running
    running.close()


def test_a_reader_predicts_runs_both_and_follows_the_way_to_the_bug(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=break")
    expect(page.locator(".rs-learn-broken")).to_have_count(9)
    page.locator(".rs-learn-broken", has_text=shelf.text_of("no_kl").title).first.click()
    expect(page).to_have_url(re.compile("place=break&show=no_kl"))
    why = page.locator('[data-part="why"]')
    expect(why).to_be_hidden()
    page.get_by_role("button", name="Higher", exact=True).click()
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Your answer is kept.")
    kept = page.get_by_role("button", name="Higher", exact=True)
    expect(kept).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="All experiments").click()
    page.locator(".rs-learn-broken", has_text=shelf.text_of("no_kl").title).first.click()
    expect(kept).to_have_attribute("data-state", "kept")  # another look at the list loses no answer
    expect(page.locator(".rs-learn-both")).to_contain_text(re.compile("Both runs together take about .* on two CPU cores"))
    expect(why).to_be_hidden()
    page.get_by_role("button", name="Run both").click()
    expect(page.locator(".rs-learn-side")).to_contain_text(["Finished, step 3 of 20", "Finished, step 3 of 20"])
    expect(page.locator(".rs-learn-verdict")).to_contain_text("Not here. It ends at −0.50 instead of +0.50.")
    path = page.locator('[data-part="path"]')
    expect(path).to_contain_text('In step 2, token 3 of response 1, "is"')
    expect(path.locator(".rs-learn-code")).to_contain_text("rewards = masked_select(-kl_coef * kl, mask)")
    expect(why).to_be_visible()
    expect(page.locator('[data-part="curves"] svg').first).to_be_visible()
    expect(page.locator('[data-part="path"] th', has_text="<b>superb</b>").first).to_be_visible()
    assert violations(page, ".rs-learn-lesson") == []
    compare = page.get_by_role("link", name="Compare both")
    assert re.search("tab=runs&compare=[^&]+%2C", compare.get_attribute("href"))
    page.reload()  # the pair is there: its result shows at once, behind the question
    page.get_by_role("button", name="Show me").click()
    expect(page.locator('[data-part="why"]')).to_be_visible()
    page.get_by_role("button", name="Run again with seed 1").click()
    expect(page).to_have_url(re.compile("seed=1"))
    expect(page.locator(".rs-learn-called").first).to_contain_text("seed 1")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_viewer_is_told_who_may_start_the_runs(open_page: Callable[..., Any]) -> None:
    from playwright.sync_api import expect

    page = open_page("?place=break&show=critic&view=1")
    expect(page.locator(".rs-learn-both")).to_contain_text("You cannot start these two runs here.")
    expect(page.get_by_role("button", name="Run both")).to_be_hidden()
    page.goto(page.url.split("?")[0] + "?place=break&show=no_such")
    expect(page.get_by_role("alert").first).to_have_text("There is no such experiment.")
