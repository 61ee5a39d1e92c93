"""The end of a turn is learned also where the chat template's {% generation %} marks leave it out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases.chat_models import greedy_answer, last_policy, save_questions
from tests.cases.what_is_learned import learned_demonstrations

END_OF_TURN = 2


def test_the_end_of_a_turn_is_learned_behind_the_mark(chat_model: Callable[[str], Path], tmp_path: Path) -> None:
    file = save_questions(tmp_path / "answers.jsonl", answered=True)
    texts, counted, notes = learned_demonstrations(chat_model("unmarked_end"), file, chat_template=True)
    plain, _, quiet = learned_demonstrations(chat_model("chatml"), file, chat_template=True)
    assert texts == plain and all(tokens[-1] == "<|im_end|>" for tokens in counted)
    assert len(notes) == len(quiet) + 1


@pytest.mark.long
def test_the_model_stops(taught_chat_model: Callable[[str], Path]) -> None:
    answer = greedy_answer(last_policy(taught_chat_model("unmarked_end")))
    assert answer[-1] == END_OF_TURN and len(answer) == 4
