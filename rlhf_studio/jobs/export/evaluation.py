"""An evaluation's table as CSV and Markdown, safe to open; and its answers as JSON Lines, which can be labelled or read again."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from rlhf_studio.analysis.evaluation.intervals import Interval
from rlhf_studio.analysis.evaluation.report import Report
from rlhf_studio.analysis.evaluation.table import Cell, Column, table_of
from rlhf_studio.jobs.export.text import cell, markdown, number
from rlhf_studio.language import _
from rlhf_studio.runs.evaluation.answers import Answer


def write_csv(report: Report, file: TextIO) -> None:
    """One row for each policy. A number with an interval has the columns ``NAME``, ``NAME_low`` and ``NAME_high``; unknown is empty."""
    table = table_of(report)
    several = [any(isinstance(cells[index], Interval) for _, cells in table.rows) for index in range(len(table.columns))]
    writer = csv.writer(file, lineterminator="\n")
    header = ["policy", "answers"]
    for column, interval in zip(table.columns, several, strict=True):
        name = cell(column.key)
        header += [name, f"{name}_low", f"{name}_high"] if interval else [name]
    writer.writerow(header)
    answers = {policy.name: policy.answers for policy in report.policies}
    for name, cells in table.rows:
        row: list[str] = [cell(name), str(answers[name])]
        for value, interval in zip(cells, several, strict=True):
            row += [_plain(part) for part in _parts(value)] if interval else [_plain(value)]
        writer.writerow(row)


def _parts(value: Cell) -> tuple[float | None, float | None, float | None]:
    return (value.value, value.low, value.high) if isinstance(value, Interval) else (value, None, None)


def _plain(value: Any) -> str:
    return "" if value is None else repr(float(value))


def as_markdown(report: Report, refers: str) -> str:
    """A table with a column for each policy, and below it what the numbers mean and what the frontier shows.

    ``refers``: see :func:`explained`.
    """
    table = table_of(report)
    names = [markdown(policy, 80) for policy, _ in table.rows]
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    lines += [
        f"| {markdown(column.title, 80)} | " + " | ".join(cell_text(cells[index], column) for _, cells in table.rows) + " |"
        for index, column in enumerate(table.columns)
    ]
    sentence = markdown(report.frontier.sentence) if report.frontier.sentence else ""
    return "\n".join([*lines, "", explained(report, refers, markdown), *(["", sentence] if sentence else [])]) + "\n"


def explained(report: Report, refers: str, written: Callable[[str, int], str], left: str = "") -> str:
    """The sentences below a table: how many prompts, what brackets mean, and what win rates, KL and perplexity refer to.

    Args:
        refers: what KL and perplexity refer to; empty where nothing says so.
        written: makes a name safe for the place where it will stand. Takes the name and the most characters that it may have.
        left: a sentence about what has not been answered yet.
    """
    sentences = _("{prompts} prompts.{left} In brackets: 95 % confidence intervals over prompts.").format(prompts=report.prompts, left=left)
    if len(report.policies) > 1:
        sentences += _(" Win rates and gains are against {first}.").format(first=written(report.first, 80))
    return sentences + (_(" KL and perplexity refer to {refers}.").format(refers=written(refers, 200)) if refers else "")


def cell_text(value: Cell, column: Column) -> str:
    """A cell for people: the number, and its interval in brackets."""
    middle, low, high = _parts(value)
    ends = "" if low is None or high is None else f" [{_figure(low, column)}, {_figure(high, column)}]"
    return _figure(middle, column) + ends


def _figure(value: float | None, column: Column) -> str:
    if value is None or not column.percent:
        return number(value, column.digits)
    return f"{number(100 * value, column.digits)}\u00a0%"


def answer_lines(answers: Sequence[Answer]) -> list[str]:
    """A line of JSON for each answer: the prompt, the completion, who gave it and what it earned."""
    return [json.dumps(_answer(answer), ensure_ascii=True, allow_nan=False) for answer in answers]


def _answer(answer: Answer) -> dict[str, Any]:
    known = {"score": answer.score, "gold": answer.gold, "judge": answer.judge, "kl": answer.kl}
    numbers = {name: value for name, value in known.items() if value is not None and value - value == 0}
    where = {"policy": answer.policy, "place": answer.place, "draw": answer.draw}
    return {"prompt": answer.prompt, "completion": answer.response, **where, **numbers, "length": answer.length}
