"""The questions and answers of a class with their limits, the summary of all answers, and a round as rows for export."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from rlhf_studio.language import S_
from rlhf_studio.visible import refuse_hidden

Kind = Literal["options", "curve"]
State = Literal["open", "closed", "shown", "revealed", "over"]
STATES: tuple[State, ...] = get_args(State)
"""In this order: students answer; nobody answers any more; all see what the class answered; all see what is right; it is put away."""

LONGEST_QUESTION, LONGEST_OPTION, LONGEST_NAME = 400, 120, 40
MOST_OPTIONS = 6
MOST_ROUNDS = 200  # of one workspace
MOST_PEOPLE = 300  # who answer one round
MOST_CHANGES = 200  # of one person's answer to one round
POINTS = 32
"""A drawn curve is kept as its heights at so many places, equally far from each other, from the first step to the last."""
MOST_DRAWN = 400  # points that are sent
LARGEST = 1e12  # of a drawn step or value: between larger ones no curve can be computed
EDGE = 0.1  # of the width that a drawn curve may leave out on each side
AnswerValue = int | tuple[float, ...]
"""The number of the chosen option, from 0; or the heights of a curve."""


@dataclass(frozen=True)
class RoundQuestion:
    """What is asked. Raises ValueError for what cannot be asked.

    Attributes:
        text: the question.
        options: what can be chosen; empty where a curve is drawn.
        right: the number of the right option, where it is known before; None otherwise.
        metric, label: what the curve shows, as runs record it and as people read it.
        first, last: the steps at the two ends of the field.
        low, high: its lowest and highest value.
        experiment, seed: the experiment of "Break it on purpose" whose runs answer; empty for none.
        lesson, scene: where a question of a lesson stands; empty for none.
    """

    text: str
    options: tuple[str, ...] = ()
    right: int | None = None
    metric: str = ""
    label: str = ""
    first: int = 1
    last: int = 2
    low: float = 0.0
    high: float = 1.0
    experiment: str = ""
    seed: int = 0
    lesson: str = ""
    scene: str = ""

    def __post_init__(self) -> None:
        if not self.text.strip() or len(self.text) > LONGEST_QUESTION:
            raise ValueError(f"The question must have 1 to {LONGEST_QUESTION} characters.")
        if self.metric and self.options:
            raise ValueError("A question has options, or a curve to draw, not both.")
        if self.metric:
            self._check_field()
        else:
            self._check_options()

    def _check_options(self) -> None:
        if not 2 <= len(self.options) <= MOST_OPTIONS:
            raise ValueError(f"A question needs 2 to {MOST_OPTIONS} options, each on a line of its own.")
        if any(not option.strip() or len(option) > LONGEST_OPTION for option in self.options):
            raise ValueError(f"An option must have 1 to {LONGEST_OPTION} characters.")
        if len(set(self.options)) < len(self.options):
            raise ValueError("Two options are the same.")
        if self.right is not None and not 0 <= self.right < len(self.options):
            raise ValueError("The right option is none of the options.")

    def _check_field(self) -> None:
        if not 0 <= self.first < self.last <= 1_000_000:
            raise ValueError("The last step must be larger than the first one, and at most 1,000,000.")
        if not (math.isfinite(self.low) and math.isfinite(self.high)) or not -1e9 <= self.low < self.high <= 1e9:
            raise ValueError("The highest value must be larger than the lowest one.")

    @property
    def kind(self) -> Kind:
        """How it is answered."""
        return "curve" if self.metric else "options"

    def sample_steps(self) -> np.ndarray:
        """The steps at which the heights of a curve are stored, shape (POINTS,). They need not be whole numbers."""
        return np.linspace(self.first, self.last, POINTS)


@dataclass(frozen=True)
class Round:
    """A question that was asked. ``run``: the run whose curve answers it; empty as long as nobody knows."""

    id: str
    question: RoundQuestion
    state: State
    run: str
    asked_at: float
    answered: int


@dataclass(frozen=True)
class StudentAnswer:
    """One student's answer. ``person`` tells students apart while the class lasts; afterwards it says nothing."""

    person: str
    name: str
    answer: AnswerValue
    changes: int
    at: float


def read_answer(question: RoundQuestion, value: Any) -> AnswerValue:
    """An answer as a page sends it: the number of an option, or the points of a curve as ``[[step, value], ...]``.

    Raises ValueError with one sentence for the student.
    """
    if question.kind == "options":
        if type(value) is not int or not 0 <= value < len(question.options):
            raise ValueError("Choose one of the options.")
        return value
    return resampled(question, _points(value))


def _points(value: Any) -> list[tuple[float, float]]:
    if not isinstance(value, list) or not 2 <= len(value) <= MOST_DRAWN:
        raise ValueError(f"A curve needs 2 to {MOST_DRAWN} points.")
    for point in value:
        pair = isinstance(point, list) and len(point) == 2
        if not pair or any(
            isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= LARGEST for number in point
        ):
            raise ValueError("A point of a curve is a step and a value, both numbers.")
    return [(float(step), float(height)) for step, height in value]


def resampled(question: RoundQuestion, points: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """The heights of a drawn curve at :meth:`RoundQuestion.sample_steps`, cut to the range of the question.

    Raises ValueError for a curve that does not reach from the first step to the last.
    """
    heights = dict(points)  # of two points at one step the later one
    steps = sorted(heights)
    margin = EDGE * (question.last - question.first) + 1e-9
    if steps[0] > question.first + margin or steps[-1] < question.last - margin:
        raise ValueError("Draw the curve from the left edge to the right one.")
    kept_heights = np.interp(question.sample_steps(), steps, [heights[step] for step in steps])
    return tuple(round(float(height), 6) for height in np.clip(kept_heights, question.low, question.high))


def clean_name(name: str) -> str:
    """A name with single spaces, as it is stored. Raises ValueError when it is too long or has a hidden character."""
    cleaned = " ".join(name.split())
    if len(cleaned) > LONGEST_NAME:
        raise ValueError(f"A name has at most {LONGEST_NAME} characters.")
    refuse_hidden(cleaned, S_("A name"))
    return cleaned


# --- what a class answered, together ---------------------------------------------------------------------------------------------

Json = dict[str, Any]


def distribution(question: RoundQuestion, answers: Sequence[AnswerValue]) -> Json:
    """``counts`` for each option; or ``steps``, ``curves`` and at each step ``median``, ``low`` and ``high``, between which the middle
    half of the curves lies (quartiles, interpolated linearly)."""
    if question.kind == "options":
        return {"counts": [answers.count(option) for option in range(len(question.options))]}
    curves = [answer for answer in answers if isinstance(answer, tuple)]
    summary: Json = {"steps": _rounded(question.sample_steps()), "curves": curves, "median": [], "low": [], "high": []}
    if curves:
        quartiles = np.percentile(np.asarray(curves), [25, 50, 75], axis=0)
        summary |= {name: _rounded(row) for name, row in zip(("low", "median", "high"), quartiles, strict=True)}
    return summary


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]


def rows_of(round_: Round, answers: Sequence[StudentAnswer]) -> Iterator[Json]:
    """One row for each answer. Nothing in it tells who a student was, except the name that the student typed."""
    question = round_.question
    for number, given in enumerate(answers, start=1):
        row: Json = {"round": round_.id, "question": question.text, "number": number, "name": given.name, "changes": given.changes}
        if isinstance(given.answer, tuple):
            row |= {"metric": question.metric, "steps": _rounded(question.sample_steps()), "curve": list(given.answer)}
        else:
            row |= {"answer": question.options[given.answer]}
            row |= {} if question.right is None else {"right": given.answer == question.right}
        yield {**row, "run": round_.run}


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
