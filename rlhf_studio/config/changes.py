"""What differs between two configurations of one run, and what must stay when a run is resumed or forked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlhf_studio.language import S_

_WEIGHTS = S_("the checkpoint holds weights of the model that the run began with; start a new run for another one")
STAYS = {
    "name": S_("a run gets another name on the Runs page"),
    "recipe": S_("it says what the run began from"),
    "model.policy": _WEIGHTS,
    "model.revision": _WEIGHTS,
    "model.reference": _WEIGHTS,
    "model.reference_revision": _WEIGHTS,
    "model.quantization": _WEIGHTS,
    "model.value_head_init": S_("the value head has been trained since it was drawn"),
    "lora": S_("the checkpoint holds adapters of the shape that the run began with; start a new run for others"),
    "critic": S_("the checkpoint holds the critic that the run began with; start a new run for another one"),
    "data": S_("the checkpoint holds a place in the prompts of the run, which other prompts or another order would move"),
    "engine.seed": S_("the order of the prompts comes from it, and the checkpoint holds a place in that order"),
    "engine.watch_prompts": S_("the answers of the starting policy are to these prompts, and are compared with later ones"),
    "engine.probe_prompts": S_("the probes are answers of the starting policy, which training has changed since"),
    "ppo.advantage": S_("the checkpoint holds a critic, or none, as the run began; start a new run for another kind of advantage"),
    "ppo.reference_ema": S_("the checkpoint holds the reference as it has followed the policy so far"),
}
"""Settings, or whole sections, that a run keeps when it goes on from a checkpoint, and why."""

_OF_THE_FOLDER = S_("the run folder belongs to this model and may hold the base of its adapters; start a new run for another one")
STAYS_FROM_START = {
    "name": STAYS["name"],
    "recipe": STAYS["recipe"],
    "model.policy": _OF_THE_FOLDER,
    "model.revision": _OF_THE_FOLDER,
    "model.quantization": _OF_THE_FOLDER,
    "lora": S_("the run folder may hold the base that goes with these adapters; start a new run for others"),
}
"""What a run keeps even when it begins again at step 0, without a checkpoint, and why."""


@dataclass(frozen=True)
class Change:
    """One setting that is no longer what it was; ``old`` or ``new`` is None where there is no such entry in a list of components."""

    setting: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.setting} from {_as_text(self.old)} to {_as_text(self.new)}"


def _as_text(value: Any) -> str:
    return "nothing" if value is None or value == "" else str(value)


def changes_between(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """What differs, setting by setting, in the order of ``now``. Both are plain mappings, as ``model_dump`` gives them.

    A setting that one of them does not know, because another version wrote it, is no change.
    """
    old, new = flat(before), flat(now)
    lists = {name for name in (*old, *new) if any(part.isdigit() for part in name.split("."))}
    names = [*new, *(name for name in old if name not in new)]
    return [
        Change(name, old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name) and (name in lists or (name in old and name in new))
    ]


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings as one mapping by dotted name; entries of lists are numbered from 0."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return {name: value}
    return {key: leaf for part, item in items for key, leaf in flat(item, f"{name}.{part}" if name else str(part)).items()}


def refusals(changes: list[Change], stays: Mapping[str, str] = STAYS) -> list[tuple[str, str]]:
    """(setting, reason) of every change that a resumed run cannot take; with ``STAYS_FROM_START``, one that begins again."""
    reasons = ((change.setting, _reason(change.setting, stays)) for change in changes)
    return [(setting, reason) for setting, reason in reasons if reason]


def depends_on_checkpoint(changes: list[Change]) -> list[Change]:
    """The changes that do not fit a checkpoint from before them: only a run that begins again at step 0 can take them."""
    return [change for change in changes if _reason(change.setting, STAYS) and not _reason(change.setting, STAYS_FROM_START)]


def _reason(setting: str, stays: Mapping[str, str]) -> str:
    return stays.get(setting) or stays.get(setting.split(".")[0], "")
