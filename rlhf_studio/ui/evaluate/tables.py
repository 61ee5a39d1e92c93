"""Reports and answers of an evaluation as plain JSON, as the page draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlhf_studio.analysis.evaluation.answers import PolicyAnswers
from rlhf_studio.analysis.evaluation.intervals import Interval
from rlhf_studio.analysis.evaluation.report import Report
from rlhf_studio.analysis.evaluation.table import table_of, title_of
from rlhf_studio.analysis.evaluation.texts import word_differences
from rlhf_studio.runs.evaluation.answers import Answer

LONGEST = 6000
"""Characters of an answer that are sent."""
Json = dict[str, Any]


def report_values(report: Report) -> Json:
    """The table, the win rates and the frontier."""
    table = table_of(report)
    rows = [{"policy": name, "cells": [_cell(cell) for cell in cells]} for name, cells in table.rows]
    points = [
        {
            "policy": point.policy,
            "root_kl": point.root_kl,
            "kl": _cell(point.kl),
            "measures": {name: _cell(value) for name, value in point.measures.items()},
        }
        for point in report.frontier.points
    ]
    wins = {
        measure: [
            {"policy": row.name, "rate": _cell(won.rate), "wins": won.wins, "ties": won.ties, "losses": won.losses}
            for row in report.policies
            if (won := row.win_rates.get(measure)) is not None and won.rate.value is not None
        ]
        for measure in report.measures
    }
    return {
        "policies": [row.name for row in report.policies],
        "first": report.first,
        "decides": report.decides,
        "prompts": report.prompts,
        "measures": [{"name": name, "title": title_of(name)} for name in report.measures],
        "columns": [asdict(column) for column in table.columns],
        "rows": rows,
        "wins": wins,
        "frontier": {"points": points, "sentence": report.frontier.sentence, "over_optimised": report.frontier.over_optimised},
    }


def _cell(cell: Interval | float | None) -> Json | None:
    if isinstance(cell, Interval):
        return None if cell.value is None else {"value": cell.value, "low": cell.low, "high": cell.high}
    return None if cell is None else {"value": cell, "low": None, "high": None}


def matrix(policies: Sequence[PolicyAnswers], against: PolicyAnswers | None, prompt_numbers: Sequence[int], draw: int) -> list[Json]:
    """A row for each prompt number, with the answer of each policy. Where ``against`` is given, each answer is compared with its answer
    word by word."""
    others = {} if against is None else _by_prompt(against, draw)
    answered = [(policy.name, _by_prompt(policy, draw)) for policy in policies]
    rows = []
    for number in prompt_numbers:
        answers = [(name, own[number]) for name, own in answered if number in own]
        if answers:
            cells = [_answer(name, answer, others.get(number)) for name, answer in answers]
            rows.append({"place": number, "prompt": answers[0][1].prompt[:LONGEST], "answers": cells})
    return rows


def _by_prompt(policy: PolicyAnswers, draw: int) -> dict[int, Answer]:
    return {record.place: record for record in policy.records if record.draw == draw}


def _answer(name: str, answer: Answer, other: Answer | None) -> Json:
    text = answer.response[:LONGEST]
    compared = other is not None and other.policy != name
    pieces = [asdict(piece) for piece in word_differences(other.response[:LONGEST], text)] if other is not None and compared else []
    numbers = {"score": answer.score, "gold": answer.gold, "judge": answer.judge, "kl": answer.kl}
    known = {key: value if value is not None and math.isfinite(value) else None for key, value in numbers.items()}
    return {"policy": name, "text": text, "pieces": pieces, "length": answer.length, "stopped": answer.stopped, **known}
