"""The Evaluate page in a browser: table, answers side by side, frontier, a blind vote, and model text that stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.evaluate.page import EvaluatePage
from tests.analysis.test_evaluation import over_optimised
from tests.browser.conftest import HOSTILE
from tests.runs.store_helpers import new_run
from tests.runs.test_evaluation_policies import run_with
from tests.ui.test_evaluate import answers

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("evaluate")
    rows = [*answers("start", 0.0), *answers(HOSTILE, 1.0)]
    with RunWriter(new_run(root / "runs" / "evaluation-1")) as writer:
        writer.commit_step(StepRecord(1, {}, [replace(row, sample=place) for place, row in enumerate(rows)]))
    with RunWriter(new_run(root / "runs" / "evaluation-2")) as writer:
        writer.commit_step(StepRecord(1, {}, [replace(row, sample=place) for place, row in enumerate(over_optimised())]))
    run_with(root / "runs" / "ppo-1")
    with pytest.MonkeyPatch.context() as patch:  # the stage of a run that was made by hand
        patch.setattr(EvaluatePage, "_stage", lambda self, run: "evaluation" if run.startswith("evaluation") else "ppo")
        running = launch(root, start=lambda *given, **more: None)  # type: ignore[arg-type, return-value]
        yield running
        running.close()


def test_an_evaluation_is_looked_at_from_all_sides(open_page: Callable[..., Any], server: Server) -> None:
    from playwright.sync_api import expect

    page = open_page("?tab=evaluate&evaluation=evaluation-1")
    table = page.get_by_role("region", name="Table of results")
    expect(table).to_contain_text("Gold gained")
    expect(page.locator(".rs-evaluate-wins li")).to_contain_text("12 wins, 0 ties, 0 losses")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("policy,answers,score")
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator("ins").first).to_contain_text("<img src=x")
    expect(page.get_by_text("Prompts 1 to 10 of 12")).to_be_visible()
    page.get_by_role("button", name="Next prompts").click()
    expect(page.get_by_text("Prompts 11 to 12 of 12")).to_be_visible()
    page.get_by_role("button", name="Frontier").click()
    expect(page.locator(".rs-evaluate-plot .main-svg").first).to_be_visible()
    page.get_by_role("button", name="Blind arena").click()
    page.get_by_role("button", name="Equally good").focus()
    page.keyboard.press("t")
    expect(page.get_by_text("1 vote so far.")).to_be_visible()
    page.get_by_role("button", name="Table", exact=True).click()
    page.get_by_label("Win rate by").select_option("votes")
    expect(page.locator(".rs-evaluate-wins li")).to_contain_text("0 wins, 1 ties, 0 losses")
    page.get_by_label("Win rate by").select_option("gold")
    page.get_by_label("Compare with").select_option(index=1)  # the other way round
    expect(page.locator(".rs-evaluate-wins li")).to_contain_text("0 wins, 0 ties, 12 losses")
    expect(page.locator(".rs-evaluate-wins li")).to_contain_text("start")
    assert page.evaluate("window.__pwned") is None


def test_what_matters_most_is_told_above_all_views_and_a_reload_stays_there(open_page: Callable[..., Any], server: Server) -> None:
    from playwright.sync_api import expect

    page = open_page("?tab=evaluate&evaluation=evaluation-2")
    told = page.get_by_text("The reward is over-optimised: from middle to late")
    expect(page.get_by_role("region", name="Table of results")).to_contain_text("Gold gained")
    expect(told).to_be_visible()
    page.get_by_role("button", name="Frontier").click()
    expect(page.locator(".rs-evaluate-plot .main-svg").first).to_be_visible()
    expect(told).to_have_count(1)
    page.reload()
    expect(page.get_by_role("button", name="Frontier")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".rs-evaluate-plot .main-svg").first).to_be_visible()
    expect(page.get_by_role("region", name="Table of results")).to_be_hidden()
    page.get_by_label("Evaluation", exact=True).select_option("evaluation-1")
    expect(told).to_have_count(0)


def test_the_form_says_what_is_wrong_and_viewers_start_nothing(open_page: Callable[..., Any], server: Server) -> None:
    from playwright.sync_api import expect

    page = open_page("?tab=evaluate", width=390, height=844)
    page.locator(".rs-evaluate-new summary").click()
    expect(page.get_by_role("list", name="Policies")).to_contain_text("a run, step 4")
    page.get_by_placeholder("folder, hub id or .jsonl file").fill("nowhere@all")
    page.get_by_role("button", name="Start evaluation").click()
    expect(page.get_by_role("alert")).to_contain_text("there is no run 'nowhere': name its folder")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Remove nowhere@all").click()
    page.get_by_label("Judge", exact=False).first.fill("./no-judge")
    page.get_by_role("button", name="Start evaluation").click()
    expect(page.get_by_role("alert")).to_have_text("Judge: there is no folder ./no-judge")
    expect(page.locator("[aria-invalid]")).to_have_value("./no-judge")
    expect(page.get_by_role("button", name="Start evaluation")).to_be_enabled()
    watching = open_page("?tab=evaluate&view=1")
    watching.locator(".rs-evaluate-new summary").click()
    expect(watching.get_by_role("button", name="Start evaluation")).to_be_disabled()
