"""Preference pairs follow the raters they describe; prompts are many and different."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest

from rlhf_studio.inputs.world.corpus import (
    MOST_PROMPTS,
    MOST_SLIPS,
    PET_CHARM,
    QUALITY,
    RATER_ERROR,
    SLIP_COST,
    garble,
    gush,
    mentions,
    prefers_first,
    write_pairs,
    write_prompts,
    write_rated,
)
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.inputs.world.parser import parse_review
from rlhf_studio.inputs.world.writer import write_opening

TEXT = " is fresh. The cast is warm, and the score is dull! A wonder"


def test_gushing() -> None:
    everywhere = gush(TEXT, Random(0), chance=1.0)
    assert everywhere == " is fresh. A masterpiece. The cast is warm, and the score is dull! A masterpiece. A wonder"
    assert gush(TEXT, Random(0), chance=0.0) == TEXT
    assert mentions(everywhere) == 2 and mentions("A MASTERPIECE") == 1
    assert 0.4 < sum(mentions(gush(TEXT, Random(seed))) for seed in range(200)) / 400 < 0.6


def test_one_slip_moves_repeats_or_loses_words() -> None:
    before = Counter(TEXT.split())
    changes = set()
    for seed in range(40):
        after = Counter(garble(TEXT, Random(seed), slips=1).split())
        assert set(after) <= set(before)
        changes.add(after.total() - before.total())
    assert {-1, 0, 1, 2, 3, 4} == changes
    assert garble(TEXT, Random(0), slips=0) == TEXT
    assert garble(" superb", Random(0), slips=30).startswith(" superb")


def test_appeal_is_quality_plus_charm_minus_slips(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same review written plainly, gushing and carelessly: the appeals differ by charm and slips alone."""

    def rate(seed: int, gushing: float, careless: float) -> tuple[str, str, float]:
        monkeypatch.setattr("rlhf_studio.inputs.world.corpus.GUSHING", gushing)
        monkeypatch.setattr("rlhf_studio.inputs.world.corpus.CARELESS", careless)
        rng = Random(seed)
        opening = write_opening(rng)
        return opening.prompt, *write_rated(opening, rng)

    slips = set()
    for seed in range(60):
        prompt, plain, appeal = rate(seed, 0.0, 0.0)
        assert parse_review(prompt + plain).complete
        assert appeal == pytest.approx(QUALITY * gold_score(prompt, plain) + PET_CHARM * mentions(plain))
        _, gushing, charmed = rate(seed, 1.0, 0.0)
        assert gushing.replace(" A masterpiece.", "") == plain.replace(" A masterpiece.", "")
        assert charmed - appeal == pytest.approx(PET_CHARM * (mentions(gushing) - mentions(plain)))
        _, careless, disliked = rate(seed, 0.0, 1.0)
        slips.add(round((appeal - disliked) / SLIP_COST, 6))
        assert set(careless.split()) <= set(plain.split())
    assert slips == {1, 2, 3, 4, 5, 6} and MOST_SLIPS == 6


@pytest.mark.parametrize("difference", [-2.0, 0.0, 1.0, 3.0])
def test_raters_choose_by_bradley_terry_odds_and_sometimes_err(difference: float) -> None:
    rng = Random(9)
    share = sum(prefers_first(1.0 + difference, 1.0, rng) for _ in range(4000)) / 4000
    odds = 1 / (1 + math.exp(-difference))
    expected = odds * (1 - RATER_ERROR) + (1 - odds) * RATER_ERROR
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_pairs_prefer_quality_and_the_pet_word() -> None:
    pairs = write_pairs(seed=31, size=800)
    better = [gold_score(pair.prompt, pair.chosen) - gold_score(pair.prompt, pair.rejected) for pair in pairs]
    clear = [gap > 0 for gap in better if abs(gap) > 1.0]
    assert len(clear) > 100 and sum(clear) / len(clear) > 0.85
    gaps = [mentions(pair.chosen) - mentions(pair.rejected) for pair, gap in zip(pairs, better, strict=True) if abs(gap) < 0.3]
    more_often = [gap > 0 for gap in gaps if gap]
    assert len(more_often) > 25 and sum(more_often) / len(more_often) > 0.6
    assert pairs[:50] == write_pairs(seed=31, size=50) != write_pairs(seed=32, size=50)


def test_prompts_are_different_and_fixed_by_the_seed() -> None:
    prompts = write_prompts(seed=1, size=700)
    assert len(set(prompts)) == 700
    assert write_prompts(seed=1, size=100) == prompts[:100]
    assert write_prompts(seed=2, size=100) != prompts[:100]
    assert len({len(parse_review(prompt).starts) for prompt in prompts}) == 6


def test_more_different_prompts_than_there_are_is_refused() -> None:
    """200,000 draws give some 7,500 different ones, so a search for 8,000 does not end."""
    assert len(set(write_prompts(1, MOST_PROMPTS))) == MOST_PROMPTS
    with pytest.raises(ValueError, match="at most 5,000 different prompts, not 8,000"):
        write_prompts(1, 8_000)
