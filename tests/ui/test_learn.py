"""The Learn page without a browser: what it may be asked, and the process that computes for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.teaching.sheets import sheet
from rlhf_studio.ui.learn.computing import Computer, NotComputed
from rlhf_studio.ui.learn.page import LearnPage
from tests.ui.lessons_stand_in import COMMAND
from tests.ui.train_helpers import VIEWER
from tests.waiting import wait_until

START = {"ratio": 1.3, "advantage": -1, "eps": 0.2}


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service("lessons", command=COMMAND, most_waiting=40)
    yield service
    service.close()


@pytest.fixture
def computer(service: Service) -> Computer:
    """A computer whose process counts what it is asked."""
    return Computer(service)


def ask(page: LearnPage, **question: Any) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(bytes(page.learn_ask(question, VIEWER).body))
    return reply


def test_everyone_may_read_and_what_is_unknown_is_told(computer: Computer) -> None:
    page = LearnPage(computer, computer)
    names = [lesson["name"] for lesson in page.learn_shelf({}, VIEWER)["lessons"]]
    assert "clip" in names
    assert page.learn_text({"lesson": "clip"}, VIEWER)["title"] == shelf.text_of("clip").title
    assert page.learn_text({"lesson": "../secret"}, VIEWER) == {"error": "There is no lesson '../secret'."}
    assert page.learn_text({"lesson": "clip", "language": "../en"}, VIEWER)["title"] == shelf.text_of("clip").title


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"op": "delete"}, "op must be one of describe, compute, sweep, draw"),
    ({"op": "compute", "lesson": "clip"}, "scene must be a name"),
    ({"op": "compute", "lesson": "x" * 61, "scene": "a", "values": {}}, "lesson must be a name"),
    ({"op": "compute", "lesson": "clip", "scene": "a", "values": [1]}, "values must be an object"),
    ({"op": "compute", "lesson": "clip", "scene": "a", "values": {"ratio": [1]}}, "each value must be a number"),
    ({"op": "compute", "lesson": "clip", "scene": "a", "values": {"ratio": "x" * 61}}, "each value must be a number"),
    ({"op": "draw", "lesson": "clip", "scene": "a", "seed": -1}, "seed must be a whole number"),
    ({"op": "sweep", "lesson": "clip", "scene": "a", "values": {}}, "control must be a name"),
]


def test_what_does_not_fit_never_reaches_the_process(computer: Computer) -> None:
    page = LearnPage(computer, computer)
    for question, message in REFUSED:
        assert ask(page, **question)["error"].startswith(message), question
    assert not computer.has_begun


def test_what_was_asked_before_is_remembered_and_a_dead_process_is_replaced(computer: Computer) -> None:
    page = LearnPage(computer, computer)
    first = ask(page, op="compute", lesson="clip", scene="one", values={"a": 1})
    assert first == {"answer": {"asked": 1, "scene": "one"}}
    assert ask(page, op="compute", lesson="clip", scene="two", values={"a": 1})["answer"]["asked"] == 2
    assert ask(page, op="compute", lesson="clip", scene="one", values={"a": 1}) == first
    assert ask(page, op="compute", lesson="clip", scene="unknown", values={}) == {"error": "no such scene"}
    assert "has ended" in ask(page, op="compute", lesson="clip", scene="dies", values={})["error"]
    assert ask(page, op="compute", lesson="clip", scene="three", values={})["answer"]["asked"] == 1  # a new process counts from 1


def test_the_process_is_started_when_the_list_of_lessons_is_shown(computer: Computer, service: Service) -> None:
    page = LearnPage(computer, computer)
    page.learn_shelf({}, VIEWER)
    wait_until(lambda: service.pid)
    started = service.pid
    assert ask(page, op="compute", lesson="clip", scene="one", values={})["answer"]["asked"] == 1
    assert service.pid == started
    missing = Computer(Service("lessons", command=["/no/such/program"]))
    missing.begin()
    with pytest.raises(NotComputed, match="could not be started"):
        missing.ask({"op": "describe"})
    missing.close()


def test_readers_who_ask_the_same_share_one_answer(computer: Computer) -> None:
    with ThreadPoolExecutor(4) as readers:
        answers = list(readers.map(lambda _: computer.ask({"op": "compute", "scene": "slow"}), range(4)))
    assert answers == [{"asked": 1, "scene": "slow"}] * 4


def test_the_process_is_started_when_somebody_opens_the_app_and_nothing_trains(computer: Computer) -> None:
    for prepares, busy, begins in ((False, False, False), (True, True, False), (True, False, True)):
        LearnPage(computer, computer, prepares=prepares, busy=lambda busy=busy: busy).expect()
        assert computer.has_begun is begins


@pytest.mark.long  # every day a browser asks that process: tests/browser/test_learn.py
def test_the_real_process_answers_as_the_functions_do() -> None:
    computer = Computer()
    try:
        page = LearnPage(computer, computer)
        described = ask(page, op="describe", lesson="clip")["answer"]["scenes"]["dead_zones"]
        assert [control["name"] for control in described["controls"]] == ["ratio", "advantage", "eps"]
        assert described["shown"] == answers.computed("clip", "dead_zones", START)
        question = {"lesson": "clip", "scene": "dead_zones"}
        step = ask(page, op="describe", lesson="clip")["answer"]["scenes"]["under_microscope"]
        assert step["shown"] is None and not step["slow"]  # the other scenes do not wait until the recorded run is loaded
        other = {**START, "ratio": 0.5}
        assert ask(page, op="compute", values=other, **question)["answer"] == answers.computed("clip", "dead_zones", other)
        assert "is none of its values" in ask(page, op="compute", values={**START, "ratio": 0.511}, **question)["error"]
        swept = ask(page, op="sweep", control="eps", values=START, **question)["answer"]
        assert swept == answers.swept("clip", "dead_zones", "eps", START) and len(swept) == 8
        drawn = ask(page, op="draw", seed=3, **question)["answer"]
        assert drawn["shown"] == answers.computed("clip", "dead_zones", drawn["values"])
        assert ask(page, op="compute", lesson="clip", scene="nowhere", values={})["error"] == "The lesson clip has no scene 'nowhere'."
        drawn_there = computer.ask({"op": "sheet", "lessons": ["rewards"], "each": 2, "seed": 5, "with_answers": True})
        assert drawn_there == json.loads(json.dumps(sheet(["rewards"], 2, 5)))  # the same in a process with another hash seed
    finally:
        computer.close()


def test_a_language_without_texts_is_english_and_fills_no_memory() -> None:
    from rlhf_studio.ui import sent
    from rlhf_studio.ui.learn import search

    search.learn_search({"query": "clip"}, VIEWER)
    before = search.index.cache_info().currsize
    for language in ("xx", "q" * 200, "EN", ["en"], None, "../en"):
        assert sent.language_of({"language": language}) == "en"
        assert search.learn_search({"query": "clip", "language": language}, VIEWER)["results"]
    assert search.index.cache_info().currsize == before


def test_who_waits_for_a_measurement_keeps_nobody_from_a_slider(tmp_path: Path) -> None:
    """One viewer asks for more measurements than may wait; a question for a slider is answered all the same."""
    import asyncio
    import threading

    go = threading.Event()

    class Slow:
        def ask(self, question: dict[str, Any]) -> Any:
            go.wait(20)
            return "measured"

        def rest(self) -> None: ...

        def close(self) -> None: ...

    class Quick(Slow):
        def ask(self, question: dict[str, Any]) -> Any:
            return "at once"

    page = LearnPage(Quick(), Slow())  # type: ignore[arg-type]
    with gr.Blocks():
        component = page.build()
    ask = next(function for function in component.server_fns if function.__name__ == "learn_ask")
    question = {"op": "compute", "lesson": "gae", "scene": "dice", "values": {}}

    async def flood() -> tuple[Any, list[Any]]:
        slow = [asyncio.ensure_future(ask({**question, "slow": True}, VIEWER)) for _ in range(60)]
        await asyncio.sleep(0)
        quick = await asyncio.wait_for(ask(question, VIEWER), 10)
        go.set()
        return json.loads(quick.body), [json.loads(reply.body) for reply in await asyncio.gather(*slow)]

    quick, slow = asyncio.run(flood())
    assert quick == {"answer": "at once"}
    assert slow.count({"answer": "measured"}) == 11 and sum("error" in reply for reply in slow) == 49
    page.close()
