"""The Train and Runs pages in a real browser: one click to a run, bad input at its field, and what may be done with runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config_io import config_from_yaml
from rlhf_studio.estimate.gpus import Gpu
from rlhf_studio.recipes import load_recipe
from rlhf_studio.ui.app import Server, launch
from tests.browser.conftest import HOSTILE
from tests.ui.train_helpers import PROMPT, install_world, start_stand_in
from tests.waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        install_world(tmp_path_factory.mktemp("world"), patch)
        running = launch(tmp_path_factory.mktemp("workspace"), start=start_stand_in)
        yield running
        running.close()


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    opened = open_page()
    expect(opened.locator(".rs-figures")).to_contain_text("about")
    assert opened.locator("details.rs-section[open]").count() == 0, "no section is open for who comes first"
    opened.locator('[data-section="ppo"] > summary').click()
    return opened


@pytest.fixture(autouse=True)
def empty_workspace(server: Server) -> Iterator[None]:
    yield
    for run in server.workspace.runs():
        if run.state in ("loading", "running"):
            from rlhf_studio.runs.commands import send_command

            send_command(server.workspace.run_dir(run.run_id), "stop")
            wait_until(lambda run=run: server.workspace.status(run.run_id).state == "stopped")
        server.workspace.delete(run.run_id)


def section(page: Any, title: str) -> Any:
    return page.locator("summary", has=page.get_by_text(title, exact=True))


def submit(server: Server, name: str, steps: int = 2) -> str:
    config = load_recipe("world").config
    run_id = server.workspace.submit(config.model_copy(update={"ppo": config.ppo.model_copy(update={"steps": steps})}), name)
    server.dispatcher.wake()
    return run_id


def finished(server: Server, name: str) -> str:
    run_id = submit(server, name)
    wait_until(lambda: server.workspace.status(run_id).state == "finished")
    return run_id


# --- starting ----------------------------------------------------------------------------------------------------------------------


def test_one_click_from_opening_the_app_starts_the_first_recipe_and_shows_it(page: Any, server: Server) -> None:
    start = page.get_by_role("button", name="Start run")
    box = start.bounding_box()
    assert box["y"] + box["height"] <= 900, "Start must be in view without scrolling"
    start.click()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")
    (run,) = server.workspace.runs()
    expect(page).to_have_url(re.compile(f"run={run.run_id}"))
    assert server.workspace.reader(run.run_id).config() == load_recipe("world").config
    page.reload()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")


def test_a_run_that_was_started_here_says_what_is_next_when_it_has_finished(page: Any, server: Server) -> None:
    page.locator("#setting-ppo-steps").fill("2")
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("button", name="Run a variation")).to_be_visible()
    expect(page.get_by_role("button", name="Compare")).to_be_visible()


def test_a_second_run_waits_its_turn_and_can_be_cancelled(page: Any, server: Server) -> None:
    first = submit(server, "long one", steps=60)
    wait_until(lambda: server.workspace.status(first).state == "running")
    page.locator("#setting-ppo-steps").fill("2")
    page.get_by_role("button", name="Add to queue").click()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Runs").click()
    row = page.locator("tr", has_text="Tiny world")
    expect(row).to_contain_text("queued")
    row.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Cancel").click()
    expect(row).to_contain_text("stopped")
    assert server.workspace.status(first).state == "running"


# --- the form ------------------------------------------------------------------------------------------------------------------------


def test_bad_input_is_said_at_its_field_and_beside_start_and_nothing_starts(page: Any, server: Server) -> None:
    page.locator("#setting-ppo-kl_coef").fill("-1")
    section(page, "Data").click()
    page.locator("#setting-data-column").fill("text")
    field = page.locator('[data-setting="ppo.kl_coef"]')
    expect(field.locator(".rs-problem")).to_have_text("Should be at least 0, not -1")
    expect(page.locator('[data-setting="data.column"] .rs-problem')).to_contain_text("There is no column 'text'; the columns are: prompt")
    expect(page.locator("#setting-ppo-kl_coef")).to_have_attribute("aria-invalid", "true")
    column = page.locator(".rs-problems")
    expect(column).to_contain_text("2 problems to solve first")
    section(page, "Data").click()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("#setting-data-column")).to_be_focused()
    column.get_by_role("button", name="KL coefficient").click()
    expect(page.locator("#setting-ppo-kl_coef")).to_be_focused()
    assert server.workspace.runs() == []
    page.locator("#setting-ppo-kl_coef").fill("0.2")
    page.locator("#setting-data-column").fill("prompt")
    expect(column).to_be_hidden()
    expect(field.locator(".rs-problem")).to_be_hidden()


def test_risky_settings_are_told_and_a_button_puts_in_the_usual_value(page: Any, server: Server) -> None:
    rate = page.locator("#setting-ppo-learning_rate")
    rate.fill("0.9")
    page.locator("#setting-ppo-kl_coef").fill("0")
    section(page, "Generation").click()
    page.locator("#setting-generation-temperature").fill("3")
    page.locator("#setting-ppo-steps").fill("3")
    risks = page.locator(".rs-risk:visible")
    expect(risks).to_have_count(3)  # the fourth is folded
    expect(risks.first).to_contain_text("Alarm Learning rate 0.9 is 4,500 times the recipe's.")
    expect(page.locator(".rs-risks > details > summary")).to_have_text("1 more")
    expect(page.locator(".rs-start")).not_to_have_class(re.compile("rs-blocked"))
    risks.first.locator("summary").click()
    expect(risks.first).to_contain_text("Said when: 10 times the recipe's (0.0002)")
    risks.first.get_by_role("button", name="Use 0.0002").focus()
    page.keyboard.press("Enter")
    expect(rate).to_have_value("2e-4")
    assert page.evaluate("document.activeElement.textContent") == "Use 1", "the focus goes on to the next risk"
    expect(page.locator(".rs-risk")).to_have_count(3)
    page.get_by_role("button", name="Temperature 3 is high.").click()
    expect(page.locator("#setting-generation-temperature")).to_be_focused()


def test_a_file_that_is_gone_is_said_once_and_can_be_mended(page: Any) -> None:
    section(page, "Data").click()
    prompts = page.locator("#setting-data-prompts")
    prompts.fill("/no/such/rows.csv")
    wrong = page.locator(".rs-problems li")
    expect(wrong).to_have_count(1)
    expect(wrong).to_contain_text("The prompts file is not there: /no/such/rows.csv")
    expect(page.locator(".rs-notes")).to_be_hidden()
    wrong.get_by_role("button", name="Use bundled/world-prompts").click()
    expect(prompts).to_have_value("bundled/world-prompts")
    expect(prompts).to_be_focused()
    expect(page.locator(".rs-problems")).to_be_hidden()


@pytest.mark.parametrize(
    "typed", ["nan", "", "5,5", *(pytest.param(text, marks=pytest.mark.long) for text in ("1e999", "-inf", "true", "0x10"))]
)
def test_what_is_no_number_is_refused(typed: str, page: Any, server: Server) -> None:
    page.locator("#setting-ppo-learning_rate").fill(typed)
    expect(page.locator('[data-setting="ppo.learning_rate"] .rs-problem')).to_be_visible()
    page.get_by_role("button", name="Start run").click()
    expect(page.locator("#setting-ppo-learning_rate")).to_be_focused()
    assert server.workspace.runs() == []


def test_changes_are_marked_shown_in_the_command_and_can_be_undone(page: Any) -> None:
    command = page.locator(".rs-command code")
    expect(command).to_have_text("python -m rlhf_studio train --recipe world")
    steps = page.locator("#setting-ppo-steps")
    steps.fill("30")
    steps.press("ArrowUp")
    expect(command).to_have_text("python -m rlhf_studio train --recipe world --ppo.steps 31")
    page.get_by_role("button", name="Copy", exact=True).click()
    assert page.evaluate("navigator.clipboard.readText()") == "python -m rlhf_studio train --recipe world --ppo.steps 31"
    page.get_by_role("button", name="Reset Steps to 30").click()
    expect(steps).to_have_value("30")
    page.get_by_role("radio", name="adaptive").click()
    expect(page.locator("#setting-ppo-kl_target")).to_be_visible()
    expect(command).to_have_text("python -m rlhf_studio train --recipe world --ppo.kl_controller adaptive")
    page.get_by_role("button", name="Undo 1 change").click()
    expect(page.locator("#setting-ppo-kl_target")).to_be_hidden()
    expect(command).to_have_text("python -m rlhf_studio train --recipe world")


def test_basic_settings_first_all_on_demand_and_a_wrong_one_never_hidden(page: Any) -> None:
    gamma = page.locator("#setting-ppo-gamma")
    expect(gamma).to_be_hidden()
    page.get_by_role("button", name="All settings").click()
    expect(gamma).to_be_visible()
    gamma.fill("2")
    expect(page.locator('[data-setting="ppo.gamma"] .rs-problem')).to_have_text("Should be at most 1, not 2")
    page.get_by_role("button", name="Basic settings").click()
    expect(gamma).to_be_visible()
    assert page.locator(".rs-field:visible .rs-help").count() == page.locator(".rs-field:visible").count()


def test_segmented_controls_are_worked_with_the_keyboard(page: Any) -> None:
    levels = page.get_by_role("group", name="How many settings are shown").get_by_role("button")
    levels.nth(1).focus()
    page.keyboard.press("Enter")
    expect(levels.nth(0)).to_have_attribute("aria-pressed", "false")
    expect(levels.nth(1)).to_have_attribute("aria-pressed", "true")
    page.locator("[data-section=critic] > summary").click()
    choices = page.locator("#setting-critic-kind").get_by_role("radio")
    expect(choices.first).to_be_visible()
    names, count = choices.all_inner_texts(), choices.count()
    assert count >= 2
    choices.locator("xpath=self::*[@aria-checked='true']").focus()
    start = names.index(page.locator("#setting-critic-kind [aria-checked=true]").inner_text())
    for presses, key in enumerate(["ArrowRight"] * count + ["ArrowUp"], 1):  # once round, and one back
        page.keyboard.press(key)
        wanted = (start + (presses if key == "ArrowRight" else -1)) % count
        expect(choices.nth(wanted)).to_be_focused()
        expect(choices.nth(wanted)).to_have_attribute("aria-checked", "true")
        assert [choices.nth(place).get_attribute("tabindex") for place in range(count)].count("0") == 1
        expect(page.locator("#setting-critic-kind [aria-checked=true]")).to_have_count(1)


def test_the_device_is_picked_from_what_the_computer_has(
    open_page: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "several.yaml"
    file.write_text("distributed_type: MULTI_GPU\n")
    monkeypatch.setattr("rlhf_studio.estimate.gpus.has_gpu", lambda: True)
    monkeypatch.setattr(
        "rlhf_studio.estimate.gpus._remembered", lambda: tuple(Gpu(index, "NVIDIA A100", 78 * 10**9, 86 * 10**9) for index in range(8))
    )
    page = open_page()
    section(page, "Engine").click()
    command, path = page.locator(".rs-command code"), page.locator("#setting-engine-accelerate_config")
    expect(page.get_by_role("radio", name="Automatic")).to_be_checked()
    page.get_by_role("radio", name="One GPU").check()
    page.get_by_label("Which GPU").select_option("cuda:3")
    expect(command).to_have_text("python -m rlhf_studio train --recipe world --engine.device cuda:3")
    page.reload()
    expect(page.get_by_label("Which GPU")).to_have_value("cuda:3")
    page.get_by_role("radio", name="All 8 GPUs").check()
    expect(command).to_have_text("python -m rlhf_studio train --recipe world --engine.device cuda --engine.processes 0")
    expect(page.locator("#setting-engine-processes")).to_be_hidden()  # the picker says it
    page.get_by_role("button", name="All settings").click()
    page.locator("#setting-engine-processes").fill("4")
    expect(page.get_by_role("radio", name="4 GPUs")).to_be_checked()
    page.get_by_role("radio", name="Accelerate configuration file").check()
    expect(path).to_be_focused()
    expect(page.locator('[data-setting="engine.accelerate_config"] .rs-problem')).to_contain_text("There is no file")
    path.fill("")
    expect(page.locator(".rs-devices")).to_contain_text("Until one is named, the run takes: automatic device.")
    path.fill(str(file))
    expect(command).to_have_text(f"python -m rlhf_studio train --recipe world --engine.accelerate_config {file}")
    page.get_by_role("button", name="Reset Device to automatic device").click()
    expect(page.get_by_role("radio", name="Automatic")).to_be_checked()
    expect(path).to_be_hidden()
    expect(command).to_have_text("python -m rlhf_studio train --recipe world")


def test_settings_survive_a_reload(page: Any) -> None:
    page.locator("#setting-ppo-steps").fill("7")
    page.reload()
    expect(page.locator("#setting-ppo-steps")).to_have_value("7")
    page.get_by_role("radio", name="Tiny world, LoRA").click()
    expect(page.locator("#setting-ppo-steps")).to_have_value("40")
    page.get_by_role("button", name="Bring back").click()
    expect(page.locator("#setting-ppo-steps")).to_have_value("7")
    page.get_by_role("radio", name="Tiny world, LoRA").click()
    expect(page.locator(".rs-command code")).to_contain_text("--recipe world-lora")


def test_ones_own_model_asks_for_what_is_missing(page: Any) -> None:
    page.get_by_role("radio", name="Your own model").click()
    missing = page.locator(".rs-outlook .rs-link")
    expect(missing).to_have_count(3)
    expect(page.locator(".rs-problems")).to_be_hidden()  # what nobody has filled in yet is no mistake
    wrong = page.locator('[data-setting="model.policy"] .rs-problem')
    expect(wrong).to_be_hidden()
    missing.first.click()
    page.keyboard.press("Tab")
    expect(wrong).to_have_text("Needs a value")  # it was left empty
    expect(missing).to_have_count(2)
    page.get_by_role("button", name="Start run").click()
    expect(page.locator(".rs-problems li")).to_have_count(3)
    page.locator("#setting-model-policy").fill("./no/such/folder")
    expect(page.locator('[data-setting="model.policy"] .rs-problem')).to_have_text("There is no folder ./no/such/folder")


def test_what_was_wrong_with_another_card_is_not_said_of_this_one_while_it_is_checked(page: Any) -> None:
    page.get_by_role("radio", name="Your own model").click()
    wrong = page.locator('[data-setting="model.policy"] .rs-problem')
    expect(page.locator(".rs-outlook .rs-link")).to_have_count(3)
    page.get_by_role("button", name="Start run").click()
    expect(wrong).to_have_text("Needs a value")
    held = []

    def hold(route: Any) -> None:  # checks wait until the test lets them go
        held.append(route) if '"check"' in (route.request.post_data or "") else route.continue_()

    page.route(re.compile("/component_server"), hold)
    page.get_by_role("radio", name="Tiny world", exact=False).first.click()
    expect(wrong).to_be_hidden()
    expect(page.locator(".rs-problems")).to_be_hidden()
    expect(page.locator(".rs-checking")).to_have_text("Checking")
    expect(page.locator(".rs-sentence").first).to_have_text("Checking these settings.")
    wait_until(lambda: page.wait_for_timeout(20) is None and len(held) > 0)
    for route in held:
        route.continue_()
    expect(page.locator(".rs-sentence").first).to_contain_text("world-policy writes 64 film reviews")
    expect(page.locator(".rs-checking")).to_have_text("")


def test_settings_that_cannot_matter_are_not_shown(page: Any) -> None:
    page.get_by_role("button", name="All settings").click()
    for title in ("LoRA", "Critic"):
        section(page, title).click()
    rank, dora = page.locator("#setting-lora-r"), page.locator("#setting-lora-use_dora")
    start, model = page.locator("#setting-critic-start"), page.locator("#setting-critic-model")
    for hidden in (rank, dora, start, model):
        expect(hidden).to_be_hidden()
    page.locator("#setting-lora-enabled").check()
    expect(dora).to_be_visible()
    page.get_by_role("radio", name="separate", exact=True).click()
    expect(start).to_be_visible()
    expect(model).to_be_hidden()
    start.select_option("model")
    expect(model).to_be_visible()
    page.get_by_role("radio", name="shared", exact=True).click()
    expect(model).to_be_hidden()  # what it depends on does not matter any more


def test_a_variation_starts_from_the_settings_of_the_run_that_is_shown(page: Any, server: Server) -> None:
    run_id = finished(server, "the one shown")
    page.locator("#setting-ppo-steps").fill("33")  # what the form held before
    page.goto(f"{server.url}?run={run_id}")
    page.get_by_role("button", name="Run a variation").click()
    expect(page.locator("#setting-ppo-steps")).to_have_value("2")
    expect(page.locator(".rs-form > .rs-message")).to_have_text("These are the settings of the one shown.")
    page.locator("#setting-ppo-kl_coef").fill("0.2")
    name = page.get_by_label("Run name")
    expect(name).to_have_attribute("placeholder", "the one shown, KL coefficient 0.2")
    expect(page.locator(".rs-origin")).to_contain_text("A variation of the one shown: a new run that begins at step 1.")
    page.reload()  # it is still known after a reload
    expect(name).to_have_attribute("placeholder", "the one shown, KL coefficient 0.2")
    page.get_by_role("button", name="Make it a run of its own").click()
    expect(page.locator(".rs-origin")).to_be_hidden()
    expect(name).to_have_attribute("placeholder", "Tiny world")


def test_reward_components_are_added_weighted_and_removed(page: Any) -> None:
    section(page, "Reward").click()
    page.get_by_role("button", name="Pattern").click()
    pattern = page.locator("#setting-reward-components-1-pattern")
    expect(pattern).to_be_focused()
    pattern.fill("(")
    expect(page.locator('[data-setting="reward.components.1.pattern"] .rs-problem')).to_contain_text("not a valid regular expression")
    pattern.fill("good$")
    page.locator("#setting-reward-components-1-weight").fill("-0.5")
    expect(page.locator(".rs-command code")).to_contain_text('{"kind": "regex", "weight": -0.5, "pattern": "good$"}')
    page.get_by_role("button", name="Remove component 1").click()
    expect(page.locator(".rs-component")).to_have_count(1)
    page.get_by_role("button", name="Remove component 1").click()
    expect(page.locator(".rs-composer > .rs-problem")).to_contain_text("at least 1 item")
    page.get_by_role("button", name="Reset the components").click()
    expect(page.locator(".rs-component")).to_have_count(1)
    expect(page.locator(".rs-problems")).to_be_hidden()


def test_the_first_prompts_are_shown_as_text_with_their_tokens(page: Any) -> None:
    section(page, "Data").click()
    table = page.locator(".rs-preview table")
    expect(table.locator("caption")).to_have_text("First 5 of 90 prompts")
    expect(table.locator("tbody tr").first).to_contain_text(f"{PROMPT} 0")
    expect(table.locator("tbody .rs-number").first).to_have_text("6")
    expect(page.locator(".rs-lengths dd")).to_have_text(["6", "6", "6", "6"])
    expect(page.locator(".rs-preview")).to_contain_text("Columns: prompt")


def test_what_is_left_out_of_a_file_is_said_and_its_column_names_stay_text(page: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"prompt,{HOSTILE}\nthe film was,1\n,2\nthe,3\n", encoding="utf-8")
    section(page, "Data").click()
    page.get_by_role("button", name="All settings").click()
    page.locator("#setting-data-prompts").fill(str(tmp_path / "rows.csv"))
    page.locator("#setting-data-min_prompt_tokens").fill("2")
    left_out = "2 of 3 rows were left out: 1 blank, 1 with fewer than 2 tokens."
    expect(page.locator(".rs-preview-notes li")).to_have_text([f"Not used: the column {HOSTILE[:40]!r}.", left_out])
    expect(page.locator(".rs-preview")).to_contain_text(f"Columns: prompt, {HOSTILE}")
    assert page.evaluate("window.__pwned") is None


def test_settings_are_saved_and_loaded(page: Any, tmp_path: Path) -> None:
    page.locator("#setting-ppo-steps").fill("9")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save settings").click()
    text = Path(download.value.path()).read_text()
    assert download.value.suggested_filename == "world.yaml" and config_from_yaml(text).ppo.steps == 9
    page.get_by_role("button", name="Undo 1 change").click()
    file = page.locator('input[type="file"]')
    file.set_input_files({"name": "mine.yaml", "mimeType": "text/yaml", "buffer": text.encode()})
    expect(page.locator("#setting-ppo-steps")).to_have_value("9")
    bad = f"ppo: {{steps: -3}}\nname: {HOSTILE!r}"
    file.set_input_files({"name": "bad.yaml", "mimeType": "text/yaml", "buffer": bad.encode()})
    expect(page.locator(".rs-form > .rs-message")).to_contain_text("bad.yaml was not loaded. ppo.steps: Should be at least 1, not -3")
    expect(page.locator("#setting-ppo-steps")).to_have_value("9")


# --- runs ------------------------------------------------------------------------------------------------------------------------------


def test_an_empty_page_says_what_to_do_next(page: Any) -> None:
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator(".rs-no-runs")).to_contain_text("No runs of your own yet")
    page.get_by_role("button", name="Go to Train").click()
    expect(page.get_by_role("button", name="Start run")).to_be_visible()


def action(page: Any, name: str) -> None:
    """Choose what is to be done with the first run of the table."""
    page.locator(".rs-run-table [data-action=menu]").first.click()
    page.get_by_role("menuitem", name=name, exact=True).click()


def test_runs_are_listed_searched_opened_renamed_and_deleted(page: Any, server: Server) -> None:
    finished(server, "first")
    second = finished(server, HOSTILE)
    page.get_by_role("tab", name="Runs").click()
    rows = page.locator(".rs-run-table tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(HOSTILE)
    expect(rows.first).to_contain_text("finished")
    page.get_by_label("Search runs").fill("onerror finished")
    expect(rows).to_have_count(1)
    expect(page.locator(".rs-runs-tools")).to_contain_text("1 of 2 runs")
    action(page, "Rename")
    page.get_by_role("dialog").get_by_label("Name").fill("renamed")
    page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    page.get_by_label("Search runs").fill("renamed")
    expect(rows).to_have_count(1)
    action(page, "Delete")
    expect(page.get_by_role("dialog")).to_contain_text("Deleting renamed removes 2 recorded steps")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert server.workspace.status(second).state == "finished"
    action(page, "Delete")
    page.get_by_role("button", name="Delete run").click()
    expect(rows).to_have_count(0)
    page.get_by_label("Search runs").fill("")
    page.locator(".rs-run-table a", has_text="first").click()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")
    assert page.evaluate("window.__pwned") is None


def test_settings_of_an_earlier_run_come_back(page: Any, server: Server) -> None:
    finished(server, "earlier")
    page.get_by_role("tab", name="Runs").click()
    action(page, "Copy settings to Train")
    expect(page.locator("#setting-ppo-steps")).to_have_value("2")
    expect(page.locator(".rs-form > .rs-message")).to_have_text("These are the settings of earlier.")


def test_viewers_find_no_controls_and_are_told_once(open_page: Callable[..., Any], server: Server) -> None:
    finished(server, "watched")
    page = open_page("?view=1")
    expect(page.locator(".rs-outlook-foot")).to_contain_text("You can watch runs, not change them.")
    expect(page.get_by_role("button", name="Start run")).to_have_count(0)
    expect(page.get_by_role("button", name="Save settings")).to_have_count(1)
    expect(page.get_by_role("button", name="Load settings")).to_have_count(0)
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Actions for watched").click()
    expect(page.get_by_role("menuitem", name="Open")).to_have_count(1)
    expect(page.get_by_role("menuitem", name="Delete")).to_have_count(0)
    expect(page.locator(".rs-runs-tools")).to_contain_text("You can watch runs, not change them.")


def test_a_small_screen_has_one_column_and_start_at_hand(open_page: Callable[..., Any], server: Server) -> None:
    finished(server, "a run with a rather long name that has to be broken somewhere")
    page = open_page(width=390, height=844)
    expect(page.locator(".rs-figures")).to_contain_text("about")
    box = page.get_by_role("button", name="Start run").bounding_box()
    assert box["y"] + box["height"] <= 844
    for title in ("Model", "Data", "Reward", "Generation", "Engine"):
        section(page, title).click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("tab", name="Runs").click()
    expect(page.locator(".rs-run-table tbody tr")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("height", [900, 640])
def test_start_is_in_view_from_the_beginning_and_stays_there(height: int, open_page: Callable[..., Any]) -> None:
    page = open_page(width=1366, height=height)
    expect(page.locator(".rs-figures")).to_contain_text("about")
    start = page.get_by_role("button", name="Start run")
    expect(start).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="All settings").click()
    for title in ("Model", "PPO"):
        section(page, title).click()
    page.mouse.move(300, 400)
    page.mouse.wheel(0, 2000)
    page.wait_for_function("window.scrollY > 500")
    expect(start).to_be_in_viewport(ratio=1)
