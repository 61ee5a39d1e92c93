"""A judge: what it is asked, which of its answers are grades, and that nothing is asked twice or without end."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import JudgeReward, Permissions
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.process.worker import DONE, run_engine
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.judge import Judge, answer_text, grade_in
from rlhf_studio.runs.create import create_run
from tests.engine.conftest import small_config
from tests.engine.json_server import JsonServer, Reply

FIELD = "reward.components.0"
RUBRIC = "P={prompt} R={response}."


def chat(text: Any, finish: str = "stop") -> str:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}]})


def episodes(*responses: str, references: list[str] | None = None) -> Episodes:
    count = len(responses)
    return Episodes([f"p{row}" for row in range(count)], list(responses), [True] * count, [1] * count, references)


@pytest.fixture
def server() -> Iterator[JsonServer]:
    running = JsonServer().start()
    running.answers = [(200, chat("Score: 7"))]
    yield running
    running.close()


def permissions(server: JsonServer) -> Permissions:
    return Permissions(urls={"grader": server.url}, keys={"grader": "k3y"})


def judge_of(running: JsonServer, pauses: list[float] | None = None, **settings: Any) -> Judge:
    settings = {"server": "grader", "model": "big", "rubric": RUBRIC, "retries": 0, **settings}
    sleep = (pauses if pauses is not None else []).append
    return Judge(JudgeReward(**settings), permissions(running), FIELD, sleep=sleep)


def asked(server: JsonServer) -> list[str]:
    return [request["body"]["messages"][0]["content"].partition("\n")[0] for request in server.seen]


# --- what is asked -------------------------------------------------------------------------------------------------------------


def test_one_request_per_response_and_its_grade(server: JsonServer) -> None:
    grades = {"a": "Good.\nScore: 8", "b": "Score: 2.5", "c": "0"}
    server.reply = lambda body: (200, chat(grades[body["messages"][0]["content"].split("R=")[1][0]]))
    assert judge_of(server, max_tokens=99)(episodes("a", "b", "c")).scores.tolist() == [8.0, 2.5, 0.0]
    assert sorted(asked(server)) == ["P=p0 R=a.", "P=p1 R=b.", "P=p2 R=c."]
    body = server.seen[0]["body"]
    assert {name: body[name] for name in ("model", "temperature", "max_tokens")} == {"model": "big", "temperature": 0, "max_tokens": 99}
    assert set(body) == {"model", "temperature", "max_tokens", "messages"} and len(body["messages"]) == 1
    assert body["messages"][0]["role"] == "user"
    assert body["messages"][0]["content"].endswith("says Score: and then one number from 0 (the worst) to 10 (the best).")
    assert {request["key"] for request in server.seen} == {"Bearer k3y"}


def test_placeholders_are_filled_once(server: JsonServer) -> None:
    """What a model wrote may look like a placeholder or a format, and stays what it is."""
    judge = judge_of(server, rubric="{prompt}|{response}|{reference}|{response}|{ x }|{{}}|%s")
    judge(Episodes(["{response}"], ["{reference} {0} \\1 {prompt}"], [True], [1], ["{prompt}!"]))
    text = "{reference} {0} \\1 {prompt}"
    assert asked(server) == [f"{{response}}|{text}|{{prompt}}!|{text}|{{ x }}|{{{{}}}}|%s"]


def test_a_reference_is_needed_only_when_the_rubric_shows_it(server: JsonServer) -> None:
    judge_of(server)(episodes("a"))
    with pytest.raises(ComponentError, match="there are no reference texts"):
        judge_of(server, rubric="{response} {reference}")(episodes("a"))
    judge_of(server, rubric="{response} {reference}")(episodes("a", references=["right"]))
    assert asked(server) == ["P=p0 R=a.", "a right"]


# --- what is asked only once, and what is not asked at all ------------------------------------------------------------------------


def test_the_same_thing_is_asked_once(server: JsonServer) -> None:
    judge = judge_of(server)
    same = Episodes(["p", "p", "q"], ["a", "a", "a"], [True] * 3, [1] * 3)
    assert judge(same).scores.tolist() == [7.0, 7.0, 7.0] and len(server.seen) == 2
    server.answers = [(200, chat("Score: 1"))]
    assert judge(same).scores.tolist() == [7.0, 7.0, 7.0] and len(server.seen) == 2
    assert judge(episodes("new")).scores.tolist() == [1.0] and len(server.seen) == 3


def test_a_batch_of_too_many_requests_is_not_sent(server: JsonServer) -> None:
    judge = judge_of(server, max_requests=2)
    with pytest.raises(ComponentError, match=r"^the judge grader: the batch needs 3 requests, more than max_requests 2$"):
        judge(episodes("a", "b", "c"))
    assert server.seen == []
    judge(episodes("a", "b"))
    judge(episodes("a", "b", "c"))  # two of them are known
    assert len(server.seen) == 3


def test_so_many_requests_are_under_way_together(server: JsonServer) -> None:
    """Three requests meet at a barrier, so they are under way together; a fourth never is."""
    barrier, under_way, lock, most = threading.Barrier(3, timeout=20), [0], threading.Lock(), [0]

    def reply(body: dict[str, Any]) -> Reply:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        barrier.wait()
        with lock:
            under_way[0] -= 1
        return 200, chat("Score: 7")

    server.reply = reply
    judge_of(server, concurrency=3)(episodes(*"abcdef"))
    assert most[0] == 3 and len(server.seen) == 6


def test_after_an_error_nothing_more_is_asked_and_what_arrived_is_kept(server: JsonServer) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        return (400, "") if "R=bad" in body["messages"][0]["content"] else (200, chat("Score: 7"))

    server.reply = reply
    judge = judge_of(server, concurrency=1)
    with pytest.raises(ComponentError, match=r"^the judge grader: answered with status 400$") as caught:
        judge(episodes("a", "bad", *"cdefghij"))
    assert caught.value.row == 1 and len(server.seen) <= 3  # one may have begun before the error was seen
    before = len(server.seen)
    judge(episodes("a"))
    assert len(server.seen) == before


def test_after_one_has_failed_for_good_the_others_do_not_ask_again(server: JsonServer) -> None:
    """The first is refused while the second pauses before its retry; without an end to the pause this test would wait for minutes."""
    overloaded = threading.Event()

    def reply(body: dict[str, Any]) -> Reply:
        if "R=bad" in body["messages"][0]["content"]:
            overloaded.wait(20)
            return 400, ""
        overloaded.set()
        return 503, ""

    server.reply = reply
    settings = JudgeReward(server="grader", model="big", rubric=RUBRIC, retries=20, concurrency=2)
    with pytest.raises(ComponentError, match=r"^the judge grader: answered with status 400$"):
        Judge(settings, permissions(server), FIELD)(episodes("busy", "bad", *"cdefgh"))
    assert asked(server).count("P=p0 R=busy.") <= 2 and len(server.seen) <= 3


# --- what cannot be used --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("7", 7), (" 7.5 \n", 7.5), ("**7**", 7), ("7/10", 7), ("Score: 7", 7), ("score = 7", 7), ("**Score:** 7", 7),
        ("**Score: 7/10**", 7), ("Final score: 7.", 7), ('{"score": 7}', 7), ("There are 3 mistakes of 5.\nScore: 4", 4),
        ("Score: 3\nOn second thoughts:\nScore: 6", 6), ("Score: .5", 0.5), ("Score: 10", 10), ("Score: 0", 0),
    ],
)  # fmt: skip
def test_grades(text: str, grade: float) -> None:
    assert grade_in(text, 0, 10) == grade


@pytest.mark.parametrize(
    ("text", "lowest", "highest", "part"),
    [
        ("", 0, 10, "no line 'Score: NUMBER'"),
        ("Very good!", 0, 10, "no line 'Score: NUMBER': 'Very good!'"),
        ("It has 3 mistakes.", 0, 10, "no line"),
        ("Score: 7-8", 0, 10, "no line"),
        ("Score: 7 or 8", 0, 10, "no line"),
        ("Score: seven", 0, 10, "no line"),
        ("Score: 1,5", 0, 10, "no line"),
        ("Score: NaN", 0, 10, "no line"),
        ("Score: 11", 0, 10, "grade 11 is outside the scale from 0 to 10"),
        ("Score: -1", 0, 10, "grade -1 is outside"),
        ("Score: 0.5", 1, 5, "outside the scale from 1 to 5"),
        ("Score: 4", -1, 3, "outside the scale from -1 to 3"),
        ("Score: 7/20", 0, 10, "grade 7/20 is not on the scale"),
        ("Score: " + "9" * 1000, 0, 10, "outside"),
    ],
)
def test_grades_that_are_none(text: str, lowest: float, highest: float, part: str) -> None:
    with pytest.raises(ComponentError, match=re.escape(part)) as caught:
        grade_in(text, lowest, highest)
    assert len(str(caught.value)) < 500


def test_a_hostile_answer_takes_no_time() -> None:
    for text in (" " * 200_000 + "x", "score" * 50_000, "Score:" + " " * 200_000 + "7", "*" * 200_000, "7/" * 100_000, "Score: " * 30_000):
        with pytest.raises(ComponentError):
            grade_in(text, 0, 10)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ({}, "not a chat completion"), ({"choices": []}, "not a chat completion"), ({"choices": "x"}, "not a chat completion"),
        ({"choices": [3]}, "not a chat completion"), ({"choices": [{"message": "x"}]}, "not a chat completion"),
        ({"choices": [{"message": {"content": None}}]}, "not a chat completion"),
        ({"choices": [{"message": {"content": " "}}]}, "not a chat completion"),
        (json.loads(chat("Score: 1", "length")), "cut off after 5 tokens; raise max_tokens"),
    ],
)  # fmt: skip
def test_answers_that_are_no_chat_completions(answer: dict[str, Any], part: str) -> None:
    with pytest.raises(ComponentError, match=part):
        answer_text(answer, 5)


def test_asked_again_while_it_is_overloaded(server: JsonServer) -> None:
    server.answers = [(429, ""), (503, ""), (200, chat("Score: 7"))]
    pauses: list[float] = []
    assert judge_of(server, pauses, retries=2)(episodes("a")).scores.tolist() == [7.0]
    assert pauses == [0.5, 1.0]


def test_a_silent_judge(server: JsonServer) -> None:
    server.answers = [("hang", "")]
    with pytest.raises(ComponentError, match=r"^the judge grader: did not answer within 0.2 s \(asked once\)$"):
        judge_of(server, timeout=0.2)(episodes("a"))


def test_a_run_keeps_neither_address_nor_key(server: JsonServer, tmp_path: Path) -> None:
    server.reply = lambda body: (200, chat(f"Score: {len(body['messages'][0]['content']) % 10}"))
    component = {"kind": "judge", "server": "grader", "model": "m", "rubric": RUBRIC}
    config = small_config(
        tmp_path, reward={"components": [component]}, ppo={"steps": 1, "ppo_epochs": 1}, generation={"response_length": 2}
    )
    create_run(tmp_path / "run", config, name="run", state="loading")
    assert run_engine(tmp_path / "run", "train", permissions=permissions(server)) == DONE
    texts = [request["body"]["messages"][0]["content"] for request in server.seen]
    assert texts and len(texts) == len(set(texts)), "the same thing was asked twice"
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or not re.search(b"s3cret|k3y", file.read_bytes()), file


@pytest.mark.parametrize(
    ("settings", "setting", "part"),
    [
        ({"server": "other"}, "server", "no server is called other; start the program with --reward-url other=URL; known here: grader"),
        ({"server": ""}, "server", "name the judge's server"),
        ({"model": " "}, "model", "name the model that grades"),
        ({"rubric": "Is {prompt} good?"}, "rubric", "write {response} where it belongs"),
        ({"rubric": "{response} {answer}"}, "rubric", "has {answer}, which stands for nothing"),
    ],
)
def test_settings_that_cannot_be_used(server: JsonServer, settings: dict[str, Any], setting: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        judge_of(server, **settings)
    (problem,) = caught.value.problems
    assert problem.field == f"{FIELD}.{setting}" and part in problem.message
