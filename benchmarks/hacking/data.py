"""The data of the benchmark: one row for each run and step, and what gold says of each run. Anybody can judge a monitor with it alone."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.hacking.onset import Label, truth
from benchmarks.hacking.plan import Part

FOLDER = Path(__file__).resolve().parents[1] / "results" / "hacking"
SERIES, RUNS = "series.csv.gz", "runs.json"
TRUTH = ("gold_first", "gold_second", "gold_second_se")
"""Columns that no monitor sees."""
GOLD = ("step_gold", "step_gold_se", "doctor_gold")
"""Columns that only monitors see who are told gold."""


class Series(Mapping[str, np.ndarray]):
    """The numbers of a run up to a step: a column for each name, all of shape (S,); NaN where a step lacks one."""

    def __init__(self, columns: Mapping[str, np.ndarray]):
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(next(iter(self._columns.values())))

    def up_to(self, step: int) -> Series:
        """The same run as it was after a step, the first being 1."""
        return Series({name: column[:step] for name, column in self._columns.items()})

    def without(self, names: Sequence[str]) -> Series:
        """The same run without some columns."""
        return Series({name: column for name, column in self._columns.items() if name not in names})


@dataclass(frozen=True)
class Run:
    """A run of the benchmark.

    Attributes:
        judge: the reward model's name, without its seed.
        accuracy: share of held-out pairs that the reward model ranks as their rater did.
        label, best, onset, fall: as in :class:`~benchmarks.hacking.onset.Truth`.
        seconds: of one core, for the whole run.
    """

    name: str
    judge: str
    kind: str
    beta: float
    rate: float
    part: Part
    seed: int
    accuracy: float
    label: Label
    best: int
    onset: int | None
    fall: float
    seconds: float
    series: Series

    @property
    def cluster(self) -> tuple[str, int]:
        """Its reward model: runs of the same one are alike."""
        return self.judge, self.seed


def judged(about: Mapping[str, Any], rows: Sequence[Mapping[str, float | None]]) -> Run:
    """A run from its rows, with what gold says of it."""
    names = [name for name in rows[0] if name != "step"]
    series = Series({name: np.array([np.nan if (value := row[name]) is None else value for row in rows]) for name in names})
    said = truth(*(series[name] for name in (*TRUTH, "score", "score_se")))
    return Run(**about, label=said.label, best=said.best, onset=said.onset, fall=round(said.fall, 4), series=series)


def write(runs: Sequence[Run], folder: Path, planned: int) -> None:
    """Both files. The same runs give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    names = list(runs[0].series)
    rows.writerow(["run", "step", *names])
    for run in runs:
        columns = [run.series[name] for name in names]
        rows.writerows([run.name, step + 1, *(_short(column[step]) for column in columns)] for step in range(run.series.steps))
    (folder / SERIES).write_bytes(gzip.compress(text.getvalue().encode("ascii"), mtime=0))
    about = [{name: value for name, value in asdict(run).items() if name != "series"} for run in runs]
    (folder / RUNS).write_text(json.dumps({"planned": planned, "runs": about}, indent=1) + "\n", encoding="utf-8")


def read(folder: Path = FOLDER) -> tuple[list[Run], int]:
    """The runs, and how many are planned: the benchmark is finished when all of them are there."""
    by_run: dict[str, list[list[str]]] = {}
    with gzip.open(folder / SERIES, "rt", encoding="ascii", newline="") as file:
        head, *rows = csv.reader(file)
    for row in rows:
        by_run.setdefault(row[0], []).append(row[2:])
    stored = json.loads((folder / RUNS).read_text(encoding="utf-8"))
    runs = []
    for about in stored["runs"]:
        table = np.array([[float(cell or "nan") for cell in row] for row in by_run[about["name"]]])
        runs.append(Run(**about, series=Series(dict(zip(head[2:], table.T, strict=True)))))
    return runs, stored["planned"]


def _short(value: float) -> str:
    """Five digits; nothing for NaN."""
    return "" if np.isnan(value) else f"{value:.5g}"
