"""Simulated annotators through the page's own address, with the app killed at random moments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.feedback import Outcome, percentile, rate
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.ui.feedback.results import agreement


def kappa_of(found: Outcome) -> float:
    """Fleiss' kappa from what the annotators say they answered, not from the store."""
    of: dict[int, list[str]] = {}
    for item, _, text in found.said:
        of.setdefault(item, []).append(text.split(" ")[0])  # One, Another, tie
    size = len(next(iter(of.values())))
    agree = sum(sum(n * (n - 1) for n in Counter(answers).values()) / (size * (size - 1)) for answers in of.values()) / len(of)
    totals = Counter(answer for answers in of.values() for answer in answers)
    chance = sum((count / totals.total()) ** 2 for count in totals.values())
    return (agree - chance) / (1 - chance)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_five_hundred_comparisons_and_eight_kills(tmp_path: Path, seed: int) -> None:
    found = rate(tmp_path, annotators=3, items=500, each=3, pause=0.0, kills=8, seed=seed)
    assert [rater.problems for rater in found.raters] == [[], [], []]
    assert sum(rater.sent_again for rater in found.raters) >= 8
    assert len(found.said) == 1500 and sorted(found.said) == sorted(found.stored), "none lost, none twice, none changed"
    feedback = Feedback(tmp_path)
    told = agreement(feedback.task(found.task), feedback.votes(found.task))
    assert told["fleiss_items"] == 500 and told["fleiss"] == pytest.approx(kappa_of(found), abs=1e-12)


def test_percentiles() -> None:
    assert [percentile(range(1, 101), share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([3.0], 0.95) == 3.0
