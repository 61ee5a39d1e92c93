"""What holds in the scenes of ``pages/logprobs.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math
from functools import cache

from rlhf_studio.lessons import answers
from rlhf_studio.lessons.pages.logprobs import EDGE, one_by_one
from tests.lessons.claims import Claims


def same(one: list[float], other: list[float], size: float = 1e-4) -> bool:
    return len(one) == len(other) and all(abs(x - y) < size for x, y in zip(one, other, strict=True))


@cache
def step_by_step(text: str) -> list[float]:
    """What one next token after the other gives."""
    return one_by_one(answers.needed_by(answers.find("logprobs", "shift"))["world"], text)


CLAIMS: Claims = {
    "shift": {
        "with the shift they are what one next token after the other gives": lambda n: same(n["right"], step_by_step(n["text"])),
        "the engine's forward pass gives the same": lambda n: same(n["engine"], step_by_step(n["text"])),
        "without the shift they are something else": lambda n: not same(n["wrong"], step_by_step(n["text"]), 0.1),
    },
    "left_padding": {
        "positions from the mask give what the text alone gives": lambda n: n["positions"] != "from_mask" or same(n["found"], n["truth"]),
        "plain positions are right without padding only": lambda n: n["positions"] != "plain" or (n["error"] < EDGE) == (n["pads"] == 0),
        "the first real token is at 0 by the mask, and behind the padding otherwise": lambda n: (
            n["first_position"] == {"from_mask": 0, "plain": n["pads"], "roberta": n["pad_id"] + 1}[n["positions"]]
        ),
    },
    "under_mask": {
        "the masked mean is that of the real tokens alone": lambda n: (
            abs(n["right"] + math.fsum(n["own"]) / len(n["own"])) < 1e-9 and abs(n["total"] + math.fsum(n["own"])) < 1e-9
        ),
        "markers of one make the mean too low": lambda n: (
            abs(n["marker"] + (math.fsum(n["own"]) + n["slots"]) / (len(n["own"]) + n["slots"])) < 1e-9 and n["marker"] < n["right"]
        ),
        "a product with the mask is spoilt by NaN alone": lambda n: (n["product"] is None) == (n["fill"] == "nan"),
        "the mean over all slots is another one": lambda n: n["plain"] is None or abs(n["plain"] - n["right"]) > EDGE,
    },
    "which_tokens": {
        "a slot outside the mask is not pushed": lambda n: all(ok or push == 0 for ok, push in zip(n["real"], n["push"], strict=True)),
        "each slot inside is pushed by its advantage over their number": lambda n: all(
            not ok or abs(push - n["advantage"] / sum(n["real"])) < 1e-9 for ok, push in zip(n["real"], n["push"], strict=True)
        ),
    },
    "check_yourself": {
        "right means: shifted, and no padding before the text or positions from the mask": lambda n: (
            (n["verdict"] == "right") == (n["shifted"] and (n["side"] == "on_right" or n["pads"] == 0 or n["with_positions"]))
        ),
        "right is what one next token after the other gives": lambda n: n["verdict"] == "wrong" or same(n["found"], n["truth"], EDGE),
    },
}
