"""What holds in the scenes of ``parts/reference_memory.py``, whatever the controls say; by scene."""

from __future__ import annotations

from rlhf_studio.inputs.estimate.memory import parts
from rlhf_studio.lessons.kit import Numbers
from rlhf_studio.lessons.parts.reference_memory import FOUR, MEBIBYTE
from tests.lessons.claims import Claims


def _other_three(n: Numbers) -> float:
    """Mebibytes of policy, critic and reward model where all weights learn."""
    return float((n["parameters"] * (10 if n["half"] else 12) + 4 * (n["hidden"] + 1)) / MEBIBYTE)


CLAIMS: Claims = {
    "memory": {
        "a copy takes the model's weights once more": lambda n: abs(n["copy"] - n["parameters"] * (2 if n["half"] else 4) / 2**20) < 1e-6,
        "it takes nothing where off is the base, and else a copy": lambda n: n["reference"] == (0 if n["off_apart"] < 1e-3 else n["copy"]),
        "the four are policy, reference, critic with its value head, and reward model": lambda n: (
            abs(sum(n["sizes"]["full"][name] for name in FOUR if name != parts.REFERENCE) - _other_three(n)) < 1e-3
        ),
        "with the adapters on, both starts are the base": lambda n: n["on_apart"] < 1e-3,
    },
}
