"""What every check before a start looks at beside the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config import EngineConfig, Permissions, RunConfig, StageConfig, SupervisedConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.checks.machine import machine_problems
from rlhf_studio.inputs.checks.notified import notified_problems
from rlhf_studio.inputs.checks.trackers import tracker_problems
from rlhf_studio.inputs.estimate.device import Device, find_device
from rlhf_studio.inputs.estimate.disk import OnDisk
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.models.learner import learner_check
from rlhf_studio.runs.gpus import Gpu


@dataclass(frozen=True)
class Look:
    """Where a run is going to work.

    Attributes:
        hub: where models are looked for by their ids; None for the usual one.
        on_disk: what a resumed run has on its disk already.
        free_bytes: gives the free bytes of a folder's disk.
        gpus: the GPUs of this machine; None when nobody can tell.
        learner: what reading the files of the model that learns gave already; None when nobody has.
    """

    workspace: Path
    hub: Hub | None
    permissions: Permissions
    on_disk: OnDisk
    free_bytes: Callable[[Path], int]
    gpus: tuple[Gpu, ...] | None
    learner: ModelFacts | ModelError | None = None

    def learner_of(self, config: RunConfig | SupervisedConfig) -> ModelFacts:
        """Facts of the model that learns, read unless they are known. Raises :class:`ModelError`."""
        if isinstance(self.learner, ModelError):
            raise self.learner
        return self.learner or learner_check(config)(config.model.policy, config.model.revision, self.hub)

    def machine(self, config: StageConfig) -> Iterator[Problem]:
        """Settings that this machine does not allow, trackers that are not installed, and people to tell who have no address."""
        yield from machine_problems(config, None if self.gpus is None else len(self.gpus))
        yield from tracker_problems(config)
        yield from notified_problems(config, self.permissions)

    def device(self, engine: EngineConfig) -> Device:
        """What the run will compute on."""
        return find_device(engine, lambda: self.gpus)


def model_problem(error: ModelError, setting: str = "model.policy", revision: str = "model.revision") -> Problem:
    """What is wrong with a model, at the setting to blame: its name, or its revision on the hub."""
    return Problem(revision if error.setting == "revision" else setting, str(error))
