"""A trainer's settings by our names, as far as they have the same meaning; and all of them, as it has them, for people to look at."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rlhf_studio.config import STAGES, Stage, StageConfig
from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.visible import visible

UNKNOWN = "unknown"
_SECRETS = ("token", "key", "password", "secret")

_SECTION: dict[Stage, str] = {"ppo": "ppo", "sft": "sft", "reward_model": "reward_model", "dpo": "dpo"}
_OPTIMISATION = {
    "learning_rate": "learning_rate",
    "lr_scheduler_type": "lr_schedule",
    "warmup_steps": "warmup_steps",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
}
_SAMPLING = {
    "beta": "ppo.kl_coef",
    "epsilon": "ppo.cliprange",
    "epsilon_high": "ppo.cliprange_high",
    "num_iterations": "ppo.ppo_epochs",
    "num_generations": "ppo.responses_per_prompt",
    "temperature": "generation.temperature",
    "top_p": "generation.top_p",
    "top_k": "generation.top_k",
    "max_completion_length": "generation.response_length",
}
_OTHERS: dict[Stage, dict[str, str]] = {"ppo": _SAMPLING, "dpo": {"beta": "dpo.beta"}, "reward_model": {}, "sft": {}}


def settings_of(stage: Stage, args: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Dotted names of ours and their values, from a trainer's arguments."""
    section = _SECTION[stage]
    names = {theirs: f"{section}.{ours}" for theirs, ours in _OPTIMISATION.items()} | _OTHERS[stage]
    given = {ours: _plain(args[theirs]) for theirs, ours in names.items() if args.get(theirs) is not None}
    if model:
        given["model.policy"] = model
    if isinstance(args.get("seed"), int):
        given["engine.seed"] = args["seed"]
    return given


def _plain(value: Any) -> Any:
    """An enumeration's member as its value."""
    return getattr(value, "value", value)


def config_of(stage: Stage, given: Mapping[str, Any], name: str, steps: int, base: Mapping[str, Any]) -> tuple[StageConfig, list[str]]:
    """The run's configuration, and the dotted names of the settings in it that are the trainer's.

    A value that ours does not take (a temperature of 0, a schedule that we do not have) is left out, so its place shows a default; it
    still stands in the file of the trainer's own settings. ``base``: what has to be set for the others to fit, by dotted name. The order
    of ``given`` does not matter: settings that only fit together are taken together.
    """
    wanted = {"model.policy": UNKNOWN, **base}
    if stage == "ppo":
        wanted = {"data.prompts": UNKNOWN, "ppo.steps": max(1, steps), **wanted}
    elif steps > 0:
        wanted[STAGES[stage].steps_setting] = steps
    config, own = _fitting_together(stage, wanted, given, name)
    fits = True
    while fits:
        fits = False
        for setting in [setting for setting in given if setting not in own]:
            try:
                config = _parsed(stage, {**wanted, **{key: given[key] for key in own}, setting: given[setting]}, name)
            except ConfigError:
                continue
            own, fits = [*own, setting], True
    return config, [setting for setting in given if setting in own]


def _fitting_together(stage: Stage, base: Mapping[str, Any], given: Mapping[str, Any], name: str) -> tuple[StageConfig, list[str]]:
    """All of ``given`` but the settings that the errors name; none of it where an error names no setting of it."""
    rest = dict(given)
    while rest:
        try:
            return _parsed(stage, {**base, **rest}, name), list(rest)
        except ConfigError as error:
            bad = {problem.field for problem in error.problems} & rest.keys()
            rest = {setting: value for setting, value in rest.items() if setting not in bad} if bad else {}
    return _parsed(stage, base, name), []


def _parsed(stage: Stage, dotted: Mapping[str, Any], name: str) -> StageConfig:
    data: dict[str, Any] = {"stage": stage, "name": name}
    for setting, value in dotted.items():
        section, _, key = setting.partition(".")
        data.setdefault(section, {})[key] = value
    return parse_config(data)


def as_json(settings: Mapping[str, Any]) -> bytes:
    """Settings for people to read: what JSON cannot hold stands as text, and what looks like a key or a password is left out."""
    kept = {str(name): _told(value) for name, value in settings.items() if not any(word in str(name).lower() for word in _SECRETS)}
    return (json.dumps(kept, indent=1, sort_keys=True) + "\n").encode("utf-8")


def _told(value: Any) -> Any:
    value = _plain(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): _told(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_told(inner) for inner in value]
    return visible(str(value))[:1000]
