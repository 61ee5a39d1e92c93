"""The Talk page without a browser: what it may be asked, what the process is sent, and how a page follows an answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.runs.paths import MANIFEST, checkpoint_dir, snapshot_dir
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.evaluate.page import EvaluatePage
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.services import runs_alive
from rlhf_studio.ui.talk.page import TalkPage
from rlhf_studio.ui.talk.sent import LONGEST_PROMPT
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.fake_run import FakeRun
from tests.ui.talk_stand_in import COMMAND
from tests.ui.train_helpers import OPERATOR, VIEWER
from tests.waiting import wait_until

Json = dict[str, Any]


def run_with_checkpoints(workspace: Path, **options: Any) -> str:
    """A finished run of 20 steps with a checkpoint of the last."""
    run = FakeRun(workspace, steps=20, **options)
    run.load()
    run.run()
    run.step(20)
    run.finish()
    return run.run_id


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("talk")
    run_with_checkpoints(root)
    return Workspace(root)


@pytest.fixture(scope="module")
def run(workspace: Workspace) -> str:
    return workspace.runs()[0].run_id


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service("talk", command=COMMAND)
    yield service
    service.close()


@pytest.fixture
def page(workspace: Workspace, service: Service) -> TalkPage:
    return TalkPage(workspace, Access(), service)


def question(run: str, prompt: str | None = "hello", **changes: Any) -> Json:
    sides = [{"run": run, "step": None}, {"run": run, "step": 20}]
    settings = {"temperature": 0.5, "top_k": None, "top_p": 0.9, "response_length": 12}
    return {"sides": sides, "prompt": prompt, "settings": settings, "seed": 3, "same_seed": True, "view": False, **changes}


def news(page: TalkPage, key: str, since: int = 0) -> Json:
    return json.loads(page.news({"key": key, "since": since}, OPERATOR).body)


def finished(page: TalkPage, key: str) -> list[Json]:
    """All events of an exchange, once it is done."""
    wait_until(lambda: news(page, key)["state"] == "done")
    return news(page, key)["events"]


def answers(page: TalkPage, data: Json) -> list[Json]:
    return finished(page, page.ask(data, OPERATOR)["key"])


def test_both_policies_answer(page: TalkPage, run: str, workspace: Workspace) -> None:
    events = answers(page, question(run, "echo"))
    assert [event["event"] for event in events if event.get("side") == 1] == ["begin", *["token"] * 5, "end"]
    request = json.loads(events[-1]["response"])["request"]
    assert request["prompt"] == "echo" and [side["step"] for side in request["sides"]] == [None, 20]
    for side in request["sides"]:
        assert side["run"] == str(workspace.run_dir(run)) and side["seed"] == 3
        own = workspace.reader(run).config().generation
        expected = {"temperature": 0.5, "top_k": own.top_k, "top_p": 0.9, "response_length": 12, "stop_token": own.stop_token}
        assert {name: side["settings"][name] for name in expected} == expected
    again = answers(page, question(run, "echo", same_seed=False))
    response = json.loads(again[-1]["response"])
    assert [side["seed"] for side in response["request"]["sides"]] == [3, 4]


def test_news_come_in_parts(page: TalkPage, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = page.ask(question(run), OPERATOR)["key"]
    everything = finished(page, key)
    monkeypatch.setattr("rlhf_studio.ui.jobs.MOST_EVENTS", 4)
    first = news(page, key)
    assert first["events"] == everything[:4] and first["more"]
    assert news(page, key, 4)["events"] == everything[4:8]
    last = news(page, key, len(everything))
    assert (last["events"], last["more"]) == ([], False)
    assert "no longer here" in news(page, "unknown")["error"]
    assert news(page, key, -5)["events"] == everything[:4]


REFUSED: list[tuple[Json, str, str]] = [
    ({"sides": []}, "Choose one or two policies", ""),
    ({"sides": [{"run": "", "step": 1}]}, "Choose a run and one of its checkpoints", ""),
    ({"sides": [{"run": "x", "step": True}]}, "Choose a run and one of its checkpoints", ""),
    ({"sides": [{"run": "../../etc", "step": None}]}, "etc", ""),
    ({"prompt": 3}, "The prompt must be a text", ""),
    ({"prompt": "x" * (LONGEST_PROMPT + 1)}, "use at most 100,000", ""),
    ({"settings": {"temperature": 0}}, "Temperature: ", "temperature"),
    ({"settings": {"top_p": 2}}, "Top-p: ", "top_p"),
    ({"settings": {"top_k": 0.5}}, "Top-k: ", "top_k"),
    ({"settings": {"response_length": 4000}}, "use at most 512 tokens", "response_length"),
    ({"seed": -1}, "The seed must be a whole number", "seed"),
]


def test_what_cannot_be_asked_never_reaches_the_process(workspace: Workspace, run: str) -> None:
    page = TalkPage(workspace, Access(), Service("talk", command=["/no/such/program"]))
    for changes, part, field in REFUSED:
        refused = page.ask(question(run, **changes), OPERATOR)
        assert part in refused["error"] and refused["field"] == field, changes
    for data in (None, 3, {}, [], {"sides": "x"}):
        assert page.ask(data, OPERATOR)["error"] and page.halt(data, OPERATOR) == {}, data
        assert "no longer here" in json.loads(page.news(data, OPERATOR).body)["error"], data
        assert "problem" in page.policies(data, VIEWER), data
    assert not page._service.working


def test_hostile_prompts_reach_the_process_as_texts(page: TalkPage, run: str) -> None:
    for prompt in ("", "\x00", "\ud800 half", "<script>window.__pwned=1</script> ${x} {{y}}", "x" * LONGEST_PROMPT):
        events = answers(page, question(run, prompt))
        assert events[-1]["event"] == "end"
        assert next(event for event in events if event["event"] == "begin")["prompt"] == prompt.replace("\ud800", "?")


def test_only_operators_ask(page: TalkPage, run: str, workspace: Workspace) -> None:
    key = page.ask(question(run, "hang"), OPERATOR)["key"]
    for data, request in ((question(run), VIEWER), (question(run, view=True), OPERATOR)):
        assert page.ask(data, request)["error"] == Access().why_not(None)
    assert "no longer here" in json.loads(page.news({"key": key, "since": 0}, VIEWER).body)["error"]
    page.halt({"key": key}, VIEWER)
    assert not page._service.find(key).cancelled
    boot = page.boot({}, VIEWER)
    assert [row["id"] for row in boot["runs"]] == [run] and boot["why_not"] == Access().why_not(None)
    read_only = TalkPage(workspace, Access(Mode.READ_ONLY), page._service)
    assert read_only.ask(question(run), OPERATOR)["error"].startswith("This app was started read-only")
    page.halt({"key": key}, OPERATOR)
    assert finished(page, key)[-1] == {"event": "stopped"}


def test_what_the_page_offers(page: TalkPage, run: str, workspace: Workspace) -> None:
    offered = page.policies({"run": run}, VIEWER)
    watched = [answer.prompt for step, answer in workspace.reader(run).watched() if step == 0]
    assert offered["steps"] == [20] and offered["examples"] == watched[:12]
    assert offered["settings"]["response_length"] == workspace.reader(run).config().generation.response_length
    assert [quantity["name"] for quantity in page.boot({}, OPERATOR)["quantities"]] == ["kl", "rewards", "logprobs", "entropy"]


def test_snapshots_are_offered_too(tmp_path: Path) -> None:
    run_with_checkpoints(tmp_path)
    both = Workspace(tmp_path)
    run = both.runs()[0].run_id
    folder = both.run_dir(run)
    shutil.copytree(checkpoint_dir(folder, 20), snapshot_dir(folder, 20))
    manifest = json.loads((checkpoint_dir(folder, 20) / MANIFEST).read_text())
    earlier = snapshot_dir(folder, 10)
    earlier.mkdir()
    (earlier / MANIFEST).write_text(json.dumps({**manifest, "step": 10, "recorded_at": both.reader(run).recorded_at(10)}))
    page = TalkPage(both, Access(), Service("talk"))
    assert page.policies({"run": run}, VIEWER)["steps"] == [10, 20]
    shutil.rmtree(folder / "checkpoints")
    assert page.policies({"run": run}, VIEWER)["steps"] == [10, 20]
    assert [row["id"] for row in page.boot({}, VIEWER)["runs"]] == [run]


def test_a_run_without_a_checkpoint_is_not_offered(tmp_path: Path) -> None:
    FakeRun(tmp_path).finish()
    assert TalkPage(Workspace(tmp_path), Access(), Service("talk")).boot({}, OPERATOR)["runs"] == []


def test_a_policy_that_is_loaded_is_nobody_elses_answer(page: TalkPage, run: str) -> None:
    first = page.ask(question(run, "hang"), OPERATOR)["key"]
    wait_until(lambda: any(event["event"] == "token" for event in news(page, first)["events"]))
    waiting = [page.ask(question(run, prompt), OPERATOR)["key"] for prompt in ("hello", None, "hello")]
    assert [(news(page, key)["state"], news(page, key)["place"]) for key in waiting] == [("waiting", position) for position in (1, 2, 2)]
    page.halt({"key": waiting[0]}, OPERATOR)
    assert news(page, waiting[0]) == {"state": "done", "place": 0, "events": [{"event": "stopped"}], "more": False}
    page.halt({"key": first}, OPERATOR)
    assert finished(page, waiting[2])[-1]["event"] == "end"


def test_one_side_can_fail(page: TalkPage, run: str) -> None:
    events = answers(page, question(run, "no checkpoint"))
    assert {event["side"]: event["event"] for event in events if event["event"] in ("failed", "end")} == {0: "failed", 1: "end"}


def test_whether_a_run_is_alive(tmp_path: Path) -> None:
    alive = runs_alive(Workspace(tmp_path))
    assert not alive()
    run = FakeRun(tmp_path)
    run.load()
    assert alive()
    run.finish()
    assert not alive()


def test_the_pages_choose_the_newest_run_that_has_finished_and_not_collapsed(tmp_path: Path, service: Service) -> None:
    whole, broken = run_with_checkpoints(tmp_path, name="whole"), run_with_checkpoints(tmp_path, name="broken")
    twice = [run_with_checkpoints(tmp_path, name="twice", kl_coef=price) for price in (0.1, 0.2)]
    workspace = Workspace(tmp_path)
    going = FakeRun(tmp_path, steps=20, name="going")
    going.run()
    going.step(5)
    (going.folder / "snapshots" / "step-000005").mkdir(parents=True)
    verdicts = {"broken": {"kind": "collapsed"}, "whole": {"kind": "improved"}, "going": {"kind": "improving"}}
    verdicts["twice"] = verdicts["broken"]
    insights = Insights(workspace, find_analyses=lambda: {"diagnosis": lambda reader: lambda step: None})
    insights.verdict_of = lambda run, progress, seconds=0.0: verdicts[workspace.status(run).name]  # type: ignore[method-assign]
    runs = TalkPage(workspace, Access(), service, insights=insights).boot({}, VIEWER)["runs"]
    assert [(run["id"], run["broken"], run["first"], run["apart"]) for run in runs] == [
        (going.run_id, "", False, ""),
        (twice[1], "collapsed", False, "KL coefficient 0.2"), (twice[0], "collapsed", False, "KL coefficient 0.1"),
        (broken, "collapsed", False, ""), (whole, "", True, ""),
    ]  # fmt: skip
    evaluated = EvaluatePage(workspace, Access(), insights=insights)
    reply = evaluated.boot({}, VIEWER)
    assert reply["ends"] == whole and [run["apart"] for run in reply["runs"]] == [run["apart"] for run in runs[1:]]
    verdicts["whole"] = verdicts["broken"]
    assert evaluated.boot({}, VIEWER)["ends"] == twice[1]  # where all collapsed, the newest
    going.close()
    insights.close()
