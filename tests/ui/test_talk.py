"""The Talk page without a browser: what it may be asked, the line of those who wait, and how its process begins and ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.paths import MANIFEST, checkpoint_dir, snapshot_dir
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.talk import line as line_module
from rlhf_studio.ui.talk.line import MOST_WAITING, NEEDED_BY_A_RUN, Exchange, Line
from rlhf_studio.ui.talk.page import TalkPage, runs_alive
from rlhf_studio.ui.talk.sent import LONGEST_PROMPT
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.fake_run import FakeRun
from tests.ui.talk_stand_in import COMMAND, run_with_checkpoints
from tests.ui.train_helpers import OPERATOR, VIEWER
from tests.waiting import gone, wait_until

Json = dict[str, Any]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("talk")
    run_with_checkpoints(root)
    return Workspace(root)


@pytest.fixture(scope="module")
def run(workspace: Workspace) -> str:
    return workspace.runs()[0].run_id


@pytest.fixture
def make(workspace: Workspace) -> Iterator[Callable[..., TalkPage]]:
    made: list[Line] = []

    def make(access: Access | None = None, **options: Any) -> TalkPage:
        made.append(Line(command=COMMAND, **{"has_gpu": lambda: False, **options}))
        return TalkPage(workspace, access or Access(), made[-1])

    yield make
    for line in made:
        line.close()


def asked(run: str, prompt: str | None = "hello", **changes: Any) -> Json:
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


def test_both_policies_answer(make: Callable[..., TalkPage], run: str, workspace: Workspace) -> None:
    page = make()
    events = answers(page, asked(run, "echo"))
    assert [event["event"] for event in events if event.get("side") == 1] == ["begin", *["token"] * 5, "end"]
    told = json.loads(events[-1]["response"])["asked"]
    assert told["prompt"] == "echo" and [side["step"] for side in told["sides"]] == [None, 20]
    for side in told["sides"]:
        assert side["run"] == str(workspace.run_dir(run)) and side["seed"] == 3
        own = workspace.reader(run).config().generation
        expected = {"temperature": 0.5, "top_k": own.top_k, "top_p": 0.9, "response_length": 12, "stop_token": own.stop_token}
        assert {name: side["settings"][name] for name in expected} == expected
    again = answers(page, asked(run, "echo", same_seed=False))
    seen = json.loads(again[-1]["response"])
    assert [side["seed"] for side in seen["asked"]["sides"]] == [3, 4]
    assert seen["pid"] == json.loads(events[-1]["response"])["pid"], "the process is kept"


def test_news_come_in_parts(make: Callable[..., TalkPage], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make()
    key = page.ask(asked(run), OPERATOR)["key"]
    everything = finished(page, key)
    monkeypatch.setattr("rlhf_studio.ui.talk.page.MOST_EVENTS", 4)
    first = news(page, key)
    assert first["events"] == everything[:4] and first["more"]
    assert news(page, key, 4)["events"] == everything[4:8]
    last = news(page, key, len(everything))
    assert (last["events"], last["more"]) == ([], False)
    assert "no longer here" in news(page, "unknown")["error"]
    assert news(page, key, -5)["events"] == everything[:4]


@pytest.mark.parametrize(
    ("changes", "part", "field"),
    [
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
    ],
)
def test_questions_that_cannot_be_asked(make: Callable[..., TalkPage], run: str, changes: Json, part: str, field: str) -> None:
    page = make()
    refused = page.ask(asked(run, **changes), OPERATOR)
    assert part in refused["error"] and refused["field"] == field
    assert page._line.pid is None


@pytest.mark.parametrize("data", [None, 3, {}, [], {"sides": "x"}])
def test_questions_that_are_none(make: Callable[..., TalkPage], data: Any) -> None:
    page = make()
    assert page.ask(data, OPERATOR)["error"] and page.halt(data, OPERATOR) == {}
    assert "no longer here" in json.loads(page.news(data, OPERATOR).body)["error"]
    assert "problem" in page.policies(data, VIEWER)


@pytest.mark.parametrize("prompt", ["", "\x00", "\ud800 half", "<script>window.__pwned=1</script> ${x} {{y}}", "x" * LONGEST_PROMPT])
def test_hostile_prompts_reach_the_process_as_texts(make: Callable[..., TalkPage], run: str, prompt: str) -> None:
    events = answers(make(), asked(run, prompt))
    assert events[-1]["event"] == "end"
    assert next(event for event in events if event["event"] == "begin")["prompt"] == prompt.replace("\ud800", "?")


def test_only_operators_ask(make: Callable[..., TalkPage], run: str) -> None:
    page = make()
    key = page.ask(asked(run, "hang"), OPERATOR)["key"]
    for data, request in ((asked(run), VIEWER), (asked(run, view=True), OPERATOR)):
        assert page.ask(data, request)["error"] == Access().why_not(None)
    assert "no longer here" in json.loads(page.news({"key": key, "since": 0}, VIEWER).body)["error"]
    page.halt({"key": key}, VIEWER)
    assert page._line.find(key).stopping is False
    seen = page.boot({}, VIEWER)
    assert [row["id"] for row in seen["runs"]] == [run] and seen["why_not"] == Access().why_not(None)
    assert make(Access(Mode.READ_ONLY)).ask(asked(run), OPERATOR)["error"].startswith("This app was started read-only")


def test_what_the_page_offers(make: Callable[..., TalkPage], run: str, workspace: Workspace) -> None:
    page = make()
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
    page = TalkPage(both, Access(), Line(command=COMMAND))
    assert page.policies({"run": run}, VIEWER)["steps"] == [10, 20]
    shutil.rmtree(folder / "checkpoints")
    assert page.policies({"run": run}, VIEWER)["steps"] == [10, 20]
    assert [row["id"] for row in page.boot({}, VIEWER)["runs"]] == [run]


def test_a_run_without_a_checkpoint_is_not_offered(tmp_path: Path) -> None:
    FakeRun(tmp_path).finish()
    assert TalkPage(Workspace(tmp_path), Access(), Line(command=COMMAND)).boot({}, OPERATOR)["runs"] == []


def test_others_wait_their_turn(make: Callable[..., TalkPage], run: str) -> None:
    page = make()
    first = page.ask(asked(run, "hang"), OPERATOR)["key"]
    wait_until(lambda: any(event["event"] == "token" for event in news(page, first)["events"]))
    waiting = [page.ask(asked(run), OPERATOR)["key"] for _ in range(MOST_WAITING)]
    assert [(news(page, key)["state"], news(page, key)["place"]) for key in waiting] == [("waiting", place) for place in (1, 2, 3, 4)]
    assert page.ask(asked(run), OPERATOR)["error"] == "4 prompts are waiting already. Try again in a moment."
    page.halt({"key": waiting[0]}, OPERATOR)
    assert news(page, waiting[0]) == {"state": "done", "place": 0, "events": [{"event": "stopped"}], "more": False}
    page.halt({"key": first}, OPERATOR)
    assert finished(page, first)[-1] == {"event": "stopped"}
    assert all(finished(page, key)[-1]["event"] == "end" for key in waiting[1:])


def test_policies_that_are_loaded_are_nobody_elses_answer(make: Callable[..., TalkPage], run: str) -> None:
    page = make()
    page._line._current = Exchange({"op": "ask", "prompt": None})
    page._line._thread = threading.current_thread()  # nobody takes what waits
    keys = [page.ask(asked(run, prompt), OPERATOR)["key"] for prompt in (None, "first", "second")]
    assert [news(page, key)["place"] for key in keys] == [0, 0, 1]
    page._line._current = Exchange({"op": "ask", "prompt": "hello"})
    assert [news(page, key)["place"] for key in keys] == [1, 1, 2]
    page._line._thread = None


def test_one_side_can_fail(make: Callable[..., TalkPage], run: str) -> None:
    events = answers(make(), asked(run, "no checkpoint"))
    assert {event["side"]: event["event"] for event in events if event["event"] in ("failed", "end")} == {0: "failed", 1: "end"}


def test_a_process_that_dies_in_the_middle_is_said_and_replaced(make: Callable[..., TalkPage], run: str) -> None:
    page = make()
    events = answers(page, asked(run, "die"))
    assert [event["event"] for event in events].count("token") == 3
    assert events[-1]["side"] is None and "has ended in the middle of this (it ended with exit code 9). Ask again" in events[-1]["error"]
    assert answers(page, asked(run))[-1]["event"] == "end"
    pid = page._line.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid))
    assert answers(page, asked(run))[-1]["event"] == "end", "one that died while nobody used it is replaced without a word"
    assert page._line.pid != pid


def test_a_process_that_cannot_be_started_or_is_silent(workspace: Workspace, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = TalkPage(workspace, Access(), Line(command=["/no/such/program"], has_gpu=lambda: False))
    assert answers(page, asked(run))[-1]["error"] == "The process that answers could not be started: No such file or directory."
    page._line.close()
    monkeypatch.setattr(line_module, "PATIENCE", 0.3)
    monkeypatch.setattr(line_module, "LOOK_SECONDS", 0.05)
    silent = TalkPage(workspace, Access(), Line(command=COMMAND, has_gpu=lambda: False))
    assert "Nothing was heard for 0.3 seconds" in answers(silent, asked(run, "hang"))[-1]["error"]
    silent._line.close()


def test_it_ends_when_idle_and_with_the_app(make: Callable[..., TalkPage], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = make()
    answers(page, asked(run))
    pid = page._line.pid
    monkeypatch.setattr(line_module, "RUN_LOOK_SECONDS", 0.05)
    page.ask(asked(run, None), OPERATOR)  # the thread looks at the clock anew
    monkeypatch.setattr(line_module, "IDLE", 0.0)
    page.ask(asked(run, None), OPERATOR)
    wait_until(lambda: page._line.pid is None and gone(pid))
    monkeypatch.undo()
    key = page.ask(asked(run, "hang"), OPERATOR)["key"]
    wait_until(lambda: any(event["event"] == "token" for event in news(page, key)["events"]))
    pid = page._line.pid
    page._line.close()
    assert gone(pid) and page.ask(asked(run), OPERATOR)["error"] == "The app is stopping."


def test_a_gpu_that_a_run_needs_is_left_alone(make: Callable[..., TalkPage], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [False]
    page = make(has_gpu=lambda: True, run_alive=lambda: busy[0])
    free = json.loads(answers(page, asked(run, "echo"))[-1]["response"])
    assert free["variables"].get("CUDA_VISIBLE_DEVICES") == os.environ.get("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(line_module, "RUN_LOOK_SECONDS", 0.05)
    key = page.ask(asked(run, "hang"), OPERATOR)["key"]
    wait_until(lambda: any(event["event"] == "token" for event in news(page, key)["events"]))
    busy[0] = True
    assert finished(page, key)[-1]["error"] == NEEDED_BY_A_RUN and gone(free["pid"])
    on_cpu = json.loads(answers(page, asked(run, "echo"))[-1]["response"])
    assert on_cpu["variables"]["CUDA_VISIBLE_DEVICES"] == "" and on_cpu["pid"] != free["pid"]
    busy[0] = False
    back = json.loads(answers(page, asked(run, "echo"))[-1]["response"])
    assert back["pid"] != on_cpu["pid"] and back["variables"].get("CUDA_VISIBLE_DEVICES") == free["variables"].get("CUDA_VISIBLE_DEVICES")


def test_a_process_sees_no_secrets(make: Callable[..., TalkPage], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("DATABASE_URL", "postgres://secret")
    seen = json.loads(answers(make(), asked(run, "echo"))[-1]["response"])["variables"]
    assert not {"HF_TOKEN", "DATABASE_URL"} & set(seen) and seen["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"


def test_whether_a_run_is_alive(tmp_path: Path) -> None:
    alive = runs_alive(Workspace(tmp_path))
    assert not alive()
    run = FakeRun(tmp_path)
    run.load()
    assert alive()
    run.finish()
    assert not alive()
