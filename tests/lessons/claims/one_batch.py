"""What holds in the scene of ``parts/one_batch.py``, whatever the controls say."""

from __future__ import annotations

from statistics import fmean, stdev

from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.one_batch import comparison
from tests.lessons.by_hand import close
from tests.lessons.claims import Claims


def advantage_by_hand(n: Numbers) -> float | None:
    """From the rewards of the four responses to the prompt; None for the algorithms that charge the KL in the reward or ask a critic."""
    first = (int(n["response"]) - 1) // 4 * 4
    rewards = [one["reward"] for one in comparison()["responses"][first : first + 4]]
    above = n["reward"] - fmean(rewards)
    by_name = {"dr_grpo": above, **dict.fromkeys(("grpo", "dapo", "gspo"), above / (stdev(rewards) + 1e-4))}
    return by_name.get(n["algorithm"])


CLAIMS: Claims = {
    "one_batch": {
        "groups are compared with themselves": lambda n: (
            (expected := advantage_by_hand(n)) is None or close(n["advantage"], expected, 1e-3)
        ),
        "REINFORCE makes one step, and nothing is clipped": lambda n: (
            (n["steps"], n["clipped"]) == (1, 0) if n["algorithm"] == "reinforce" else n["steps"] == 8
        ),
        "an algorithm is like itself": lambda n: n["algorithm"] not in ("ppo", "grpo") or close(n[f"like_{n['algorithm']}"], 1.0),
        "GSPO clips many times as many tokens": lambda n: n["gspo_clipped"] > 10 * n["ppo_clipped"],
        "no gold score moves clearly": lambda n: n["gold_clearest"] < 2,
    }
}
