"""What a program that votes cannot do: fill the disk with names, with answers that it takes back, or with rounds of known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.runs.feedback import tasks, turns
from rlhf_studio.runs.feedback.records import NewItem, NewTask, NewVote
from rlhf_studio.runs.feedback.store import Feedback, Refused


def made(root: Path, answer: int | None = None) -> tuple[Feedback, str]:
    feedback = Feedback(root)
    return feedback, feedback.create(NewTask("A task"), [NewItem("prompt", ("good", "bad"), answer=answer)])[0].id


def test_names_come_to_an_end_for_all_but_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_ANNOTATORS", 2)
    feedback, _ = made(tmp_path)
    for name in ("Anna", "Ben"):
        feedback.sign_in(name, f"the key of {name}")
    with pytest.raises(Refused, match="Too many people"):
        feedback.sign_in("Eve", "the key of Eve")
    assert feedback.sign_in("anna", "the key of Anna") == "Anna"
    assert feedback.sign_in("Olga", "", trusted=True) == "Olga"


def test_an_answer_is_taken_back_so_often_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_UNDONE", 2)
    feedback, task = made(tmp_path)
    for number in range(3):
        turn = feedback.turn(task, "Anna")
        assert turn.shown is not None
        feedback.vote(task, "Anna", NewVote(f"vote {number}", turn.shown.item.id, "chosen", 0))
        if number < 2:
            feedback.undo(task, "Anna", f"vote {number}")
    with pytest.raises(Refused, match="2 times already"):
        feedback.undo(task, "Anna", "vote 2")
    assert [vote.id for vote in feedback.votes(task)] == ["vote 2"]


def test_rounds_with_known_answers_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_ROUNDS", 2)
    feedback, task = made(tmp_path, answer=0)

    def fail(round_: int) -> str:
        shown = feedback.turn(task, "Anna").shown
        assert shown is not None
        return feedback.vote(task, "Anna", NewVote(f"vote {round_}", shown.item.id, "chosen", 1 - shown.order.index(0))).state

    assert fail(1) == "failed"
    assert feedback.begin_again(task, "Anna").calibration.attempt == 2
    assert fail(2) == "failed"
    with pytest.raises(Refused, match="2 rounds with known answers"):
        feedback.begin_again(task, "Anna")
