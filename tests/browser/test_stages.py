"""What comes around PPO: a Live page for each stage that leads to the next, the Evaluate page with its blind arena, and the Road."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.jobs.road.plan import SMALL
from rlhf_studio.jobs.road.state import list_roads, read_road, write_road
from rlhf_studio.runs import launch as engines
from rlhf_studio.ui.app import launch
from rlhf_studio.ui.road import page as road_page
from tests.browser.conftest import go, width_of
from tests.browser.filled import Studio
from tests.road.stand_ins import behave, engine_command, new_road, start_driver
from tests.runs.stage_helpers import write_stage_run
from tests.runs.store_helpers import REPOSITORY
from tests.runs.test_evaluation_policies import run_with

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
TITLES = ["Fine-tune a new policy", "Sample pairs", "Train a reward model", "Train with PPO", "Compare the policies"]


@pytest.mark.long
def test_live_of_every_stage_shows_its_own_and_leads_to_the_next(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page(f"?tab=live&run={studio.runs['dpo']}")
    live = page.locator("#live-page")
    expect(live.get_by_role("group", name="Colour tokens by").get_by_role("button")).to_have_text([re.compile("^Loss"), re.compile("^KL")])
    expect(live.locator(".rs-row").first).to_contain_text("chosen")
    expect(live.locator(".rs-tile:visible .rs-tile-label")).to_contain_text(["Loss", "Held-out loss"])
    go(page, f"?tab=live&run={studio.runs['reward_model']}")
    expect(live.locator(".rs-gauges")).to_contain_text("As often right as it believes?")
    expect(live.locator(".rs-inspector")).to_be_hidden()
    page.goto(f"{studio.url}?tab=live&run={studio.runs['sft']}")
    expect(live.locator(".rs-verdict-sentence")).to_contain_text("held-out loss")
    compared = "Step 1 → mean of the last 2 steps; held-out numbers: first measurement → newest"
    expect(live.locator("#rs-tiles-said")).to_have_text(compared)
    expect(live.locator('.rs-tile[data-term="sft/eval_perplexity"] .rs-tile-label')).to_have_text("Held-out perplexity")
    drawn = """() => { const plot = document.querySelector('[data-chart="perplexity"] .js-plotly-plot');
        return plot?.layout && [plot.layout.yaxis.type, plot.data.at(-1).x[0], plot.data.at(-1).y[0]]; }"""
    page.wait_for_function(drawn)
    assert page.evaluate(drawn) == ["log", 0, 403.4]
    for absent in (".rs-learned", ".rs-gauges", ".rs-guide-start", ".rs-formulas"):
        expect(live.locator(absent)).to_be_hidden()
    expect(live.locator(".rs-ending-large")).to_have_text("Train a reward model on it")
    live.get_by_role("link", name="Train a reward model on it").click()
    expect(page.locator('[data-setting="model.policy"] input').first).to_have_value(re.compile("step-000002/policy$"))
    expect(page.locator('.rs-recipe[aria-pressed="true"]')).to_contain_text("Tiny world, reward model")

    # a finished evaluation has a checkpoint, from which it would be resumed, and no model: it leads to its table
    go(page, f"?tab=live&run={studio.runs['evaluation']}")
    banner = live.locator(".rs-banner")
    expect(live.locator(".rs-verdict-sentence")).to_contain_text("100 %")
    for absent in (".rs-tiles-all", ".rs-inspector"):
        expect(live.locator(absent)).to_be_hidden()
    expect(banner).to_contain_text("the table compares the policies")
    expect(banner).not_to_contain_text("saved")
    expect(banner).not_to_contain_text("More to try")
    banner.get_by_role("link", name="Open the table").click()
    page.get_by_text("All numbers").click()
    expect(page.get_by_role("region", name="Table of results")).to_contain_text("Gold gained")
    expect(page.get_by_label("Evaluation", exact=True).locator("option:checked")).to_contain_text("who is better")


def test_an_evaluation_is_looked_at_from_all_sides_and_voted_on_blindly(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page(f"?tab=evaluate&evaluation={studio.runs['evaluation']}")
    table, wins = page.get_by_role("region", name="Table of results"), page.locator(".rs-evaluate-wins li")
    page.get_by_text("All numbers").click()
    expect(table).to_contain_text("Gold gained")
    expect(wins).to_contain_text("12 wins, 0 ties, 0 losses")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("policy,answers,score")
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator("ins").first).to_contain_text("<img src=x")
    expect(page.get_by_text("Prompts 1 to 10 of 12")).to_be_visible()
    page.get_by_role("button", name="Next prompts").click()
    expect(page.get_by_text("Prompts 11 to 12 of 12")).to_be_visible()
    page.get_by_role("button", name="Blind arena").click()
    for number in range(1, 4):
        page.get_by_role("button", name="Equally good").focus()
        page.keyboard.press("t")
        page.keyboard.press("t")  # too early: the next pair is not there yet
        expect(page.get_by_text(f"{number} vote{'s' * (number > 1)} so far.")).to_be_visible()
    page.get_by_role("button", name="Results", exact=True).click()
    page.get_by_label("Win rate by").select_option("votes")
    expect(wins).to_contain_text("0 wins, 3 ties, 0 losses")
    page.get_by_label("Win rate by").select_option("gold")
    page.get_by_label("Compare with").select_option(index=1)  # the other way round
    expect(wins).to_contain_text("0 wins, 0 ties, 12 losses")
    expect(wins).to_contain_text("start")
    assert page.evaluate("window.__pwned") is None

    # what matters most is told above all views, and a reload stays there
    page.get_by_label("Evaluation", exact=True).select_option(studio.runs["exploited"])
    warning = page.get_by_text("The judge was fooled (the reward is over-optimised): from middle to late")
    expect(warning).to_be_visible()
    expect(page.get_by_role("img", name="Score, Gold against the distance from the reference: 3 policies")).to_be_visible()
    expect(warning).to_have_count(1)
    page.get_by_role("button", name="Side by side").click()
    page.reload()
    expect(page.get_by_role("button", name="Side by side")).to_have_attribute("aria-pressed", "true")
    expect(table).to_be_hidden()

    # a new one: the form says what is wrong
    run_with(Path(studio.workspace.root) / "runs" / "ppo-1")
    page.goto(f"{studio.url}?tab=evaluate")
    page.locator(".rs-evaluate-new summary").click()
    alert, start = page.locator(".rs-evaluate").get_by_role("alert"), page.get_by_role("button", name="Start evaluation")
    expect(page.get_by_role("list", name="Policies")).to_contain_text(", step 20")  # of the newest finished run, as the button beside
    page.get_by_placeholder("folder, hub id or .jsonl file").fill("nowhere@all")
    start.click()
    expect(alert).to_contain_text("there is no run 'nowhere': name its folder")
    page.get_by_role("button", name="Remove nowhere@all").click()
    page.get_by_label("Judge", exact=False).first.fill("./no-judge")
    start.click()
    expect(alert).to_have_text("Judge: there is no folder ./no-judge")
    expect(page.locator(".rs-evaluate [aria-invalid]")).to_have_value("./no-judge")
    expect(start).to_be_enabled()
    page.goto(f"{studio.url}?tab=evaluate&view=1")
    page.locator(".rs-evaluate-wins li").first.wait_for()
    expect(page.locator(".rs-evaluate-new")).to_be_hidden()  # for who only watches


@pytest.mark.long
def test_one_button_goes_along_all_parts_of_the_road(
    open_page: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(road_page, "start_driver", start_driver)
    monkeypatch.setattr(engines, "engine_command", engine_command)  # the app's queue may be quicker than the driver's
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setattr(road_page, "MOST_ROADS", 1)
    server = launch(tmp_path)
    behave(tmp_path, ppo="hold")
    page = open_page("?tab=road", at=server)
    cards, head = page.locator(".rs-road-card"), page.locator(".rs-road-head")
    recorded = page.get_by_text("Recorded example")
    expect(recorded).to_be_visible()  # what it will look like
    expect(cards).to_contain_text(TITLES)
    expect(cards.nth(4).locator(".rs-road-headline")).to_contain_text("Wins 73")
    page.get_by_role("button", name="Go along the road").click()
    expect(recorded).to_be_hidden()
    page.get_by_role("button", name="New road").click()
    page.get_by_role("button", name="The bundled world").click()
    start = page.get_by_role("button", name="Run all on the world")
    expect(cards.nth(0)).to_contain_text("Done")
    expect(cards.nth(3)).to_contain_text("Under way")
    expect(cards.nth(3)).to_contain_text("Step ")
    expect(cards.nth(4)).to_contain_text("Waiting")
    expect(start).to_be_disabled()
    expect(head).to_contain_text("Under way, 3 of 5 parts done")
    assert list_roads(tmp_path)[0].settings == SMALL
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(cards.nth(3)).to_contain_text("Stopped")
    behave(tmp_path)
    page.get_by_role("button", name="Go on", exact=True).click()
    accuracy = "Held-out accuracy 50.0\u202f% → 70.0\u202f% of 9 pairs."
    headlines = ["Held-out loss 3.50 → 1.50.", "label: 1 line", accuracy, "Gold score 0.50 → "]
    for card, headline in enumerate([*headlines, "Wins 67\u202f%"]):
        expect(cards.nth(card)).to_contain_text("Done")
        expect(cards.nth(card).locator(".rs-road-headline")).to_contain_text(headline)
        expect(cards.nth(card).get_by_role("button", name="Open run")).to_have_count(0 if card in (1, 4) else 1)
    expect(head).to_contain_text("in all")
    expect(start).to_be_enabled()
    road = list_roads(tmp_path)[0]
    runs = {part.key: part.run for part in road.parts}
    assert len(list(server.workspace.folders())) == 4  # the stopped part went on with its own run
    expect(page.locator(".rs-road-verdict")).to_contain_text("With PPO the gold score rose from 0.50 to ")
    expect(page.locator(".rs-road .rs-primary:visible")).to_have_text(["Run all on the world"])
    page.get_by_role("button", name="Close the form").click()
    expect(page.locator(".rs-road .rs-primary:visible")).to_have_text(["Open the table"])
    page.locator(".rs-road-actions").get_by_role("link", name="Open the table").click()
    expect(page.locator(".rs-evaluate-choice select")).to_have_value(runs["evaluation"])
    page.go_back()
    page.get_by_role("link", name="Talk to it").click()
    page.wait_for_function("run => location.search.includes(`talk=${run}`)", arg=runs["ppo"])
    page.go_back()
    page.get_by_role("button", name="Open run").first.click()
    page.wait_for_function("run => location.search.includes(run)", arg=runs["sft"])

    # an older road by its link, and one that is not here
    older = road.folder.with_name("road-20200101-000000-0000")
    shutil.copytree(new_road(tmp_path / "elsewhere"), older)
    write_road(read_road(older).with_part("sft", headline="The older one."))
    page.goto(f"{server.url}?tab=road&road={older.name}")
    expect(cards.first).to_contain_text("The older one.")
    expect(page.get_by_label("Road", exact=True).locator("option")).to_have_count(2)
    page.goto(f"{server.url}?tab=road&road=road-none")
    expect(page.get_by_text("This road is not here.")).to_be_visible()
    expect(cards).to_have_count(0)
    expect(head).to_contain_text("1 older road not listed")
    page.get_by_label("Road", exact=True).select_option(road.folder.name)
    expect(cards).to_have_count(5)
    expect(page.get_by_text("This road is not here.")).to_be_hidden()

    # a problem of the chain goes away with its cause, though nothing of the road changes; a hash stays in one line on a phone
    run = write_stage_run(tmp_path, "sft", [{"sft/loss": 0.5}]).run_dir
    broken = read_road(road.folder)
    pairs = str(broken.folder / "pairs-1.jsonl")
    Path(pairs).unlink(missing_ok=True)
    write_road(broken.with_part("sft", run=run.name).with_part("pairs", state="done", file=pairs, sha256="0" * 64))
    away = run.rename(tmp_path / "away")
    page.goto(f"{server.url}?tab=road&view=1")
    page.locator(".rs-road-lineage summary").click()
    problem = page.locator(".rs-road-lineage .rs-problem", has_text="There is no run")
    expect(problem).to_have_count(1)
    away.rename(run)
    expect(problem).to_have_count(0)
    page.set_viewport_size({"width": 390, "height": 844})
    missing = page.locator('.rs-road-row li[data-standing="gone"]')
    expect(missing).to_contain_text("pairs-1.jsonl is no longer there.")
    box = missing.locator("code").bounding_box()
    assert box["height"] < 30 < box["width"]
    assert width_of(page) <= 390
    expect(start).to_be_hidden()  # for who only watches
    expect(page.locator(".rs-road")).to_contain_text("You can watch runs")
    server.close()
