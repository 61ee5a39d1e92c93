"""The one table of a step's phases fits what the trainer times and what a token's record holds."""

from __future__ import annotations

from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.runs.records import PHASES, TOKEN_QUANTITIES


def test_the_table_of_phases_fits_metrics_and_records() -> None:
    timed = {metric.name for metric in METRICS if metric.name.startswith("time/")} - {"time/total", "time/elapsed", "time/left"}
    assert {f"time/{phase.name}" for phase in PHASES.values() if phase.timed} == timed
    actual = [name for phase in PHASES.values() for name in phase.finds]
    assert sorted(actual) == sorted(TOKEN_QUANTITIES), "each number of a token is found in one phase"
    assert [phase.name for phase in PHASES.values() if not phase.done] == ["record"] == list(PHASES)[-1:]
