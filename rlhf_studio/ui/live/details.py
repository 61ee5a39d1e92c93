"""Answers that are larger than a poll: a step's samples, a response's tokens, the watched answers, the log.

Each is read once and kept for everybody who asks later. Any thread may look up a kept answer; only the feed's thread reads the disk.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.language import language
from rlhf_studio.ui.lab.varying import handed_over, known_settings
from rlhf_studio.ui.live import payloads, responses

MOST_KEPT = 128
BEST = -1
"""As a sample: the response with the step's best score."""


def _known(reader: Any) -> dict[str, Any]:
    """``known``: the settings of a run of which not all are known; nothing for others."""
    known = known_settings(reader)
    return {} if known is None else {"known": known}


_KINDS: dict[str, Callable[[Any, int, int], bytes]] = {
    "samples": responses.samples,
    "tokens": responses.tokens,
    "watched": lambda reader, step, sample: responses.watched_payload(reader.watched(ends=True)),
    "answer": lambda reader, step, sample: responses.answer_payload(reader.watched(ends=True), sample),
    "scratch": lambda reader, step, sample: responses.scratch_payload(reader.scratch(), sample, responses.ppo_of(reader)),
    "settings": lambda reader, step, sample: payloads.encode_text({**handed_over(reader), **_known(reader)}),
    "log": lambda reader, step, sample: payloads.encode_text({"text": without_secrets(reader.log_tail())}),
}
KINDS = frozenset(_KINDS)
_OF_A_SAMPLE = ("samples", "tokens", "answer", "scratch")
_CHANGING = ("watched", "answer", "scratch")  # with every commit
_Key = tuple[Any, ...]


class Moment(Protocol):
    """Where a run stands: a run's status and a snapshot of it both say so."""

    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def step(self) -> int: ...


class Details:
    """Details of all runs that are watched, as complete JSON."""

    def __init__(self) -> None:
        self._details: OrderedDict[_Key, bytes] = OrderedDict()

    def known(self, run: str, kind: str, step: int, sample: int, at: Moment) -> bytes | None:
        """A detail that was read before and is still true; None when there is none. Reads memory only."""
        return self._details.get(_key(run, kind, step, sample, at))

    def read(self, reader: Any, run: str, kind: str, step: int, sample: int, at: Moment) -> bytes:
        """The kept detail, or else the detail from the disk by ``reader``, a RunReader. Raises StoreError."""
        key = _key(run, kind, step, sample, at)
        if key in self._details:
            self._details.move_to_end(key)
            return self._details[key]
        detail = _KINDS[kind](reader, step, sample)
        if step <= at.step:  # a later step may be there the next time
            self._details[key] = detail
            while len(self._details) > MOST_KEPT:
                self._details.popitem(last=False)
        return detail


def _key(run: str, kind: str, step: int, sample: int, at: Moment) -> _Key:
    """Samples and tokens never change once written; the log and the watched answers do, with or without a new step."""
    age = at.seq if kind in _CHANGING else int(time.monotonic()) if kind == "log" else 0
    return (run, at.epoch, kind, language(), *((step, sample) if kind in _OF_A_SAMPLE else ()), age)
