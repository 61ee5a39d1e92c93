"""Another token in a recorded response, read by critic, policy and reward model. Only for a run whose policies are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlhf_studio.engine.text import token_pieces
from rlhf_studio.lessons.kit import CannotAsk, Choice, FromRun, Listed, Numbers, Picture, Scene, Series, Token, Word, line, tokens
from rlhf_studio.lessons.parts import on_record as on
from rlhf_studio.lessons.record import RecordedRun
from rlhf_studio.lessons.run import LessonRun, Sample

OTHERS = 5


def _models(record: RecordedRun) -> LessonRun:
    if record.models is None:
        raise CannotAsk(
            "This screen asks the policy of the step about a text that it did not write. "
            "Only the bundled run has kept the policy of every step."
        )
    return record.models


def _opened(record: RecordedRun, step: float, sample: float) -> tuple[LessonRun, Sample]:
    models = _models(record)
    return models, models.samples(int(step))[int(sample) - 1]


def _positions(record: RecordedRun, step: float, sample: float) -> range:
    """The tokens that can be replaced: all but the one that ends the response, unless it is the only one."""
    _, original = _opened(record, step, sample)
    return range(1, max(2, len(original.ids) + (not original.stopped)))


def _place(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Listed:
    """The control of the token. It starts where the critic's value changes most."""
    record, step, sample = needed["record"], chosen["step"], chosen["sample"]
    positions = _positions(record, step, sample)
    values = on.row_of(record.recorded(step).values, record.recorded(step), int(sample) - 1)
    changes = [abs(b - a) for a, b in zip(values, values[1:], strict=False)][: len(positions)] or [0.0]
    return Listed("place", positions, changes.index(max(changes)) + 1)


def others(record: RecordedRun, step: float, sample: float, position: float) -> dict[str, tuple[int, float]]:
    """The policy's likeliest other tokens for a position, by their text: id and log-probability. Without the token that ends a response."""
    models, original = _opened(record, step, sample)

    def ask() -> dict[str, tuple[int, float]]:
        at = int(position) - 1
        row = models.distributions(int(step) - 1, models.batch([original.prompt_ids], [original.ids]))[at]
        best = [token for token in row.topk(OTHERS + 2).indices.tolist() if token not in (original.ids[at], models.tokenizer.eos_token_id)]
        return {token_pieces(models.tokenizer, [token])[0]: (token, float(row[token])) for token in best[:OTHERS]}

    return record.remember(("others", step, sample, position), ask)


def _other(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Choice:
    candidates = others(needed["record"], chosen["step"], chosen["sample"], chosen["place"])
    return Choice("other", tuple(candidates), next(iter(candidates)), plain=True)


def swapped(record: RecordedRun, step: float, sample: float, place: float, other: str) -> Numbers:
    """The response with one token replaced by another."""
    models, original = _opened(record, step, sample)
    at, (token, logprob) = int(place) - 1, others(record, step, sample, place)[other]
    ids = [*original.ids[:at], token, *original.ids[at + 1 :]]
    read = models.read(int(step) - 1, models.batch([original.prompt_ids] * 2, [original.ids, ids]))
    logprobs, after = read.logprobs.double().tolist()
    assert read.values is not None  # the critic reads along
    values, values_after = read.values.double().tolist()
    ended = ids[:-1] if original.stopped else ids
    texts = [original.response, "".join(token_pieces(models.tokenizer, ended))]
    scores, golds = models.score([original.prompt] * 2, texts, stopped=original.stopped)
    on_record = on.row_of(record.recorded(int(step)).values, record.recorded(int(step)), int(sample) - 1)
    return {
        "pieces": on.shown_pieces([*original.pieces[:at], other, *original.pieces[at + 1 :]]),
        "token": original.pieces[at].strip() or "·",
        "new": other.strip() or "·",
        "values": values,
        "values_after": values_after,
        "on_record": on_record,
        "logprobs": logprobs,
        "logprobs_after": after,
        "expected": logprob,
        "changes": [b - a for a, b in zip(logprobs, after, strict=True)],
        "chance": math.exp(logprobs[at]),
        "chance_new": math.exp(after[at]),
        "following": sum(after[at + 1 :]) - sum(logprobs[at + 1 :]),
        "score": scores[0],
        "score_new": scores[1],
        "recorded_score": original.score,
        "gold": golds[0],
        "gold_new": golds[1],
        "better": scores[1] > scores[0],
        "next": values[at + 1] if at + 1 < len(values) else scores[0],
        "next_new": values_after[at + 1] if at + 1 < len(values) else scores[1],
        "range": on.rounded_range([*values, *values_after, *scores]),
    }


def draw_values(n: Numbers) -> Picture:
    positions = [float(at) for at in range(1, len(n["values"]) + 1)]
    curves = [
        Series(Word("as_written"), positions, n["values"], tone="value"),
        Series(Word("with_other"), positions, n["values_after"], tone="policy"),
    ]
    x_range = (1.0, float(max(2, len(positions))))
    return line(curves, x=Word("token_number"), y=Word("value"), x_range=x_range, y_range=n["range"], at=n["place"])


def draw_changes(n: Numbers) -> Picture:
    at = int(n["place"]) - 1
    items = [
        Token(piece, None if index < at else n["changes"][index], "chosen" if index == at else "")
        for index, piece in enumerate(n["pieces"])
    ]
    return tokens(items, label=Word("logprob_change"), size=2)


SWAPPED = Scene(
    "swapped",
    swapped,
    controls=(on.STEP, on.RESPONSE, FromRun("place", _place), FromRun("other", _other)),
    pictures={"values": draw_values, "changes": draw_changes},
    needs=("record",),
)
