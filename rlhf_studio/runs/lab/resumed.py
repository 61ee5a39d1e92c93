"""A run that ended before its end, and goes on from its newest checkpoint with other settings."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.config import StageConfig
from rlhf_studio.config.changes import Change, changes_between, refusals
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus

RESUMABLE = ("stopped", "failed", "interrupted")


def check_resumed(run: RunStatus, reader: RunReader, config: StageConfig) -> list[Change]:
    """What a run that is to go on with these settings changes.

    Raises:
        ConfigError: for each setting that the checkpoint decides, or that was changed while the run went on, and for too few steps.
        StoreError: the state of the run does not allow it.
    """
    if run.state not in RESUMABLE:
        raise StoreError(f"The run {run.run_id} is {run.state}; only a stopped, failed or interrupted run can be resumed.", "state")
    changes = changes_between(reader.config().model_dump(mode="json"), config.model_dump(mode="json"))
    problems = [Problem(setting, f"cannot change when a run is resumed: {reason}") for setting, reason in refusals(changes)]
    moved = {change.setting for change in reader.changes(later_too=True)}
    problems += [
        Problem(change.setting, "was changed while the run went on; change it on the Live page after the resume")
        for change in changes
        if change.setting in moved
    ]
    if problems := [*problems, *too_few_steps(run, reader, config)]:
        raise ConfigError(problems)
    return changes


def too_few_steps(run: RunStatus, reader: RunReader, config: StageConfig) -> Iterator[Problem]:
    """One problem when the run has done more steps than the settings give it."""
    done = max([run.step, *(checkpoint.step for checkpoint in reader.checkpoints())])
    if 0 < config.planned_steps < done:
        yield Problem(config.steps_setting, f"{config.planned_steps} is less than the {done} steps that are done; use at least that")
