"""The same text under the policy of every step: which tokens became likelier, when, and which one overtook which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rlhf_studio.analysis.series import evenly
from rlhf_studio.lessons.kit import Choice, FromRun, Listed, Numbers, Picture, Scene, Series, Word, heat, line, options
from rlhf_studio.lessons.parts import histories
from rlhf_studio.lessons.parts import on_record as on
from rlhf_studio.lessons.parts.histories import History
from rlhf_studio.lessons.record import RecordedRun

NUMBER = 19
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
    """The control of the token. It starts where the favourite loses its lead most clearly."""
    history = histories.history(needed["record"], chosen["sentence"])
    duels = [duel(history, position) for position in range(len(history.pieces))]
    gains = [float(each.challenger[-1] - each.favourite[-1]) for each in duels]
    return Listed("place", range(1, len(duels) + 1), gains.index(max(gains)) + 1)


SENTENCE = FromRun("sentence", _sentence, shared=True, fixed=True)


# --- the map -------------------------------------------------------------------------------------------------------------------------


def columns_of(steps: Sequence[int], chosen: float) -> list[int]:
    """The indices of the steps that the map shows: all of them, or some at even distances; always with the chosen step."""
    return sorted({*evenly(len(steps), MOST_COLUMNS), list(steps).index(int(chosen))})


def mapped(record: RecordedRun, sentence: float, measure: str, step: float) -> Numbers:
    """Each token of the sentence under each step's policy."""
    history = histories.history(record, sentence)
    at, chances = history.steps.index(int(step)), history.chances
    change, size = history.logprobs[-1] - history.logprobs[0], np.abs(history.logprobs[-1] - history.logprobs[0])
    most = int(np.abs(chances[at] - chances[0]).argmax())
    totals = history.logprobs.sum(axis=1)
    return {
        "history": history,
        "prompt": on.shortened(history.prompt),
        "pieces": on.shown_pieces(history.pieces),
        "at": at,
        "last": history.steps[-1],
        "steps": len(history.steps),
        "total": float(totals[at]),
        "total_start": float(totals[0]),
        "likelier": float(totals[at] - totals[0]),
        "moved": on.shown_pieces(history.pieces)[most],
        "moved_from": float(chances[0, most]),
        "moved_to": float(chances[at, most]),
        "changes": change.tolist(),
        "count": len(history.pieces),
        "few_tokens": min(FEW, len(history.pieces)),
        "share": float(np.sort(size)[::-1][:FEW].sum() / size.sum()) if size.any() else 0.0,
        "few": bool(np.sort(size)[::-1][:FEW].sum() > size.sum() / 2),
        "of_writer": [] if history.recorded is None else history.logprobs[history.recorded[0]].tolist(),
        "on_record": [] if history.recorded is None else history.recorded[1].tolist(),
    }


def draw_map(n: Numbers) -> Picture:
    history: History = n["history"]
    columns = columns_of(history.steps, n["step"])
    changed = n["measure"] == "change"
    numbers = history.logprobs - history.logprobs[0] if changed else history.chances
    rows = {f"{position + 1}  {piece}": numbers[columns, position].tolist() for position, piece in enumerate(n["pieces"])}
    size = max(0.1, float(np.abs(numbers).max())) if changed else 1.0
    label = Word("change_of_logprob" if changed else "chance")
    chosen = columns.index(n["at"])
    return heat([str(history.steps[at]) for at in columns], rows, label=label, size=size, signed=changed, compact=True, at=chosen)


def draw_sentence(n: Numbers) -> Picture:
    history: History = n["history"]
    return on.coloured(n["pieces"], history.chances[n["at"]].tolist(), "chance", 1.0, before=history.chances[0].tolist())


# --- who overtakes whom --------------------------------------------------------------------------------------------------------------


class Duel:
    """Two tokens for one position: the starting policy's favourite, and the other token that is likeliest in the end.

    Attributes:
        names: the texts of the favourite and of the challenger.
        favourite, challenger: (S,) their probabilities; ``own``: of the sentence's own token, which may be a third one (``apart``).
        crossing: the index in ``steps`` of the first policy that gives the challenger more probability; None where none does.
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


def duel(history: History, position: int) -> Duel:
    """The two tokens for a position of a sentence, counted from 0. Raises CannotAsk where the run has recorded one token alone."""
    texts, logprobs = history.candidates[position]
    if len(texts) < 2:
        raise on.CannotAsk("At this place the run has kept one token alone. Choose another place.")
    return Duel(texts, logprobs)


def overtaken(record: RecordedRun, sentence: float, place: float) -> Numbers:
    """Which step's policy is the first to like another token better than the starting policy's favourite."""
    history = histories.history(record, sentence)
    at = int(place) - 1
    result = duel(history, at)
    favourite, challenger = on.shown_pieces(result.names)
    right = len(history.steps) // 2 if result.crossing is None else result.crossing
    third = max(1, len(history.steps) // 3)
    wrong = [float(history.steps[(right + shift) % len(history.steps)]) for shift in (third, 2 * third)]
    choices = options(float(history.steps[right]), wrong, int(sentence + place), digits=0)
    never = result.crossing is None
    return {
        **choices,
        **({"answer": Word("never")} if never else {}),
        "context": on.shortened(history.prompt + "".join(history.pieces[:at])),
        "favourite": favourite,
        "challenger": challenger,
        "own": on.shown_pieces(history.pieces)[at],
        "favourite_chances": result.favourite.tolist(),
        "challenger_chances": result.challenger.tolist(),
        "own_chances": result.own.tolist(),
        "apart": result.apart,
        "recorded": history.chances[:, at].tolist(),
        "steps": history.steps,
        "crossing": result.crossing,
        "favourite_start": float(result.favourite[0]),
        "challenger_start": float(result.challenger[0]),
        "favourite_end": float(result.favourite[-1]),
        "challenger_end": float(result.challenger[-1]),
        "swings": sum(a * b < 0 for a, b in pairwise((result.challenger - result.favourite).tolist())),
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
    Scene("overtaken", overtaken, controls=(SENTENCE, FromRun("place", _place)), pictures={"duel": draw_duel}, needs=NEEDS),
)
