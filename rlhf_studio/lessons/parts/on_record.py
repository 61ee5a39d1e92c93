"""What the screens of the microscope share: the controls that a run makes, the numbers of one response, and how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rlhf_studio.language import S_
from rlhf_studio.lessons.kit import CannotAsk, Choice, FromRun, Listed, Picture, Toggle, Token, Word, around, tokens
from rlhf_studio.lessons.record import RecordedRun
from rlhf_studio.lessons.what_if import RecordedStep, Settings, WhatIf, recompute

STEP_OF_BUNDLED, SAMPLE = 12, 3
"""Where a reader begins: this step and response of the bundled run; of others the newest step, and its best response."""
ESTIMATORS = ("k1", "k2", "k3", "abs")
LONGEST_PROMPT = 240  # characters
DIGITS = 2
SMALLEST_SCALE = 0.05


# --- controls ----------------------------------------------------------------------------------------------------------------------


def _step(needed: Mapping[str, Any], _: Mapping[str, Any]) -> Listed:
    record: RecordedRun = needed["record"]
    newest = record.steps[-1]
    return Listed("step", record.steps, STEP_OF_BUNDLED if record.models is not None and STEP_OF_BUNDLED in record.steps else newest)


def _sample(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Listed:
    record: RecordedRun = needed["record"]
    numbers = range(1, len(record.responses(chosen["step"])) + 1)
    return Listed("sample", numbers, min(SAMPLE if record.models is not None else _best(record.recorded(chosen["step"])), numbers[-1]))


def _best(of: RecordedStep) -> int:
    """The number of the response with the highest score, of those whose last pass is on record where there are some."""
    scores = of.scores.nan_to_num(-math.inf)
    whole = scores.masked_fill(~of.last_pass, -math.inf) if bool(of.last_pass.any()) else scores
    return int(whole.argmax()) + 1


STEP = FromRun("step", _step, shared=True, fixed=True)
RESPONSE = FromRun("sample", _sample, shared=True)


def setting(name: str, low: float, high: float, step: float, of: str) -> FromRun:
    """A slider that starts at the setting ``of`` the chosen step; see :class:`Settings`."""
    return FromRun(name, lambda needed, chosen: around(name, low, high, step, float(getattr(_settings(needed, chosen), of))), own=True)


def _settings(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Settings:
    settings: Settings = needed["record"].recorded(chosen["step"]).settings
    return settings


def _estimator(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Choice:
    of: RecordedStep = needed["record"].recorded(chosen["step"])
    return Choice("estimator", (*ESTIMATORS, *(("full",) if of.full_kl is not None else ())), of.settings.kl_estimator)


def _score(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Listed:
    scores = needed["record"].recorded(chosen["step"]).scores
    low, high = math.floor(scores.min()) - 1, math.ceil(scores.max()) + 1
    step = next((candidate for candidate in (0.1, 0.5, 1.0) if (high - low) / candidate <= 100), float(math.ceil((high - low) / 100)))
    high = low + step * math.ceil((high - low) / step)
    return around("score", low, high, step, float(scores[int(chosen["sample"]) - 1]), most_digits=DIGITS)


ESTIMATOR, SCORE = FromRun("estimator", _estimator, own=True), FromRun("score", _score, own=True)
WHITENING = FromRun("whitening", lambda needed, chosen: Toggle("whitening", _settings(needed, chosen).whiten_advantages), own=True)


# --- the numbers of a response -----------------------------------------------------------------------------------------------------


def opened(record: RecordedRun, step: float, sample: float) -> tuple[RecordedStep, int, list[str]]:
    """The step, the row of the response, and its tokens' texts."""
    row = int(sample) - 1
    return record.recorded(int(step)), row, shown_pieces(record.responses(int(step))[row].pieces)


def shown_pieces(pieces: Sequence[str]) -> list[str]:
    """The texts of tokens without the spaces around them; a dot where nothing is left."""
    return [piece.strip() or "·" for piece in pieces]


def row_of(x: Tensor, of: RecordedStep, row: int) -> list[float]:
    """The numbers of one response's tokens."""
    values: list[float] = x[row][of.mask[row]].double().tolist()
    return values


def shortened(text: str) -> str:
    """The end of a long text."""
    return text if len(text) <= LONGEST_PROMPT else f"…{text[-LONGEST_PROMPT:]}"


def computed_with(of: RecordedStep, row: int = 0, score: float | None = None, **changes: Any) -> WhatIf:
    """The step with other settings, and with another score of one response. With the run's own it is what was recorded."""
    scores = {} if score is None or score == float(of.scores[row]) else {row: score}
    return recompute(of, replace(of.settings, **changes), scores)


def needs_last_pass(of: RecordedStep, row: int) -> None:
    """Raises :class:`CannotAsk` for a response whose last pass is not on record."""
    if bool(of.last_pass[row]):
        return
    known = [number + 1 for number, recorded in enumerate(of.last_pass.tolist()) if recorded]
    if not known:
        raise CannotAsk("Of this step no response has the update's last pass on record.")
    which = S_(f"the responses {known[0]} to {known[-1]}") if known == list(range(known[0], known[-1] + 1)) else S_("some responses")
    raise CannotAsk(f"The update's last pass is on record for {which} of this step alone. Choose one of them.")


# --- pictures ----------------------------------------------------------------------------------------------------------------------


def scale_of(x: Tensor, of: RecordedStep) -> float:
    """The number with the strongest colour: nearly the largest of the step, so that the colours of its responses can be compared."""
    return max(SMALLEST_SCALE, x[of.mask].abs().double().quantile(0.98).item())


def rounded_range(numbers: Sequence[float]) -> tuple[float, float]:
    """A range of halves or whole numbers around all of these."""
    low, high = min(numbers), max(numbers)
    unit = 0.5 if high - low <= 5 else 10.0 ** math.floor(math.log10(high - low))
    return unit * math.floor(low / unit - 0.1), unit * math.ceil(high / unit + 0.1)


def same(now: float, before: float, digits: int = DIGITS) -> bool:
    """Whether two numbers look the same with so many digits."""
    return f"{now:.{digits}f}" == f"{before:.{digits}f}"


def differing(now: Sequence[float], before: Sequence[float], digits: int = DIGITS) -> int:
    """How many numbers look different from the recorded ones."""
    return sum(not same(a, b, digits) for a, b in zip(now, before, strict=True))


def coloured(
    pieces: Sequence[str],
    values: Sequence[float],
    label: str,
    size: float,
    *,
    before: Sequence[float] | None = None,
    mark: Callable[[int], str] = lambda index: "",
    digits: int = DIGITS,
) -> Picture:
    """Tokens with their numbers. Where ``before`` is another number, it stands below in brackets."""
    earlier = values if before is None else before
    notes = ["" if same(a, b, digits) else f"({b:.{digits}f})".replace("-", "\u2212") for a, b in zip(values, earlier, strict=True)]
    items = [Token(piece, value, mark(index), note) for index, (piece, value, note) in enumerate(zip(pieces, values, notes, strict=True))]
    return tokens(items, label=Word(label), size=size, digits=digits)
