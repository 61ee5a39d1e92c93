"""What the trainers of both generations have: the engine's trainer, the run's folder, and what programs ask of either."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.process.program_run import ProgramRun
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.runs.paths import new_run_id, where_shown
from rlhf_studio.runs.records import EventRecord, StepRecord
from rlhf_studio.trl.program.one_process import OneProcess
from rlhf_studio.trl.program.parts import Parts, engine_trainer, keep_rates, learn_with
from rlhf_studio.trl.program.settings import ProgramSettings
from rlhf_studio.visible import say

WORKSPACE = "RLHF_STUDIO_WORKSPACE"


class ProgramStopped(SystemExit):
    """Somebody has asked on the page that the run stops: it is saved, and the program ends here unless it catches this."""


class RecordedTrainer:
    """The part of a trainer that is the same in both generations.

    Attributes:
        trainer: the engine's own.
        lr_scheduler: the program's own, or None.
        run_dir: where the run is recorded.
    """

    trainer: Trainer
    lr_scheduler: Any
    run_dir: Path

    def _build(self, parts: Parts, settings: ProgramSettings, components: Sequence[Component], optimizers: tuple[Any, Any]) -> None:
        """``optimizers``: the program's own optimizer and schedule, or None for each. Without components the program draws and scores."""
        self._settings = settings
        self.trainer, self._notes = engine_trainer(parts, settings.config, components, samples=bool(components))
        optimizer, self.lr_scheduler = optimizers
        if optimizer is not None:
            learn_with(self.trainer, optimizer)

    def _record(self, run_dir: str | Path | None) -> None:
        """Make the run's folder, ``run_dir`` or a new one in the workspace: the last thing that can fail. Raises StoreError."""
        workspace = Path(os.environ.get(WORKSPACE) or "workspace")
        self.run_dir = Path(run_dir) if run_dir else workspace / "runs" / new_run_id()
        config = self._settings.config
        self._run = ProgramRun(self.trainer, self.run_dir, config, name=config.name, stopped=ProgramStopped, left="finished")
        for line in self._settings.differs:
            self._run.event(EventRecord("info", "differs", f"{line}."))
        for note in self._notes:
            self._run.event(EventRecord("info", "health", note))
        self._run.end_with(self)
        say(f"run folder: {self.run_dir}")
        if hint := where_shown(self.run_dir, workspace):
            say(hint)

    def _check_forward_passes(self) -> None:
        """The check that every run makes before it learns anything. Raises ParityError."""
        self._run.event(check_before_training(self.trainer))

    def _before_step(self) -> None:
        """Carry out what people have asked for on the page. Raises :class:`ProgramStopped`."""
        if self._run.ended:
            why = f" ({self._run.failure})" if self._run.failure else ""
            raise ValueError(f"the recording in {self.run_dir} has ended{why}; build a new PPOTrainer")
        self._run.before_step()

    def _learn(self, *given: Any) -> tuple[StepRecord, StepSoFar]:
        """One step, and one of the program's own schedule. As :meth:`ProgramRun.step`."""
        made = self._run.step(*given)
        if self.lr_scheduler is not None:
            self.lr_scheduler.step()
            keep_rates(self.optimizer)
        return made

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What moves the weights."""
        return self.trainer.updater.optimizer

    @property
    def current_device(self) -> torch.device:
        """Where the models are."""
        return self.trainer.compute.device

    @property
    def accelerator(self) -> OneProcess:
        """Where to compute; here one process does it."""
        return OneProcess(self.current_device)

    def close(self) -> None:
        """End the run's recording now; else it ends with the trainer, at the latest when the program ends."""
        self._run.end()

    def save_settings(self, path: str | Path) -> None:
        """Write the settings as YAML: docs/settings.md says what each means."""
        Path(path).write_text(config_to_yaml(self._settings.config), encoding="utf-8")


def folder_of(name: str | Path) -> Path:
    """A folder to save into. Raises NotADirectoryError where ``name`` is a file."""
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; name a folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
