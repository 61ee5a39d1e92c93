"""Two real processes on the CPU train as one does, with whole weights and with half of them each (FSDP)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from rlhf_studio.config import EngineConfig
from rlhf_studio.engine.compute.ranks import ONE_RANK
from rlhf_studio.runs.processes import COORDINATED, launcher_command
from tests.engine.supervised_ranks import train
from tests.engine.test_sharding import ROOT, accelerate_file

pytestmark = pytest.mark.long


@pytest.mark.parametrize("sharded", [False, True])
def test_two_processes_are_one(tmp_path: Path, sharded: bool) -> None:
    engine = EngineConfig(accelerate_config=str(accelerate_file(tmp_path))) if sharded else EngineConfig(processes=2, threads=1)
    command = [*launcher_command(tmp_path, engine, "train")[:-4], "-m", "tests.engine.supervised_ranks", str(tmp_path / "found.json")]
    environment = {**os.environ, COORDINATED: "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    for name, expected in train(ONE_RANK).items():
        for key in ("losses", "norms", "mean_loss", "read", "weights"):
            assert found[name][key] == pytest.approx(expected[key], rel=1e-4, abs=1e-5), (name, key)
