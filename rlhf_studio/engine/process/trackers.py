"""Reporting a run to experiment trackers, beside the run folder: TensorBoard, Weights & Biases, trackio.

The run folder stays the record. A tracker that fails is left out from then on and says so in one event; the run goes on.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlhf_studio.config import StageConfig
from rlhf_studio.runs.records import EventRecord, StepRecord, WatchRecord

PROJECT = "rlhf-studio"
COLUMNS = ["step", "prompt", "response", "score", "gold"]
WATCHED = "watched"


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told about a run at its start.

    Attributes:
        id: the run folder's name, under which a resumed run is found again.
        title: a name for people.
        settings: the configuration by dotted names.
        resumed_at: last step that counts; None for a new run. Steps after it will be reported again.
    """

    id: str
    title: str
    folder: Path
    settings: dict[str, Any]
    resumed_at: int | None

    @classmethod
    def of(cls, run_dir: Path, config: StageConfig, resumed_at: int | None) -> TrackedRun:
        """The facts of a run folder."""
        run_id = run_dir.resolve().name
        return cls(run_id, config.name or run_id, run_dir, flat_settings(config), resumed_at)


def flat_settings(config: StageConfig) -> dict[str, Any]:
    """``{"ppo.kl_coef": 0.1, …}``; lists as JSON text, since not every tracker takes them."""
    flat: dict[str, Any] = {}
    for section, values in config.model_dump(mode="json").items():
        pairs = values.items() if isinstance(values, dict) else [("", values)]
        for name, value in pairs:
            flat[f"{section}.{name}".rstrip(".")] = json.dumps(value) if isinstance(value, list) else value
    return flat


class Tracker(Protocol):
    """A place that a run is reported to. Whatever it raises, :class:`Trackers` turns into an event."""

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """The finite metrics of one step, under our names."""

    def samples(self, rows: list[list[Any]]) -> None:
        """Answers to the watched prompts, one row of ``COLUMNS`` each, all of one step."""

    def close(self) -> None:
        """The run has ended, whatever its outcome."""


class TensorBoard:
    """Event files in the run folder, below ``tensorboard``. Texts take the place of a table."""

    def __init__(self, run: TrackedRun):
        from torch.utils.tensorboard import SummaryWriter

        # Readers drop what an interrupted run wrote beyond the checkpoint that it goes on from.
        purge = None if run.resumed_at is None else run.resumed_at + 1
        self._writer = SummaryWriter(log_dir=str(run.folder / "tensorboard"), purge_step=purge)
        if run.resumed_at is None:
            self._writer.add_text("settings", _as_code("\n".join(f"{name}: {value}" for name, value in run.settings.items())), 0)

    def metrics(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def samples(self, rows: list[list[Any]]) -> None:
        for number, (step, prompt, response, score, gold) in enumerate(rows):
            text = f"{prompt}{response}\n\nscore {score:.4g}" + ("" if gold is None else f", gold {gold:.4g}")
            self._writer.add_text(f"{WATCHED}/{number}", _as_code(text), step)

    def close(self) -> None:
        self._writer.close()


def _as_code(text: str) -> str:
    """Text that the page shows as it is: TensorBoard reads Markdown, in which indented lines are code."""
    return "\n".join(f"    {line}" for line in text.splitlines())


class WeightsAndBiases:
    """A run of Weights & Biases. The project is ``rlhf-studio`` unless WANDB_PROJECT says otherwise; its other variables hold too."""

    def __init__(self, run: TrackedRun):
        import wandb

        self._wandb = wandb
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = wandb.init(project=project, id=run.id, name=run.title, dir=str(run.folder), config=run.settings, resume="allow")
        # Its own step only ever grows; ours starts again from the checkpoint when a run is resumed.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def metrics(self, step: int, values: dict[str, float]) -> None:
        self._run.log({"step": step, **values})

    def samples(self, rows: list[list[Any]]) -> None:
        self._run.log({"step": rows[0][0], WATCHED: self._wandb.Table(columns=COLUMNS, data=rows)})

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """A run of trackio, local unless its own environment variables name a server."""

    def __init__(self, run: TrackedRun):
        import trackio

        self._trackio = trackio
        self._run = trackio.init(project=PROJECT, name=run.id, config={"title": run.title, **run.settings}, resume="allow", embed=False)

    def metrics(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def samples(self, rows: list[list[Any]]) -> None:
        import pandas as pd

        self._run.log({WATCHED: self._trackio.Table(dataframe=pd.DataFrame(rows, columns=COLUMNS))}, step=rows[0][0])

    def close(self) -> None:
        self._run.finish()


KINDS: dict[str, Callable[[TrackedRun], Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "trackio": Trackio}


class Trackers:
    """All trackers of a run. None of its methods raises.

    Args:
        names: keys of ``KINDS``.
        warn: stores an event.
    """

    def __init__(self, names: Sequence[str], run: TrackedRun, warn: Callable[[EventRecord], None]):
        self._warn = warn
        self._open: dict[str, Tracker] = {}
        for name in names:
            self._try(name, functools.partial(self._start, name, run))

    def _start(self, name: str, run: TrackedRun) -> None:
        self._open[name] = KINDS[name](run)

    def step(self, record: StepRecord) -> None:
        """Report one step: its metrics, and the watched answers when there are some."""
        values = {name: float(value) for name, value in record.metrics.items() if math.isfinite(value)}
        self._each(lambda tracker: tracker.metrics(record.step, values))
        self.watched(record.step, record.watched)

    def watched(self, step: int, records: Sequence[WatchRecord]) -> None:
        """Report answers to the watched prompts."""
        if records:
            rows = [[step, record.prompt, record.response, record.score, record.gold] for record in records]
            self._each(lambda tracker: tracker.samples(rows))

    def close(self) -> None:
        """End them all; calling it again does nothing."""
        self._each(lambda tracker: tracker.close())
        self._open = {}

    def _each(self, action: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, functools.partial(action, tracker))

    def _try(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - other people's code and networks: nothing in them may end a run
            self._open.pop(name, None)
            cause = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            text = f"Reporting to {name} has ended ({cause}). The run goes on; everything is in the run folder."
            self._warn(EventRecord("warning", "tracker", text))
