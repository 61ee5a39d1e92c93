"""The answers of an evaluation run: which policy gave each, to which prompt, and what other models say of it.

An answer is a :class:`~rlhf_studio.runs.records.RolloutRecord`, so that whatever shows recorded responses shows it too; what only an
evaluation knows lies in the table ``answers``, one row for each.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from statistics import pvariance
from typing import Any

from rlhf_studio.runs import rows, schema
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.runs.step_rows import has_table
from rlhf_studio.runs.values import check_whole, decode_json, decode_numbers, decode_text, encode_json, encode_numbers, encode_text

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
        members: of each component that is an ensemble the scores of its models, times the component's weight; empty without one.
    """

    policy: str
    place: int
    draw: int
    judge: float
    ref_logprob: float
    ref_length: int
    members: dict[str, list[float]] = field(default_factory=dict)


def disagreement(answer: Answer, other: Answer | None = None) -> float | None:
    """How far the models of an ensemble lie apart over an answer, or over how much better it is than ``other``; None without one.

    With the scores s_i of k models it is their standard deviation √(Σ (s_i − m)² / k), in points of the score. Several ensembles add up
    as independent sums do, by their variances. It is large on texts unlike those that the models learned from (Lakshminarayanan et al.
    2017), and on pairs that they are not of one mind about.
    """
    if not answer.members:
        return None
    variance = 0.0
    for name, own in answer.members.items():
        theirs = [0.0] * len(own) if other is None else other.members[name]
        variance += pvariance([mine - yours for mine, yours in zip(own, theirs, strict=True)])
    return math.sqrt(variance)


def insert_answers(connection: sqlite3.Connection, step: int, records: Sequence[RolloutRecord]) -> None:
    """Store what the answers among the records have beside their rollouts; inside the writer's transaction."""
    connection.executemany(
        f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [_row(step, record) for record in records if isinstance(record, Answer)],
    )


def _row(step: int, answer: Answer) -> tuple[Any, ...]:
    numbers, flags = encode_numbers({name: getattr(answer, name) for name in NUMBERS})
    who = (encode_text(answer.policy), answer.place, answer.draw)
    return (step, answer.sample, *who, *numbers, answer.ref_length, flags, *encode_json(answer.members))


def read_answers(connection: sqlite3.Connection, after: int = 0) -> list[Answer]:
    """All answers of the steps after ``after``, by step and place in it; none in databases of earlier versions."""
    if not has_table(connection, TABLE):
        return []
    own = "policy, place, draw, judge, ref_logprob, ref_length, number_flags, members, members_flags"
    plain = ", ".join(f"rollouts.{name}" for name in rows.ROLLOUT_COLUMNS.split(", "))
    found = connection.execute(
        f"""SELECT {own}, {plain} FROM {TABLE} JOIN rollouts USING (step, sample)
            WHERE step > ? AND {rows.OF_NOW} ORDER BY step, sample""",
        (after,),
    )
    return [_answer(row) for row in found]


def _answer(row: Sequence[Any]) -> Answer:
    policy, place, draw, judge, ref_logprob, ref_length, flags, members, members_flags, *rest = row
    plain = rows.read_rollout(rest, None)
    check_whole(place, draw, ref_length)
    numbers = decode_numbers({"judge": judge, "ref_logprob": ref_logprob}, flags)
    known = {one.name: getattr(plain, one.name) for one in fields(RolloutRecord)}
    asked = {"policy": decode_text(policy), "place": place, "draw": draw}
    return Answer(**known, **asked, ref_length=ref_length, members=decode_json(members, members_flags), **numbers)


assert TABLE in schema.HISTORY_TABLES, "the answers of a step are replaced with it"
