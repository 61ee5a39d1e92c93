"""The recorded run that collapses: the lesson run with a learning rate that is far too high.

The two other recordings are the lesson run itself and its twin without a KL coefficient (:mod:`.lesson_run`).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch

from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import COLLAPSED
from rlhf_studio.lessons.world_build.lesson_run import WATCHED, Log, lesson_config, pack, record_run

STEPS = 16
TIMES = 20.0
"""How many times the recipe's learning rates. At 10 times the policy recovers; at 20 times it falls silent, and its entropy falls too."""
WITH_TOKENS = 16
"""Responses of a step whose tokens can be inspected."""


def collapsed_config(steps: int = STEPS) -> RunConfig:
    """The lesson run's settings with both learning rates :data:`TIMES` as high."""
    settings = lesson_config(steps=steps, watched=WATCHED).model_dump(mode="json")
    for name in ("learning_rate", "critic_learning_rate"):
        settings["ppo"][name] *= TIMES
    return RunConfig.model_validate(settings)


def build_collapsed_run(out: Path, report: Log, *, steps: int = STEPS) -> None:
    """Train the run and pack it into the file ``out``, the same bytes each time on the same machine."""
    start, threads = time.monotonic(), torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums in the same order, however many cores there are
    try:
        with tempfile.TemporaryDirectory() as name:
            record_run(Path(name) / COLLAPSED, collapsed_config(steps), report, with_tokens=WITH_TOKENS)
            pack(Path(name), out)
    finally:
        torch.set_num_threads(threads)
    report(f"packed {out.stat().st_size / 1e6:.2f} MB into {out.name} in {time.monotonic() - start:.0f} s")
