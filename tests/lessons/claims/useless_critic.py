"""What holds in the scenes of ``parts/useless_critic.py``, whatever the controls say; by scene."""

from __future__ import annotations

from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "useless_critic": {
        "one less the mean squared error over that of the mean": lambda n: abs(n["explained"] - (1 - n["wrong"] / n["of_mean"])) < 1e-9,
        "a critic without skill, offset and noise explains nothing": lambda n: (
            n["skill"] != 0 or n["offset"] != 0 or n["noise"] != 0 or abs(n["explained"]) < 1e-9
        ),
    },
}
