"""Every number that a training step records has its row in the table of metrics."""

from __future__ import annotations

from collections.abc import Callable

from rlhf_studio.config.metrics.stages import STAGE_METRICS
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.engine.loop.trainer import Trainer

NOT_RECORDED = {"time/left", "eval/scores"}
"""What the page works out by itself, and what only a program for TRL measures, on prompts of its own (tests/trl_programs)."""


def test_the_table_has_what_a_step_records_and_nothing_else(make_trainer: Callable[..., Trainer]) -> None:
    components = [{"kind": "length", "name": "length", "target": 4}, {"kind": "repetition", "name": "repetition", "n": 2}]
    trainer = make_trainer(reward={"components": components, "gold": "world"})
    recorded = set(trainer.step().metrics)
    assert {name for name in recorded if name.startswith("reward/")} == {"reward/length", "reward/repetition"}
    plain = {name for name in recorded if not name.startswith("reward/")}
    assert plain == {metric.name for metric in METRICS} - NOT_RECORDED - {"reward/*", "evaluation/*"} - {
        metric.name for metric in STAGE_METRICS
    }
