"""The Feedback page in a real browser: from a new task to its results, with the keyboard, on a phone, and over a lost connection."""

from __future__ import annotations

import contextlib
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
from tests.browser.conftest import HOSTILE
from tests.ui.fake_run import FakeRun

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
pytestmark = pytest.mark.browser
VOTES = "**/component_server/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TOKEN_VARIABLE, "operator")
        running = launch(tmp_path_factory.mktemp("workspace"))
        yield running
        running.close()


@pytest.fixture
def feedback(server: Server) -> Feedback:
    return Feedback(server.workspace.root)


def as_rater(open_page: Callable[..., Any], feedback: Feedback, task: str, name: str, **size: int) -> Any:
    """The task, opened through the rating link, under a name."""
    page = open_page(f"?rate={feedback.rating_link()}&tab=feedback&task={task}", **size)
    page.locator("#rs-rate-name").fill(name)
    page.get_by_role("button", name="Begin").click()
    expect(page.locator(".rs-rate-foot")).to_be_visible()
    return page


def verdicts(feedback: Feedback, task: str) -> list[Any]:
    return [vote.value if vote.verdict in ("rating", "ranks") else vote.verdict for vote in feedback.votes(task)]


def place_of(page: Any, text: str) -> str:
    """The key of the response that begins like this."""
    return "A" if page.locator(".rs-said").first.inner_text().startswith(text) else "B"


def test_from_a_new_task_over_the_rating_link_to_its_results(open_page: Callable[..., Any], feedback: Feedback) -> None:
    operator = open_page("?operator=operator&tab=feedback")
    operator.get_by_role("button", name="New task").click()
    form = operator.locator(".rs-new-task")
    form.get_by_label("Name", exact=True).fill("Which is better?")
    form.get_by_label("Guidelines").fill(HOSTILE)
    form.get_by_label("Content warning").fill("Strong words.")
    form.get_by_label("First rows with a known answer").fill("1")
    rows = [{"prompt": HOSTILE, "chosen": f"good {number} {HOSTILE}", "rejected": f"bad {number}"} for number in range(6)]
    form.get_by_label("Rows (JSON Lines)").fill("\n".join(map(json.dumps, rows)))
    operator.get_by_role("button", name="Create task").click()
    expect(operator.get_by_text("No answers yet.")).to_be_visible()
    (task,) = feedback.tasks()
    operator.get_by_role("button", name="All tasks").click()
    operator.get_by_role("button", name="Rating link").click()
    link = operator.get_by_label("Rating link", exact=True)
    expect(link).to_have_value(re.compile(r"\?rate="))
    page = open_page("?" + link.input_value().split("?")[1], width=390, height=844)
    expect(page.get_by_role("button", name="New task")).to_be_hidden()
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("Strong words.")).to_be_visible()
    page.get_by_role("button", name="Continue").click()
    page.locator("#rs-rate-name").fill("Anna")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("known answer 1 of 1")).to_be_visible()
    page.keyboard.press(place_of(page, "good"))
    expect(page.get_by_text("As expected.")).to_be_visible()
    expect(page.get_by_text("0 by you")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for number, key in enumerate(("a", "t", "x"), 1):
        page.keyboard.press(key)
        expect(page.get_by_text(f"{number} by you")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text("2 by you")).to_be_visible()
    page.get_by_role("button", name="B is better").click()
    expect(page.get_by_text("3 by you")).to_be_visible()
    before = page.locator(".rs-said").first.inner_text()
    page.keyboard.press("s")
    expect(page.locator(".rs-said").first).not_to_have_text(before)
    sure = page.get_by_role("group", name="How sure are you?")
    expect(sure.locator('[aria-pressed="true"]')).to_have_count(0)  # nobody has said anything
    for key in ("3", "3", "1"):  # sure, taken back, a guess
        page.keyboard.press(key)
    expect(sure.locator('[aria-pressed="true"]')).to_have_text(re.compile("A guess"))
    page.keyboard.press("a")
    expect(page.get_by_role("heading", name="Nothing for you just now")).to_be_visible()
    assert verdicts(feedback, task.id) == ["chosen", "tie", "chosen", "skip", "chosen"]
    assert [vote.confidence for vote in feedback.votes(task.id)] == [None, None, None, None, 0.5]
    assert page.evaluate("window.__pwned") is None
    operator.get_by_role("button", name="Results").click()
    expect(operator.get_by_role("cell", name="Anna")).to_be_visible()
    with operator.expect_download() as download:
        operator.get_by_role("button", name="Export each answer").click()
    lines = [json.loads(line) for line in Path(download.value.path()).read_text(encoding="utf-8").splitlines()]
    assert [line["confidence"] for line in lines] == [None, None, None, 0.5]
    operator.get_by_role("button", name="Train a reward model on these").click()
    expect(operator.locator('[data-setting="data.source"] input')).to_have_value(re.compile(r"feedback/Which-is-better-\w{8}\.jsonl$"))
    expect(operator.get_by_role("group", name="Stage").locator('[aria-pressed="true"]')).to_have_text("Reward model")
    assert len(lines) == 4 and {line["annotator"] for line in lines} == {"Anna"} and lines[1]["tie"]


def test_rows_that_cannot_be_used_are_named_as_they_stand_and_can_be_mended(open_page: Callable[..., Any], feedback: Feedback) -> None:
    operator = open_page("?operator=operator&tab=feedback&show=new")
    form = operator.locator(".rs-new-task")
    form.get_by_label("Name", exact=True).fill("Mended")
    row = '{"prompt": "p", "chosen": "a", "rejected": "b"}'
    form.get_by_label("Rows (JSON Lines)").fill(f"\n\nnonsense\n{row}\n")
    operator.get_by_role("button", name="Create task").click()
    expect(form.get_by_text("1 item added.")).to_be_visible()
    expect(form.get_by_text("Row 3: not JSON")).to_be_visible()
    form.get_by_label("Rows (JSON Lines)").fill(row.replace('"p"', '"q"') + f"\n{row}")
    operator.get_by_role("button", name="Add the rows again").click()
    expect(operator.get_by_text("No answers yet.")).to_be_visible()
    (task,) = [task for task in feedback.tasks() if task.settings.name == "Mended"]
    assert [item.prompt for item in feedback.items(task.id)] == ["p", "q"]


def test_a_file_that_is_not_text_is_refused_by_the_page(open_page: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"prompt": "\xe4"}')
    operator = open_page("?operator=operator&tab=feedback&show=new")
    operator.locator('.rs-new-task input[type="file"]').set_input_files(tmp_path / "latin.jsonl")
    expect(operator.get_by_text("latin.jsonl is not UTF-8 text.")).to_be_visible()
    expect(operator.get_by_label("Rows (JSON Lines)")).to_have_value("")


def lose_the_reply(route: Any) -> None:
    """Votes reach the app, but the page does not hear of it."""
    with contextlib.suppress(playwright.Error):  # the last one may be under way when the connection is mended
        if "verdict" in (route.request.post_data or ""):
            route.fetch()
            route.abort()
        else:
            route.continue_()


def test_an_answer_is_kept_and_sent_again_when_the_connection_is_lost(open_page: Callable[..., Any], feedback: Feedback) -> None:
    task, _ = feedback.create(NewTask("Lost"), [NewItem(f"p{number}", ("one", "two")) for number in range(3)])
    page = as_rater(open_page, feedback, task.id, "Ben")
    page.route(VOTES, lambda route: route.abort())
    page.keyboard.press("t")
    expect(page.get_by_text("Your answers are kept, and are sent again.")).to_be_visible()
    assert verdicts(feedback, task.id) == []
    page.reload()  # the tab is closed, and opened again while the app does not answer
    page.unroute(VOTES)
    expect(page.get_by_text("1 by you")).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie"]
    # an answer that was stored, but whose reply was lost
    page.route(VOTES, lose_the_reply)
    page.keyboard.press("x")
    expect(page.get_by_text("Your answers are kept, and are sent again.")).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie", "both_bad"]
    page.unroute(VOTES)
    expect(page.get_by_text("2 by you")).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie", "both_bad"]


def test_a_kept_answer_is_sent_from_another_task_too(open_page: Callable[..., Any], feedback: Feedback) -> None:
    one, _ = feedback.create(NewTask("One"), [NewItem("p", ("one", "two"))])
    other, _ = feedback.create(NewTask("Other"), [NewItem("p", ("three", "four"))])
    page = as_rater(open_page, feedback, one.id, "Fei")
    page.route(VOTES, lambda route: route.abort())
    page.keyboard.press("t")
    expect(page.get_by_text("Your answers are kept, and are sent again.")).to_be_visible()
    page.get_by_role("button", name="All tasks").click()
    page.locator(f'[data-task="{other.id}"]').get_by_role("button", name="Start").click()
    page.unroute(VOTES)
    expect(page.get_by_text("three")).to_be_visible()
    page.keyboard.press("x")
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    assert (verdicts(feedback, one.id), verdicts(feedback, other.id)) == (["tie"], ["both_bad"])


def test_an_answer_is_kept_while_the_store_cannot_be_written(
    open_page: Callable[..., Any], feedback: Feedback, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = feedback.create(NewTask("Read-only"), [NewItem("p", ("one", "two"))])
    page = as_rater(open_page, feedback, task.id, "Gil")

    def fails(*_: Any) -> None:
        raise StoreError("feedback.db may not be written.", "read-only")

    with monkeypatch.context() as patch:
        patch.setattr(Feedback, "vote", fails)
        page.keyboard.press("t")
        expect(page.get_by_text("feedback.db may not be written. Your answers are kept, and are sent again.")).to_be_visible()
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    assert verdicts(feedback, task.id) == ["tie"]


def test_rankings_and_ratings_by_the_keyboard(open_page: Callable[..., Any], feedback: Feedback) -> None:
    task, _ = feedback.create(NewTask("Order", kind="ranking"), [NewItem("p", ("one", "two", "three"))])
    page = as_rater(open_page, feedback, task.id, "Chi")
    expect(page.get_by_role("button", name="Store this order")).to_be_disabled()
    for key in ("c", "Backspace", "b", "=", "a", "c", "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    (vote,) = feedback.votes(task.id)
    assert [vote.value[response] for response in vote.shown] == [1, 1, 2]
    task, _ = feedback.create(NewTask("Rate", kind="rating", points=7), [NewItem("p", ("one",)), NewItem("q", ("two",))])
    page = as_rater(open_page, feedback, task.id, "Eli")
    page.keyboard.press("8")
    page.keyboard.press("7")
    expect(page.get_by_text("1 by you")).to_be_visible()
    page.get_by_role("button", name="1 worst").click()
    expect(page.get_by_role("heading", name="All done")).to_be_visible()
    assert verdicts(feedback, task.id) == [7, 1]


def test_a_viewer_sees_how_far_it_is_and_no_more(open_page: Callable[..., Any], feedback: Feedback) -> None:
    task, _ = feedback.create(NewTask("Only to look at"), [NewItem("secret prompt", ("one", "two"))])
    page = open_page(f"?tab=feedback&task={task.id}")
    expect(page.get_by_text("You can watch, not vote.")).to_be_visible()
    row = page.locator(f'[data-task="{task.id}"]')
    expect(row).to_contain_text("0 of 1 item complete")
    expect(row.get_by_role("button")).to_have_count(0)
    assert "secret prompt" not in page.content()


def test_responses_that_a_run_waits_for_appear_by_themselves(server: Server, open_page: Callable[..., Any], feedback: Feedback) -> None:
    settings = NewTask("world: rate the responses", kind="rating", ask_confidence=False)
    run = FakeRun(server.workspace.root)
    run.run()
    feedback.ask("r1-0", run.run_id, settings, [NewItem("p", ("one",), step=1)], 2e9)
    page = as_rater(open_page, feedback, "r1-0", "Dia")
    page.keyboard.press("4")
    expect(page.get_by_role("heading", name="Nothing to rate just now")).to_be_visible()
    feedback.ask("r1-0", run.run_id, settings, [NewItem("p", ("a new response",), step=2)], 2e9)
    expect(page.get_by_text("a new response")).to_be_visible()
    run.die()
    page.reload()
    expect(page.get_by_role("heading", name="Nothing to rate just now")).to_be_visible()
