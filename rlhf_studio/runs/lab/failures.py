"""Which setting a failed run blames, so that the form can be opened there."""

from __future__ import annotations

import re

from rlhf_studio.config_io import walk_fields
from rlhf_studio.runs.records import RunStatus

_NAME = re.compile(r"\b[a-z_]+(?:\.[a-z_0-9]+)+")
_BLAMED = re.compile(rf"(?:^|[:;.]\s)({_NAME.pattern}): ")
# Causes that name no setting: the words in them, and the setting that most likely brought it about.
_LIKELY = (
    (re.compile(r"\bnot finite|non-finite|\bNaN\b", re.IGNORECASE), "ppo.learning_rate"),
    (re.compile(r"^reward component "), "reward.components"),
    (re.compile(r"memory ran out|out of memory", re.IGNORECASE), "ppo.micro_batch_size"),
)


def failed_field(run: RunStatus) -> str:
    """The dotted name of the setting that the cause of a failed run blames, e.g. ``ppo.learning_rate``; empty when none is to blame.

    A cause names it as ``setting: what is wrong``, or inside its sentence. Of several the first is given.
    """
    if run.state not in ("failed", "interrupted"):
        return ""
    blamed = [match[1] for match in _BLAMED.finditer(run.cause)]
    named = [*blamed, *_NAME.findall(run.cause)]
    return next((name for name in named if _is_setting(name)), "") or next(
        (setting for words, setting in _LIKELY if words.search(run.cause)), ""
    )


def _is_setting(name: str) -> bool:
    return name in _SETTINGS or name.startswith("reward.components.")


_SETTINGS = {name for name, _ in walk_fields()} - {"name"}
