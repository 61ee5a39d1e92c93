"""The way from a model of one's own to a run, in steps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.axe import COLOURS_ALONE, violations, wear
from tests.browser.conftest import HOSTILE, width_of
from tests.browser.filled import Studio

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
ROWS = ("I saw this thriller at a festival and", "The photography of this heist film")

IN_SIGHT = """(list) => {
  const [box, row] = [list, list.querySelector(".rs-chosen")].map((node) => node.getBoundingClientRect());
  return list.scrollTop > 0 && row.top >= Math.max(box.top, 0) && row.bottom <= Math.min(box.bottom, window.innerHeight);
}"""


def choice(page: Any, name: str) -> Any:
    return page.get_by_role("radio", name=name, exact=False).first


def step(page: Any, name: str) -> Any:
    """Its line in the list of steps."""
    return page.locator(f'.rs-way-tab[data-step="{name}"]')


def test_from_model_to_prompts_to_reward_to_start_by_the_keyboard(open_page: Callable[..., Any], studio: Studio) -> None:
    page = open_page("?tab=train")
    page.get_by_role("button", name="My own model").click()
    press = page.keyboard.press
    for name in ("model", "data", "reward"):
        expect(step(page, name)).to_contain_text("not chosen yet")
    page.get_by_label("Filter, or type a folder").fill("/no/such/folder")
    page.get_by_role("button", name="Next: prompts").click()  # no row has these words: they are a name
    expect(step(page, "model")).to_contain_text("needs a look")
    step(page, "model").click()
    expect(page.locator(".rs-way-own")).to_have_text("Chosen: /no/such/folder")
    page.get_by_label("Filter, or type a folder").fill("world-policy")
    choice(page, "bundled/world-policy").focus()
    press("Space")
    expect(step(page, "model")).to_contain_text("world-policy, 1.2 M weights")
    expect(page.locator(".rs-way-facts")).to_contain_text(re.compile("^world-policy: gpt2, 1.2 M weights, reads up to 512 tokens"))
    page.get_by_role("button", name="Next: prompts").focus()
    press("Enter")
    expect(page.get_by_role("heading", name="Which prompts shall it answer?")).to_be_focused()
    choice(page, "bundled/world-prompts").focus()
    press("Space")
    table = page.locator(".rs-way-step .rs-preview table")
    expect(table.locator("tbody tr").first).to_contain_text(ROWS[0])
    expect(table.locator("tbody .rs-number").first).to_have_text("8")
    expect(page.locator(".rs-way-step .rs-lengths dd")).to_have_count(4)
    expect(step(page, "data")).to_contain_text("world-prompts, 512 prompts")
    page.get_by_role("button", name="Next: reward").click()
    choice(page, "bundled/world-reward").check()
    prompt = page.get_by_role("textbox", name="Prompt")
    expect(prompt).to_have_value(ROWS[0])
    for place, text in enumerate((HOSTILE, "four", "fifteen letters")):
        page.locator(".rs-texts textarea").nth(place + 1).fill(text)
    page.get_by_role("button", name="Score the three").click()
    expect(page.locator(".rs-text-score")).to_have_text([f"{len(HOSTILE)}.00", "4.00", "15.00"])
    page.get_by_role("button", name="Measure its scale and spread").click()
    expect(page.locator(".rs-spread")).to_contain_text("Scores of the model's own answers.")
    expect(page.locator(".rs-spread dd")).to_have_text(["3.50", "2.45", "0.00", "7.00"])
    expect(page.locator(".rs-spread tbody tr")).to_have_count(6)
    page.get_by_role("button", name="Next: start").click()
    chosen = ["world-policy, 1.2 M weights", "world-prompts, 512 prompts", "bundled/world-reward"]
    expect(page.locator(".rs-way-value")).to_have_text(chosen)
    for width, height in ((390, 700), (1440, 900)):  # on a phone the list reaches below the screen
        page.set_viewport_size({"width": width, "height": height})
        page.get_by_role("button", name="Change: Reward").click()
        expect(page.locator(".rs-choices .rs-chosen")).to_contain_text("bundled/world-reward")
        assert page.locator(".rs-choices").evaluate(IN_SIGHT), width
        step(page, "start").click()
    page.get_by_text("Settings that follow from your choice").click()
    expect(page.locator(".rs-way-fits")).to_contain_text("PPO › Learning rate2e-4: 1.2 M weights.")
    page.get_by_role("button", name="Change: Prompts").click()
    expect(page.get_by_role("heading", name="Which prompts shall it answer?")).to_be_focused()
    expect(choice(page, "bundled/world-prompts")).to_be_checked()

    # the form has it all, and the steps what is changed there
    page.locator(".rs-way-foot").get_by_role("button", name="All settings").click()
    expect(page.locator("#setting-data-prompts")).to_have_value("bundled/world-prompts")
    page.locator("summary", has=page.get_by_text("PPO", exact=True)).click()
    page.locator("#setting-ppo-steps").fill("1")
    page.locator("#setting-ppo-batch_size").fill("16")
    page.locator("#setting-ppo-kl_coef").fill("-1")
    expect(page.locator(".rs-problems")).to_be_visible()
    page.get_by_role("button", name="Step by step").click()
    expect(step(page, "start")).to_contain_text("problem")
    page.locator(".rs-problems button").first.click()
    expect(page.locator("#setting-ppo-kl_coef")).to_be_focused()  # no step has a place for it
    page.locator("#setting-ppo-kl_coef").fill("0.1")
    expect(page.locator(".rs-problems")).to_be_hidden()
    page.get_by_role("button", name="Step by step").click()
    expect(page.locator(".rs-checking")).to_have_text("")
    before = len(studio.workspace.runs())
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("tab", name="Live")).to_have_attribute("aria-selected", "true")
    assert len(studio.workspace.runs()) == before + 1
    config = studio.workspace.reader(studio.newest()).config()
    assert (config.recipe, config.model.policy, config.data.prompts) == ("own", "bundled/world-policy", "bundled/world-prompts")
    assert (config.ppo.batch_size, config.ppo.mini_batch_size, config.ppo.learning_rate, config.ppo.kl_coef) == (16, 8, 2e-4, 0.1)
    assert config.reward.components[0].model == "bundled/world-reward" and config.data.eval_share == 0.125
    assert page.evaluate("window.__pwned") is None
    page.locator(".rs-live[data-state=finished]").wait_for()


@pytest.mark.long
def test_folders_uploads_and_the_hub_lead_to_data(open_page: Callable[..., Any], studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.HfApi.list_datasets", offline)
    inner = studio.workspace.root / "inner"
    inner.mkdir()
    rows = "".join(json.dumps({"prompt": f"the film {HOSTILE} {number}"}) + "\n" for number in range(30))
    (inner / "mine.jsonl").write_text(rows)
    page = open_page("?tab=train", 390, 844)
    page.get_by_role("button", name="My own model").click()
    step(page, "data").click()
    page.get_by_role("button", name="Browse folders").click()
    page.get_by_role("button", name=f"{studio.workspace.root}/", exact=True).click()
    page.get_by_role("button", name="inner/").click()
    page.get_by_role("button", name="mine.jsonl").click()
    expect(step(page, "data")).to_contain_text("mine.jsonl")
    page.get_by_role("button", name="Search the hub").click()
    page.get_by_label("Words to search the Hugging Face hub for").fill("film")
    page.get_by_role("button", name="Search", exact=True).click()
    said = page.locator(".rs-way-step p.rs-help.rs-problem")
    expect(said).to_have_text(re.compile("^The Hugging Face hub cannot be reached .no route to host.. What is on this disk can be chosen"))
    upload = page.locator('.rs-way-step input[type="file"]')
    upload.set_input_files({"name": "rows.py", "mimeType": "text/plain", "buffer": b"x"})
    expect(said).to_contain_text("rows.py is no file of prompts or examples")
    large = rows * 500  # in several parts
    upload.set_input_files({"name": "own.jsonl", "mimeType": "text/plain", "buffer": large.encode()})
    expect(choice(page, "own.jsonl")).to_be_checked()
    uploaded = studio.workspace.root / "uploads" / "own.jsonl"
    assert uploaded.read_text() == large
    step(page, "model").click()
    choice(page, "bundled/world-policy").check()
    step(page, "data").click()
    expect(page.locator(".rs-way-step .rs-preview tbody tr").first).to_contain_text(HOSTILE[:20])
    step(page, "reward").click()
    choice(page, "Length").check()
    for name in ("model", "data", "reward", "start"):
        step(page, name).click()
        assert width_of(page) == 390, name
        for theme, rules in (("light", None), ("dark", COLOURS_ALONE)):
            wear(page, theme)
            assert violations(page, ".rs-train", rules) == [], (name, theme)
    assert page.evaluate("window.__pwned") is None
