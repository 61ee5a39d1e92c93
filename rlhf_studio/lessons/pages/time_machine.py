"""The same text under the policy of every step: which tokens became likelier, when, and which one overtook which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rlhf_studio.lessons.kit import Choice, FromRun, Listed, Numbers, Picture, Scene, Series, Word, heat, line, options
from rlhf_studio.lessons.parts import histories
from rlhf_studio.lessons.parts import on_record as on
from rlhf_studio.lessons.parts.histories import History
from rlhf_studio.lessons.record import Record

NUMBER = 18
ANY_RUN = True

NEEDS = ("record",)
FEW = 2
MOST_COLUMNS = 60
"""Of the map: of longer runs some steps are left out."""


# --- controls ------------------------------------------------------------------------------------------------------------------------


def _sentence(needed: Mapping[str, Any], _: Mapping[str, Any]) -> Listed:
    return Listed("sentence", range(1, histories.count(needed["record"]) + 1), 1)


def _step(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Listed:
    steps = histories.history(needed["record"], chosen["sentence"]).steps
    return Listed("step", steps, steps[-1])


def _place(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Listed:
    """At first where the two likeliest tokens change places most clearly."""
    found = histories.history(needed["record"], chosen["sentence"])
    duels = [duel(found, place) for place in range(len(found.pieces))]
    gains = [float(one.challenger[-1] - one.favourite[-1]) for one in duels]
    return Listed("place", range(1, len(duels) + 1), gains.index(max(gains)) + 1)


SENTENCE = FromRun("sentence", _sentence, shared=True, fixed=True)


# --- the map -------------------------------------------------------------------------------------------------------------------------


def columns_of(steps: Sequence[int], chosen: float) -> list[int]:
    """The places of the steps that the map shows: all, or evenly chosen ones, and the chosen one in any case."""
    places = np.linspace(0, len(steps) - 1, min(len(steps), MOST_COLUMNS)).round().astype(int).tolist()
    return sorted({*places, list(steps).index(int(chosen))})


def mapped(record: Record, sentence: float, measure: str, step: float) -> Numbers:
    """Each token of the sentence under each step's policy."""
    found = histories.history(record, sentence)
    at, chances = found.steps.index(int(step)), found.chances
    change, whole = found.logprobs[-1] - found.logprobs[0], np.abs(found.logprobs[-1] - found.logprobs[0])
    most = int(np.abs(chances[at] - chances[0]).argmax())
    totals = found.logprobs.sum(axis=1)
    return {
        "history": found,
        "prompt": on.shortened(found.prompt),
        "pieces": on.shown_pieces(found.pieces),
        "at": at,
        "last": found.steps[-1],
        "steps": len(found.steps),
        "total": float(totals[at]),
        "total_start": float(totals[0]),
        "likelier": float(totals[at] - totals[0]),
        "moved": on.shown_pieces(found.pieces)[most],
        "moved_from": float(chances[0, most]),
        "moved_to": float(chances[at, most]),
        "changes": change.tolist(),
        "count": len(found.pieces),
        "few_tokens": min(FEW, len(found.pieces)),
        "share": float(np.sort(whole)[::-1][:FEW].sum() / whole.sum()) if whole.any() else 0.0,
        "few": bool(np.sort(whole)[::-1][:FEW].sum() > whole.sum() / 2),
        "of_writer": [] if found.recorded is None else found.logprobs[found.recorded[0]].tolist(),
        "on_record": [] if found.recorded is None else found.recorded[1].tolist(),
    }


def draw_map(n: Numbers) -> Picture:
    found: History = n["history"]
    places = columns_of(found.steps, n["step"])
    changed = n["measure"] == "change"
    numbers = found.logprobs - found.logprobs[0] if changed else found.chances
    rows = {f"{place + 1}  {piece}": numbers[places, place].tolist() for place, piece in enumerate(n["pieces"])}
    size = max(0.1, float(np.abs(numbers).max())) if changed else 1.0
    label = Word("change_of_logprob" if changed else "chance")
    chosen = places.index(n["at"])
    return heat([str(found.steps[at]) for at in places], rows, label=label, size=size, signed=changed, compact=True, at=chosen)


def draw_sentence(n: Numbers) -> Picture:
    found: History = n["history"]
    return on.coloured(n["pieces"], found.chances[n["at"]].tolist(), "chance", 1.0, before=found.chances[0].tolist())


# --- who overtakes whom --------------------------------------------------------------------------------------------------------------


class Duel:
    """Two tokens at a place: the starting policy's favourite, and the one of the others that is likeliest in the end.

    Attributes:
        names: the texts of the favourite and of the challenger.
        favourite, challenger: (S,) their probabilities; ``own``: of the sentence's own token, which may be a third one (``apart``).
        crossing: the place in ``steps`` of the first policy that likes the challenger better; None where none does.
    """

    def __init__(self, texts: Sequence[str], logprobs: np.ndarray) -> None:
        chances = np.exp(logprobs)
        first = int(chances[0].argmax())
        other = max((at for at in range(len(texts)) if at != first), key=lambda at: chances[-1, at])
        self.names = texts[first], texts[other]
        self.favourite, self.challenger, self.own = chances[:, first], chances[:, other], chances[:, 0]
        self.apart = 0 not in (first, other)
        ahead = np.flatnonzero(self.challenger > self.favourite)
        self.crossing = int(ahead[0]) if len(ahead) else None


def duel(found: History, place: int) -> Duel:
    """The two tokens at a place of a sentence, counted from 0. Raises CannotAsk where the run has kept one alone."""
    texts, logprobs = found.candidates[place]
    if len(texts) < 2:
        raise on.CannotAsk("At this place the run has kept one token alone. Choose another place.")
    return Duel(texts, logprobs)


def overtaken(record: Record, sentence: float, place: float) -> Numbers:
    """Which step's policy is the first to like another token better than the starting policy's favourite."""
    found = histories.history(record, sentence)
    at = int(place) - 1
    one = duel(found, at)
    favourite, challenger = on.shown_pieces(one.names)
    right = len(found.steps) // 2 if one.crossing is None else one.crossing
    third = max(1, len(found.steps) // 3)
    wrong = [float(found.steps[(right + shift) % len(found.steps)]) for shift in (third, 2 * third)]
    asked = options(float(found.steps[right]), wrong, int(sentence + place), digits=0)
    never = one.crossing is None
    return {
        **asked,
        **({"answer": Word("never")} if never else {}),
        "context": on.shortened(found.prompt + "".join(found.pieces[:at])),
        "favourite": favourite,
        "challenger": challenger,
        "own": on.shown_pieces(found.pieces)[at],
        "favourite_chances": one.favourite.tolist(),
        "challenger_chances": one.challenger.tolist(),
        "own_chances": one.own.tolist(),
        "apart": one.apart,
        "recorded": found.chances[:, at].tolist(),
        "steps": found.steps,
        "crossing": one.crossing,
        "favourite_start": float(one.favourite[0]),
        "challenger_start": float(one.challenger[0]),
        "favourite_end": float(one.favourite[-1]),
        "challenger_end": float(one.challenger[-1]),
        "swings": sum(a * b < 0 for a, b in pairwise((one.challenger - one.favourite).tolist())),
    }


def draw_duel(n: Numbers) -> Picture:
    steps = [float(step) for step in n["steps"]]
    curves = [
        Series(n["favourite"], steps, n["favourite_chances"], tone="value"),
        Series(n["challenger"], steps, n["challenger_chances"], tone="policy"),
    ]
    if n["apart"]:
        curves.append(Series(n["own"], steps, n["own_chances"], tone="score"))
    at = None if n["crossing"] is None else steps[n["crossing"]]
    return line(curves, x=Word("policy_after"), y=Word("chance"), x_range=(steps[0], steps[-1]), y_range=(0, 1), at=at)


SCENES = (
    Scene(
        "map",
        mapped,
        controls=(SENTENCE, Choice("measure", ("change", "chance"), start="change"), FromRun("step", _step)),
        pictures={"map": draw_map, "sentence": draw_sentence},
        needs=NEEDS,
    ),
    Scene(
        "overtaken",
        overtaken,
        controls=(SENTENCE, FromRun("place", _place)),
        pictures={"duel": draw_duel},
        needs=NEEDS,
    ),
)
