"""What the form says about reward components beyond their settings: titles, how they are grouped, and what may be suggested."""

from __future__ import annotations

from typing import Any

from rlhf_studio.config import (
    BleuReward,
    EnsembleReward,
    HttpReward,
    KeywordReward,
    LengthReward,
    LexiconReward,
    Permissions,
    PythonReward,
    RegexReward,
    RepetitionReward,
    RewardModelReward,
    RougeReward,
)

COMPONENT_GROUPS = {
    "Models": {RewardModelReward: "Reward model", EnsembleReward: "Ensemble"},
    "Rules": {
        LengthReward: "Length",
        KeywordReward: "Keywords",
        LexiconReward: "Sentiment words",
        RegexReward: "Pattern",
        RepetitionReward: "Repetition",
    },
    "Against a reference": {BleuReward: "BLEU", RougeReward: "ROUGE"},
    "Your own": {PythonReward: "Python function", HttpReward: "Scoring server"},
}
COMPONENT_TITLES = {model: title for group in COMPONENT_GROUPS.values() for model, title in group.items()}
GROUP_OF = {model: name for name, group in COMPONENT_GROUPS.items() for model in group}
# Settings of a component that the form shows only while another of its settings has a certain value.
COMPONENT_USED_WHEN: dict[tuple[str, str], tuple[str, Any]] = {("ensemble", "std_weight"): ("combine", "mean_minus_std")}

ITEM_LISTS = ("models",)
"""Settings that may hold one item a line, so that they need a control with lines."""


def suggestions(kind: str, name: str, permissions: Permissions) -> list[str]:
    """Values that a person may mean: the files and servers that the program was started with."""
    if (kind, name) == ("python", "file"):
        return list(dict.fromkeys(permissions.files))
    return list(permissions.urls) if (kind, name) == ("http", "server") else []
