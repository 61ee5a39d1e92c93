"""What a run is going to do, said before it starts: one plain sentence and the few figures that matter."""

from __future__ import annotations

from typing import Any

from rlhf_studio.config import EnsembleReward, HttpReward, PythonReward, RewardModelReward, RunConfig
from rlhf_studio.inputs.preflight import Report
from rlhf_studio.recipes import Recipe


def sentence(config: RunConfig) -> str:
    """What will happen, in plain words."""
    ppo, generation = config.ppo, config.generation
    episodes = ppo.steps * ppo.batch_size
    learner = short_name(config.model.policy) + (f" with LoRA adapters of rank {config.lora.r}" if config.lora.enabled else "")
    passes = _count(ppo.ppo_epochs, "pass", "passes")
    batches = _count(ppo.batch_size // ppo.mini_batch_size, "mini-batch", "mini-batches")
    return (
        f"In each of {_count(ppo.steps, 'step', 'steps')}, {learner} writes {_count(ppo.batch_size, 'response', 'responses')} "
        f"of up to {_count(generation.response_length, 'token', 'tokens')}, they are scored by {_scorers(config)}, "
        f"and PPO learns from the batch in {passes} over {batches}: {grouped(episodes)} responses in all."
    )


def _scorers(config: RunConfig) -> str:
    names = [component.name or _component_name(component) for component in config.reward.components]
    if len(names) > 3:
        return f"{len(names)} reward components"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _component_name(component: Any) -> str:
    if isinstance(component, EnsembleReward):
        return f"{len(component.model_names())} models together"
    if isinstance(component, PythonReward):
        return f"the function {component.function}"
    if isinstance(component, HttpReward):
        return f"the server {component.server}"
    return short_name(component.model) if isinstance(component, RewardModelReward) else f"the {component.kind} rule"


def short_name(model: str) -> str:
    """The last part of a path or hub id."""
    return model.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] or model


def figures(config: RunConfig, report: Report | None, recipe: Recipe) -> list[dict[str, str]]:
    """Time, memory, download and disk as label, value and help."""
    rows = [{"label": "Time", **_time(config, recipe)}]
    if report is not None:
        if report.memory_bytes is not None:
            value = f"at least {size(report.memory_bytes)}"
            rows.append(
                {"label": "Memory", "value": value, "help": "Weights, gradients and optimizer of all models; activations come on top."}
            )
        download = size(report.download_bytes) if report.download_bytes else "none"
        rows.append({"label": "Download", "value": download, "help": "Weights that are not on this machine yet."})
        rows.append({"label": "Disk", "value": f"at most {size(report.disk_bytes)}", "help": "Kept checkpoints and recorded responses."})
    return rows


def _time(config: RunConfig, recipe: Recipe) -> dict[str, str]:
    """The recipe's measured time, scaled by the tokens to sample and to learn from while the models are the recipe's."""
    known = recipe.config
    if (config.model, config.lora.enabled, _judges(config)) != (known.model, known.lora.enabled, _judges(known)):
        return {"value": "known after the first step", "help": "It depends on the model and the machine."}
    minutes = recipe.minutes * _work(config) / _work(known)
    return {"value": f"about {duration(minutes)}", "help": "On two CPU cores; less on a GPU."}


def _judges(config: RunConfig) -> list[str]:
    """The reward models, and what costs time in ways that nobody knows; rules cost next to nothing."""
    judges: list[str] = []
    for component in config.reward.components:
        if isinstance(component, RewardModelReward):
            judges.append(component.model)
        elif isinstance(component, EnsembleReward | PythonReward | HttpReward):
            judges += component.model_names() if isinstance(component, EnsembleReward) else [component.kind]
    return judges


def _work(config: RunConfig) -> float:
    """Tokens that pass through the model: once to be sampled, and about three times as much work for each learning pass."""
    ppo = config.ppo
    return ppo.steps * ppo.batch_size * config.generation.response_length * (1 + 3 * ppo.ppo_epochs)


def duration(minutes: float) -> str:
    """``0.3`` -> "20 seconds", ``1.2`` -> "1 minute", ``200`` -> "3 hours"."""
    if minutes < 0.9:
        return _count(max(10, round(minutes * 6) * 10), "second", "seconds")
    if minutes < 90:
        return _count(round(minutes), "minute", "minutes")
    return _count(round(minutes / 60), "hour", "hours")


def size(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            value = count / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return "1 MB" if count else "0 MB"


def _count(number: int, one: str, many: str) -> str:
    return f"{grouped(number)} {one if number == 1 else many}"


def grouped(number: int) -> str:
    """3840 -> "3,840"."""
    return f"{number:,}"
