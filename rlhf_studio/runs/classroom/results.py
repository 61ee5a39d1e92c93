"""What a class answered, together: how many chose each option, or all curves with their middle; and a round as rows to take home."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rlhf_studio.runs.classroom.records import Answer, Given, Question, Round

Json = dict[str, Any]


def distribution(question: Question, answers: Sequence[Answer]) -> Json:
    """``counts`` for each option; or ``steps``, ``curves`` and at each step ``median``, ``low`` and ``high``, between which the middle
    half of the curves lies (quartiles, interpolated linearly)."""
    if question.kind == "options":
        return {"counts": [answers.count(place) for place in range(len(question.options))]}
    curves = [one for one in answers if isinstance(one, tuple)]
    found: Json = {"steps": _rounded(question.places()), "curves": curves, "median": [], "low": [], "high": []}
    if curves:
        quartiles = np.percentile(np.asarray(curves), [25, 50, 75], axis=0)
        found |= {name: _rounded(row) for name, row in zip(("low", "median", "high"), quartiles, strict=True)}
    return found


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]


def rows_of(one: Round, answers: Sequence[Given]) -> Iterator[Json]:
    """One row for each answer, without anything that tells who a student was but the name they typed."""
    question = one.question
    for number, given in enumerate(answers, start=1):
        row: Json = {"round": one.id, "question": question.text, "number": number, "name": given.name, "changes": given.changes}
        if isinstance(given.answer, tuple):
            row |= {"metric": question.metric, "steps": _rounded(question.places()), "curve": list(given.answer)}
        else:
            row |= {"answer": question.options[given.answer]}
            row |= {} if question.right is None else {"right": given.answer == question.right}
        yield {**row, "run": one.run}


def as_lines(rows: Iterator[Json]) -> str:
    """JSON Lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def as_table(rows: Iterator[Json], cell: Callable[[str], str]) -> str:
    """CSV; a curve has a column for each of its steps. ``cell`` makes a text harmless in a spreadsheet, which may take it for a formula."""
    flat = [_flat(row, cell) for row in rows]
    made = io.StringIO()
    writer = csv.DictWriter(made, list(flat[0]) if flat else ["round"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return made.getvalue()


def _flat(row: Json, cell: Callable[[str], str]) -> Json:
    plain = {name: value for name, value in row.items() if name not in ("steps", "curve")}
    points = {f"step {step:g}": value for step, value in zip(row.get("steps", ()), row.get("curve", ()), strict=True)}
    return {name: cell(value) if isinstance(value, str) else value for name, value in plain.items()} | points
