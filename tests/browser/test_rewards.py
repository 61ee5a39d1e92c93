"""Reward components of every kind in a real browser, and trying them on a text. The helper that scores is a stand-in without models."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import permissions_from_flags
from rlhf_studio.runs.records import StartMode
from rlhf_studio.ui.app import Server, launch
from tests.browser.conftest import HOSTILE
from tests.ui.train_helpers import PROMPT, install_world, start_stand_in

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser

# Scores a response by its length; a prompt that says hang is never answered.
HELPER = """
import json, sys, threading
def say(message): print(json.dumps(message), flush=True)
def row(component, text):
    if component["kind"] == "http":
        cause = {"error": "it answered with status 503", "field": "reward.components.1.server"}
        return {"name": "http", "kind": "http", "weight": 1.0, **cause}
    raw = float(len(text))
    members = {"<b>one</b>": raw - 1} if component["kind"] == "reward_model" else {}
    return {"name": component["name"] or component["kind"], "kind": "x", "weight": component["weight"], "raw": raw,
            "weighted": raw * component["weight"], "members": members, "texts": []}
for line in sys.stdin:
    asked = json.loads(line)
    say({"progress": "Loading the reward model bundled/world-reward", "fraction": 0.25})
    if "hang" in asked["prompt"]: threading.Event().wait()
    rows = [row(component, asked["response"]) for component in asked["config"]["reward"]["components"]]
    failed = any("error" in row for row in rows)
    total = None if failed else sum(row["weighted"] for row in rows)
    say({"result": {"components": rows, "sum": total, "final": total, "tokens": 3, "notes": ["Reference: " + str(asked["reference"])]}})
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "mine.py").write_text("def score(prompts, responses, **extra): return [0.0] * len(responses)")
    permissions = permissions_from_flags([str(folder / "mine.py")], ["judge=http://127.0.0.1:9/s3cret"])

    def start(run_dir: Path, mode: StartMode = "train", *, ticket: Any, permissions: Any) -> Any:
        return start_stand_in(run_dir, mode, ticket=ticket)

    with pytest.MonkeyPatch.context() as patch:
        install_world(tmp_path_factory.mktemp("world"), patch)
        running = launch(tmp_path_factory.mktemp("workspace"), start=start, permissions=permissions)
        running.services.try_reward._command = [sys.executable, "-c", HELPER]
        yield running
        running.close()


@pytest.fixture
def open_page(open_page: Callable[..., Any]) -> Callable[..., Any]:
    """Opens the app at the Reward section."""

    def open_at(query: str = "", **size: int) -> Any:
        page = open_page(query, **size)
        page.locator("summary", has=page.get_by_text("Reward", exact=True)).click()
        return page

    return open_at


def field(page: Any, name: str) -> Any:
    return page.locator(f'[data-setting="reward.components.{name}"]')


def add(page: Any, title: str) -> None:
    page.locator(".rs-add").get_by_text(title, exact=True).click()


@pytest.mark.long
def test_every_kind_can_be_added_filled_in_and_removed(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page()
    expect(page.locator(".rs-component")).to_have_count(1)
    titles = page.locator(".rs-add").all_inner_texts()
    assert len(titles) == 14
    for place, title in enumerate(titles, start=1):
        add(page, title)
        expect(page.locator(".rs-component")).to_have_count(place + 1)
        expect(page.locator(".rs-component strong").nth(place)).to_have_text(f"{place + 1}. {title}")
        own = f"[id^='setting-reward-components-{place}-']"  # the control, or the group of buttons that it is in
        assert page.evaluate(f'document.activeElement.closest("{own}") !== null')

    # what is wrong is told at its setting, and with Start also what is missing
    page.get_by_role("button", name="Start run").click()
    expect(field(page, "2.models").locator(".rs-problem")).to_contain_text("at least two models")
    expect(field(page, "11.file").locator(".rs-problem")).to_contain_text("Name the Python file")
    expect(field(page, "12.server").locator(".rs-problem")).to_contain_text("known here: judge")
    expect(page.locator('[data-setting="data.reference_column"] .rs-problem')).to_contain_text("component 9 (bleu)", ignore_case=True)
    expect(field(page, "1.name").locator(".rs-problem")).to_have_count(1)

    # a setting that matters only with another comes and goes with it
    page.get_by_role("button", name="All settings").click()
    expect(field(page, "2.std_weight")).to_be_hidden()
    field(page, "2.combine").locator("select").select_option("mean_minus_std")
    expect(field(page, "2.std_weight")).to_be_visible()
    field(page, "2.std_weight").locator("input").fill("0.5")
    page.get_by_role("button", name="Basic settings").click()
    expect(field(page, "2.std_weight")).to_be_visible()  # it was changed, so it stays in sight
    expect(field(page, "12.retries")).to_be_hidden()

    # one that matters with two of three values, and one with another
    assert [field(page, f"10.{name}").is_visible() for name in ("tolerance", "ignore_case", "pattern")] == [True, False, False]
    field(page, "10.compare").get_by_text("exact", exact=True).click()
    expect(field(page, "10.ignore_case")).to_be_visible()
    assert [field(page, f"10.{name}").is_visible() for name in ("tolerance", "pattern")] == [False, False]
    field(page, "10.compare").get_by_text("regex", exact=True).click()
    expect(field(page, "10.pattern")).to_be_visible()
    expect(field(page, "10.ignore_case")).to_be_visible()
    field(page, "10.pattern").locator("input, textarea").fill("no group")
    expect(field(page, "10.pattern").locator(".rs-problem")).to_contain_text("needs exactly one")

    # what the program was started with is suggested, without addresses
    for place in (12, 13):
        assert field(page, f"{place}.server").locator("option").get_attribute("value") == "judge"
    expect(field(page, "13.model").locator(".rs-problem")).to_contain_text("Name the model that grades")
    assert field(page, "11.file").locator("option").get_attribute("value").endswith("mine.py")
    assert "s3cret" not in page.content()

    # filled in, they are in order; several lines stay several lines
    field(page, "2.models").locator("textarea").fill("bundled/world-reward\nbundled/world-reward")
    expect(field(page, "2.models").locator(".rs-problem")).to_contain_text("bundled/world-reward is named twice")
    field(page, "12.server").locator("input").fill("judge")
    expect(field(page, "12.server").locator(".rs-problem")).to_be_hidden()

    # nothing is cut off beside its neighbours
    cut = "[...document.querySelectorAll('.rs-component .rs-segments')].filter((node) => node.scrollWidth > node.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    for left in range(14, -1, -1):
        page.get_by_role("button", name=f"Remove component {left + 1}", exact=True).click()
        expect(page.locator(".rs-component")).to_have_count(left)
    page.get_by_role("button", name="Reset the components").click()
    expect(page.locator(".rs-component")).to_have_count(1)


@pytest.mark.long
def test_a_text_is_tried_before_any_run(open_page: Callable[..., Any], server: Server) -> None:
    page = open_page()
    panel = page.locator(".rs-try")
    status, results = panel.locator(".rs-try-status"), panel.locator(".rs-try-results")
    expect(panel.get_by_label("Reference")).to_be_hidden()
    for row in (0, 1):
        panel.get_by_role("button", name="Take one of the data").click()
        expect(panel.get_by_label("Prompt")).to_have_value(f"{PROMPT} {row}")
    panel.get_by_label("Prompt").fill("hang")
    panel.get_by_label("Response", exact=True).fill(HOSTILE)
    panel.get_by_role("button", name="Score it").click()
    expect(status).to_have_text("Loading the reward model bundled/world-reward (25 %)")
    panel.get_by_role("button", name="Cancel").click()
    expect(status).to_have_text("Stopped.")

    panel.get_by_label("Prompt").fill(HOSTILE)
    panel.get_by_role("button", name="Score it").click()
    rows = results.locator("tbody tr")
    expect(rows).to_have_count(2)
    length = len(HOSTILE)
    expect(rows.nth(0)).to_have_text(f"sentiment{length}.000× 1.00{length}.000")
    expect(rows.nth(1)).to_contain_text("<b>one</b>")
    expect(results.locator("tfoot tr")).to_have_text([f"Sum{length}.000", f"Final score, as PPO would see it{length}.000"])
    expect(results).to_contain_text("The response has 3 tokens.")
    expect(results).to_contain_text("Reference: None")

    # other settings: these scores are of something else now
    field(page, "0.weight").locator("input").fill("2")
    expect(status).to_have_text("The settings or texts have changed since.")
    expect(results).to_have_class(re.compile("rs-stale"))
    field(page, "0.weight").locator("input").fill("1")
    expect(status).to_have_text("")

    # a component that fails says so, and leads to its setting; a reference appears when one is compared with
    add(page, "Scoring server")
    add(page, "BLEU")
    panel.get_by_label("Reference").fill("as it should be")
    panel.get_by_role("button", name="Score it").click()
    expect(results).to_contain_text("Reference: as it should be")
    expect(results.locator("tfoot tr").first).to_have_text("Sum\u2013")
    results.get_by_role("button", name="It answered with status 503").click()
    expect(field(page, "1.server").locator("input")).to_be_focused()

    # settings that cannot be used are told before anything is asked
    field(page, "1.timeout").locator("input").fill("-1")
    panel.get_by_role("button", name="Score it").click()
    expect(status).to_have_text("The settings must be in order first.")
    expect(results.get_by_role("button")).to_contain_text("(reward.components.1.timeout)")
    assert page.evaluate("window.__pwned") is None


def test_viewers_have_no_such_panel_and_phones_have_room_for_it(open_page: Callable[..., Any]) -> None:
    page = open_page("?view=1", width=390, height=844)
    expect(page.locator(".rs-component")).to_have_count(1)
    expect(page.locator(".rs-try")).to_be_hidden()
    page = open_page(width=390, height=844)
    expect(page.locator(".rs-try")).to_be_visible()
    page.locator(".rs-try").get_by_role("button", name="Score it").click()
    expect(page.locator(".rs-try-results tbody tr")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
