"""What holds in the scenes of ``pages/time_machine.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.pages.time_machine import FEW
from tests.lessons.by_hand import all_close, close
from tests.lessons.claims import Claims


def share_by_hand(n: Numbers) -> float:
    sizes = sorted((abs(change) for change in n["changes"]), reverse=True)
    return sum(sizes[:FEW]) / sum(sizes) if sum(sizes) else 0.0


def first_ahead(n: Numbers) -> bool:
    """Up to the crossing the favourite is not behind; there it is. Without one it never is."""
    behind = [a > b for a, b in zip(n["challenger_chances"], n["favourite_chances"], strict=True)]
    return behind.index(True) == n["crossing"] if any(behind) else n["crossing"] is None


CLAIMS: Claims = {
    "map": {
        "the share of a few tokens, by hand": lambda n: close(n["share"], share_by_hand(n)),
        "the policy that wrote it gives what was recorded then": lambda n: all_close(n["of_writer"], n["on_record"], 1e-4),
        "the sentence is as likely as its tokens together": lambda n: close(
            n["likelier"], sum(n["history"].logprobs[n["at"]].tolist()) - sum(n["history"].logprobs[0].tolist())
        ),
    },
    "overtaken": {
        "the crossing is the first step that likes the challenger better": first_ahead,
        "the sentence's own token is the one of the map": lambda n: all_close(n["own_chances"], n["recorded"]),
        "the probabilities of different tokens are at most one together": lambda n: all(
            sum(some) <= 1 + 1e-6
            for some in zip(n["favourite_chances"], n["challenger_chances"], *([n["own_chances"]] if n["apart"] else []), strict=True)
        ),
    },
}
