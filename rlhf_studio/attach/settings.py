"""A trainer's settings by our names, as far as they have the same meaning; and all of them, as it has them, for people to look at."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rlhf_studio.config import STAGES, Stage, StageConfig
from rlhf_studio.config.io import ConfigError, Problem, parse_config
from rlhf_studio.visible import text_of, visible

UNKNOWN = "unknown"
_ALWAYS_SECRET = re.compile(r"password|passwd|passphrase|secret|credential|authorization|bearer|cookie")
_SECRET_AT_THE_END = re.compile(r"(token|key|auth)$")
_SECRET_TEXT = re.compile(r"(token|key|auth)s?(_|$)")
_OF_A_VOCABULARY = re.compile(r"(^|_)(bos|eos|pad|unk|sep|cls|mask|image|video|audio|special|stop)_tokens?$")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAMED_IN_TEXT = re.compile(r"""([\w-]+)(["']?\s*[:=]\s*)(["'])(?:(?!\3).)*\3""")  # of an object's repr, or of JSON
_DEEPEST = 10

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
    "importance_sampling_level": "ppo.ratio_level",
    "num_iterations": "ppo.ppo_epochs",
    "num_generations": "ppo.responses_per_prompt",
    "temperature": "generation.temperature",
    "top_p": "generation.top_p",
    "top_k": "generation.top_k",
    "max_completion_length": "generation.response_length",
}
_LOSS_AVERAGES = {"grpo": "responses", "bnpo": "tokens", "dapo": "tokens", "dr_grpo": "constant"}
"""By TRL's loss_type, which names several things at once; those that are left out have another loss altogether."""
_OTHERS: dict[Stage, dict[str, str]] = {"ppo": _SAMPLING, "dpo": {"beta": "dpo.beta"}}


def settings_of(stage: Stage, args: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Dotted names of ours and their values, from a trainer's arguments."""
    names = {theirs: f"{stage}.{ours}" for theirs, ours in _OPTIMISATION.items()} | _OTHERS.get(stage, {})
    given = {ours: _plain(args[theirs]) for theirs, ours in names.items() if args.get(theirs) is not None}
    if stage == "ppo" and (average := _LOSS_AVERAGES.get(str(_plain(args.get("loss_type"))))):
        given["ppo.loss_average"] = average
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
        if section in ("stage", "name"):
            raise ConfigError([Problem(setting, "it is none of a run's settings")])
        data.setdefault(section, {})[key] = value
    try:
        return parse_config(data)
    except ConfigError:
        raise
    except Exception as error:  # of a value of somebody else's class: reading or showing it may fail in any way
        raise ConfigError([Problem("", text_of(error))]) from error


def as_json(settings: Mapping[str, Any]) -> bytes:
    """Settings for people to read: what JSON cannot hold stands as text; keys, passwords and tokens are left out at any depth."""
    return (json.dumps(_told(settings), indent=1, sort_keys=True) + "\n").encode("utf-8")


def _told(value: Any, depth: int = 0) -> Any:
    value = _plain(value)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > _DEEPEST:
        return "…"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, Mapping):
        named = [(text_of(name), inner) for name, inner in value.items()]
        return {name: _told(inner, depth + 1) for name, inner in named if not _is_secret(name, inner)}
    if isinstance(value, list | tuple):
        return [_told(inner, depth + 1) for inner in value]
    return visible(_NAMED_IN_TEXT.sub(_without_secret, value if isinstance(value, str) else text_of(value)))[:1000]


def _without_secret(pair: re.Match[str]) -> str:
    return f"{pair[1]}{pair[2]}…" if _is_secret(pair[1], pair[0]) else pair[0]


def _is_secret(name: str, value: Any) -> bool:
    """Whether a setting of this name is a key, a password or the like. A switch such as ``use_auth_token=True`` is none."""
    if value is None or isinstance(value, bool):
        return False
    plain = re.sub(r"\W", "_", _NEW_WORD.sub("_", name)).lower()
    if _ALWAYS_SECRET.search(plain):
        return True
    secret = _SECRET_AT_THE_END if isinstance(value, int | float) else _SECRET_TEXT  # max_tokens=512 is a number of tokens
    return bool(secret.search(plain)) and not _OF_A_VOCABULARY.search(plain)
