"""Small runs made by hand, healthy unless a test says otherwise, written through the store as the engine does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.run_data import RunCache, RunData, is_looked_at
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, SettingChange, State, StepRecord, StoredEvent, TokenRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import rollout, token_record

WORDS = ["plot", "score", "acting", "pace", "cast", "light", "city", "night", "story", "bright", "dull", "slow", "warm", "sharp", "calm"]

Values = Mapping[str, float | Sequence[float] | Callable[[int], float]]


def sentence(seed: int, length: int = 8) -> str:
    """Words drawn at random."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, length))


@cache
def answers(step: int) -> list[RolloutRecord]:
    """Ten responses that differ, with scores that have nothing to do with their length."""
    draw = np.random.default_rng(step)
    return [
        rollout(
            row,
            prompt=f"prompt {step} {row}",
            response=sentence(1000 * step + row, 6 + row % 4),
            score=float(draw.normal()),
            length=6 + row % 4,
            gold=0.1,
        )
        for row in range(10)
    ]


HEALTHY: dict[str, Callable[[int], float]] = {
    "objective/scores": lambda step: 0.1 + 1.5 * (1 - 0.8**step) - 0.3,
    "objective/scores_std": lambda step: 0.9,
    "objective/kl": lambda step: 0.3 * step if step < 12 else 3.6,
    "objective/entropy": lambda step: 24.0,
    "objective/kl_coef": lambda step: 0.08,
    "policy/entropy_avg": lambda step: 1.1,
    "policy/approxkl_avg": lambda step: 0.004,
    "policy/clipfrac_avg": lambda step: 0.03,
    "policy/first_log_ratio": lambda step: 3e-6,
    "val/ratio": lambda step: 1.0,
    "val/ratio_var": lambda step: 0.01,
    "val/explained_variance": lambda step: 0.3,
    "loss/policy_avg": lambda step: -0.02,
    "loss/value_avg": lambda step: 0.1,
    "tokens/response_length": lambda step: 22.0,
    "tokens/cut_off": lambda step: 0.02,
    "optim/grad_norm": lambda step: 0.5 + 0.05 * (step % 3),
    "optim/steps": lambda step: 8.0,
    "lr": lambda step: 2e-4,
    "memory/peak": lambda step: 5e8,
    "time/total": lambda step: 0.8,
    "time/rollout": lambda step: 0.2,
    "time/update": lambda step: 0.55,
    "time/record": lambda step: 0.01,
}
GOLD: dict[str, Callable[[int], float]] = {"gold/score": lambda step: 0.7 * (1 - 0.8**step), "gold/score_se": lambda step: 0.04}


@dataclass
class Made:
    """What a made run is like, where it is not healthy.

    Attributes:
        metrics: by name: a number for all steps, one for each step, or a function of the step.
        settings: nested, as in YAML.
        state: that it ends in; "running" leaves it open.
    """

    steps: int = 16
    metrics: Values = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    responses: Callable[[int], list[RolloutRecord]] = answers
    watched: Callable[[int], list[WatchRecord]] = lambda step: []
    events: Mapping[int, EventRecord] = field(default_factory=dict)
    changes: Sequence[SettingChange] = ()
    state: State = "finished"
    cause: str = ""
    device: str = "cpu, 2 threads"
    gold: bool = False

    def write(self, folder: Path) -> RunReader:
        """Store it, and give its reader."""
        settings = {"ppo": {"steps": self.steps}, **self.settings}
        create_run(folder, RunConfig.model_validate(settings), name="a run")
        with RunWriter(folder) as writer:
            writer.plan(self.steps)
            writer.set_state("running", device=self.device)
            if self.watched(0):
                writer.watched(0, self.watched(0))
            for step in range(1, self.steps + 1):
                events = [self.events[step]] if step in self.events else []
                changes = [change for change in self.changes if change.step == step]
                writer.commit_step(StepRecord(step, self._values(step), self.responses(step), self.watched(step), events, changes=changes))
            if self.state != "running":
                writer.set_state(self.state, cause=self.cause)
        return RunReader(folder)

    def read(self, folder: Path) -> RunData:
        """What a doctor reads of it. Written into ``folder`` only where phrases have to be counted in its responses."""
        if self.responses is not answers:
            read = RunCache(self.write(folder)).read()
            assert isinstance(read, RunData)
            return read
        config = RunConfig.model_validate({"ppo": {"steps": self.steps}, **self.settings})
        rows = [self._values(step) for step in range(1, self.steps + 1)]
        columns = {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}
        events = [
            StoredEvent(number, 0.0, step, event.level, event.kind, event.text, event.data)
            for number, (step, event) in enumerate(sorted(self.events.items()), 1)
        ]
        changed = [(event.step, change["setting"]) for event in events for change in event.data.get("changes", [])]
        watched = {step: np.array([row.score for row in self.watched(step)]) for step in range(self.steps + 1) if self.watched(step)}
        return RunData(
            config,
            self.state,
            self.cause,
            self.device,
            self.steps or config.ppo.steps,
            np.arange(1, self.steps + 1),
            {name: np.where(np.isfinite(column), column, np.nan) for name, column in columns.items()},
            events=events,
            step_events=events,
            non_finite=[(at, name, value) for at, row in enumerate(rows, 1) for name, value in row.items() if not np.isfinite(value)],
            responses={step: answers(step) for step in range(1, self.steps + 1) if is_looked_at(step)},
            watched_scores=watched,
            changes=[change for change in self.changes if not config.live_problem(change.setting, change.new)],
            reward_changes=[(step, setting) for step, setting in changed if setting.startswith("reward.")],
        )

    def _values(self, step: int) -> dict[str, float]:
        values = {name: value(step) for name, value in {**HEALTHY, **(GOLD if self.gold else {})}.items()}
        for name, value in self.metrics.items():
            values[name] = float(value(step) if callable(value) else value[step - 1] if isinstance(value, Sequence) else value)
        return values


def after(step: int, then: float, before: float) -> Callable[[int], float]:
    """``before`` until a step, ``then`` from it on."""
    return lambda at: then if at >= step else before


def with_texts(make: Callable[[int, int], str], **changes: Any) -> Callable[[int], list[RolloutRecord]]:
    """Responses whose text is ``make(step, sample)``."""
    return lambda step: [
        rollout(row, prompt=f"prompt {step} {row}", response=make(step, row), score=float(row % 3), length=8, **changes)
        for row in range(10)
    ]


def still_tokens(step: int) -> list[RolloutRecord]:
    """Responses whose every advantage is 0."""

    def tokens(row: int) -> TokenRecord:
        made = token_record(4, seed=step * 100 + row)
        made.arrays["advantages"][:] = 0
        return made

    return [rollout(row, prompt=f"prompt {step} {row}", response=sentence(step * 100 + row), tokens=tokens(row)) for row in range(8)]
