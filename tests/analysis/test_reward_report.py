"""The measures of a reward model against numbers that were worked out by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis.reward_model.accuracy import by_group, correlation, fit, gold_agreement, length_bias, ranks, share_of
from rlhf_studio.analysis.reward_model.calibration import best_temperature, calibration, histogram
from rlhf_studio.analysis.reward_model.consistency import disagreement, rewritten
from rlhf_studio.analysis.reward_model.pairs import ScoredPairs, normalised_record, scored_pairs
from rlhf_studio.analysis.reward_model.report import most_wrong, reward_report

LN3 = math.log(3)  # a margin of ln 3 is a probability of 3/4


def pairs(chosen: list[float], rejected: list[float], **more: Any) -> ScoredPairs:
    lengths = [1] * len(chosen)
    return scored_pairs({"chosen": chosen, "rejected": rejected, "chosen_tokens": lengths, "rejected_tokens": lengths, **more})


def test_accuracy_and_log_loss() -> None:
    """Probabilities of the chosen: 3/4, 1/4, 1/2; the fourth pair is a tie and counts nowhere."""
    headline = fit(pairs([LN3, 0, 2, 9], [0, LN3, 2, 0], ties=[3]))
    assert headline.accuracy.share == 0.5 and (headline.accuracy.pairs, headline.accuracy.right, headline.ties) == (3, 1.5, 1)
    assert headline.log_loss == pytest.approx((math.log(4 / 3) + math.log(4) + math.log(2)) / 3)
    assert headline.margin == pytest.approx(0) and headline.chosen_mean == pytest.approx((LN3 + 2) / 3)
    none = fit(pairs([1], [1], ties=[0]))
    assert (none.accuracy.share, none.log_loss, none.margin) == (None, None, None)


def test_the_scale_of_normalised_scores_is_undone() -> None:
    """Scores divided by 2 after training: the probability is still that of the margin before."""
    headline = fit(pairs([LN3 / 2], [0], scale=2.0))
    assert headline.log_loss == pytest.approx(math.log(4 / 3)) and headline.margin == pytest.approx(LN3 / 2)


def test_wilson_interval() -> None:
    """8 of 10: centre (0.8 + 3.8415/20) / 1.38415 = 0.7167, half 0.2267 (the textbook's 49.0 % to 94.3 %)."""
    share = share_of("x", np.array([1.0] * 8 + [0.0] * 2))
    assert share.low == pytest.approx(0.4902, abs=5e-5) and share.high == pytest.approx(0.9433, abs=5e-5)
    assert share_of("x", np.ones(3)).high == 1.0 and share_of("x", np.zeros(0)).share is None


def test_calibration_curve() -> None:
    """Ten pairs at 3/4, of which six are right: the model is 15 points too sure; the best temperature maps 3/4 to 3/5."""
    curve = calibration(pairs([LN3] * 6 + [0] * 4, [0] * 6 + [LN3] * 4))
    (full,) = [part for part in curve.bins if part.pairs]
    assert (full.low, full.high) == (pytest.approx(0.75), pytest.approx(0.8)) or (full.low, full.high) == (
        pytest.approx(0.7),
        pytest.approx(0.75),
    )
    assert full.predicted == pytest.approx(0.75) and full.right == pytest.approx(0.6)
    assert curve.error == pytest.approx(0.15) and curve.overconfidence == pytest.approx(0.15)
    assert curve.temperature == pytest.approx(LN3 / math.log(1.5))
    assert curve.least_log_loss == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))
    assert [part.low for part in curve.bins][0] == 0.5 and curve.bins[-1].high == 1.0
    empty = calibration(pairs([], []))
    assert (empty.error, empty.temperature, len(empty.bins)) == (None, None, 10)


def test_temperature_without_a_best_value_is_none() -> None:
    assert best_temperature(np.array([1.0, 2.0])) is None  # all right: the further apart, the better
    assert best_temperature(np.array([-1.0, -2.0])) is None
    assert best_temperature(np.zeros(3)) is None
    assert best_temperature(np.array([1000.0] * 3 + [-1000.0])) is None  # a best one lies beyond 100: ln 3 = 1000 / t


def test_histogram_has_common_edges() -> None:
    bins = histogram(pairs([0, 30], [15, 15]))
    assert bins.edges[0] == 0 and bins.edges[-1] == 30 and len(bins.edges) == 31
    assert bins.chosen[0] == 1 and bins.chosen[-1] == 1 and sum(bins.rejected) == 2 and bins.rejected[15] == 2
    assert histogram(pairs([1], [1])).chosen == [1, *[0] * 29]


def test_length_bias() -> None:
    """Differences −4, −1, 0, 1, 4: their middle size is 2.5. The model gets exactly those right whose chosen response is longer."""
    bias = length_bias(pairs([0, 0, 1, 1, 1], [1, 1, 0, 0, 0], chosen_tokens=[1, 4, 5, 6, 9], rejected_tokens=[5] * 5))
    assert bias.middle == 2.5
    assert [(part.name, part.pairs, part.share) for part in bias.bins] == [
        ("much shorter", 1, 0.0), ("shorter", 1, 0.0), ("equally long", 1, 1.0), ("longer", 1, 1.0), ("much longer", 1, 1.0)
    ]  # fmt: skip
    assert (bias.longer_chosen, bias.longer_scored) == (0.5, 1.0)
    assert bias.correlation == pytest.approx(float(np.corrcoef([0, 0, 1, 1, 1, 1, 1, 0, 0, 0], [1, 4, 5, 6, 9, 5, 5, 5, 5, 5])[0, 1]))
    assert length_bias(pairs([1], [0])).longer_scored is None


def test_groups_are_shown_largest_first_and_the_rest_together() -> None:
    groups = by_group(pairs([1, 1, 0, 1], [0, 0, 1, 0], groups=["a", "b", "b", ""]))
    assert [(part.name, part.pairs, part.share) for part in groups] == [("b", 2, 0.5), ("a", 1, 1.0)]
    many = by_group(pairs([1] * 40, [0] * 40, groups=[str(number % 25) for number in range(40)]))
    assert len(many) == 20 and many[-1].name == "6 other groups" and sum(part.pairs for part in many) == 40
    assert by_group(pairs([1], [0])) == []


def test_agreement_with_gold() -> None:
    """Pairs: gold agrees with people and model; gold against both; gold equal (left out); a tie that gold and model order alike."""
    agreement = gold_agreement(pairs([2, 2, 2, 1], [1, 1, 1, 0], chosen_gold=[1, 0, 0, 0.5], rejected_gold=[0, 1, 0, 0.2], ties=[3]))
    assert agreement is not None and agreement.order.share == pytest.approx(2 / 3) and agreement.people.share == 0.5
    assert gold_agreement(pairs([1], [0])) is None


def test_ranks_share_their_mean_and_correlations() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]
    assert correlation(np.array([1.0, 2.0]), np.array([1.0, 1.0])) is None


def test_rewritten_texts_and_disagreement() -> None:
    change = rewritten("capitals", np.array([1.0, 2.0]), np.array([0.0, 2.5]), 0.5, np.array([0.5, 0.0]))
    assert (change.mean, change.spread, change.flipped, change.texts) == (-0.25, 1.5, 0.5, 2)
    empty = rewritten("capitals", np.zeros(0), np.zeros(0), 1.0, np.zeros(0))
    assert (empty.texts, empty.spread, empty.flipped) == (0, None, None)
    split = disagreement(np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[0.0], [4.0]]))
    assert (split.held_out, split.elsewhere, split.ratio) == (0.5, 2.0, 4.0)


def test_most_wrong_come_worst_first_and_hold_no_right_pair() -> None:
    worst = most_wrong(pairs([0, 0, 5, 0], [1, LN3, 0, 9], numbers=[7, 8, 9, 10], ties=[3]))
    assert [(pair.number, pair.chosen) for pair in worst] == [(8, 0.0), (7, 0.0)]
    assert worst[0].probability == pytest.approx(0.25) and worst[0].texts is None
    (named,) = most_wrong(pairs([1, 0], [0, 1], ties=[0]), {"1": ["p", "good", "bad"], "0": ["", "", ""]})
    assert (named.place, named.texts) == (1, ("p", "good", "bad"))


def test_a_record_goes_through_json_and_back() -> None:
    before = pairs([1.23456789, 2], [0, 1], groups=["a", ""], ties=[1], chosen_gold=[1, 0], rejected_gold=[0, 0], scale=1.5)
    after = scored_pairs(json.loads(json.dumps(before.record())))
    assert after.chosen.tolist() == [1.23457, 2.0] and after.ties.tolist() == [False, True] and after.groups == ("a", "")
    assert after.chosen_gold is not None and after.chosen_gold.tolist() == [1, 0] and after.scale == 1.5


def test_a_record_after_normalising_has_other_scores_and_the_same_findings() -> None:
    rewrites = {"capitals": {"before": [1.0], "after": [3.0], "others": [2.0]}}
    before = {"pairs": pairs([3, 1], [1, 2]).record(), "consistency": {"rewrites": rewrites, "padding": 0.1}}
    after = normalised_record(before, mean=1.0, std=2.0)
    assert (after["pairs"]["chosen"], after["pairs"]["rejected"], after["pairs"]["scale"]) == ([1.0, 0.0], [0.0, 0.5], 2.0)
    assert after["consistency"] == {"rewrites": {"capitals": {"before": [0.0], "after": [1.0], "others": [0.5]}}, "padding": 0.05}
    old, new = reward_report(before), reward_report(after)
    assert new.fit.log_loss == pytest.approx(old.fit.log_loss) and new.calibration == old.calibration and new.words[:-1] == old.words[:-1]


@pytest.mark.parametrize("record", [{}, {"chosen": 3}, {"chosen": [1], "rejected": [1, 2], "chosen_tokens": [1], "rejected_tokens": [1]}])
def test_what_is_no_record(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="these are no scored pairs"):
        scored_pairs(record)
    with pytest.raises(ValueError, match="no measurement"):
        reward_report({})


def words(chosen: list[float], rejected: list[float], **more: Any) -> str:
    return " ".join(reward_report({"pairs": pairs(chosen, rejected, **more).record()}).words)


def test_findings_in_words() -> None:
    steady = words([3] * 95 + [0] * 5, [0] * 95 + [3] * 5)  # sigmoid(3) = 0.953
    assert "scores higher in 95 % of 100 held-out pairs (95 % interval 89 % to 98 %)" in steady and "as sure as it is right" in steady
    assert "expects to be right in 95 % of the pairs, and is right in 66 %. Its scores lie 4." in words(
        [3] * 66 + [0] * 34, [0] * 66 + [3] * 34
    )  # 3 / ln(66/34) = 4.5
    assert "less sure than it might be: it expects to be right in 55 % of the pairs, and is right in 99 %." in words(
        [0.2] * 99 + [0], [0] * 99 + [0.2]
    )
    assert "That may still be chance" in words([1, 0], [0, 1])
    swayed = words([0] * 10 + [1] * 10, [1] * 10 + [0] * 10, chosen_tokens=[3] * 10 + [9] * 10, rejected_tokens=[5] * 20)
    assert "It favours length: people preferred the longer response in 50 % of the pairs, the model in 100 %." in swayed
    assert words([1], [1], ties=[0]).startswith("There is no held-out pair with a preferred response")
    gold = words([1] * 4, [0] * 4, chosen_gold=[1, 1, 1, 0], rejected_gold=[0, 0, 0, 1])
    assert "orders 75 % of the pairs as the world's gold reward does; the preferences that it learned from agree in 75 %." in gold


def test_consistency_in_words() -> None:
    record = {
        "pairs": pairs([1.0, -1.0], [-1.0, 1.0]).record(),
        "consistency": {"rewrites": {"capitals": {"before": [1.0], "after": [-1.0], "others": [0.0]}}, "padding": 0.5},
    }
    sentences = " ".join(reward_report(record).words)
    assert "Changing only capitals moves the score by 2.00 standard deviations on average, and turns 100 % of the pairs round." in sentences
    assert "Padding changes scores by up to 0.5" in sentences
    json.dumps(reward_report(record).as_data(), allow_nan=False)
