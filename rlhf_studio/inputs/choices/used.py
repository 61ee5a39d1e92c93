"""What the newest runs of a workspace have trained, and what they were started with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config import STAGE_TITLES, StageConfig
from rlhf_studio.inputs.relative_paths import as_seen_from
from rlhf_studio.inputs.trained import model_of_run
from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.finding.folders import RunFolders
from rlhf_studio.runs.records import ENDED

NEWEST = 60
"""Runs that are looked at: each is a file to be opened."""


@dataclass(frozen=True)
class UsedRun:
    """A run.

    Attributes:
        folder: its own folder.
        config: its settings, with full paths.
        model: the folder of what it has trained; None where it holds none, or is still at work.
        kind: ``policy`` or ``reward_model``; empty without a model.
        step: of the model's checkpoint.
    """

    folder: Path
    name: str
    config: StageConfig
    model: Path | None = None
    kind: str = ""
    step: int = 0

    @property
    def about(self) -> str:
        """``DPO, step 40``."""
        return _("{stage}, step {step:,}").format(stage=_(STAGE_TITLES[self.config.stage]), step=self.step)


def used_runs(folders: RunFolders) -> list[UsedRun]:
    """The newest runs that can be read, newest first. Raises StoreError when the workspace cannot be read."""
    return list(_read(folders))


def _read(folders: RunFolders) -> Iterator[UsedRun]:
    for run in folders.runs()[:NEWEST]:
        if run.recording or run.unreadable:
            continue
        folder = folders.run_dir(run.run_id)
        try:
            reader = folders.reader(run.run_id)
            config = as_seen_from(reader.config(), reader.working_folder())
        except (StoreError, ValueError):  # the Runs page says what is wrong with it
            continue
        model = model_of_run(str(folder)) if run.state in ENDED else None
        if model is None or model == folder:
            yield UsedRun(folder, run.name or run.run_id, config)
        else:
            yield UsedRun(folder, run.name or run.run_id, config, model, model.name, int(model.parent.name.removeprefix("step-")))
