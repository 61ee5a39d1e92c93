"""The critic: where the values come from."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import Section, setting


class CriticConfig(Section):
    """The model that estimates how much reward is still to come at each token."""

    kind: Literal["shared", "separate"] = setting(
        "shared",
        "Critic",
        "shared: a value head on the policy's own hidden states, one pass for both. separate: a model of its own, which costs its memory "
        "and its time, and does not pull at the policy's weights.",
    )
    start: Literal["reward_model", "policy", "model"] = setting(
        "reward_model",
        "Separate critic starts as",
        "reward_model: a copy of the first reward model, head included. policy: a copy of the policy with a new value head. "
        "model: the model named below.",
    )
    model: str = setting(
        "", "Critic model", "Folder or hub id, for a separate critic that starts as a model; it must use the policy's tokenizer.",
        names="model", max_length=4096,
    )  # fmt: skip
    revision: str = setting(
        "main", "Critic revision", "Branch, tag or commit to load when the critic is a hub id.", min_length=1, max_length=200
    )
