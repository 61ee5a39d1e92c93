"""The tokens whose probability rose and fell most at the positions of the probes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rlhf_studio.analysis.records import TokenShift
from rlhf_studio.runs.records import Probe, ProbeScore

MOST_SHIFTS = 8
MOST_OF_A_TOKEN = 2
LEAST_SHIFT = 0.05
"""Smaller changes of a probability are not shown."""
LONGEST_CONTEXT = 60


def shifts(
    probes: Sequence[Probe], scores: Sequence[tuple[int, ProbeScore]], pieces: Mapping[int, str], until: int | None
) -> tuple[list[TokenShift], list[TokenShift]]:
    """(those that rose, those that fell) between the starting policy and the newest step up to ``until``, the largest change first.

    At each position, the probe's own token and the likeliest tokens of both policies are compared. A token without a known text is left
    out. One text is shown at :data:`MOST_OF_A_TOKEN` positions at most, so that others are shown too.
    """
    start = {score.probe: score for step, score in scores if step == 0}
    last = max((step for step, _ in scores if step > 0 and (until is None or step <= until)), default=0)
    now = {score.probe: score for step, score in scores if step == last}
    by_position: dict[tuple[int, int, str], TokenShift] = {}
    for probe in probes if last else []:
        if probe.probe in start and probe.probe in now:
            for shift in _of_probe(probe, start[probe.probe], now[probe.probe], pieces):
                by_position.setdefault((shift.probe, shift.position, shift.token), shift)
    ordered = sorted(by_position.values(), key=lambda shift: -abs(shift.after - shift.before))
    large = [shift for shift in ordered if abs(shift.after - shift.before) >= LEAST_SHIFT]
    return _varied(shift for shift in large if shift.after > shift.before), _varied(shift for shift in large if shift.after < shift.before)


def _varied(ordered: Iterator[TokenShift]) -> list[TokenShift]:
    chosen: list[TokenShift] = []
    for shift in ordered:
        if len(chosen) < MOST_SHIFTS and sum(other.token == shift.token for other in chosen) < MOST_OF_A_TOKEN:
            chosen.append(shift)
    return chosen


def _of_probe(probe: Probe, start: ProbeScore, now: ProbeScore, pieces: Mapping[int, str]) -> Iterator[TokenShift]:
    for position, piece in enumerate(probe.pieces):
        context = shortened(probe.prompt + "".join(probe.pieces[:position]))
        candidates = [(piece, start.logprobs[position], now.logprobs[position])]
        for ids, before, after in (
            (now.top_ids, now.start_logprobs, now.top_logprobs),
            (start.top_ids, start.top_logprobs, now.logprobs_of_start),
        ):
            numbers = zip(ids[position].tolist(), before[position], after[position], strict=True)
            candidates += [(pieces[token], earlier, later) for token, earlier, later in numbers if token in pieces]
        for text, earlier, later in candidates:
            if np.isfinite(later) or np.isfinite(earlier):
                yield TokenShift(probe.probe, position, context, text, float(np.exp(earlier)), float(np.exp(later)))


def shortened(text: str) -> str:
    """The end of a text on one line, from the beginning of a word, at most :data:`LONGEST_CONTEXT` characters."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_CONTEXT:
        return line
    end = line[-LONGEST_CONTEXT:]
    space = end.find(" ", 0, LONGEST_CONTEXT // 2)
    return "…" + end[space + 1 :]
