"""An engine for the tests of "Break it" that needs no model: it writes steps in which only the numbers of the fault are different."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from rlhf_studio.config import RunConfig
from rlhf_studio.runs.lab.fault import noted_fault
from rlhf_studio.runs.liveness import EngineLock, StartTicket
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import rollout, start_process, token_record

WORDS = ["The", " acting", " is", " <b>superb</b>"]
PLACE = 2
"""Of the token in which a broken run differs from the one beside it, from its second step on."""


def write_run(folder: Path, state: str = "finished", steps: int = 3) -> None:
    """The run's steps. Without a KL penalty, or with a fault, its gold score falls; else it rises."""
    config = RunReader(folder).config()
    assert isinstance(config, RunConfig)
    broken = bool(noted_fault(folder)) or config.ppo.kl_coef == 0
    with EngineLock(folder), RunWriter(folder, wait_for_disk=False) as writer:
        writer.set_state("running", "", device="cpu")
        for step in range(1, steps + 1):
            gold = -0.25 * step if broken else 0.25 * step
            tokens = token_record(4, seed=step, pieces=WORDS)
            if broken and step > 1:
                tokens.arrays["rewards"][PLACE] += np.float32(1.5)
            metrics = {"objective/scores": 0.5 * step, "gold/score": gold, "objective/kl": 1.0 * step * (6 if broken else 1)}
            writer.commit_step(StepRecord(step, metrics, [rollout(0, tokens=tokens)]))
        writer.set_state("failed" if state == "failed" else "finished", cause="it broke" if state == "failed" else "")


def start_stand_in(run_dir: Path, mode: StartMode = "train", *, ticket: StartTicket) -> subprocess.Popen[bytes]:
    """Start it as the app starts an engine."""
    return start_process(run_dir, ["-m", "tests.ui.breaking_stand_in", str(run_dir)], ticket)


if __name__ == "__main__":
    write_run(Path(sys.argv[1]))
