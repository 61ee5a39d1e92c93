"""The Runs page: sort, search, tags, columns, stages, the menu by keyboard, renaming, deleting, and runs side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rlhf_studio.runs.reader import RunReader
from tests.browser.conftest import go
from tests.browser.filled import NAMES, Studio
from tests.ui.fake_run import FakeRun

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


def rows(page: Any) -> list[str]:
    return [text.split("\n")[0] for text in page.locator(".rs-run-table .rs-run-name").all_inner_texts()]


def the_three(open_page: Callable[..., Any], **size: int) -> Any:
    """The table with the three runs that have tags."""
    page = open_page("?tab=runs", **size)
    page.get_by_label("Search runs").fill("tag-")
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(3)
    return page


def action(page: Any, name: str) -> None:
    """Choose what is to be done with the first run of the table."""
    page.locator(".rs-run-table [data-action=menu]").first.click()
    page.get_by_role("menuitem", name=name, exact=True).click()


@pytest.mark.long
def test_a_person_sorts_searches_and_hides_columns_and_finds_it_so_again(open_page: Callable[..., Any], studio: Studio) -> None:
    page = the_three(open_page)
    page.get_by_role("button", name="Run", exact=True).click()
    assert rows(page) == sorted(NAMES)
    page.get_by_role("button", name="Run").click()
    assert rows(page) == sorted(NAMES, reverse=True)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Recipe").uncheck()
    assert "Recipe" not in page.locator(".rs-run-table thead").inner_text()
    page.reload()
    page.get_by_label("Search runs").fill("tag-")
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(3)
    assert rows(page) == sorted(NAMES, reverse=True)
    assert "Recipe" not in page.locator(".rs-run-table thead").inner_text()
    assert page.locator('th [data-sort="score"]').get_attribute("data-tip").startswith("From the first step to the mean of the last tenth")
    page.get_by_label("Search runs").fill("tag-1 finished")
    everything = len(studio.workspace.runs())
    page.get_by_text(f"1 of {everything} runs").wait_for()
    assert rows(page) == [NAMES[1]]

    # stages: a column, and a choice
    page.get_by_label("Search runs").fill("")
    expect(page.locator(".rs-run-table thead")).to_contain_text("Stage")
    page.locator(".rs-stage-choice").select_option("reward_model")
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(1)
    expect(page.locator(".rs-run-table tbody tr").first).to_contain_text("held-out accuracy")
    page.locator(".rs-stage-choice").select_option("")

    page.set_viewport_size({"width": 390, "height": 844})  # a phone has cards
    assert not page.locator(".rs-run-table thead").is_visible()
    page.get_by_label("Search runs").fill("tag-")
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(3)
    page.get_by_label("Sort by").select_option("name 1")
    assert rows(page) == sorted(NAMES)
    page.set_viewport_size({"width": 1440, "height": 900})

    # runs of one name are told apart by the settings that differ, until they have names of their own again
    studio.workspace.rename(studio.runs["hostile"], NAMES[1])
    page.reload()  # a table in which nothing goes on asks again after a while
    same = page.get_by_role("checkbox", name=f"Compare {NAMES[1]} (KL coefficient ")
    same.nth(1).wait_for()
    assert same.count() == 2 and page.get_by_role("checkbox", name=f"Compare {NAMES[0]}", exact=True).count() == 1
    studio.workspace.rename(studio.runs["hostile"], NAMES[2])


def test_a_person_compares_runs_and_seeds_and_the_address_leads_back(open_page: Callable[..., Any], studio: Studio) -> None:
    page = the_three(open_page)
    third = page.locator("[data-action=tick]").nth(2)
    before = third.bounding_box()
    for number in range(3):
        page.locator("[data-action=tick]").nth(number).check()
    assert third.bounding_box() == before, "what comes with a tick moves no row"
    page.get_by_role("button", name="Compare 3 runs").click()
    page.wait_for_function("[...document.querySelectorAll('.rs-runs .rs-plot')].filter((node) => node.data).length >= 4")
    assert "compare=" in page.url
    assert page.locator(".rs-compare-verdict").inner_text().endswith(".")
    page.wait_for_selector(".rs-compare-answer .rs-tinted")
    page.get_by_role("button", name="Next prompt").click()
    page.get_by_text("2 of 6").wait_for()
    page.get_by_text("Choose metrics").click()
    page.get_by_role("group", name="Metrics").get_by_label("Value loss").check()
    drawn = "document.querySelector('[data-metric=\"loss/value_avg\"] .rs-plot')?.data?.length === 3"
    page.wait_for_function(drawn)
    assert "loss%2Fvalue_avg" in page.url
    curve = page.locator('[data-metric="loss/value_avg"] .rs-plot')
    curve.scroll_into_view_if_needed()
    box = curve.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    readout = page.locator('[data-metric="loss/value_avg"]').get_by_text(re.compile(r"^step \d+$"))
    assert 6 <= int(readout.inner_text().split()[1]) <= 15  # in the middle of twenty steps
    page.mouse.move(0, 0)  # a pointer that rests on a chart reads again where the page moves below it
    by_keys = page.locator('[data-metric="loss/value_avg"]').get_by_role("slider")
    by_keys.press("Home")
    by_keys.press("ArrowRight")
    playwright.expect(by_keys).to_have_attribute("aria-valuetext", re.compile(r"^step 2: .+"))
    playwright.expect(readout).to_have_text("step 2")
    legend = page.locator('[data-metric="objective/kl"] .rs-curve-values')
    playwright.expect(legend.locator("[data-tip]")).to_have_attribute("data-tip", "The mean of the last tenth of the steps.")
    runs = re.search("compare=([^&]+)", page.url)[1].replace("%2C", ",").split(",")
    recorded = [RunReader(studio.workspace.run_dir(run)).columns(["objective/kl"])[1]["objective/kl"] for run in runs]
    means = [values[-max(1, len(values) // 10) :].mean() for values in recorded]
    assert [float(text) for text in legend.locator("b").all_inner_texts()] == [pytest.approx(mean, abs=0.006) for mean in means]
    page.go_back()
    page.wait_for_selector(".rs-run-table tbody tr >> visible=true")
    page.go_forward()
    page.wait_for_selector(".rs-compare-verdict >> visible=true")
    page.reload()
    page.wait_for_function(drawn)

    # seeds of the same settings and their mean have colours of their own
    for seed in (0, 7):  # with the settings of the first one, whose seed is 0
        run = FakeRun(studio.workspace.root, steps=20, seed=7, name=f"seed {seed}", kl_coef=0.05)
        settings = run.folder / "config.yaml"
        settings.write_text(re.sub(r"(\n *seed:) \d+", rf"\1 {seed}", settings.read_text()))
        run.run()
        run.step(20)
        run.finish()
        go(page, f"?tab=runs&compare={studio.runs['second']},{run.run_id}&metric=objective/scores")
        page.locator(".rs-compare-runs").get_by_text("Mean of 2 seeds" if seed else "Mean of 2 runs of 1 seed").wait_for()
    page.get_by_label("Compare with another run").select_option(label="seed 0")
    page.locator(".rs-compare-runs").get_by_text("Mean of 3 runs of 2 seeds").wait_for()
    page.go_back()
    page.locator(".rs-compare-runs").get_by_text("Mean of 2 seeds").wait_for()
    legend = page.locator(".rs-swatch").filter(visible=True)
    swatches = legend.evaluate_all("nodes => nodes.slice(0, 3).map((node) => getComputedStyle(node).getPropertyValue('--c'))")
    page.get_by_label("Single runs too").check()
    lines = "document.querySelector('[data-metric=\"objective/scores\"] .rs-plot')?.data?.filter((line) => line.line.width > 0)"
    page.wait_for_function(f"{lines}?.length === 3")
    colours = page.evaluate(f"{lines}.map((line) => line.line.color)")
    assert len(set(swatches)) == 3 and len(set(colours)) == 3, (swatches, colours)
    page.get_by_label("Single runs too").uncheck()  # the legend has the strokes that are drawn, and no others
    page.wait_for_function(f"{lines}?.length === 1")
    expect(page.locator(".rs-compare-runs .rs-swatch").filter(visible=True)).to_have_count(1)


def test_a_person_without_a_mouse_varies_cancels_renames_exports_and_deletes(open_page: Callable[..., Any], studio: Studio) -> None:
    before = len(studio.workspace.runs())
    page = the_three(open_page)
    page.locator("[data-action=menu]").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.textContent === 'Open'")
    page.evaluate("document.querySelector('.rs-run-table').style.marginTop = '120px'")  # rows move, as when others come above them
    page.wait_for_function(
        "document.querySelector('[aria-expanded=true]').getBoundingClientRect().bottom + 4 === "
        "document.querySelector('.rs-row-menu').getBoundingClientRect().top"
    )
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.action") == "menu"
    page.keyboard.press("Enter")
    for _ in range(12):
        if page.evaluate("document.activeElement.textContent") == "Vary settings":
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.get_by_label("Values, with commas between them").first.fill("0.1, nonsense")
    page.keyboard.press("Enter")
    page.get_by_role("alert").get_by_text("ppo.kl_coef").wait_for()
    assert len(studio.workspace.runs()) == before
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.route("**/component_server/", lambda route: route.abort() if '"loss"' in route.request.post_data else route.continue_())
    action(page, "Delete")
    no_answer = page.get_by_text("The app does not answer. Try again in a moment.")
    no_answer.wait_for()
    with page.expect_response(lambda reply: '"runs"' in (reply.request.post_data or "")):
        pass
    expect(no_answer).to_be_visible()
    assert page.locator("dialog[open]").count() == 0
    page.unroute("**/component_server/")

    # one of their own: queued behind another one, cancelled, renamed, its settings taken over, deleted
    first = studio.submit("long one", steps=60)
    studio.wait_for(first, "running")
    page.get_by_label("Search runs").fill("long one")
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(1)
    action(page, "Another seed")
    page.get_by_role("dialog").get_by_role("button", name="Start run").click()
    page.get_by_role("link", name="Compare it with long one").click()
    expect(page.locator(".rs-compare-runs")).to_contain_text("seed 1")
    page.go_back()
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(2)
    second = studio.submit("waits its turn")
    page.get_by_label("Search runs").fill("waits its turn")
    row = page.locator(".rs-run-table tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("queued")
    action(page, "Cancel")
    expect(row).to_contain_text("stopped")
    assert studio.workspace.status(first).state == "running"
    action(page, "Rename")
    page.get_by_role("dialog").get_by_label("Name").fill("renamed")
    page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    page.get_by_label("Search runs").fill("renamed")
    expect(row).to_contain_text("renamed")
    action(page, "Copy settings to Train")
    expect(page.locator("#setting-ppo-steps")).to_have_value("2")
    expect(page.locator(".rs-form > .rs-message")).to_have_text("These are the settings of renamed.")
    page.get_by_role("tab", name="Runs", exact=True).click()
    action(page, "Delete")
    expect(page.get_by_role("dialog")).to_contain_text("Deleting renamed removes ")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert studio.workspace.status(second).state == "stopped"
    action(page, "Delete")
    page.get_by_role("button", name="Delete run").click()
    expect(row).to_have_count(0)
    studio.clear()

    # a log of others: it stands in the table, its menu says why nothing follows from it, and the notice leads to it
    page.get_by_label("Search runs").fill("theirs")
    page.get_by_role("button", name="Open a log").click()
    line = {"step": 1, "prompt": "a", "response": "b", "reward": 0.5}
    log = {"name": "theirs.jsonl", "mimeType": "application/jsonl", "buffer": json.dumps(line).encode()}
    page.locator(".rs-file").set_input_files(log)
    page.get_by_role("dialog").get_by_role("button", name="Open").click()
    expect(row).to_contain_text("read from theirs.jsonl")
    expect(row).to_contain_text("finished")
    row.get_by_role("button", name="Actions").click()
    why = page.get_by_role("menuitem", name="Fork or variation", disabled=True)
    expect(why).to_contain_text("This run was read from theirs.jsonl: there is no model to train.")
    expect(page.get_by_role("menuitem", name="Copy settings to Train")).to_have_count(0)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Look at the run").click()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")

    # who only watches has no such things in the menu
    page.goto(f"{studio.url}?tab=runs&view=1")
    page.get_by_label("Search runs").fill("tag-0")
    page.get_by_role("button", name=f"Actions for {NAMES[0]}").click()
    expect(page.get_by_role("menuitem", name="Open")).to_have_count(1)
    expect(page.get_by_role("menuitem", name="Delete")).to_have_count(0)
    expect(page.locator(".rs-runs-tools")).to_contain_text("You can watch runs, not change them.")
