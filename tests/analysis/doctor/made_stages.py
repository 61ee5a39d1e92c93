"""Small runs of the stages around PPO made by hand, healthy unless a test says otherwise, written through the store as the engine does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.config.io import parse_config
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, State, StepRecord, StoredEvent
from rlhf_studio.runs.writer import RunWriter

EVERY = 5  # steps between two measurements on held-out examples
Value = float | Sequence[float | None] | Callable[[int], float | None]


def wobble(step: int) -> float:
    """What a batch adds by chance: different at each step, and 0 on average."""
    return 0.02 * ((step * 7) % 5 - 2)


def falling(start: float, end: float, by: float = 12.0) -> Callable[[int], float]:
    return lambda step: end + (start - end) * exp(-(step - 1) / by)


def measured(value: Callable[[int], float]) -> Callable[[int], float | None]:
    """Only at the first step and at every fifth."""
    return lambda step: value(step) if step == 1 or step % EVERY == 0 else None


def after(step: int, then: float, before: float) -> Callable[[int], float]:
    return lambda at: then if at >= step else before


SHARED: dict[str, Value] = {
    "lr": lambda step: 1e-4,
    "optim/grad_norm": lambda step: 0.8 + 0.1 * (step % 3),
    "time/total": 0.5,
    "memory/peak": 5e8,
}
HEALTHY: dict[str, dict[str, Value]] = {
    "sft": {"sft/loss": lambda step: falling(2.5, 1.2)(step) + wobble(step), "sft/eval_loss": measured(falling(2.5, 1.3))},
    "reward_model": {
        "reward_model/loss": lambda step: falling(0.7, 0.42)(step) + wobble(step),
        "reward_model/accuracy": lambda step: 0.82 - 0.32 * exp(-(step - 1) / 8) + wobble(step),
        "reward_model/margin": falling(0.02, 1.6),
        "reward_model/chosen_mean": falling(0.0, 0.8),
        "reward_model/rejected_mean": falling(0.0, -0.8),
        "reward_model/eval_loss": measured(falling(0.7, 0.45)),
        "reward_model/eval_accuracy": measured(falling(0.5, 0.8)),
    },
    "dpo": {
        "dpo/loss": lambda step: 0.6931 if step == 1 else falling(0.69, 0.5)(step) + wobble(step),
        "dpo/accuracy": lambda step: 0.0 if step == 1 else 0.75 + wobble(step),
        "dpo/margin": falling(0.0, 0.9),
        "dpo/chosen_reward": falling(0.0, 0.2),
        "dpo/rejected_reward": falling(0.0, -0.7),
        "dpo/eval_loss": measured(falling(0.693, 0.52)),
        "dpo/eval_accuracy": measured(falling(0.5, 0.74)),
    },
}
EXAMPLES: dict[str, Any] = {
    "rows": 1200,
    "examples": 1000,
    "held_out": 200,
    "cut": 10,
    "left_out": {"repeated": 12, "too long": 3},
    "counted_tokens": 20_000,
    "shared": 0,
}


@dataclass
class Made:
    """What a made run is like, where it is not healthy.

    Attributes:
        metrics: by name: a number for all steps, one for each step, or a function of the step that gives None where there is none.
        settings: nested, as in YAML.
        examples: entries of the event ``examples`` that are not the healthy ones.
        event_data: data of other events of the first step, by their kind.
    """

    stage: str
    steps: int = 40
    planned: int = 0
    metrics: Mapping[str, Value] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    examples: Mapping[str, Any] = field(default_factory=dict)
    event_data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state: State = "finished"
    cause: str = ""

    def write(self, folder: Path) -> RunReader:
        """Store it, and give its reader."""
        create_run(folder, parse_config({"stage": self.stage, **self.settings}), name="a run")
        data_of = {"examples": {**EXAMPLES, **self.examples}, **self.event_data}
        with RunWriter(folder) as writer:
            writer.plan(self.planned or self.steps)
            writer.set_state("running", device="cpu, 2 threads")
            for step in range(1, self.steps + 1):
                events = [EventRecord("info", kind, "Counted.", dict(data)) for kind, data in data_of.items()] if step == 1 else []
                writer.commit_step(StepRecord(step, self._values(step), [], [], events))
            if self.state != "running":
                writer.set_state(self.state, cause=self.cause)
        return RunReader(folder)

    def read(self) -> RecordedRun:
        """What a doctor reads of it, without a store."""
        rows = [self._values(step) for step in range(1, self.steps + 1)]
        values = {name: np.array([row.get(name, np.nan) for row in rows]) for name in {name for row in rows for name in row}}
        data_of = {"examples": {**EXAMPLES, **self.examples}, **self.event_data}
        events = [
            StoredEvent(number, 0.0, 1, "info", kind, "Counted.", dict(data)) for number, (kind, data) in enumerate(data_of.items(), 1)
        ]
        return RecordedRun(
            parse_config({"stage": self.stage, **self.settings}),
            self.state,
            self.cause,
            "cpu, 2 threads",
            self.planned or self.steps,
            np.arange(1, self.steps + 1),
            {name: np.where(np.isfinite(column), column, np.nan) for name, column in values.items()},
            events=events,
            step_events=events,
            non_finite=[(at, name, value) for at, row in enumerate(rows, 1) for name, value in row.items() if not np.isfinite(value)],
        )

    def _values(self, step: int) -> dict[str, float]:
        values = {}
        for name, value in {**SHARED, **HEALTHY.get(self.stage, {}), **self.metrics}.items():
            number = value(step) if callable(value) else value[step - 1] if isinstance(value, Sequence) else value
            if number is not None:
                values[name] = float(number)
        return values
