"""What a run is going to do, shown before it starts: one plain sentence and the few figures that matter."""

from __future__ import annotations

from rlhf_studio.config import RunConfig, short_name
from rlhf_studio.estimate.scaled_time import scaled_minutes
from rlhf_studio.preflight import Preflight
from rlhf_studio.recipes import Recipe
from rlhf_studio.units import format_bytes

UNKNOWN_TIME = {"label": "Time", "value": "known after the first step", "help": "It depends on the model and the machine."}


def sentence(config: RunConfig) -> str:
    """What will happen, in plain words."""
    ppo, generation = config.ppo, config.generation
    episodes = ppo.steps * ppo.batch_size
    learner = short_name(config.model.policy) + (f" with LoRA adapters of rank {config.lora.r}" if config.lora.enabled else "")
    passes = count(ppo.ppo_epochs, "pass", "passes")
    batches = count(ppo.batch_size // ppo.mini_batch_size, "mini-batch", "mini-batches")
    return (
        f"In each of {count(ppo.steps, 'step', 'steps')}, {learner} writes {count(ppo.batch_size, 'response', 'responses')} "
        f"of up to {count(generation.response_length, 'token', 'tokens')}, they are scored by {_scorers(config)}, "
        f"and PPO learns from the batch in {passes} over {batches}: {grouped(episodes)} responses in all."
    )


def _scorers(config: RunConfig) -> str:
    names = [component.name or component.described() for component in config.reward.components]
    if len(names) > 3:
        return f"{len(names)} reward components"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def figures(config: RunConfig, report: Preflight | None, recipe: Recipe) -> list[dict[str, str]]:
    """Download and disk as label, value and help; memory and time are shown by :mod:`forecast`."""
    if report is None:
        return [recipe_time(config, recipe) or UNKNOWN_TIME]
    download = format_bytes(report.download_bytes) if report.download_bytes else "none"
    return [
        {"label": "Download", "value": download, "help": "Weights that are not on this machine yet."},
        {"label": "Disk", "value": f"at most {format_bytes(report.disk_bytes)}", "help": "Kept checkpoints and recorded responses."},
    ]


def recipe_time(config: RunConfig, recipe: Recipe) -> dict[str, str] | None:
    """The recipe's measured time, scaled to these settings; None unless it was measured and the models are the recipe's."""
    minutes = None if recipe.minutes is None else scaled_minutes(config, recipe.config, recipe.minutes)
    if minutes is None:
        return None
    return {"label": "Time", "value": f"about {duration(minutes)}", "help": "On two CPU cores; less on a GPU."}


def tags(recipe: Recipe) -> list[str]:
    """What a recipe's card says about its cost."""
    time = "not timed here" if recipe.minutes is None else f"about {duration(recipe.minutes)}"
    return [time, f"downloads {recipe.download}" if recipe.download else "no download", *([recipe.gpu] if recipe.gpu else [])]


def duration(minutes: float) -> str:
    """``0.3`` -> "20 seconds", ``1.2`` -> "1 minute", ``200`` -> "3 hours"."""
    if minutes < 0.9:
        return count(max(10, round(minutes * 6) * 10), "second", "seconds")
    if minutes < 90:
        return count(round(minutes), "minute", "minutes")
    return count(round(minutes / 60), "hour", "hours")


def count(number: int, one: str, many: str) -> str:
    """``1 step``, ``3,840 steps``."""
    return f"{grouped(number)} {one if number == 1 else many}"


def grouped(number: int) -> str:
    """3840 -> "3,840"."""
    return f"{number:,}"
