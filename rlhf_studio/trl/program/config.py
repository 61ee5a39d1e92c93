"""``PPOConfig``: one name for the options of two generations of TRL's PPO.

Called with options of TRL 0.4 to 0.11 (``batch_size``, ``ppo_epochs``, ``init_kl_coef`` …) it is a :class:`ClassicPPOConfig`; called with
options of TRL 0.12 to 1.12 (``output_dir``, ``per_device_train_batch_size``, ``num_ppo_epochs`` …) a :class:`LaterPPOConfig`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from transformers import HfArgumentParser, TrainingArguments

from rlhf_studio.trl.program.options import fields_of
from rlhf_studio.trl.table import answer

_Classic: Any = dataclasses.make_dataclass("_Classic", fields_of("classic"))


@dataclass
class ClassicPPOConfig(_Classic):
    """Options of TRL 0.4 to 0.11, with their defaults there. What each is called here: docs/from-trl.md.

    Raises ValueError where ``batch_size`` is not a multiple of ``mini_batch_size × gradient_accumulation_steps``.
    """

    def __post_init__(self) -> None:
        self.exp_name: str = self.exp_name or program_name()
        if self.forward_batch_size is not None:
            self.mini_batch_size = self.forward_batch_size
        self.backward_batch_size = self.mini_batch_size * self.gradient_accumulation_steps
        if self.batch_size % self.backward_batch_size:
            together = "mini_batch_size × gradient_accumulation_steps"
            raise ValueError(f"PPOConfig: batch_size {self.batch_size} is not a multiple of {together} = {self.backward_batch_size}")
        self.total_ppo_epochs = math.ceil(self.steps / self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """The options by name; those inside dictionaries as ``outer/inner``."""
        flat: dict[str, Any] = {}
        for name, value in vars(self).items():
            flat |= {f"{name}/{key}": entry for key, entry in value.items()} if isinstance(value, dict) else {name: value}
        return flat


_later = [*fields_of("experimental"), *fields_of("arguments", "logging_steps", "gradient_checkpointing", "bf16", "report_to")]
_Later: Any = dataclasses.make_dataclass("_Later", _later, bases=(TrainingArguments,))


@dataclass
class LaterPPOConfig(_Later):
    """Options of TRL 0.12 to 1.12: those of transformers' TrainingArguments, and PPO's own, with their defaults in TRL 1.12."""

    def __post_init__(self) -> None:
        self.bf16_given: bool | None = self.bf16
        self.bf16: bool = False  # transformers would refuse it on a CPU; model.dtype decides here
        super().__post_init__()
        if self.stop_token and self.stop_token_id is not None:
            raise ValueError("PPOConfig: stop_token and stop_token_id are both given; give one of them")
        if self.stop_token not in (None, "eos"):
            raise ValueError(f"PPOConfig: stop_token is {self.stop_token!r}; it is 'eos' or None, and stop_token_id is the id of any token")
        if self.kl_estimator not in ("k1", "k3"):
            raise ValueError(f"PPOConfig: kl_estimator is {self.kl_estimator!r}; it is k1 or k3")


def program_name() -> str:
    """The name of the program that runs, without its ending."""
    return os.path.splitext(os.path.basename(sys.argv[0]))[0] or "program"


CLASSIC = {entry.name: entry for entry in dataclasses.fields(ClassicPPOConfig)}
LATER = {entry.name: entry for entry in dataclasses.fields(LaterPPOConfig) if entry.init}
SIZES = {"batch_size", "mini_batch_size", "world_size"}
"""Options that a person gives in the classic form; the later one fills them in by itself."""
ONLY_CLASSIC = (set(CLASSIC) - set(LATER)) | SIZES - {"world_size"}
ONLY_LATER = set(LATER) - set(CLASSIC)


class _OneOfTwo(type):
    """Makes the configuration of the generation that the given options belong to."""

    def __call__(cls, *positional: Any, **options: Any) -> ClassicPPOConfig | LaterPPOConfig:
        if positional:
            raise TypeError("PPOConfig takes its options by name: PPOConfig(batch_size=16, …)")
        if unknown := sorted(set(options) - set(CLASSIC) - set(LATER)):
            raise TypeError(_unknown(unknown[0]))
        if len(options) > len(CLASSIC):  # from a parser of the command line, which gives every option
            options = {name: value for name, value in options.items() if not _is_default(name, value)}
        classic, later = sorted(ONLY_CLASSIC & set(options)), sorted(ONLY_LATER & set(options))
        if classic and later:
            way = "give those of one: docs/from-trl.md has both lists"
            raise TypeError(f"PPOConfig: {classic[0]} is an option of TRL 0.11 and before, {later[0]} of TRL 0.12 and after; {way}")
        return LaterPPOConfig(**options) if later else ClassicPPOConfig(**_of_first_releases(options))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ClassicPPOConfig | LaterPPOConfig)


def _of_first_releases(options: dict[str, Any]) -> dict[str, Any]:
    """A minibatch was one response unless a program said otherwise; the later default, 128, would be refused for its batch."""
    size = options.get("batch_size", CLASSIC["batch_size"].default)
    if {"mini_batch_size", "forward_batch_size"} & set(options) or size % CLASSIC["mini_batch_size"].default == 0:
        return options
    text = "PPOConfig: mini_batch_size is not given; it is 1, as in the releases of TRL that had no larger default"
    warnings.warn(text, stacklevel=3)
    return {**options, "mini_batch_size": 1}


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, [*CLASSIC, *LATER], 1)
    return f"PPOConfig has no option {name}" + (f"; did you mean {near[0]}?" if near else f" ({answer(name)})" if answer(name) else "")


def _parsed_fields() -> list[tuple[str, Any, Any]]:
    """The options of both, for parsers of the command line. One that both have with different defaults is unset (None) by default."""
    hints = {**get_type_hints(ClassicPPOConfig), **get_type_hints(LaterPPOConfig)}
    fields = []
    for name, entry in {**CLASSIC, **LATER}.items():
        kind, default = hints[name], entry.default
        if CLASSIC.get(name, entry).default != default:
            kind, default = kind | None, None
        made = entry.default_factory
        own: Any = field(default=default) if made is dataclasses.MISSING else field(default_factory=made)
        own.metadata = entry.metadata
        fields.append((name, kind, own))
    return fields


def _is_default(name: str, value: Any) -> bool:
    """Whether a parser of the command line was told nothing about an option."""
    return bool(value == PARSED[name] or value == _of_parser()[name])


@functools.cache
def _of_parser() -> dict[str, Any]:
    """What transformers' parser makes of the defaults: not always what they are."""
    return vars(HfArgumentParser((PPOConfig,)).parse_args([]))  # type: ignore[arg-type]


def _default(entry: Any) -> Any:
    return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()


_BOTH: Any = dataclasses.make_dataclass("_BOTH", _parsed_fields())
PARSED = {entry.name: _default(entry) for entry in dataclasses.fields(_BOTH)}


class PPOConfig(_BOTH, metaclass=_OneOfTwo):
    """The options of TRL's PPO, of whichever generation. See this file's first lines."""


PPOv2Config = PPOConfig
