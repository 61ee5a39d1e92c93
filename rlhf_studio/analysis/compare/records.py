"""What a comparison of runs returns: frozen records of plain values, so that ``dataclasses.asdict`` gives JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rlhf_studio.runs.records import Kind


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs, and its row of the table. Elsewhere a run is its index in :attr:`Comparison.runs`.

    Attributes:
        label: the run's name; where several have the same, with what tells them apart.
        group: index of its group in :attr:`Comparison.groups`.
        stage: what the run does, such as ``ppo``.
        fault: the name of its fault, of a run that is broken on purpose; else empty.
        step, total_steps: the newest step, and how many were planned.
        seed: None where it is not known.
        settings_known: whether all of its settings are known, see :meth:`rlhf_studio.runs.records.Origin.knows`.
        unit: what its lengths count.
        kind: who trains it, as :attr:`rlhf_studio.runs.records.Origin.kind` says.
        first, last: for each metric of the summary its value in the first step, and its mean over the last tenth of the steps, or None.
        changed: settings that were changed while it ran, as (first step with it, dotted name, new value).
    """

    run_id: str
    label: str
    state: str
    group: int
    seed: int | None
    settings_known: bool
    step: int
    total_steps: int
    first: dict[str, float | None]
    last: dict[str, float | None]
    changed: list[tuple[int, str, Any]]
    stage: str = "ppo"
    fault: str = ""
    kind: Kind = "studio"
    unit: Literal["tokens", "words"] = "tokens"


@dataclass(frozen=True)
class RunGroup:
    """Runs with the same settings, but for the seed and settings that only say what is stored of a run.

    A run whose settings are not all known is alone. ``runs`` are their indices.
    ``label``: the name of a single run; of several runs what their names have in common, or their settings.
    """

    label: str
    runs: list[int]


@dataclass(frozen=True)
class SettingRow:
    """A setting that is not the same in all runs, or that is known of some runs alone.

    Attributes:
        setting: its dotted name.
        values: its value in each run; None where a run has no such entry.
        known: false where it is not known of a run; its value is None then.
    """

    setting: str
    values: list[Any]
    known: list[bool]

    def differs(self) -> bool:
        """Whether two runs are known to have different values."""
        values = [value for value, known in zip(self.values, self.known, strict=True) if known]
        return any(value != values[0] for value in values)


@dataclass(frozen=True)
class WatchedAnswer:
    """An answer to a watched prompt, as :class:`rlhf_studio.runs.records.WatchRecord` has it; numbers that are not finite are None."""

    step: int
    response: str
    score: float | None
    gold: float | None
    kl: float | None
    stopped: bool | None
    pieces: list[str]
    arrays: dict[str, list[float | None]]


@dataclass(frozen=True)
class WatchedPrompt:
    """A watched prompt, with the first and the newest answer of each run; None for a run that does not watch it."""

    prompt: str
    first: list[WatchedAnswer | None]
    newest: list[WatchedAnswer | None]


@dataclass(frozen=True)
class MetricLine:
    """A metric of one run: ``values`` at ``steps``, thinned for a chart; None where there is no finite value."""

    run: int
    steps: list[int]
    values: list[float | None]


@dataclass(frozen=True)
class Band:
    """A metric of a group of seeds: at each step the mean, the lowest and the highest of the runs that have a value there, at least two."""

    group: int
    steps: list[int]
    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


@dataclass(frozen=True)
class Overlay:
    """A metric of all runs, one line each, and one band for each group of seeds."""

    metric: str
    lines: list[MetricLine]
    bands: list[Band]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        settings: the settings that differ, and those that a log or another trainer gives and that are not known of all runs.
        metrics: names of all metrics that at least one run has recorded, or of different stages all of
            them, for :func:`~rlhf_studio.analysis.compare.overlay`.
        watched: prompts that at least two of the runs watch, or all of a single run's.
        verdict: one sentence, and what differs in a second one.
        notes: what to bear in mind, short sentences.
        one_scale: those of the metrics whose numbers are known to mean the same in all runs that have them.
    """

    runs: list[ComparedRun]
    groups: list[RunGroup]
    settings: list[SettingRow]
    metrics: list[str]
    watched: list[WatchedPrompt]
    verdict: str
    notes: list[str]
    one_scale: list[str]


@dataclass(frozen=True)
class Cell:
    """The runs of a sweep with the same values of its settings: what a metric came to, its mean over them, its lowest and highest.

    There is no mean of several runs where not all of their settings are known: they may differ in the others.
    """

    runs: list[int]
    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SweepTable:
    """A metric over the values of one or two settings.

    Attributes:
        settings: dotted names: that of the rows, and that of the columns where there is a second one.
        rows, columns: values of the two settings, ascending where they are numbers; ``columns`` is [None] for one setting.
        cells: ``cells[row][column]``; None where no run has these values.
        left_out: runs that have no place in it, because their value of one of the settings is not known.
    """

    metric: str
    settings: list[str]
    rows: list[Any]
    columns: list[Any]
    cells: list[list[Cell | None]]
    left_out: list[int]
