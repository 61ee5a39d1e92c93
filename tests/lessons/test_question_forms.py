"""The answers that a reader chooses from answer the question as it is asked: yes and no a question for yes or no, and no other one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.faults import shelf as experiments
from rlhf_studio.lessons.kit.text import LessonText

FOR_YES_OR_NO = re.compile(r"(?:Is|Are|Was|Were|Does|Do|Did|Has|Have|Had|Can|Could|Will|Would|Should)\b")
ASKS_WHICH = re.compile(r"(?:What|Which|Where|Whose|Who|How|Among which)\b")
PLAIN = {"yes": "yes", "no": "no"}


def texts() -> Iterator[tuple[str, LessonText]]:
    for place in (shelf.LESSONS, shelf.TOUR):
        yield from ((entry.name, shelf.text_of(entry.name)) for entry in shelf.entries(shelf=place))
    yield from ((entry["name"], experiments.text_of(entry["name"])) for entry in experiments.entries())


def plain(pieces: list[Any]) -> str:
    return "".join(piece if isinstance(piece, str) else plain(piece.get("content", [])) or "X" for piece in pieces)


def questions() -> Iterator[Any]:
    for name, text in texts():
        for scene in text.scenes:
            for block in scene.blocks:
                if block["kind"] == "predict":
                    options = [text.words.get(key, PLAIN.get(key, key)).lower() for key, _ in block["answers"]]
                    yield pytest.param(plain(block["question"]), options, id=f"{name}/{scene.name}/{block['slot']}")


def fits(question: str, options: list[str]) -> bool:
    """Whether these are answers to it, going by the question's last sentence."""
    lead = re.split(r"(?<=[.?!])\s+", question[: question.rindex("?") + 1])[-1]
    said = [option.split(",")[0].split(":")[0] for option in options]
    if ASKS_WHICH.match(lead) or " or " in lead:
        return not {"yes", "no"} & set(said)
    return {"yes", "no"} <= set(said) and set(said) <= {"yes", "no", "neither"} if FOR_YES_OR_NO.match(lead) else True


@pytest.mark.parametrize(("question", "options"), questions())
def test_the_answers_fit_the_question(question: str, options: list[str]) -> None:
    assert "?" in question
    assert fits(question, options), (question, options)


def test_what_does_not_fit_is_seen() -> None:
    assert not fits("The gold score is high. Does it agree?", ["fooled", "not fooled"])
    assert not fits("Does the run make more steps?", ["more", "fewer", "as many"])
    assert not fits("Which part is larger: is it the policy's?", ["yes", "no"])
    assert not fits("Does it rise or fall?", ["yes", "no"])
    assert fits("Does it rise, fall, or stay?", ["it rises", "it falls", "it stays"])
    assert fits("Is the judge fooled?", ["yes, fooled", "no, not fooled"])
