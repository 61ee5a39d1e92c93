"""Two processes, with whole and with split weights, through the launcher that every run uses."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import torch

from rlhf_studio.engine.check.checks import CheckFailed, NotTried, Numbers, Task
from rlhf_studio.engine.check.rollouts import judged, sizes
from rlhf_studio.engine.check.runs import Changes, settings
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import S_
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader

FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
num_machines: 1
num_processes: 2
main_process_port: 0
mixed_precision: 'no'
"""


def check_processes(task: Task) -> tuple[str, Numbers]:
    """Each process has the whole weights and half of the episodes."""
    return _two(task, "processes", {"processes": 2})


def check_fsdp(task: Task) -> tuple[str, Numbers]:
    """Each process has half of the weights (FSDP)."""
    file = task.folder / "fsdp.yaml"
    file.write_text(FSDP, encoding="utf-8")
    return _two(task, "fsdp", {"accelerate_config": str(file)})


def _two(task: Task, name: str, engine: dict[str, Any]) -> tuple[str, Numbers]:
    """Train, and read what the processes drew again on the CPU: in the second step with the weights that they made together."""
    if task.kind == "cuda" and torch.cuda.device_count() < 2:
        raise NotTried(S_("there is one GPU"))
    if task.kind == "cpu" and task.quick:
        raise NotTried(S_("--quick leaves it out on a CPU"))
    threads = {"threads": 1} if task.kind == "cpu" else {}
    changes: Changes = {"engine": {**engine, **threads}, "model": {"dtype": "float32"}}
    folder = task.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    create_run(folder, settings(task, "world", sizes(task), changes, device=task.kind), name=name, state="loading")
    ended = subprocess.run([sys.executable, "-m", "rlhf_studio", "train", str(folder)], stdout=sys.stderr, check=False)
    reader = RunReader(folder)
    if ended.returncode != DONE:
        raise CheckFailed(S_(f"the run {name} ended early: {reader.status().cause or 'no cause is on record'}"))
    numbers: Numbers = {"device": reader.status().device}
    return judged(reader, "float32", numbers), numbers
