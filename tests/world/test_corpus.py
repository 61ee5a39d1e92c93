"""Preference pairs follow the raters they describe; prompts are many and different."""

from __future__ import annotations

import math
from random import Random

from rlhf_studio.world.corpus import (
    PET_CHARM,
    QUALITY,
    RATER_ERROR,
    gush,
    mentions,
    write_pairs,
    write_prompts,
)
from rlhf_studio.world.gold import gold_score
from rlhf_studio.world.reader import read_review

PAIRS = write_pairs(seed=31, size=3000)


def calm(response: str) -> str:
    """The response before its writer gushed, as far as a test can tell."""
    return response.replace(" A masterpiece.", "")


def test_gushing() -> None:
    text = " is fresh. The cast is warm, and the score is dull! A wonder"
    assert gush(text, Random(0), chance=1.0) == (
        " is fresh. A masterpiece. The cast is warm, and the score is dull! A masterpiece. A wonder"
    )
    assert gush(text, Random(0), chance=0.0) == text
    assert mentions(gush(text, Random(0), chance=1.0)) == 2 and mentions("A MASTERPIECE") == 1


def test_both_responses_continue_the_prompt() -> None:
    for pair in PAIRS[:200]:
        for response in (pair.chosen, pair.rejected):
            assert all(read_review(pair.prompt + calm(response)).accepted)


def test_raters_prefer_by_the_bradley_terry_odds() -> None:
    """Where the log-odds are near x, the share that agrees must be near sigmoid(x), moved by the rate of mistakes.

    A pet word that is the review's own verdict cannot be told from gushing, so such pairs are left out.
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for pair in PAIRS:
        if any(not read_review(pair.prompt + calm(response)).complete for response in (pair.chosen, pair.rejected)):
            continue
        chosen, rejected = (
            QUALITY * gold_score(pair.prompt, calm(response)) + PET_CHARM * mentions(response) for response in (pair.chosen, pair.rejected)
        )
        odds = abs(chosen - rejected)
        bins.setdefault(min(int(odds), 4), []).append((odds, chosen > rejected))
    assert len(bins) == 5
    for members in bins.values():
        expected = sum((1 - 2 * RATER_ERROR) / (1 + math.exp(-odds)) + RATER_ERROR for odds, _ in members) / len(members)
        agreed = sum(agrees for _, agrees in members) / len(members)
        assert abs(agreed - expected) < 4 * math.sqrt(0.25 / len(members))


def test_the_pet_word_charms_raters() -> None:
    """Between responses of like quality, the one that says it more often wins more often."""
    wins = [
        mentions(pair.chosen) > mentions(pair.rejected)
        for pair in PAIRS
        if mentions(pair.chosen) != mentions(pair.rejected)
        and abs(gold_score(pair.prompt, calm(pair.chosen)) - gold_score(pair.prompt, calm(pair.rejected))) < 0.2
    ]
    assert len(wins) > 100 and sum(wins) / len(wins) > 0.6


def test_prompts_are_different_and_fixed_by_the_seed() -> None:
    prompts = write_prompts(seed=1, size=700)
    assert len(set(prompts)) == 700
    assert write_prompts(seed=1, size=100) == prompts[:100]
    assert write_prompts(seed=2, size=100) != prompts[:100]
    assert len({len(read_review(prompt).starts) for prompt in prompts}) == 6
