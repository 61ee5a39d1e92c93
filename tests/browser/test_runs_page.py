"""The Runs page in a real browser: sort, search, columns, the menu, and runs side by side, also by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.app import Server, launch
from tests.browser.conftest import HOSTILE
from tests.ui.fake_run import FakeRun

pytestmark = pytest.mark.browser
NAMES = ("second of all", "first of all", HOSTILE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("workspace")
    for number, name in enumerate(NAMES):
        run = FakeRun(root, steps=10, seed=number, name=name, kl_coef=0.05 * (number + 1))
        run.run()
        run.step(10)
        run.finish()
        Workspace(root).mark(run.run_id, tags=[HOSTILE[:36], f"tag-{number}"], note=HOSTILE)
    app = launch(root, start=lambda *_, **__: None)
    yield app
    app.close()


def rows(page: Any) -> list[str]:
    return [text.split("\n")[0] for text in page.locator(".rs-run-table .rs-run-name").all_inner_texts()]


def opened(open_page: Callable[..., Any], query: str = "?tab=runs", **size: int) -> Any:
    page = open_page(query, **size)
    page.wait_for_function("document.querySelectorAll('.rs-run-table tbody tr').length === 3")
    return page


def test_sort_search_and_columns_are_remembered(open_page: Callable[..., Any], server: Server) -> None:
    page = opened(open_page)
    page.get_by_role("button", name="Run", exact=True).click()
    assert rows(page) == sorted(NAMES)
    page.get_by_role("button", name="Run").click()
    assert rows(page) == sorted(NAMES, reverse=True)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Recipe").uncheck()
    assert "Recipe" not in page.locator(".rs-run-table thead").inner_text()
    page.reload()
    page.wait_for_function("document.querySelectorAll('.rs-run-table tbody tr').length === 3")
    assert rows(page) == sorted(NAMES, reverse=True)
    assert "Recipe" not in page.locator(".rs-run-table thead").inner_text()
    assert page.locator('th [data-sort="score"]').get_attribute("title").startswith("From the first step to the mean of the last tenth")
    page.get_by_label("Search runs").fill("tag-1")
    page.get_by_text("1 of 3 runs").wait_for()
    assert rows(page) == [NAMES[1]]

    # runs of one name are told apart by when they started, until they have names of their own again
    runs = {run.name: run.run_id for run in server.workspace.runs()}
    server.workspace.rename(runs[NAMES[2]], NAMES[1])
    page.reload()  # a table in which nothing goes on asks again after a while
    same = page.get_by_role("checkbox", name=f"Compare {NAMES[1]}, started ")
    same.nth(1).wait_for()
    assert same.count() == 2 and page.get_by_role("checkbox", name=f"Compare {NAMES[0]}", exact=True).count() == 1
    server.workspace.rename(runs[NAMES[2]], "")
    page.reload()
    page.get_by_role("checkbox", name=f"Compare {NAMES[1]}", exact=True).wait_for()


def test_ticked_runs_are_compared_and_the_address_leads_there_and_back(open_page: Callable[..., Any]) -> None:
    page = opened(open_page)
    for number in range(3):
        page.locator("[data-action=tick]").nth(number).check()
    page.get_by_role("button", name="Compare 3 runs").click()
    page.wait_for_function("[...document.querySelectorAll('.rs-curve')].filter((node) => node.data).length >= 4")
    assert "compare=" in page.url
    assert page.locator(".rs-compare-verdict").inner_text().endswith(".")
    page.wait_for_selector(".rs-compare-answer .rs-tinted")
    page.get_by_role("button", name="Next prompt").click()
    page.get_by_text("2 of 6").wait_for()
    page.get_by_text("Choose metrics").click()
    page.get_by_role("group", name="Metrics").get_by_label("Value loss").check()
    page.wait_for_function("document.querySelector('[data-metric=\"loss/value_avg\"] .rs-curve')?.data?.length === 3")
    assert "loss%2Fvalue_avg" in page.url
    page.go_back()
    page.wait_for_selector(".rs-run-table tbody tr >> visible=true")
    page.go_forward()
    page.wait_for_selector(".rs-compare-verdict >> visible=true")
    page.reload()
    page.wait_for_function("document.querySelector('[data-metric=\"loss/value_avg\"] .rs-curve')?.data?.length === 3")
    assert page.evaluate("window.__pwned") is None


def test_seeds_of_the_same_settings_and_their_mean_have_colours_of_their_own(open_page: Callable[..., Any], server: Server) -> None:
    first, made = next(one.run_id for one in server.workspace.runs() if one.name == NAMES[0]), []
    for seed in (0, 7):  # with the settings of the first one, whose seed is 0
        made.append(run := FakeRun(server.workspace.root, steps=10, seed=7, name=f"seed {seed}", kl_coef=0.05))
        settings = run.folder / "config.yaml"
        settings.write_text(re.sub(r"(\n *seed:) \d+", rf"\1 {seed}", settings.read_text()))
        run.run()
        run.step(10)
        run.finish()
        page = open_page(f"?tab=runs&compare={first},{run.run_id}&metric=objective/scores")
        page.get_by_text("Mean of 2 seeds" if seed else "Mean of 2 runs of 1 seed").wait_for()
    page.get_by_label("Compare with another run").select_option(label="seed 0")
    page.get_by_text("Mean of 3 runs of 2 seeds").wait_for()
    page.go_back()
    page.get_by_text("Mean of 2 seeds").wait_for()
    legend = page.locator(".rs-swatch").filter(visible=True)
    swatches = legend.evaluate_all("nodes => nodes.slice(0, 3).map((node) => getComputedStyle(node).getPropertyValue('--c'))")
    page.get_by_label("Single runs too").check()
    drawn = "document.querySelector('[data-metric=\"objective/scores\"] .rs-curve')?.data?.filter((line) => line.line.width > 0)"
    page.wait_for_function(f"{drawn}?.length === 3")
    lines = page.evaluate(f"{drawn}.map((line) => line.line.color)")
    for run in made:
        server.workspace.delete(run.run_id)
    assert len(set(swatches)) == 3 and len(set(lines)) == 3, (swatches, lines)


def test_the_keyboard_alone_opens_a_menu_and_varies_settings(open_page: Callable[..., Any], server: Server) -> None:
    page = opened(open_page)
    page.locator("[data-action=menu]").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.textContent === 'Open'")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.action") == "menu"
    page.keyboard.press("Enter")
    for _ in range(6):
        page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "Vary settings"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.get_by_label("Values, with commas between them").first.fill("0.1, nonsense")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("ppo.kl_coef").wait_for()
    assert len(server.workspace.runs()) == 3
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.route("**/component_server/", lambda route: route.abort() if '"loss"' in route.request.post_data else route.continue_())
    page.locator("[data-action=menu]").first.click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_text("The app does not answer. Try again in a moment.").wait_for()
    assert page.locator("dialog[open]").count() == 0


def test_a_phone_has_cards_and_nothing_that_scrolls_sideways(open_page: Callable[..., Any]) -> None:
    page = opened(open_page, width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not page.locator(".rs-run-table thead").is_visible()
    page.get_by_label("Sort by").select_option("name 1")
    assert rows(page) == sorted(NAMES)
