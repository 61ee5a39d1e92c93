"""Run folders that are prepared and trained in this process by the engine itself, as ``train`` does."""

from __future__ import annotations

import gc
import json
import shutil
from typing import Any

import torch

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import merged, parse_config
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.config.stage import uses
from rlhf_studio.engine.check.checks import CheckFailed, Task
from rlhf_studio.engine.process.screen import output_in_log
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import S_
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode

Changes = dict[str, dict[str, Any]]


def settings(task: Task, recipe: str, *changes: Changes, device: str = "") -> StageConfig:
    """The recipe with the changes, later ones over earlier ones, on ``device`` (the task's without). Nothing but steps is computed."""
    start = load_recipe(recipe).config
    values, engine = start.model_dump(mode="json"), {"device": device or task.device, "checkpoint_every": 0}
    engine |= {name: 0 for name in ("watch_prompts", "probe_prompts") if uses(start.stage, f"engine.{name}")}
    for change in ({"engine": engine}, *changes):
        values = merged(values, change)
    return parse_config(values)


def formats(task: Task) -> tuple[str, ...]:
    """The number formats that are checked: float32, and bfloat16 where the device has it. A quick check of a CPU leaves it out."""
    if task.kind == "cuda":
        return ("float32", "bfloat16") if torch.cuda.is_bf16_supported(including_emulation=False) else ("float32",)
    return ("float32",) if task.quick else ("float32", "bfloat16")


def train(task: Task, name: str, config: StageConfig, *, mode: StartMode = "train", memory: tuple[int, int] | None = None) -> RunReader:
    """Make the run folder ``name``, unless it is resumed, and train it to its end.

    ``memory`` is the estimate that goes on record. Raises :class:`CheckFailed` with the run's own cause when it does not finish.
    """
    folder = task.folder / name
    if mode == "train":
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier call in a folder that was kept
        create_run(folder, config, name=name, state="loading", memory=memory)
    free_memory(task)
    with output_in_log(folder):
        code = run_engine(folder, mode)
    reader = RunReader(folder)
    if code != DONE:
        raise CheckFailed(S_(f"the run {name} ended early: {reader.status().cause or 'no cause is on record'}"))
    return reader


def free_memory(task: Task) -> None:
    """Give back what an earlier run of this process held on the device, so that the next run's peak is its own."""
    gc.collect()
    if task.kind == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(torch.device(task.device))


def metric(reader: RunReader, name: str) -> list[float]:
    """A metric of every step. Raises :class:`CheckFailed` where a step does not have it."""
    steps = [metrics.get(name) for _, metrics in reader.metrics_since(0)]
    numbers = [float(number) for number in steps if number is not None]
    if not steps or len(numbers) != len(steps):
        raise CheckFailed(S_(f"{reader.run_dir.name}: not every step has a finite {name}: {json.dumps(steps)}"))
    return numbers
