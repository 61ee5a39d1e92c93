"""A finished run with more steps."""

from __future__ import annotations

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config_io import ConfigError, Problem, with_values
from rlhf_studio.runs import studio
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus


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
    shape = "along a line" if ppo.lr_schedule == "linear" else "along a cosine"
    return (
        f"The learning rate falls {shape} to 0 over the whole run, so with {steps} steps instead of {ppo.steps} it jumps up again after "
        f"step {ppo.steps}; an event gives the rate before and after."
    )
