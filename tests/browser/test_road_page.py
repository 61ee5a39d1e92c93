"""The Road page in a real browser: one button that goes along all parts, stopped on the way, and to the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_studio.road.plan import SMALL
from rlhf_studio.road.state import list_roads, read_road, write_road
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.road import page as pages
from tests.road.stand_ins import behave, new_road, start_driver
from tests.runs.stage_helpers import write_stage_run

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser

TITLES = ["Fine-tune a new policy", "Sample pairs", "Train a reward model", "Train with PPO", "Compare the policies"]


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("workspace"))
    yield running
    running.close()


def test_one_button_goes_along_all_parts(open_page: Callable[..., Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "start_driver", start_driver)
    root = server.workspace.root
    behave(root, ppo="hold")
    page = open_page("?tab=road")
    cards = page.locator(".rs-road-card")
    expect(cards).to_contain_text(TITLES)
    page.get_by_label("Small").check()
    start = page.get_by_role("button", name="Run all on the world")
    start.click()
    expect(cards.nth(0)).to_contain_text("Done")
    expect(cards.nth(3)).to_contain_text("Under way")
    expect(cards.nth(3)).to_contain_text("Step ")
    expect(cards.nth(4)).to_contain_text("Waiting")
    expect(start).to_be_disabled()
    expect(page.locator(".rs-road-head")).to_contain_text("Under way, 3 of 5 parts done")
    assert list_roads(root)[0].settings == SMALL
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(cards.nth(3)).to_contain_text("Stopped")
    behave(root)
    page.get_by_role("button", name="Go on", exact=True).click()
    accuracy = "Held-out accuracy 50.0\u202f% → 70.0\u202f% of 9 pairs."
    headlines = ["Held-out loss 3.50 → 1.50.", "label: 1 line", accuracy, "Gold score 0.50 → "]
    for card, headline in enumerate([*headlines, "The last policy wins 67\u202f% of comparisons with the first"]):
        expect(cards.nth(card)).to_contain_text("Done")
        expect(cards.nth(card).locator(".rs-road-headline")).to_contain_text(headline)
        expect(cards.nth(card).get_by_role("button", name="Open run")).to_have_count(0 if card in (1, 4) else 1)
    expect(page.locator(".rs-road-head")).to_contain_text("in all")
    expect(start).to_be_enabled()
    runs = {part.key: part.run for part in list_roads(root)[0].parts}
    assert len(list(server.workspace.folders())) == 4  # the stopped part went on with its own run
    expect(page.locator(".rs-road-verdict")).to_contain_text("With PPO the gold score rose from 0.50 to ")
    expect(page.locator(".rs-road")).to_contain_text("its numbers say little")
    expect(page.locator(".rs-road .rs-primary:visible")).to_have_text(["Open the table"])
    expect(cards.nth(4).get_by_role("link", name="Open the table")).to_be_visible()
    page.locator(".rs-road-actions").get_by_role("link", name="Open the table").click()
    expect(page.locator(".rs-evaluate-choice select")).to_have_value(runs["evaluation"])
    page.go_back()
    page.get_by_role("link", name="Talk to it").click()
    page.wait_for_function("run => location.search.includes(`talk=${run}`)", arg=runs["ppo"])
    page.go_back()
    page.get_by_role("button", name="Open run").first.click()
    expect(page.locator("#live-page")).to_be_visible()
    page.wait_for_function("run => location.search.includes(run)", arg=runs["sft"])


@pytest.mark.long
def test_the_small_road_for_real(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page("?tab=road")
    page.get_by_label("Small").check()
    page.get_by_role("button", name="Run all on the world").click()
    cards = page.locator(".rs-road-card")
    for card in range(5):
        expect(cards.nth(card)).to_contain_text("Done", timeout=300_000)
        expect(cards.nth(card).locator(".rs-road-headline")).not_to_be_empty()
    lineage = page.locator(".rs-road-lineage")
    expect(lineage.locator(".rs-road-row")).to_have_count(5)
    assert lineage.locator('[data-standing="changed"], [data-standing="gone"]').count() == 0


def test_who_only_watches_has_no_button(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page("?tab=road&view=1", width=390, height=844)
    expect(page.locator(".rs-road-card")).to_have_count(5)
    expect(page.get_by_role("button", name="Run all on the world")).to_be_hidden()
    expect(page.locator(".rs-road")).to_contain_text("You can watch runs")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_leads_to_its_road_or_says_that_it_is_not_here(
    open_page: Callable[..., Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_ROADS", 1)
    first = new_road(server.workspace.root)
    second = first.with_name("road-20200101-000000-0000")
    shutil.copytree(first, second)
    write_road(read_road(second).with_part("sft", headline="The older one."))
    page = open_page(f"?tab=road&road={second.name}")
    expect(page.locator(".rs-road-card").first).to_contain_text("The older one.")
    expect(page.get_by_label("Road", exact=True).locator("option")).to_have_count(2)
    page = open_page("?tab=road&road=road-none")
    expect(page.get_by_text("This road is not here.")).to_be_visible()
    expect(page.locator(".rs-road-card")).to_have_count(0)
    expect(page.locator(".rs-road-head")).to_contain_text("1 older road not listed")
    page.get_by_label("Road", exact=True).select_option(first.name)
    expect(page.locator(".rs-road-card")).to_have_count(5)
    expect(page.get_by_text("This road is not here.")).to_be_hidden()


def test_a_hash_stays_in_one_line_on_a_phone(open_page: Callable[..., Any], server: Server) -> None:
    road = read_road(new_road(server.workspace.root))
    gone = str(road.folder / "pairs-1.jsonl")
    write_road(road.with_part("pairs", state="done", file=gone, sha256="0" * 64))
    page = open_page("?tab=road", width=390, height=844)
    told = page.locator('.rs-road-row li[data-standing="gone"]')
    expect(told).to_contain_text("pairs-1.jsonl is no longer there.")
    box = told.locator("code").bounding_box()
    assert box is not None and box["height"] < 30 < box["width"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_problem_of_the_chain_goes_away_with_its_cause(open_page: Callable[..., Any], server: Server) -> None:
    """Nothing of the road itself changes meanwhile, so the page has to ask again by itself."""
    root = server.workspace.root
    run = write_stage_run(root, "sft", [{"sft/loss": 0.5}]).run_dir
    road = read_road(new_road(root))
    write_road(road.with_part("sft", state="done", run=run.name))
    away = run.rename(root / "away")
    page = open_page("?tab=road")
    problem = page.locator(".rs-road-lineage .rs-problem")
    expect(problem).to_contain_text("There is no run")
    away.rename(run)
    expect(problem).to_have_count(0)
