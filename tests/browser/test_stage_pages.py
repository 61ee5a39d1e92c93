"""The pages on the stages around PPO in a real browser: a form for each, a Live page for each, and the way to the next stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from rlhf_studio.runs.records import EventRecord, StartMode
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.app import Server, launch
from tests.runs.stage_helpers import write_stage_run
from tests.ui.fake_stages import pairs_run, sft_run
from tests.ui.test_evaluate import answers
from tests.ui.test_stages import give_model
from tests.ui.train_helpers import install_world

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
SETTINGS_OF_ONES_OWN = ("model.policy", "data.chat_template", "data.source")


def start_nothing(run_dir: Any, mode: StartMode = "train", *, ticket: Any) -> Any:
    raise AssertionError("no run is to start here")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        install_world(tmp_path_factory.mktemp("world"), patch)
        running = launch(tmp_path_factory.mktemp("workspace"), start=start_nothing)
        yield running
        running.close()


def test_a_form_for_every_stage_and_links_that_fill_it(open_page: Callable[..., Any]) -> None:
    page = open_page()
    stages = page.get_by_role("group", name="Stage").get_by_role("button")
    expect(stages).to_contain_text(["PPO", "Supervised fine-tuning", "Reward model", "DPO"])
    expect(page.locator('.rs-recipe[aria-checked="true"]')).to_contain_text("Tiny world")
    own = ["own", "own-sft", "own-reward_model", "own-dpo"]
    names = ["PPO", "Supervised fine-tuning", "Reward model", "DPO"]
    chosen = page.locator('.rs-recipe[aria-checked="true"]')
    for here in range(4):  # what was said of a card of one's own is forgotten with the form; its model comes along
        for there in range(4):
            if here != there:
                page.get_by_role("button", name=names[here], exact=True).click()
                page.locator(f'[data-recipe="{own[here]}"]').click()
                expect(page.locator(".rs-outlook")).to_contain_text("Still to fill in")
                page.get_by_role("button", name=names[there], exact=True).click()
                expect(page.get_by_role("button", name=names[there], exact=True)).to_have_attribute("aria-pressed", "true")
                expect(chosen).to_have_attribute("data-recipe", own[there])
                expect(page.locator(".rs-outlook")).to_contain_text("Still to fill in")
                expect(page.locator(".rs-problems")).to_be_hidden()
    model, chat, texts = (page.locator(f'[data-setting="{name}"] input').first for name in SETTINGS_OF_ONES_OWN)
    page.get_by_role("button", name="All settings", exact=True).click()
    page.get_by_role("button", name="Supervised fine-tuning", exact=True).click()
    model.fill("my/base")
    chat.check()
    texts.fill("texts.jsonl")
    for stage in ("Evaluation", "PPO"):  # the first of them has no card of one's own
        page.get_by_role("button", name=stage, exact=True).click()
    expect(chosen).to_have_attribute("data-recipe", "own")
    expect(model).to_have_value("my/base")
    expect(chat).to_be_checked()
    model.fill("my/fine-tuned")
    page.get_by_role("button", name="Supervised fine-tuning", exact=True).click()
    expect(texts).to_have_value("texts.jsonl")  # as it was left
    expect(model).to_have_value("my/base")
    page.get_by_role("button", name="Reward model", exact=True).click()
    expect(model).to_have_value("my/base")
    page.get_by_role("button", name="PPO", exact=True).click()
    expect(model).to_have_value("my/fine-tuned")
    page.locator('[data-recipe="world"]').click()
    page.get_by_role("button", name="Evaluation", exact=True).click()
    expect(page.locator(".rs-outlook")).to_contain_text("Nothing is trained.")
    page.get_by_role("button", name="Reward model", exact=True).click()
    expect(page.locator('.rs-recipe[aria-checked="true"]')).to_contain_text("Tiny world, reward model")
    expect(page.locator('[data-section="reward_model"]')).to_be_visible()
    assert page.locator('[data-section="ppo"], [data-section="critic"]').count() == 0
    expect(page.locator(".rs-outlook")).to_contain_text("becomes a judge")
    page.goto(page.url.split("?")[0] + "?tab=train&recipe=world-dpo&dpo.beta=0.3&dpo.nothing=1&ppo.steps=2")
    expect(page.locator('[data-setting="dpo.beta"] input')).to_have_value("0.3")
    expect(page.locator(".rs-train .rs-message")).to_contain_text("There is no such setting: dpo.nothing, ppo.steps.")
    expect(page.locator(".rs-outlook code")).to_contain_text("--recipe world-dpo --dpo.beta 0.3")
    assert "recipe=" not in page.url and "dpo." not in page.url
    page.reload()
    expect(page.locator('[data-setting="dpo.beta"] input')).to_have_value("0.3")  # kept, and not filled in a second time
    reward = "reward.components.0"
    page.goto(page.url.split("?")[0] + f"?tab=train&recipe=world&{reward}.kind=ensemble&{reward}.models=one%0Atwo&{reward}.no=1")
    expect(page.locator(".rs-component")).to_contain_text("1. Ensemble")
    expect(page.locator(f'[data-setting="{reward}.models"] textarea')).to_have_value("one\ntwo")
    expect(page.locator(".rs-train .rs-message")).to_contain_text(f"There is no such setting: {reward}.no.")
    page.goto(page.url.split("?")[0] + f"?tab=train&recipe=world&{reward}.kind=nothing")
    expect(page.locator(".rs-train .rs-message")).to_contain_text(f"There is no such setting: {reward}.kind.")


def test_live_of_every_stage_shows_its_own_and_leads_to_the_next(open_page: Callable[..., Any], server: Server) -> None:
    sft = sft_run(server.workspace.root, steps=20)
    give_model(sft, "policy")
    with RunWriter(sft.run_dir) as writer:
        told = {"sft/eval_loss": 6.0, "sft/eval_perplexity": 403.4}
        writer.event(EventRecord("info", "start", "Before training.", told))
        writer.set_state("finished", "")
    reward, dpo = (pairs_run(server.workspace.root, stage, steps=20) for stage in ("reward_model", "dpo"))
    page = open_page(f"?tab=live&run={dpo.run_dir.name}")
    live = page.locator("#live-page")
    expect(live.get_by_role("group", name="Colour tokens by").get_by_role("button")).to_have_text([re.compile("^Loss"), re.compile("^KL")])
    expect(live.locator(".rs-row").first).to_contain_text("chosen")
    expect(live.locator('.rs-tile:visible [class="rs-tile-label"]')).to_contain_text(["Loss", "Held-out loss"])
    page.goto(page.url.split("?")[0] + f"?tab=live&run={reward.run_dir.name}")
    expect(live.locator(".rs-gauges")).to_contain_text("As often right as it believes?")
    expect(live.locator(".rs-inspector")).to_be_hidden()
    page.goto(page.url.split("?")[0] + f"?tab=live&run={sft.run_dir.name}")
    expect(live.locator(".rs-verdict-sentence")).to_contain_text("held-out loss")
    compared = "Step 1 compared with the mean of the last 2 steps; held-out numbers: the first measurement and the newest one:"
    expect(live.locator("#rs-summary-title")).to_have_text(compared)
    expect(live.locator('.rs-tile[data-term="sft/eval_perplexity"] .rs-tile-label')).to_have_text("Held-out perplexity")
    drawn = """() => { const plot = document.querySelector('[data-chart="perplexity"] .js-plotly-plot');
        return plot?.layout && [plot.layout.yaxis.type, plot.data.at(-1).x[0], plot.data.at(-1).y[0]]; }"""
    page.wait_for_function(drawn)
    assert page.evaluate(drawn) == ["log", 0, 403.4]
    for gone in (".rs-learned", ".rs-gauges", ".rs-guide-start", ".rs-formulas"):
        expect(live.locator(gone)).to_be_hidden()
    live.get_by_role("link", name="Train a reward model on it").click()
    expect(page.locator('[data-setting="model.policy"] input').first).to_have_value(re.compile("step-000002/policy$"))
    expect(page.locator('.rs-recipe[aria-checked="true"]')).to_contain_text("Tiny world, reward model")


def test_a_finished_evaluation_leads_to_its_table(open_page: Callable[..., Any], server: Server) -> None:
    """It has a checkpoint, from which it would be resumed, and no model."""
    rows = [*answers("start", 0.0), *answers("late", 1.0)]
    samples = [replace(row, sample=place) for place, row in enumerate(rows)]
    run = write_stage_run(server.workspace.root, "evaluation", [{"time/total": 1.0}] * 2, rollouts=samples, name="who is better")
    checkpoint = run.run_dir / "checkpoints" / "step-000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text('{"step": 2}')
    page = open_page(f"?tab=live&run={run.run_dir.name}")
    banner = page.locator("#live-page .rs-banner")
    expect(page.locator("#live-page .rs-verdict-sentence")).to_contain_text("The last policy wins 100 %")
    expect(banner).to_contain_text("the table compares the policies")
    expect(banner).not_to_contain_text("saved")
    expect(banner).not_to_contain_text("Suggested next")
    banner.get_by_role("link", name="Open the table").click()
    expect(page.get_by_role("region", name="Table of results")).to_contain_text("Gold gained")
    expect(page.get_by_label("Evaluation", exact=True).locator("option:checked")).to_contain_text("who is better")


def test_runs_has_a_column_and_a_choice_of_stages(open_page: Callable[..., Any], server: Server) -> None:
    pairs_run(server.workspace.root, "reward_model", steps=20)
    sft_run(server.workspace.root, steps=20)
    runs = server.workspace.runs()
    judges = sum(run.stage == "reward_model" for run in runs)
    page = open_page("?tab=runs")
    table = page.locator(".rs-run-table")
    expect(table.locator("thead")).to_contain_text("Stage")
    expect(table.locator("tbody tr")).to_have_count(len(runs))
    page.locator(".rs-stage-choice").select_option("reward_model")
    expect(table.locator("tbody tr")).to_have_count(judges)
    expect(table.locator("tbody tr").first).to_contain_text("held-out accuracy")
    expect(page.get_by_text(f"{judges} of {len(runs)} runs")).to_be_visible()
