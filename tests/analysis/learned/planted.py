"""Run folders with responses that a test has made up, written through the store's own writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import TOKEN_QUANTITIES, RolloutRecord, StepEpisodes, StepRecord, TokenRecord
from rlhf_studio.runs.writer import RunWriter

STOP = "<end>"
Response = list[str]
"""The pieces of a response, without the stop token."""


def write_run(
    folder: Path,
    steps: Sequence[Sequence[Response]],
    *,
    recorded: int = 4,
    episodes: bool = True,
    tokens: bool = True,
    stopped: Callable[[int, int], bool] = lambda step, sample: True,
    judge: Callable[[int, int], tuple[float, float | None, dict[str, float]]] = lambda step, sample: (0.0, None, {}),
    alone: Callable[[str], str] = lambda piece: piece,
    unit: Callable[[str], list[str]] = lambda piece: [piece],
) -> RunReader:
    """A run whose step ``s`` (from 1) has the responses ``steps[s - 1]``; of each, the first ``recorded`` are recorded one by one.

    Args:
        episodes, tokens: whether all episodes, and the tokens of recorded responses, are kept.
        judge: (score, gold, parts) of a response.
        alone: the text of a token that is decoded by itself.
        unit: the names by which tokens are told apart, for a piece; one of them has the whole piece as its text, the others are parts.
    """
    create_run(folder, RunConfig(), name=folder.name)
    ids: dict[str, int] = {STOP: 0}
    with RunWriter(folder) as writer:
        for step, responses in enumerate(steps, 1):
            own_episodes, rollouts = _step(step, responses, ids, recorded, tokens, stopped, judge, unit)
            pieces = {number: alone(name) for name, number in ids.items()}
            writer.commit_step(
                StepRecord(step, {"objective/scores": 0.0}, rollouts, episodes=_episodes(own_episodes, pieces) if episodes else None)
            )
    return RunReader(folder)


def _step(step, responses, ids, recorded, tokens, stopped, judge, unit):  # type: ignore[no-untyped-def]
    episodes, rollouts = [], []
    for sample, pieces in enumerate(responses):
        names = [name for piece in pieces for name in unit(piece)]
        shown_pieces = [part for piece in pieces for part in ["\ufffd"] * (len(unit(piece)) - 1) + [piece]]
        ends = stopped(step, sample)
        if ends:
            names, shown_pieces = [*names, STOP], [*shown_pieces, STOP]
        numbers = np.array([ids.setdefault(name, len(ids)) for name in names], np.int32)
        score, gold, parts = judge(step, sample)
        episodes.append((numbers, ends, score))
        if sample < recorded:
            record = _tokens(numbers, shown_pieces) if tokens else None
            rollouts.append(RolloutRecord(sample, "Tell:", "".join(pieces), score, parts, gold, 0.0, len(numbers), ends, record))
    return episodes, rollouts


def _tokens(ids: np.ndarray, pieces: list[str]) -> TokenRecord:
    size = len(ids)
    numbers, five = np.zeros(size, np.float32), np.zeros((size, 5), np.float32)
    top_ids = np.zeros((size, 5), np.int32)
    arrays = dict.fromkeys(TOKEN_QUANTITIES, numbers)
    return TokenRecord(np.zeros(0, np.int32), ids, [], pieces, arrays, top_ids, five, top_ids, five, {}, 1.0, 0.95, 0.1)


def _episodes(episodes: Sequence[tuple[np.ndarray, bool, float]], pieces: dict[int, str]) -> StepEpisodes:
    flat = np.concatenate([numbers for numbers, _, _ in episodes])
    return StepEpisodes(
        lengths=np.array([len(numbers) for numbers, _, _ in episodes], np.int32),
        response_ids=flat,
        tokens={name: np.zeros(len(flat), np.float32) for name in ("logprobs", "ref_logprobs", "values")},
        scores=np.array([score for _, _, score in episodes], np.float32),
        gold=None,
        parts={},
        stopped=np.array([ends for _, ends, _ in episodes]),
        pieces=pieces,
    )


WORDS = [f" w{number}" for number in range(60)]


def babble(draw: np.random.Generator, length: int, words: Sequence[str] = WORDS) -> Response:
    """Words drawn at random, common ones more often (Zipf's law), with a full stop now and then."""
    weights = 1 / np.arange(1, len(words) + 1)
    drawn = draw.choice(len(words), length, p=weights / weights.sum())
    return [piece for number in drawn for piece in ([words[number], "."] if draw.random() < 0.15 else [words[number]])]


def rising(draw: np.random.Generator, step: int, steps: int) -> bool:
    """Whether this response has what is learned: in 4 % of those of the first step, 90 % of those of the last one."""
    return bool(draw.random() < 0.04 + 0.86 * (step - 1) / (steps - 1))
