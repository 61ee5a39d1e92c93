"""All cards, from the numbers that ship with the program."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from rlhf_studio.lessons.gallery.ablations import ARGUMENTS, ablation
from rlhf_studio.lessons.gallery.card import Card, Numbers
from rlhf_studio.lessons.gallery.recorded import fooled, healthy, monitors, one_batch, over_optimised

NUMBERS = Path(__file__).with_name("numbers.json")
"""Written by ``python -m benchmarks.gallery``: the numbers of each card; those of the ablations are one entry."""
ABLATIONS = "ablations"
_MAKERS: dict[str, tuple[Callable[[Numbers], Card | None], str]] = {
    "fooled": (fooled, "fooled"),
    "healthy": (healthy, "healthy"),
    "over-optimised": (over_optimised, "over-optimised"),
    "one-batch": (one_batch, "one-batch"),
    **{argument.name: (partial(ablation, argument), ABLATIONS) for argument in ARGUMENTS},
    "monitors": (monitors, "monitors"),
}
NAMES = tuple(_MAKERS)


@cache
def numbers() -> dict[str, Any]:
    """What is on record."""
    stored: dict[str, Any] = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return stored


def source_of(name: str) -> str:
    """The entry of the numbers that a card is made from."""
    return _MAKERS[name][1]


def card(name: str, stored: dict[str, Any]) -> Card | None:
    """In the language that is spoken; None while there are no numbers for it."""
    make, source = _MAKERS[name]
    return make(stored[source]) if source in stored else None


def cards(stored: dict[str, Any]) -> list[Card]:
    """All that there are numbers for, in order."""
    return [made for name in NAMES if (made := card(name, stored)) is not None]
