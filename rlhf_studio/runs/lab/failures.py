"""Which setting a failed run blames, so that the form can be opened there."""

from __future__ import annotations

import re
from functools import cache

from rlhf_studio.config import STAGES, Stage
from rlhf_studio.config.io import walk_fields
from rlhf_studio.runs.records import RunStatus

_NAME = re.compile(r"\b[a-z_]+(?:\.[a-z_0-9]+)+")
_BLAMED = re.compile(rf"(?:^|[:;.]\s)({_NAME.pattern}): ")
# Causes that name no setting: the words in them, and the setting that most likely brought it about, in the stage's own section.
_LIKELY = (
    (re.compile(r"\bnot finite|non-finite|\bNaN\b", re.IGNORECASE), "{stage}.learning_rate"),
    (re.compile(r"^reward component "), "reward.components"),
    (re.compile(r"memory ran out|out of memory", re.IGNORECASE), "{stage}.micro_batch_size"),
)


def failed_field(run: RunStatus) -> str:
    """The dotted name of the setting that the cause of a failed run blames, e.g. ``ppo.learning_rate``; empty when none is to blame.

    A cause names it as ``setting: what is wrong``, or inside its sentence. Of several the first is given.
    """
    if run.state not in ("failed", "interrupted"):
        return ""
    blamed = [match[1] for match in _BLAMED.finditer(run.cause)]
    likely = [setting.format(stage=run.stage) for words, setting in _LIKELY if words.search(run.cause)]
    known = _settings(run.stage)
    named = (*blamed, *_NAME.findall(run.cause), *likely)
    return next((name for name in named if name in known or _is_component(name) and "reward.components" in known), "")


def _is_component(name: str) -> bool:
    return name.startswith("reward.components.")


@cache
def _settings(stage: Stage) -> frozenset[str]:
    return frozenset(name for name, _ in walk_fields(STAGES[stage])) - {"name"}
