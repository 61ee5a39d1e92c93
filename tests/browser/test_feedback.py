"""The Feedback page: from a new task over its votes to its results, on a phone, by keyboard, and over a lost connection."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import NewItem, NewTask
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.ui.access import TOKEN_VARIABLE
from rlhf_studio.ui.app import Server, launch
from tests.browser.conftest import HOSTILE, width_of
from tests.ui.fake_run import FakeRun

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
VOTES = "**/component_server/"
ITEMS = 12
numbers = itertools.count()
KEPT = "Your answers are kept, and are sent again."


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An app that asks for a token: whoever has none is no operator, also on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, "operator")
        running = launch(tmp_path_factory.mktemp("workspace"))
    yield running
    running.close()


@pytest.fixture
def feedback(server: Server) -> Feedback:
    return Feedback(server.workspace.root)


@pytest.fixture
def rate(open_page: Callable[..., Any], server: Server, feedback: Feedback) -> Callable[[str], Any]:
    """Opens a task through the rating link, under a name of its own."""

    def as_rater(task: str) -> Any:
        page = open_page(f"?rate={feedback.rating_link()}&tab=feedback&task={task}", at=server)
        page.locator("#rs-rate-name").fill(f"Ben {next(numbers)}")
        page.get_by_role("button", name="Begin").click()
        expect(page.locator(".rs-rate-foot")).to_be_visible()
        return page

    return as_rater


def verdicts(feedback: Feedback, task: str) -> list[Any]:
    return [vote.value if vote.verdict in ("rating", "ranks") else vote.verdict for vote in feedback.votes(task)]


def test_from_a_new_task_over_its_votes_to_a_reward_model(
    open_page: Callable[..., Any], server: Server, feedback: Feedback, tmp_path: Path
) -> None:
    operator = open_page("?operator=operator&tab=feedback", at=server)
    expect(operator.get_by_label("Recorded example")).to_contain_text("right on known answers")
    operator.get_by_role("button", name="Other task").click()
    form = operator.locator(".rs-new-task")
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe4"}')
    form.locator('input[type="file"]').set_input_files(tmp_path / "latin.jsonl")
    expect(operator.get_by_text("latin.jsonl is not UTF-8 text.")).to_be_visible()
    expect(form.get_by_label("Rows (JSON Lines)")).to_have_value("")
    form.get_by_label("Name", exact=True).fill("Which is better?")
    form.get_by_label("Guidelines").fill(HOSTILE)
    form.get_by_label("Content warning").fill("Strong words.")
    form.get_by_label("First rows with a known answer").fill("1")
    rows = [json.dumps({"prompt": HOSTILE, "chosen": f"good {number} {HOSTILE}", "rejected": f"bad {number}"}) for number in range(ITEMS)]
    form.get_by_label("Rows (JSON Lines)").fill("\n".join([*rows[:-1], "", "nonsense"]))
    operator.get_by_role("button", name="Create task").click()
    expect(form.get_by_text(f"{ITEMS - 1} items added.")).to_be_visible()
    expect(form.get_by_text(f"Row {ITEMS + 1}: not JSON")).to_be_visible()  # as it stands, and it can be mended
    form.get_by_label("Rows (JSON Lines)").fill(rows[-1])
    form.get_by_label("First rows with a known answer").fill("0")
    operator.get_by_role("button", name="Add the rows again").click()
    expect(operator.get_by_text("No answers yet.")).to_be_visible()
    (task,) = feedback.tasks()
    operator.get_by_role("button", name="All tasks").click()
    operator.get_by_role("button", name="Rating link").click()
    link = operator.get_by_label("Rating link", exact=True)
    expect(link).to_have_value(re.compile(r"\?rate="))

    # a rater on a phone
    page = open_page("?" + link.input_value().split("?")[1], width=390, height=844, at=server)
    expect(page.get_by_role("button", name="Other task")).to_be_hidden()
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("Strong words.")).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    page.locator("#rs-rate-name").fill("Anna")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("known answer 1 of 1")).to_be_visible()
    said = page.locator(".rs-said").first
    page.keyboard.press("A" if said.inner_text().startswith("good") else "B")
    expect(page.get_by_text("As expected.")).to_be_visible()
    expect(page.get_by_text("0 by you")).to_be_visible()
    assert width_of(page) <= 390
    for number, key in enumerate(("a", "t", "x"), 1):
        page.keyboard.press(key)
        expect(page.get_by_text(f"{number} by you")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text("2 by you")).to_be_visible()
    page.get_by_role("button", name="B is better").click()
    expect(page.get_by_text("3 by you")).to_be_visible()
    before = said.inner_text()
    page.keyboard.press("s")
    expect(said).not_to_have_text(before)
    pressed = page.get_by_role("group", name="How sure are you?").locator('[aria-pressed="true"]')
    expect(pressed).to_have_count(0)  # nobody has said anything
    for key in ("3", "3", "1"):  # sure, taken back, a guess
        page.keyboard.press(key)
    expect(pressed).to_have_text(re.compile("A guess"))
    for number in range(4, ITEMS - 2):
        page.keyboard.press("ab"[number % 2])
        expect(page.get_by_text(f"{number} by you")).to_be_visible()
    page.keyboard.press("a")
    expect(page.get_by_role("heading", name="Nothing for you just now")).to_be_visible()
    votes = feedback.votes(task.id)
    assert len(votes) == ITEMS - 1 and verdicts(feedback, task.id)[:4] == ["chosen", "tie", "chosen", "skip"]
    assert [vote.confidence for vote in votes][:6] == [None, None, None, None, 0.5, None]
    assert page.evaluate("window.__pwned") is None

    # results, and a reward model from them
    operator.get_by_role("button", name="Results").click()
    expect(operator.get_by_role("cell", name="Anna")).to_be_visible()
    with operator.expect_download() as download:
        operator.get_by_role("button", name="Export each answer").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert [line["confidence"] for line in lines][:5] == [None, None, None, 0.5, None]
    assert len(lines) == ITEMS - 2 and {line["annotator"] for line in lines} == {"Anna"} and lines[1]["tie"]
    operator.get_by_role("button", name="Train a reward model on these").click()
    expect(operator.locator('[data-setting="data.source"] input')).to_have_value(re.compile(r"feedback/Which-is-better-\w{8}\.jsonl$"))
    expect(operator.locator('.rs-recipe[aria-pressed="true"]')).to_have_attribute("data-recipe", re.compile("reward"))

    # who may not vote sees how far it is and no more
    page = open_page(f"?tab=feedback&task={task.id}", at=server)
    expect(page.get_by_text("You can watch, not vote.")).to_be_visible()
    expect(page.locator(f'[data-task="{task.id}"]').get_by_role("button")).to_have_count(0)
    assert "good 3" not in page.content()


class Line:
    """The connection of a page: one route for the whole test, for a browser may still send a request past a new one."""

    def __init__(self, page: Any) -> None:
        self.works()
        page.route(VOTES, lambda route: self.handle(route))

    def works(self) -> None:
        self.handle = lambda route: route.continue_()

    def breaks(self) -> None:
        self.handle = lambda route: route.abort()

    def loses_the_reply(self) -> None:
        """Votes reach the app, but the page does not hear of it."""

        def lose(route: Any) -> None:
            if "verdict" not in (route.request.post_data or ""):
                return route.continue_()
            route.fetch()
            return route.abort()

        self.handle = lose


def test_no_answer_is_lost_or_counted_twice_when_the_app_does_not_answer(
    rate: Callable[[str], Any], feedback: Feedback, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = feedback.create(NewTask("Lost"), [NewItem(f"p{number}", ("one", "two")) for number in range(5)])
    other, _ = feedback.create(NewTask("Other"), [NewItem("p", ("three", "four"))])
    page = rate(task.id)
    line = Line(page)
    line.breaks()
    page.keyboard.press("t")
    expect(page.get_by_text(KEPT)).to_be_visible()
    assert verdicts(feedback, task.id) == []
    page.reload()  # the tab is closed, and opened again while the app does not answer
    line.works()
    expect(page.get_by_text("1 by you")).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie"]
    line.loses_the_reply()  # an answer that was stored, but whose reply was lost
    page.keyboard.press("x")
    expect(page.get_by_text(KEPT)).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie", "both_bad"]
    line.works()
    expect(page.get_by_text("2 by you")).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie", "both_bad"]

    def fails(*_: Any) -> None:
        raise StoreError("feedback.db may not be written.", "read-only")

    with monkeypatch.context() as patch:
        patch.setattr(Feedback, "vote", fails)
        page.keyboard.press("t")
        expect(page.get_by_text(f"feedback.db may not be written. {KEPT}")).to_be_visible()
    expect(page.get_by_text("3 by you")).to_be_visible()
    line.breaks()
    page.keyboard.press("t")
    expect(page.get_by_text(KEPT)).to_be_visible()
    page.get_by_role("button", name="All tasks").click()  # it is sent from another task too
    page.locator(f'[data-task="{other.id}"]').get_by_role("button", name="Start").click()
    line.works()
    expect(page.get_by_text("three")).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    assert (verdicts(feedback, task.id), verdicts(feedback, other.id)) == (["tie", "both_bad", "tie", "tie"], ["both_bad"])


@pytest.mark.long
def test_rankings_ratings_and_what_a_run_waits_for(rate: Callable[[str], Any], server: Server, feedback: Feedback) -> None:
    task, _ = feedback.create(NewTask("Order", kind="ranking"), [NewItem("p", ("one", "two", "three"))])
    page = rate(task.id)
    expect(page.locator(".rs-sides .rs-pick")).to_have_count(3)
    expect(page.get_by_role("button", name="Store this order")).to_be_disabled()
    for key in ("c", "Backspace", "b", "=", "a", "c", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    (vote,) = feedback.votes(task.id)
    assert [vote.value[response] for response in vote.shown] == [1, 1, 2]
    task, _ = feedback.create(NewTask("Rate", kind="rating", points=7), [NewItem("p", ("one",)), NewItem("q", ("two",))])
    page = rate(task.id)
    page.keyboard.press("8")
    page.keyboard.press("7")
    expect(page.get_by_text("1 by you")).to_be_visible()
    page.get_by_role("button", name="1 worst").click()
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    assert verdicts(feedback, task.id) == [7, 1]

    # responses that a run waits for appear by themselves
    settings = NewTask("world: rate the responses", kind="rating", ask_confidence=False)
    run = FakeRun(server.workspace.root)
    run.run()
    feedback.ask("r1-0", run.run_id, settings, [NewItem("p", ("one",), step=1)], 2e9)
    page = rate("r1-0")
    page.keyboard.press("4")
    expect(page.get_by_role("heading", name="Nothing to rate just now")).to_be_visible()
    feedback.ask("r1-0", run.run_id, settings, [NewItem("p", ("a new response",), step=2)], 2e9)
    expect(page.get_by_text("a new response")).to_be_visible()
    run.die()
    page.reload()
    expect(page.get_by_role("heading", name="Nothing to rate just now")).to_be_visible()
