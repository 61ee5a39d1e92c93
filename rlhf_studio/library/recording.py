"""The run folder of a program that trains with the library: Live, the inspector and the doctor show it while the program trains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rlhf_studio.config import DESKTOP, Permissions, PythonReward, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.permissions import permissions_from_flags
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.process.program_run import ProgramRun
from rlhf_studio.inputs.prompts.read import Prompts
from rlhf_studio.runs.errors import RunExists
from rlhf_studio.runs.records import EventRecord

PROMPTS_FILE = "prompts.jsonl"
IN_MEMORY = "a model in memory"


class RunEnded(RuntimeError):
    """Somebody has asked on the page that the run stops: its checkpoint is written, and nothing more is recorded."""


def begin_run(
    trainer: Trainer, run_dir: Path, prompts: Prompts, name: str, permissions: Permissions, checked: EventRecord | None
) -> ProgramRun:
    """Make the folder, with the check before training and the starting policy's answers to the watched prompts. Raises StoreError."""
    lines = "".join(json.dumps({"prompt": row.text}) + "\n" for row in prompts.rows)
    run = ProgramRun(
        trainer,
        run_dir,
        recorded_config(trainer.config, run_dir),
        name=name or run_dir.resolve().name,
        stopped=RunEnded,
        left="stopped",
        files={PROMPTS_FILE: lines.encode("ascii")},
        permissions=permissions,
    )
    with run.recorded():
        answers, events = trainer.first_answers()
        run.watched(0, answers)
        for event in [checked, *events] if checked else events:
            run.event(event)
    return run


def refuse_unrecordable(config: RunConfig, run_dir: Path | None, told: Mapping[str, str]) -> Permissions:
    """The addresses of ``told``. Raises, before the model is touched, for a run that cannot be recorded as its settings say.

    RunExists for a folder that is there already; ConfigError for settings that need a folder where there is none, and for a name in
    ``engine.notify`` without an address; ValueError for an address that is none.
    """
    if run_dir is not None and run_dir.exists() and (not run_dir.is_dir() or any(run_dir.iterdir())):
        raise RunExists(f"{run_dir} is there already; name a new folder")
    given = {"report_to": config.engine.trackers, "notify": config.engine.notified}
    if run_dir is None and any(given.values()):
        raise ConfigError([Problem(f"engine.{name}", "needs a run folder; give run_dir") for name, names in given.items() if names])
    for name in given["notify"]:
        if name not in (*told, DESKTOP):
            raise ConfigError([Problem("engine.notify", f"nobody is called {name}; give its address, notify={{{name!r}: URL}}")])
    try:
        return permissions_from_flags((), (), notify=[f"{name}={address}" for name, address in told.items()])
    except ValueError as error:
        raise ValueError(str(error).replace("--notify-url", "notify")) from None


def recorded_config(config: RunConfig, run_dir: Path) -> RunConfig:
    """The settings as the folder shows them: prompts in a file of the folder, and names of what is in memory.

    What is in memory cannot be loaded from a name, so whoever wants to go on with such a run is told what is missing.
    """
    data = {"prompts": str(run_dir.resolve() / PROMPTS_FILE), "column": "prompt", "eval_share": 0.0}
    policy = config.model.policy if "policy" in config.model.model_fields_set else IN_MEMORY
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "model": config.model.model_copy(update={"policy": policy}),
            "reward": config.reward.model_copy(update={"components": [PythonReward(name="reward")]}),
        }
    )
