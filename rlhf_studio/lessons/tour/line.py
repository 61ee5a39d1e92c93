"""What the stations share: a line of the lesson run, and its tensors as a table with names, shapes and formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rlhf_studio.lessons.kit import Numbers, Picture, Slider, ledger
from rlhf_studio.lessons.kit.pictures import Number
from rlhf_studio.lessons.run import LessonRun, Sample
from rlhf_studio.lessons.size import RESPONSES, STEPS
from rlhf_studio.lessons.what_if import RecordedStep, WhatIf, recompute

MOST = 8
STEP, SAMPLE = Slider("step", 1, STEPS, 1, start=12), Slider("sample", 1, RESPONSES, 1, start=3)
NEEDS = ("run",)
GAP = "…"


@dataclass(frozen=True)
class ResponseLine:
    """One recorded response: ``row`` counts from 0; ``columns`` has the numbers of the shown tokens, at most eight; None is a gap."""

    of: RecordedStep
    row: int
    sample: Sample
    columns: tuple[int | None, ...]

    @property
    def tokens(self) -> list[str]:
        """The texts of the shown tokens."""
        return [GAP if index is None else self.sample.pieces[index].strip() or "·" for index in self.columns]

    def cells(self, tensor: Tensor) -> list[Number | str]:
        """The numbers of the shown tokens, of a tensor (B, T) of the step."""
        return [None if index is None else tensor[self.row, index].item() for index in self.columns]

    def all(self, tensor: Tensor) -> list[float]:
        """The numbers of all of its tokens."""
        values: list[float] = tensor[self.row][self.of.mask[self.row]].double().tolist()
        return values

    def again(self) -> WhatIf:
        """The step, computed again with its own settings."""
        return recompute(self.of)


def line_of(run: LessonRun, step: float, sample: float) -> ResponseLine:
    """A response of a step, both counted from 1."""
    row, chosen = int(sample) - 1, run.samples(int(step))[int(sample) - 1]
    return ResponseLine(run.recorded(int(step)), row, chosen, shown_columns(len(chosen.ids)))


def shown_columns(count: int) -> tuple[int | None, ...]:
    """All columns, or the first four, a gap, and the last three."""
    if count <= MOST:
        return tuple(range(count))
    return (*range(4), None, *range(count - 3, count))


def label(name: str, tensor: Tensor) -> str:
    """A tensor's name, its format and its shape."""
    return f"{name}  {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def rows_of(line: ResponseLine, **tensors: Tensor) -> dict[str, Any]:
    """A row for each tensor (B, T) of the step, as the engine has it: numbers in float32."""
    as_engine = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    return {label(name, tensor): _plain(line.cells(tensor)) for name, tensor in as_engine.items()}


def _plain(cells: Sequence[Any]) -> list[Number | str]:
    """Whole numbers and truth values as text, so that they get no decimals."""
    return [cell if cell is None or isinstance(cell, float | str) else str(cell) for cell in cells]


def table(numbers: Numbers) -> Picture:
    """The picture of every station: ``columns`` and ``rows``, with ``at`` the column that is meant, where there is one."""
    return ledger(numbers["columns"], numbers["rows"], at=numbers.get("at"), digits=numbers.get("digits", 3))
