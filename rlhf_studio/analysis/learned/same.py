"""Whether a policy answers nearly every prompt alike by now. How every answer begins needs no test against chance: it is counted."""

from __future__ import annotations

from collections import Counter

from rlhf_studio.analysis.learned.responses import PARTIAL, Corpus
from rlhf_studio.analysis.records import Same

NEARLY_ALL, RARE = 0.9, 0.5
"""The least share of the newest answers, and the share that it must lie below in the first step."""
FEWEST = 4
BEGINNING = 8
"""Tokens that are compared: answers that have gone to pieces may differ in their last words."""


def one_answer(corpus: Corpus, last: int) -> Same | None:
    """How nearly all responses of the ``last`` steps begin, where few of the first step did; else None."""
    if len(corpus.steps) < 2:
        return None
    texts = [
        (int(row), corpus.ids[start : start + min(length, BEGINNING)].tobytes())
        for row, start, length in zip(corpus.row, corpus.starts, corpus.lengths, strict=True)
    ]
    now = Counter(text for row, text in texts if row >= max(1, len(corpus.steps) - last))
    then = Counter(text for row, text in texts if row == 0)
    (answer, count), of, before_of = now.most_common(1)[0], now.total(), then.total()
    if of < FEWEST or count < NEARLY_ALL * of or then[answer] >= RARE * before_of:
        return None
    at = next(index for index, (row, text) in enumerate(texts) if text == answer)
    ids = corpus.ids[corpus.starts[at] : corpus.starts[at] + min(corpus.lengths[at], BEGINNING)]
    written = " ".join("".join(corpus.pieces[token] for token in ids).replace(PARTIAL, "").split())
    return Same(written, count, of, then[answer], before_of) if written else None
