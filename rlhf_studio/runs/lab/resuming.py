"""A run that goes on with other settings: with more steps when it has finished, from its newest checkpoint when it ended before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.changes import Change, changes_between, refusals
from rlhf_studio.config.io import ConfigError, Problem, with_values
from rlhf_studio.language import _
from rlhf_studio.runs import studio
from rlhf_studio.runs.create import undo_replace
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


def with_more_steps(run: RunStatus, config: StageConfig, steps: int) -> StageConfig:
    """The settings of a finished run that is to have ``steps`` steps in all.

    Raises:
        ConfigError: it has as many already, or the number is not valid.
        StoreError: the run has not finished.
    """
    if not isinstance(config, RunConfig):
        raise StoreError(f"The run {run.run_id} goes through its examples; for more passes, start a variation of it.", "state")
    if run.state != "finished":
        raise StoreError(f"The run {run.run_id} is {run.state}; only a finished run can be continued with more steps.", "state")
    if steps <= max(run.step, run.total_steps):
        done = max(run.step, run.total_steps)
        raise ConfigError([Problem(config.steps_setting, f"{done} steps are done; use more than that, not {steps}")])
    return with_values(config, {config.steps_setting: steps})


def waits_for_more_steps(reader: RunReader, seq: int) -> bool:
    """Whether a run that was queued when its ``seq`` was this one had finished then, and its settings have more steps than it has.

    Raises StoreError.
    """
    if reader.stored() != ("finished", seq):
        return False
    run = reader.status_in(studio.EMPTY)
    return reader.config().planned_steps > max(run.step, run.total_steps)


def schedule_note(config: RunConfig, steps: int) -> str:
    """What more steps do to the learning rate, one sentence for people before they ask for them; empty when it stays constant."""
    ppo = config.ppo
    if ppo.lr_schedule == "constant":
        return ""
    note = _(
        "The learning rate falls along a cosine to 0 over the whole run, so with {steps} steps instead of {planned} it "
        "jumps up again after "
        "step {planned}; an event gives the rate before and after."
    )
    if ppo.lr_schedule == "linear":
        note = _(
            "The learning rate falls along a line to 0 over the whole run, so with {steps} steps instead of {planned} it jumps up again "
            "after step {planned}; an event gives the rate before and after."
        )
    return note.format(steps=steps, planned=ppo.steps)


def take_back(run_dir: Path, entry: studio.QueueEntry) -> None:
    """Give a run that leaves the queue the settings that it had before it was queued, if it got others then.

    A run that cannot be read keeps those that it has. Raises StoreError when they cannot be written.
    """
    if _has_others(run_dir, entry):
        undo_replace(run_dir)


def _has_others(run_dir: Path, entry: studio.QueueEntry) -> bool:
    try:
        reader = RunReader(run_dir)
        if entry.replaced:
            return reader.stored()[1] == entry.seq  # no engine has worked on it since
        return entry.mode == "resume" and waits_for_more_steps(reader, entry.seq)
    except StoreError:
        return False
