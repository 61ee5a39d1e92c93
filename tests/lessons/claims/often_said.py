"""What refutes each saying of ``pages/often_said.py``: it holds for the numbers of the scene that the saying leads to."""

from __future__ import annotations

from tests.lessons.by_hand import close
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "three_squares": {
        "the saying is refuted": lambda n: (
            n["trained"] == 16 * (768 + 3 * 768) * 12 and n["trained"] not in (n["three_squares"], n["one_square"])
        )
    },
    "alpha": {"the saying is refuted": lambda n: n["alpha_now"] > 1.5 * n["rate_now"]},
    "powers": {"the saying is refuted": lambda n: abs(n["sum_powers"] - 1) > 0.1 and close(n["sum_here"], 1, 1e-6)},
    "temperature_and_kl": {"the saying is refuted": lambda n: abs(n["exact"] - n["exact_at_scored"]) > 0.05 and n["mixed_equal"] > 0.01},
    "shifted_logits": {"the saying is refuted": lambda n: close(n["rho"], 1) and n["of_logits"] > 2},
    "two_old_ones": {"the saying is refuted": lambda n: close(n["old_against_old"], 1) and abs(n["against_ref"] - 1) > 0.1},
    "one_backbone": {"the saying is refuted": lambda n: n["passes"] == 2 and not n["same"]},
    "one_value": {"the saying is refuted": lambda n: abs(n["surprise"] - n["wrong_surprise"]) > 0.05},
    "turned_kl": {"the saying is refuted": lambda n: n["total_turned"] > n["score"] > n["total"]},
    "always_up": {"the saying is refuted": lambda n: n["kl"] < n["target"] and n["last"] < n["first"] < n["habit_last"]},
    "whitening": {"the saying is refuted": lambda n: n["below_before"] == 0 and n["turned"] > 0},
    "outside": {"the saying is refuted": lambda n: n["outside"] and close(n["gradient"], -n["advantage"] * n["ratio"], 1e-6)},
    "without_min": {
        "the saying is refuted": lambda n: (
            close(n["clip_alone"], -n["advantage"] * n["low"]) and abs(n["gradient"]) > 0 and n["loss"] > n["clip_alone"] + 0.1
        )
    },
    "smaller_loss": {"the saying is refuted": lambda n: close(n["loss"], max(n["plain"], n["limited"])) and n["loss"] > n["smaller"] + 0.1},
    "twice_as_good": {"the saying is refuted": lambda n: n["ratio"] != n["ratio_before"] and close(n["chance"], n["chance_before"])},
    "better_text": {"the saying is refuted": lambda n: n["score"] > n["first_score"] and n["gold"] < n["first_gold"]},
    "more_epochs": {"the saying is refuted": lambda n: n["fresh"] > 2 * n["same"] and n["added"] < n["first"]},
}
