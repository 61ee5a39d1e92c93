"""The responses of a run's steps as token ids, read from its records: all episodes where they were kept, else the recorded responses.

A long run is thinned to at most :data:`MOST_STEPS` steps that lie evenly (every second, every fourth ... recorded step), so that what is
read stays bounded, and so that only the newest steps of a growing run must be read. Steps that were read are remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ResponseTokens
from rlhf_studio.runs.rows import tenth

MOST_STEPS = 48
FEWEST_OF_A_SIDE = 3
ENOUGH_AT_FIRST = 64
"""So many responses are a start: no more steps are taken for it, since the policy may change from the first update on."""
MOST_TOKENS = 120_000
"""Of all kept steps together; of steps with longer or more responses only the first responses are taken."""
FEWEST_RESPONSES = 4
"""Taken of each step whatever :data:`MOST_TOKENS` says."""
MOST_RECORDED = 64
PARTIAL = "\ufffd"
"""The text of a token that ends inside a character."""

_UNITS = re.compile(r"\s*(?:[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|\S)|\s+")
"""Words and marks with the space before them; single characters in scripts that are written without spaces between words."""


@dataclass(frozen=True)
class StepTokens:
    """The responses of one step. ``ids`` (int64) lie one response after the other; the others have shape (N,).

    ``stopped``: whether a response is known to have ended by itself; ``end_known`` is false where a log of another program does not say.
    """

    step: int
    ids: np.ndarray
    lengths: np.ndarray
    stopped: np.ndarray
    end_known: np.ndarray


@dataclass(frozen=True)
class Corpus:
    """The responses of the kept steps, one after the other, without their stop tokens. S steps, R responses, T tokens.

    Attributes:
        steps: the kept steps, in order.
        ids: int64, shape (T,), numbered from 0 without gaps.
        starts, lengths: index of a response's first token, and number of its tokens, shape (R,).
        stopped: whether a response is known to have ended by itself, shape (R,).
        end_known: whether it is known how a response ended, shape (R,).
        row: which of ``steps`` a response belongs to, shape (R,).
        pieces: the text of each id.
        token_ids: the tokenizer's number of each id; of responses without token ids, a number of our own.
    """

    steps: list[int]
    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    stopped: np.ndarray
    end_known: np.ndarray
    row: np.ndarray
    pieces: list[str]
    token_ids: np.ndarray

    def per_step(self, chosen: np.ndarray | None = None) -> np.ndarray:
        """Responses of each step, shape (S,); of those that ``chosen`` (shape (R,)) marks."""
        rows = self.row if chosen is None else self.row[chosen]
        return np.bincount(rows, minlength=len(self.steps))


@dataclass
class ResponseSource:
    """Reads and remembers what :func:`corpus` needs of a run. ``known`` and ``recorded`` are by step.

    ``all_episodes``: whether all episodes of a step were stored; else only the recorded responses are read.
    """

    reader: RunReader
    all_episodes: bool = False
    known: dict[int, StepTokens] = field(default_factory=dict)
    recorded: dict[int, list[ResponseTokens]] = field(default_factory=dict)
    pieces: dict[int, str] = field(default_factory=dict)
    _own: dict[str, int] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop everything: the run has gone back, and its later steps are trained again."""
        self.known, self.recorded, self.pieces, self._own = {}, {}, {}, {}

    def steps_to_read(self, until: int | None) -> list[int]:
        """The steps that are looked at, at most :data:`MOST_STEPS`; none after ``until``."""
        steps = [int(step) for step in self.reader.columns(())[0] if until is None or step <= until]
        recorded = [step for step in self.reader.rollout_steps() if until is None or step <= until]
        ends = recorded or steps  # a step that failed has no responses at all; a run may also record none of them one by one
        all_episodes = bool(ends) and all(self.reader.episode_arrays(step, ["lengths"]) for step in (ends[0], ends[-1]))
        if all_episodes != self.all_episodes:
            self.forget()
            self.all_episodes = all_episodes
        return thinned(steps) if all_episodes else self.recorded_steps_to_read(until)

    def recorded_steps_to_read(self, until: int | None) -> list[int]:
        """The same of the steps that have recorded responses."""
        return thinned([step for step in self.reader.rollout_steps() if until is None or step <= until])

    def load(self, steps: Sequence[int]) -> list[StepTokens]:
        """The responses of these steps; steps that have none are left out. Steps that were read before are not read again."""
        unknown = [step for step in steps if step not in self.known]
        if unknown and self.all_episodes:
            self.pieces |= {token: piece for token, piece in self.reader.pieces().items() if token not in self.pieces}
        for step in unknown:
            self.known[step] = self._episodes(step) if self.all_episodes else self._recorded_tokens(step)
        self.known = {step: self.known[step] for step in steps}
        return [tokens for tokens in self.known.values() if len(tokens.lengths)]

    def recorded_of(self, steps: Sequence[int]) -> dict[int, list[ResponseTokens]]:
        """The recorded responses of these steps. Their pieces replace those of single tokens, which may lack the space before them."""
        for step in steps:
            if step not in self.recorded:
                self.recorded[step] = self.reader.response_tokens(step, MOST_RECORDED)
                for response in self.recorded[step]:
                    if response.ids is not None and np.all(response.ids >= 0):
                        pairs = zip(response.ids.tolist(), response.pieces, strict=False)
                        self.pieces.update((token, piece) for token, piece in pairs if PARTIAL not in piece)
        self.recorded = {step: self.recorded[step] for step in steps}
        return self.recorded

    def ids_of(self, step: int, response: ResponseTokens) -> list[int]:
        """The same ids as :meth:`load` gives: of a response whose text alone was recorded, those of its episode."""
        known = self.known[step]
        if not self.all_episodes or response.ids is not None or response.sample >= len(known.lengths):
            return self.numbered(response)
        end = int(known.lengths[: response.sample + 1].sum())
        return [int(token) for token in known.ids[end - int(known.lengths[response.sample]) : end]]

    def numbered(self, response: ResponseTokens) -> list[int]:
        """The ids of a recorded response, as :attr:`Corpus.token_ids` has them.

        Logs of other programs may give the texts of tokens without their ids, which are stored as -1: the texts count then.
        """
        if response.ids is not None and len(response.ids) == len(response.pieces) and np.all(response.ids >= 0):
            for token, piece in zip(response.ids.tolist(), response.pieces, strict=True):
                self.pieces.setdefault(token, piece)
            return [int(token) for token in response.ids]
        units = response.pieces or _UNITS.findall(response.response)
        ids = [self._own.setdefault(unit, -1 - len(self._own)) for unit in units]  # below 0: apart from the tokenizer's
        self.pieces.update(zip(ids, units, strict=True))
        return ids

    def _episodes(self, step: int) -> StepTokens:
        arrays = self.reader.episode_arrays(step, ["lengths", "response_ids", "stopped"])
        if not arrays:
            return _step_tokens(step, [], [])
        lengths, stopped = arrays["lengths"].astype(np.int64), arrays["stopped"].astype(bool)
        return StepTokens(step, arrays["response_ids"].astype(np.int64), lengths, stopped, np.ones(len(stopped), bool))

    def _recorded_tokens(self, step: int) -> StepTokens:
        recorded = self.reader.response_tokens(step, MOST_RECORDED)
        return _step_tokens(step, [self.numbered(response) for response in recorded], [response.stopped for response in recorded])


def _step_tokens(step: int, ids: Sequence[Sequence[int]], stopped: Sequence[bool | None]) -> StepTokens:
    flat = np.array([token for response_ids in ids for token in response_ids], np.int64)
    known = np.array([ended is not None for ended in stopped], bool)
    return StepTokens(step, flat, np.array([len(response_ids) for response_ids in ids], np.int64), np.array(stopped, bool), known)


def thinned(steps: Sequence[int], most: int = MOST_STEPS) -> list[int]:
    """Every first, second, fourth ... of ``steps``, at most ``most``. While a run grows, a step that was left out never comes back."""
    stride = 1
    while len(steps) > most * stride:
        stride *= 2
    return list(steps[::stride])


def side_of(steps: int) -> int:
    """How many of so many steps count as the first, and as the last ones: a tenth; at least three, or half of fewer than six."""
    return max(tenth(steps), min(FEWEST_OF_A_SIDE, steps // 2), 1)


def first_steps(step_tokens: Sequence[StepTokens], side: int) -> int:
    """How many steps are the start: the first one, whose responses were sampled before any update, and only where it has fewer than
    :data:`ENOUGH_AT_FIRST` of them the next ones too, at most ``side``."""
    count = 0
    for steps, tokens in enumerate(step_tokens[:side], 1):
        count += len(tokens.lengths)
        if count >= ENOUGH_AT_FIRST:
            return steps
    return side


def corpus(step_tokens: Sequence[StepTokens], pieces: dict[int, str]) -> Corpus:
    """Put the responses of steps together: as many of each as :data:`MOST_TOKENS` allows, and without their stop tokens."""
    lengths = np.concatenate([tokens.lengths for tokens in step_tokens])
    most = max(FEWEST_RESPONSES, int(MOST_TOKENS / max(1.0, lengths.mean()) / len(step_tokens)))
    taken = [tokens.lengths[:most] for tokens in step_tokens]
    ids = np.concatenate([tokens.ids[: own_lengths.sum()] for tokens, own_lengths in zip(step_tokens, taken, strict=True)])
    stopped, end_known = (np.concatenate([getattr(tokens, name)[:most] for tokens in step_tokens]) for name in ("stopped", "end_known"))
    row = np.repeat(np.arange(len(step_tokens)), [len(own_lengths) for own_lengths in taken])
    lengths = np.concatenate(taken)
    ids, lengths = without_stop_tokens(ids, lengths, stopped)
    token_ids, dense = np.unique(ids, return_inverse=True)
    return Corpus(
        steps=[tokens.step for tokens in step_tokens],
        ids=dense.astype(np.int64),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        stopped=stopped,
        end_known=end_known,
        row=row,
        pieces=[pieces.get(int(token), PARTIAL) for token in token_ids],
        token_ids=token_ids,
    )


def without_stop_tokens(ids: np.ndarray, lengths: np.ndarray, stopped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and lengths without the tokens that ended responses.

    Which these are, the ids say: tokens that stand nowhere but at the end of responses that ended by themselves. Records that were made
    without them (the last tokens of such responses stand elsewhere too) stay as they are.
    """
    ends = np.cumsum(lengths)[stopped & (lengths > 0)] - 1
    inside = np.ones(len(ids), bool)
    inside[ends] = False
    if not len(ends) or np.isin(ids[ends], ids[inside]).any():
        return ids, lengths
    return ids[inside], lengths - (stopped & (lengths > 0))


def responses_of(ids: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """The ids of one response after the other."""
    yield from np.split(ids, np.cumsum(lengths)[:-1])
