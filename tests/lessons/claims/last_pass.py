"""What holds in the scenes of ``parts/last_pass.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from tests.lessons.by_hand import close
from tests.lessons.claims import Claims


def silent_by_hand(n: Numbers) -> bool:
    """A token is silent where the clipped loss is the larger one."""
    for ratio, advantage, quiet in zip(n["ratio"], n["advantages"], n["silent"], strict=True):
        if not n["dual"] and quiet != (-advantage * min(max(ratio, n["low"]), n["high"]) > -advantage * ratio):
            return False
    return True


def push_by_hand(n: Numbers) -> bool:
    """Each loss is the larger of the two; each push the advantage times the ratio, and nothing where the token is silent."""
    for at, (ratio, advantage) in enumerate(zip(n["ratio"], n["advantages"], strict=True)):
        plain, limited = -advantage * ratio, -advantage * min(max(ratio, n["low"]), n["high"])
        push = 0.0 if limited > plain else advantage * ratio
        if not n["dual"] and not (close(n["losses"][at], max(plain, limited), 1e-6) and close(n["push"][at], push, 1e-6)):
            return False
    return True


CLAIMS: Claims = {
    "clipped": {"a token is silent where the clipped loss is larger": silent_by_hand},
    "pushed": {
        "loss and push of each token, by hand": push_by_hand,
        "the run's own setting and score give its own push": lambda n: not n["as_recorded"] or n["differs"] == 0,
    },
}
