"""When a step was made and how long it took, on a clock that the test moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.attach import Studio, session
from rlhf_studio.runs.reader import RunReader


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(session, "time", own)
    return own


def times(folder: Path | None) -> list[tuple[int, float | None, float | None]]:
    assert folder is not None
    return [(step, own.get("time/total"), own.get("time/elapsed")) for step, own in RunReader(folder).metrics_since(0)]


def test_a_steps_time_is_its_own_where_several_steps_have_one_record(tmp_path: Path, clock: Clock) -> None:
    with Studio(workspace=tmp_path) as studio:
        for step in (5, 10, 11):
            clock.now += 2.5
            studio.step(response_tokens=[["a", "b"]], step=step)
        folder = studio.run_dir
    assert times(folder) == [(5, None, 0.0), (10, 0.5, 2.5), (11, 2.5, 5.0)]
