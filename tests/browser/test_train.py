"""The Train page: bad input at its field, risks, files, devices, stages, rewards, and what is kept; every start is a stand-in's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.config.bundled import REPLAYED
from rlhf_studio.config.io import config_from_yaml
from rlhf_studio.runs.gpus import Gpu
from tests.browser.conftest import HOSTILE, choose, go, section, wait_for_form, width_of
from tests.browser.filled import Studio
from tests.waiting import wait_until

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
COUNTED = """() => {
  const shown = (node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest(".visually-hidden, .rs-hidden, .rs-skip");
  const inside = ({ width, height, top, bottom }) => width > 1 && height > 1 && bottom > 0 && top < innerHeight;
  const lines = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let last = null;
  while (texts.nextNode()) {
    let block = texts.currentNode.parentElement;
    if (block.closest("script, style, option, noscript") || !shown(block)) continue;
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    if (!inside(range.getBoundingClientRect())) continue;
    while (getComputedStyle(block).display === "inline" && !(block instanceof SVGElement)) block = block.parentElement;
    if (block === last) lines[lines.length - 1] += texts.currentNode.data;
    else lines.push(texts.currentNode.data);
    last = block;
  }
  const controls = "button, a[href], input, select, textarea, summary, [role=button], [role=tab], [tabindex]:not([tabindex='-1'])";
  const count = [...document.querySelectorAll(controls)].filter((node) => shown(node) && inside(node.getBoundingClientRect())).length;
  return [lines.flatMap((line) => line.split(/\\s+/)).filter((word) => /[\\p{L}\\p{N}]/u.test(word)).length, count];
}"""
"""Words and controls on the screen: the text of a line counts as its words, however many elements it has."""
COMMAND = "python -m rlhf_studio train --recipe world"
PROMPTS = ("I saw this thriller at a festival and", "The photography of this heist film")
NOT_NUMBERS = ("nan", "", "5,5", "1e999", "-inf", "true", "0x10")
STAGES = {"PPO": "own", "Supervised fine-tuning": "own-sft", "Reward model": "own-reward", "DPO": "own-dpo"}


def setting(page: Any, name: str) -> Any:
    return page.locator(f'[data-setting="{name}"]')


def component(page: Any, name: str) -> Any:
    return setting(page, f"reward.components.{name}")


def add(page: Any, title: str) -> None:
    page.locator(".rs-add").get_by_text(title, exact=True).click()


def all_settings(page: Any) -> None:
    """The form instead of the steps, on a card of one's own."""
    page.locator(".rs-way-foot").get_by_role("button", name="All settings").click()


def stage(page: Any, name: str) -> None:
    """The card of one's own of a stage; the first one of a stage that has none."""
    choose(page, STAGES.get(name, "world-evaluation"))


def test_what_is_wrong_or_risky_is_told_at_its_field_and_beside_start(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    assert page.locator("details.rs-section[open]").count() == 0, "no section is open for who comes first"
    for height in (900, 640):
        page.set_viewport_size({"width": 1366, "height": height})
        expect(page.get_by_role("button", name="Start run")).to_be_in_viewport(ratio=1)
    page.set_viewport_size({"width": 1440, "height": 900})
    start, before = page.get_by_role("button", name="Start run"), len(studio.workspace.runs())
    section(page, "PPO").click()
    page.locator("#setting-ppo-kl_coef").fill("-1")
    section(page, "Data").click()
    page.locator("#setting-data-column").fill("text")
    expect(setting(page, "ppo.kl_coef").locator(".rs-problem")).to_have_text("Should be at least 0, not -1")
    expect(setting(page, "data.column").locator(".rs-problem")).to_contain_text("There is no column 'text'; the columns are: prompt")
    expect(page.locator("#setting-ppo-kl_coef")).to_have_attribute("aria-invalid", "true")
    problems = page.locator(".rs-problems")
    expect(problems).to_contain_text("2 problems to solve first")
    section(page, "Data").click()
    start.click()
    expect(page.locator("#setting-data-column")).to_be_focused()
    problems.get_by_role("button", name="KL coefficient").click()
    expect(page.locator("#setting-ppo-kl_coef")).to_be_focused()
    page.locator("#setting-ppo-kl_coef").fill("0")
    page.locator("#setting-data-column").fill("prompt")
    expect(problems).to_be_hidden()
    expect(setting(page, "ppo.kl_coef").locator(".rs-problem")).to_be_hidden()

    # what is no number
    rate = page.locator("#setting-ppo-learning_rate")
    for typed in NOT_NUMBERS:
        rate.fill(typed)
        expect(setting(page, "ppo.learning_rate").locator(".rs-problem"), typed).to_be_visible()
        if typed == NOT_NUMBERS[-1]:
            start.click()
            expect(rate).to_be_focused()
        rate.fill("0.9")
        expect(setting(page, "ppo.learning_rate").locator(".rs-problem")).to_be_hidden()
    assert len(studio.workspace.runs()) == before

    # risks: a button puts in the usual value, and the focus goes on to the next
    section(page, "Generation").click()
    page.locator("#setting-generation-temperature").fill("3")
    page.locator("#setting-ppo-steps").fill("3")
    risks = page.locator(".rs-risk:visible")
    expect(risks).to_have_count(3)  # the fourth is folded
    expect(risks.first).to_contain_text("Alarm Learning rate 0.9 is 4,500 times the recipe's.")
    expect(page.locator(".rs-risks > details > summary")).to_have_text("1 more")
    expect(page.locator(".rs-start")).not_to_have_class(re.compile("rs-blocked"))
    risks.first.locator("summary").click()
    expect(risks.first).to_contain_text("30 times (alarm) the recipe's (0.0002)")
    risks.first.get_by_role("button", name="Use 0.0002").focus()
    page.keyboard.press("Enter")
    expect(rate).to_have_value("2e-4")
    assert page.evaluate("document.activeElement.textContent") == "Use 1", "the focus goes on to the next risk"
    expect(page.locator(".rs-risk")).to_have_count(3)
    page.get_by_role("button", name="Temperature 3 is high.").click()
    expect(page.locator("#setting-generation-temperature")).to_be_focused()

    # a file that is gone is told once and can be mended
    prompts = page.locator("#setting-data-prompts")
    prompts.fill("/no/such/rows.csv")
    wrong = page.locator(".rs-problems li")
    expect(wrong).to_have_count(1)
    expect(wrong).to_contain_text("The prompts file is not there: /no/such/rows.csv")
    expect(page.locator(".rs-notes")).to_be_hidden()
    wrong.get_by_role("button", name="Use bundled/world-prompts").click()
    expect(prompts).to_have_value("bundled/world-prompts")
    expect(prompts).to_be_focused()

    # a setting of the second level that is wrong is never hidden
    gamma = page.locator("#setting-ppo-gamma")
    expect(gamma).to_be_hidden()
    levels = page.get_by_role("group", name="How many settings are shown").get_by_role("button")
    levels.nth(1).focus()
    page.keyboard.press("Enter")
    expect(levels.nth(0)).to_have_attribute("aria-pressed", "false")
    gamma.fill("2")
    expect(setting(page, "ppo.gamma").locator(".rs-problem")).to_have_text("Should be at most 1, not 2")
    page.get_by_role("button", name="Basic settings").click()
    expect(gamma).to_be_visible()
    assert page.locator(".rs-field:visible .rs-help").count() == page.locator(".rs-field:visible").count()
    page.mouse.move(300, 400)
    page.mouse.wheel(0, 2000)
    page.wait_for_function("window.scrollY > 500")
    expect(start).to_be_in_viewport(ratio=1)


def test_changes_are_shown_as_a_command_undone_saved_loaded_and_kept(open_page: Callable[..., Any], tmp_path: Path) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    section(page, "PPO").click()
    command, steps = page.locator(".rs-command code"), page.locator("#setting-ppo-steps")
    expect(command).to_have_text(COMMAND)
    steps.fill("30")
    steps.press("ArrowUp")
    expect(command).to_have_text(f"{COMMAND} --ppo.steps 31")
    page.get_by_role("button", name="Copy", exact=True).click()
    assert page.evaluate("navigator.clipboard.readText()") == f"{COMMAND} --ppo.steps 31"
    page.get_by_role("button", name="Reset Steps to 30").click()
    expect(steps).to_have_value("30")
    page.get_by_role("radio", name="adaptive").click()
    expect(page.locator("#setting-ppo-kl_target")).to_be_visible()
    expect(command).to_have_text(f"{COMMAND} --ppo.kl_controller adaptive")
    page.get_by_role("button", name="Undo 1 change").click()
    expect(page.locator("#setting-ppo-kl_target")).to_be_hidden()
    expect(command).to_have_text(COMMAND)

    # saved and loaded
    steps.fill("9")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save settings").click()
    text = Path(download.value.path()).read_text()
    assert download.value.suggested_filename == "world.yaml" and config_from_yaml(text).ppo.steps == 9
    page.get_by_role("button", name="Undo 1 change").click()
    file = page.locator('.rs-train input[type="file"]')
    file.set_input_files({"name": "mine.yaml", "mimeType": "text/yaml", "buffer": text.encode()})
    expect(steps).to_have_value("9")
    bad = f"ppo: {{steps: -3}}\nname: {HOSTILE!r}"
    file.set_input_files({"name": "bad.yaml", "mimeType": "text/yaml", "buffer": bad.encode()})
    expect(page.locator(".rs-form > .rs-message")).to_contain_text("bad.yaml was not loaded. ppo.steps: Should be at least 1, not -3")
    expect(steps).to_have_value("9")

    # kept over a reload, and over another card
    page.reload()
    expect(steps).to_have_value("9")
    choose(page, "world-lora")
    expect(steps).to_have_value("40")
    page.get_by_role("button", name="Bring back").click()
    expect(steps).to_have_value("9")
    choose(page, "world-lora")
    expect(command).to_contain_text("--recipe world-lora")
    choose(page, "world")

    # settings that cannot matter are not shown; a segmented control goes round by the keyboard
    page.get_by_role("button", name="All settings").click()
    for title in ("LoRA", "Critic"):
        if section(page, title).evaluate("node => !node.parentNode.open"):
            section(page, title).click()
    rank, dora = page.locator("#setting-lora-r"), page.locator("#setting-lora-use_dora")
    begins, model = page.locator("#setting-critic-start"), page.locator("#setting-critic-model")
    for hidden in (rank, dora, begins, model):
        expect(hidden).to_be_hidden()
    page.locator("#setting-lora-enabled").check()
    expect(dora).to_be_visible()
    page.get_by_role("radio", name="separate", exact=True).click()
    expect(begins).to_be_visible()
    expect(model).to_be_hidden()
    begins.select_option("model")
    expect(model).to_be_visible()
    page.get_by_role("radio", name="shared", exact=True).click()
    expect(model).to_be_hidden()  # what it depends on does not matter any more
    choices = page.locator("#setting-critic-kind").get_by_role("radio")
    names, count = choices.all_inner_texts(), choices.count()
    assert count >= 2
    choices.locator("xpath=self::*[@aria-checked='true']").focus()
    at = names.index(page.locator("#setting-critic-kind [aria-checked=true]").inner_text())
    for presses, key in enumerate(["ArrowRight"] * count + ["ArrowUp"], 1):  # once round, and one back
        page.keyboard.press(key)
        next_one = (at + (presses if key == "ArrowRight" else -1)) % count
        expect(choices.nth(next_one)).to_be_focused()
        expect(choices.nth(next_one)).to_have_attribute("aria-checked", "true")
        assert [choices.nth(place).get_attribute("tabindex") for place in range(count)].count("0") == 1

    # the first prompts, as text with their tokens; what is left out of a file
    section(page, "Data").click()
    table = page.locator(".rs-preview table")
    expect(table.locator("caption")).to_have_text("First 5 of 512 prompts")
    expect(table.locator("tbody tr").first).to_contain_text(PROMPTS[0])
    expect(table.locator("tbody .rs-number").first).to_have_text("8")
    expect(page.locator(".rs-lengths dd")).to_have_text([re.compile(r"^\d+$")] * 4)
    (tmp_path / "rows.csv").write_text(f"prompt,{HOSTILE}\nIn this spy film,1\n,2\nIn,3\n", encoding="utf-8")
    page.locator("#setting-data-prompts").fill(str(tmp_path / "rows.csv"))
    page.locator("#setting-data-min_prompt_tokens").fill("2")
    left_out = "2 of 3 rows were left out: 1 blank, 1 with fewer than 2 tokens."
    expect(page.locator(".rs-preview-notes li")).to_have_text([f"Not used: the column {HOSTILE[:40]!r}.", left_out])
    expect(page.locator(".rs-preview")).to_contain_text(f"Columns: prompt, {HOSTILE}")
    assert page.evaluate("window.__pwned") is None


@pytest.mark.long
def test_the_device_is_picked_from_what_the_computer_has(
    open_page: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "several.yaml"
    file.write_text("distributed_type: MULTI_GPU\n")
    monkeypatch.setattr("rlhf_studio.runs.gpus.has_gpu", lambda: True)
    monkeypatch.setattr(
        "rlhf_studio.runs.gpus._remembered", lambda: tuple(Gpu(index, "NVIDIA A100", 78 * 10**9, 86 * 10**9) for index in range(8))
    )
    page = open_page("?tab=train")
    wait_for_form(page)
    section(page, "Engine").click()
    command, path = page.locator(".rs-command code"), page.locator("#setting-engine-accelerate_config")
    expect(page.get_by_role("radio", name="Automatic")).to_be_checked()
    page.get_by_role("radio", name="One GPU").check()
    page.get_by_label("Which GPU").select_option("cuda:3")
    expect(command).to_have_text(f"{COMMAND} --engine.device cuda:3")
    page.reload()
    expect(page.get_by_label("Which GPU")).to_have_value("cuda:3")
    page.get_by_role("radio", name="All 8 GPUs").check()
    expect(command).to_have_text(f"{COMMAND} --engine.device cuda --engine.processes 0")
    page.get_by_role("radio", name="Accelerate configuration file").check()
    expect(path).to_be_focused()
    expect(setting(page, "engine.accelerate_config").locator(".rs-problem")).to_contain_text("There is no file")
    path.fill(str(file))
    expect(command).to_have_text(f"{COMMAND} --engine.accelerate_config {file}")
    page.get_by_role("button", name="Reset Device to automatic device").click()
    expect(path).to_be_hidden()
    expect(command).to_have_text(COMMAND)


@pytest.mark.long
def test_ones_own_model_goes_along_from_stage_to_stage(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    choose(page, "own")
    all_settings(page)
    missing, wrong = page.locator(".rs-outlook .rs-link"), setting(page, "model.policy").locator(".rs-problem")
    expect(missing).to_have_count(3)
    expect(page.locator(".rs-problems")).to_be_hidden()  # what nobody has filled in yet is no mistake
    expect(wrong).to_be_hidden()
    missing.first.click()
    page.keyboard.press("Tab")
    expect(wrong).to_have_text("Needs a value")  # it was left empty
    expect(missing).to_have_count(2)
    page.get_by_role("button", name="Start run").click()
    expect(page.locator(".rs-problems li")).to_have_count(3)
    page.locator("#setting-model-policy").fill("./no/such/folder")
    expect(wrong).to_have_text("There is no folder ./no/such/folder")
    page.locator("#setting-model-policy").fill("")
    expect(wrong).to_have_text("Needs a value")

    # what was wrong with this card is not told of another one while that is checked
    held: list[Any] = []

    def hold(route: Any) -> None:  # checks wait until the test lets them go
        held.append(route) if '"check"' in (route.request.post_data or "") else route.continue_()

    checks = re.compile("/component_server")
    page.route(checks, hold)
    choose(page, "world")
    expect(wrong).to_be_hidden()
    expect(page.locator(".rs-problems")).to_be_hidden()
    expect(page.locator(".rs-checking")).to_have_text("Checking")
    expect(page.locator(".rs-sentence").first).to_have_text("Checking these settings.")
    wait_until(lambda: page.wait_for_timeout(20) is None and len(held) > 0)
    for route in held:
        route.continue_()
    page.unroute(checks, hold)
    expect(page.locator(".rs-sentence").first).to_contain_text("world-policy writes 64 film reviews")
    expect(page.locator(".rs-checking")).to_have_text("")

    # what was told of a card of one's own is forgotten with the form; its model comes along
    chosen = page.locator('.rs-recipe[aria-pressed="true"]')
    choose(page, "own")
    for name, card in [*STAGES.items(), *list(STAGES.items())[-2::-1]]:  # to each from its neighbours
        stage(page, name)
        expect(chosen).to_have_attribute("data-recipe", card)
        expect(page.locator(".rs-outlook")).to_contain_text("Still to fill in")
        expect(page.locator(".rs-problems")).to_be_hidden()
    model, chat, texts = (setting(page, name).locator("input").first for name in ("model.policy", "data.chat_template", "data.source"))
    page.get_by_role("button", name="All settings", exact=True).click()
    stage(page, "Supervised fine-tuning")
    model.fill("my/base")
    chat.check()
    texts.fill("texts.jsonl")
    for name in ("Evaluation", "PPO"):  # the first of them has no card of one's own
        stage(page, name)
    expect(chosen).to_have_attribute("data-recipe", "own")
    expect(model).to_have_value("my/base")
    expect(chat).to_be_checked()
    model.fill("my/fine-tuned")
    stage(page, "Supervised fine-tuning")
    expect(texts).to_have_value("texts.jsonl")  # as it was left
    expect(model).to_have_value("my/base")
    stage(page, "Reward model")
    expect(model).to_have_value("my/base")
    stage(page, "PPO")
    expect(model).to_have_value("my/fine-tuned")

    # each stage has a form of its own
    choose(page, "world")
    stage(page, "Evaluation")
    expect(page.locator(".rs-outlook")).to_contain_text("Nothing is trained.")
    choose(page, "world-reward")
    expect(chosen).to_contain_text("Tiny world, reward model")
    expect(page.locator('[data-section="reward_model"]')).to_be_visible()
    assert page.locator('[data-section="ppo"], [data-section="critic"]').count() == 0
    expect(page.locator(".rs-outlook")).to_contain_text("becomes a judge")

    # links fill a form
    page.goto(f"{studio.url}?tab=train&recipe=world-dpo&dpo.beta=0.3&dpo.nothing=1&ppo.steps=2")
    beta = setting(page, "dpo.beta").locator("input")
    expect(beta).to_have_value("0.3")
    expect(page.locator(".rs-train .rs-message")).to_contain_text("There is no such setting: dpo.nothing, ppo.steps.")
    expect(page.locator(".rs-outlook code")).to_contain_text("--recipe world-dpo --dpo.beta 0.3")
    assert "recipe=" not in page.url and "dpo." not in page.url
    page.reload()
    expect(beta).to_have_value("0.3")  # kept, and not filled in a second time
    reward = "reward.components.0"
    page.goto(f"{studio.url}?tab=train&recipe=world&{reward}.kind=ensemble&{reward}.models=one%0Atwo&{reward}.no=1")
    expect(page.locator(".rs-component")).to_contain_text("1. Ensemble")
    expect(setting(page, f"{reward}.models").locator("textarea")).to_have_value("one\ntwo")
    expect(page.locator(".rs-train .rs-message")).to_contain_text(f"There is no such setting: {reward}.no.")


@pytest.mark.long
def test_every_kind_of_reward_is_added_filled_in_tried_and_removed(open_page: Callable[..., Any]) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    section(page, "Reward").click()
    expect(page.locator(".rs-component")).to_have_count(1)
    titles = page.locator(".rs-add").all_inner_texts()
    assert len(titles) == 14
    for place, title in enumerate(titles, start=1):
        add(page, title)
        expect(page.locator(".rs-component strong").nth(place)).to_have_text(f"{place + 1}. {title}")
        own = f"[id^='setting-reward-components-{place}-']"  # the control, or the group of buttons that it is in
        assert page.evaluate(f'document.activeElement.closest("{own}") !== null')
    page.get_by_role("button", name="Start run").click()
    for name, text in (("2.models", "at least two models"), ("11.file", "Name the Python file"), ("12.server", "known here: judge")):
        expect(component(page, name).locator(".rs-problem")).to_contain_text(text)
    expect(setting(page, "data.reference_column").locator(".rs-problem")).to_contain_text("component 9 (bleu)", ignore_case=True)

    # a setting that matters only with another comes and goes with it
    page.get_by_role("button", name="All settings").click()
    expect(component(page, "2.std_weight")).to_be_hidden()
    component(page, "2.combine").locator("select").select_option("mean_minus_std")
    component(page, "2.std_weight").locator("input").fill("0.5")
    page.get_by_role("button", name="Basic settings").click()
    expect(component(page, "2.std_weight")).to_be_visible()  # it was changed, so it stays in sight
    settings = ("tolerance", "ignore_case", "pattern")
    shown = {"exact": [False, True, False], "regex": [False, True, True]}
    assert [component(page, f"10.{name}").is_visible() for name in settings] == [True, False, False]
    for comparison, expected in shown.items():
        component(page, "10.compare").get_by_text(comparison, exact=True).click()
        expect(component(page, "10.ignore_case")).to_be_visible()
        assert [component(page, f"10.{name}").is_visible() for name in settings] == expected, comparison

    # what the program was started with is suggested, without addresses; several lines stay several lines
    for place in (12, 13):
        assert component(page, f"{place}.server").locator("option").get_attribute("value") == "judge"
    assert component(page, "11.file").locator("option").get_attribute("value").endswith("mine.py")
    assert "s3cret" not in page.content()
    component(page, "2.models").locator("textarea").fill("bundled/world-reward\nbundled/world-reward")
    expect(component(page, "2.models").locator(".rs-problem")).to_contain_text("bundled/world-reward is named twice")
    component(page, "12.server").locator("input").fill("judge")
    expect(component(page, "12.server").locator(".rs-problem")).to_be_hidden()
    page.get_by_role("button", name="Remove component 2", exact=True).click()
    expect(page.locator(".rs-component")).to_have_count(14)
    expect(page.locator(".rs-component strong").nth(1)).to_have_text(f"2. {titles[1]}")
    page.get_by_role("button", name="Reset the components").click()
    expect(page.locator(".rs-component")).to_have_count(1)
    page.get_by_role("button", name="Remove component 1", exact=True).click()
    expect(page.locator(".rs-composer > .rs-problem")).to_contain_text("value")
    page.get_by_role("button", name="Reset the components").click()
    expect(page.locator(".rs-component")).to_have_count(1)
    add(page, "Pattern")
    page.locator("#setting-reward-components-1-pattern").fill("good$")
    page.locator("#setting-reward-components-1-weight").fill("-0.5")
    expect(page.locator(".rs-command code")).to_contain_text('{"kind": "regex", "weight": -0.5, "pattern": "good$"}')


@pytest.mark.long
def test_a_text_is_tried_before_any_run(open_page: Callable[..., Any]) -> None:
    page = open_page("?tab=train")
    wait_for_form(page)
    section(page, "Reward").click()
    panel = page.locator(".rs-try")
    status, results, score = panel.locator(".rs-try-status"), panel.locator(".rs-try-results"), panel.get_by_role("button", name="Score it")
    expect(panel.get_by_label("Reference")).to_be_hidden()
    for prompt in PROMPTS:
        panel.get_by_role("button", name="Take one of the data").click()
        expect(panel.get_by_label("Prompt")).to_have_value(prompt)
    panel.get_by_label("Prompt").fill("hang")
    panel.get_by_label("Response", exact=True).fill(HOSTILE)
    score.click()
    expect(status).to_have_text("Loading the reward model bundled/world-reward (25 %)")
    panel.get_by_role("button", name="Cancel").click()
    expect(status).to_have_text("Stopped.")
    panel.get_by_label("Prompt").fill(HOSTILE)
    score.click()
    rows, length = results.locator("tbody tr"), len(HOSTILE)
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_text(f"sentiment{length}.000× 1.00{length}.000")
    expect(rows.nth(1)).to_contain_text("<b>one</b>")
    expect(results.locator("tfoot tr")).to_have_text([f"Sum{length}.000", f"Final score, as PPO would see it{length}.000"])
    expect(results).to_contain_text("The response has 3 tokens.")
    expect(results).to_contain_text("Reference: None")

    # other settings: these scores are of something else now
    component(page, "0.weight").locator("input").fill("2")
    expect(status).to_have_text("The settings or texts have changed since.")
    expect(results).to_have_class(re.compile("rs-stale"))
    component(page, "0.weight").locator("input").fill("1")
    expect(status).to_have_text("")

    # a component that fails says so, and leads to its setting; a reference appears when one is compared with
    add(page, "Scoring server")
    add(page, "BLEU")
    panel.get_by_label("Reference").fill("as it should be")
    score.click()
    expect(results).to_contain_text("Reference: as it should be")
    expect(results.locator("tfoot tr").first).to_have_text("Sum\u2013")
    results.get_by_role("button", name="It answered with status 503").click()
    expect(component(page, "1.server").locator("input")).to_be_focused()
    component(page, "1.timeout").locator("input").fill("-1")  # cannot be used: told before anything is asked
    score.click()
    expect(status).to_have_text("The settings must be in order first.")
    expect(results.get_by_role("button")).to_contain_text("(reward.components.1.timeout)")
    assert page.evaluate("window.__pwned") is None


def test_ones_own_model_gets_what_fits_it(open_page: Callable[..., Any], tmp_path: Path) -> None:
    """Model, prompts and reward are named; the rest follows, says why, and goes on following when something is chosen. How such a run
    starts is in test_picker."""
    prompts = tmp_path / "mine.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"the film number {number} was"}) + "\n" for number in range(200)))
    page = open_page("?tab=train")
    wait_for_form(page)
    choose(page, "own")
    all_settings(page)
    page.locator("#setting-model-policy").fill("bundled/world-policy")
    page.locator("#setting-data-prompts").fill(str(prompts))
    page.get_by_role("button", name="Length", exact=False).first.click()
    section(page, "PPO").click()
    rate = setting(page, "ppo.learning_rate")
    expect(rate.locator("input")).to_have_value("2e-4")
    expect(rate.locator(".rs-fits")).to_have_text("Fits: 1.2 M weights.")
    page.locator("#setting-ppo-batch_size").fill("16")
    expect(page.locator("#setting-ppo-mini_batch_size")).to_have_value("8")
    page.get_by_role("button", name="Undo 1 change").click()  # of the settings, not of what was brought
    expect(page.locator(".rs-form > .rs-message")).to_contain_text("Undone: PPO \u203a Batch size.")
    expect(page.locator("#setting-model-policy")).to_have_value("bundled/world-policy")
    expect(page.locator("#setting-data-prompts")).to_have_value(str(prompts))
    page.get_by_role("button", name="Bring back").click()
    expect(page.locator("#setting-ppo-batch_size")).to_have_value("16")
    expect(page.locator("#setting-data-eval_share")).to_have_value("0.32")  # 64 of the 200
    expect(page.locator(".rs-problems")).to_be_hidden()
    expect(page.locator(".rs-command")).to_contain_text("--recipe own")
    expect(page.locator(".rs-command")).to_contain_text("--ppo.batch_size 16")


def test_one_click_starts_a_run_and_a_variation_begins_from_what_is_shown(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    page.locator(".rs-first-ways").wait_for()
    page.locator(".rs-film, .rs-replay").first.wait_for()
    words, controls = page.evaluate(COUNTED)
    assert words <= 150 and controls <= 20, (words, controls)
    bar = page.locator(".rs-train .rs-replay-range")
    for moment in replay_of(studio.workspace.reader(REPLAYED))["moments"]:
        bar.fill(str(moment["step"] - 1))
        assert page.evaluate(COUNTED)[0] <= 150, moment
    page.get_by_role("link", name="Watch a judge being fooled").click()
    page.get_by_role("button", name="Run it myself").click()  # a second click starts a run with the recording's settings
    expect(page).to_have_url(re.compile(r"run=20\d{6}-"))
    like = studio.workspace.reader(studio.newest())
    assert (like.config().recipe, like.config().lora.r, like.config().ppo.steps, like.config().ppo.kl_coef) == ("world-lora", 4, 36, 0.0)
    assert like.status().name == "The judge fooled, run here"
    studio.clear()
    go(page, "?tab=train")
    page.get_by_role("button", name="My own model").click()
    expect(page.get_by_label("Filter, or type a folder")).to_be_focused()
    choose(page, "world")
    start = page.get_by_role("button", name="Start run")
    expect(start).to_be_focused()
    box = start.bounding_box()
    assert box["y"] + box["height"] <= 900, "Start must be in view without scrolling"
    section(page, "PPO").click()
    page.locator("#setting-ppo-steps").fill("2")
    start.click()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")
    run = studio.newest()
    expect(page).to_have_url(re.compile(f"run={run}"))
    page.locator(".rs-live[data-state=finished]").wait_for()
    expect(page.get_by_role("button", name="Compare")).to_be_visible()
    studio.workspace.rename(run, "the one shown")
    page.reload()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")
    go(page, "?tab=train")
    page.locator("#setting-ppo-steps").fill("33")  # what the form holds is not what is varied
    go(page, f"?tab=live&run={run}")
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
    expect(name).to_have_attribute("placeholder", "Tiny world, Steps 2, KL coefficient 0.2")
    page.set_viewport_size({"width": 390, "height": 844})  # who only watches, on a phone
    page.goto(f"{studio.url}?tab=train&view=1")
    expect(page.locator(".rs-outlook-foot")).to_contain_text("You can watch runs, not change them.")
    expect(page.get_by_role("button", name="Start run")).to_have_count(0)
    expect(page.get_by_role("button", name="Save settings")).to_have_count(1)
    expect(page.get_by_role("button", name="Load settings")).to_have_count(0)
    section(page, "Reward").click()
    expect(page.locator(".rs-component")).to_have_count(1)
    expect(page.locator(".rs-try")).to_be_hidden()
    assert width_of(page) <= 390
