"""The answers of an evaluation run: which policy gave each, to which prompt, and what other models say of it.

An answer is a :class:`~rlhf_studio.runs.records.RolloutRecord`, so that whatever shows recorded responses shows it too; what only an
evaluation knows lies in the table ``answers``, one row for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlhf_studio.runs import rows, schema
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.runs.step_rows import has_table
from rlhf_studio.runs.values import check_whole, decode_numbers, decode_text, encode_numbers, encode_text

TABLE = "answers"
NUMBERS = ("judge", "ref_logprob")


@dataclass(frozen=True, kw_only=True)
class Answer(RolloutRecord):
    """One answer of one policy to one prompt.

    ``score`` is the weighted sum of ``parts``, before scaling, clipping and penalties; ``kl`` is NaN where the policy has other tokens
    than the reference, or is a file of completions. ``tokens`` is None.

    Attributes:
        policy: the policy's name within the run.
        place: the prompt's place among the run's prompts, from 0.
        draw: which of the policy's answers to this prompt, from 0. Equal draws of two policies had the same random numbers.
        judge: score of the reward model that was not used in training; NaN without one.
        ref_logprob: sum of the reference's log-probabilities of the answer's tokens at temperature 1, in nats.
        ref_length: how many tokens the answer has for the reference.
    """

    policy: str
    place: int
    draw: int
    judge: float
    ref_logprob: float
    ref_length: int


def insert_answers(connection: sqlite3.Connection, step: int, records: Sequence[RolloutRecord]) -> None:
    """Store what the answers among the records have beside their rollouts; inside the writer's transaction."""
    connection.executemany(
        f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [_row(step, record) for record in records if isinstance(record, Answer)],
    )


def _row(step: int, answer: Answer) -> tuple[Any, ...]:
    numbers, flags = encode_numbers({name: getattr(answer, name) for name in NUMBERS})
    return (step, answer.sample, encode_text(answer.policy), answer.place, answer.draw, *numbers, answer.ref_length, flags)


def read_answers(connection: sqlite3.Connection, after: int = 0) -> list[Answer]:
    """All answers of the steps after ``after``, by step and place in it; none in databases of earlier versions."""
    if not has_table(connection, TABLE):
        return []
    own = "policy, place, draw, judge, ref_logprob, ref_length, number_flags"
    plain = ", ".join(f"rollouts.{name}" for name in rows.ROLLOUT_COLUMNS.split(", "))
    found = connection.execute(
        f"""SELECT {own}, {plain} FROM {TABLE} JOIN rollouts USING (step, sample)
            WHERE step > ? AND {rows.OF_NOW} ORDER BY step, sample""",
        (after,),
    )
    return [_answer(row) for row in found]


def _answer(row: Sequence[Any]) -> Answer:
    policy, place, draw, judge, ref_logprob, ref_length, flags, *rest = row
    plain = rows.read_rollout(rest, None)
    check_whole(place, draw, ref_length)
    numbers = decode_numbers({"judge": judge, "ref_logprob": ref_logprob}, flags)
    known = {field.name: getattr(plain, field.name) for field in fields(RolloutRecord)}
    return Answer(**known, policy=decode_text(policy), place=place, draw=draw, ref_length=ref_length, **numbers)


assert TABLE in schema.HISTORY_TABLES, "the answers of a step are replaced with it"
