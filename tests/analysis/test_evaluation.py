"""Evaluation statistics against hand-worked numbers, invariants and simulated arenas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlhf_studio.analysis.evaluation.answers import by_policy, known_measures
from rlhf_studio.analysis.evaluation.compare import agreement, of_points, paired, pairs_of, win_rate
from rlhf_studio.analysis.evaluation.frontier import frontier, thinned
from rlhf_studio.analysis.evaluation.intervals import NOTHING, Interval, exponential, mean, ratio, share, student_t
from rlhf_studio.analysis.evaluation.report import TEXT_LOGPROB, TEXT_TOKENS, report
from rlhf_studio.analysis.evaluation.table import table_of
from rlhf_studio.analysis.evaluation.texts import MOST_WORDS, Piece, distinct, repetition, word_differences, words
from rlhf_studio.runs.evaluation.answers import Answer


def answer(policy: str, place: int, draw: int = 0, **changes: Any) -> Answer:
    plain = {"sample": 0, "prompt": f"prompt {place}", "response": f"{policy} {place} {draw}", "score": 0.0, "parts": {}, "gold": None}
    plain |= {"kl": 1.0, "length": 4, "stopped": True, "tokens": None}
    own = {"policy": policy, "place": place, "draw": draw, "judge": math.nan, "ref_logprob": -2.0, "ref_length": 4}
    return Answer(**{**plain, **own, **changes})  # type: ignore[arg-type]


# --- intervals -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("degrees", "table"), [(1, 12.706), (2, 4.303), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980), (10**6, 1.960)]
)
def test_student_t_is_that_of_printed_tables(degrees: int, table: float) -> None:
    assert student_t(degrees) == pytest.approx(table, abs=5e-4)


def test_the_two_ways_of_student_t_meet() -> None:
    assert student_t(2000) == pytest.approx(student_t(2001), abs=1e-6)


def test_a_mean_over_independent_prompts_is_the_textbook_interval() -> None:
    interval = mean(np.array([1.0, 2.0, 3.0, 6.0]), np.arange(4))
    # mean 3, standard deviation √(14/3) = 2.1602, standard error 1.0801, t of 3 degrees of freedom 3.1824
    assert interval.value == 3.0
    assert (interval.low, interval.high) == pytest.approx((3 - 3.4374, 3 + 3.4374), abs=1e-4)
    assert interval.prompts == 4


def test_answers_to_one_prompt_count_as_one() -> None:
    values, prompts = np.array([1.0, 2.0, 3.0, 6.0]), np.arange(4)
    once, twice = mean(values, prompts), mean(np.repeat(values, 5), np.repeat(prompts, 5))
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high))


def test_a_ratio_by_hand() -> None:
    # prompts: 3 of 2, 1 of 4; ratio 4/6; residuals 3 − 4/3 and 1 − 8/3, both 5/3 in size; variance 2/1 · 2 · 25/9 / 36 = 0.30864
    interval = ratio(np.array([2.0, 1.0, 1.0]), np.array([1.0, 1.0, 4.0]), np.array([7, 7, 9]))
    assert interval.value == pytest.approx(4 / 6)
    assert interval.high == pytest.approx(4 / 6 + 12.7062 * math.sqrt(0.308642), abs=1e-3)


def test_what_is_not_known_is_left_out_and_one_prompt_has_no_interval() -> None:
    assert mean(np.array([np.nan, np.inf]), np.array([0, 1])) == NOTHING
    assert mean(np.array([np.nan, 4.0]), np.array([0, 1])) == Interval(4.0, None, None, 1)
    assert mean(np.empty(0), np.empty(0, int)) == NOTHING
    assert share(np.empty(0), np.empty(0, int)) == NOTHING


def test_a_share_is_wilsons_interval_with_t() -> None:
    points = np.array([1.0] * 8 + [0.0] * 2)
    interval = share(points, np.arange(10))
    # var = 10/9 · 1.6/100 = 0.017778, so 0.16/0.017778 = 9 independent comparisons; t(9)² = 5.1174:
    # centre (0.8 + 5.1174/18) / (1 + 5.1174/9) = 0.69126, half 2.2622 · √(0.16/9 + 5.1174/324) / 1.5686 = 0.26424
    assert interval.value == 0.8
    assert (interval.low, interval.high) == pytest.approx((0.42701, 0.95550), abs=5e-5)


@pytest.mark.parametrize("point", [0.0, 0.5, 1.0])
def test_a_share_that_never_varies_still_has_an_interval(point: float) -> None:
    interval = share(np.full(20, point), np.arange(20))
    assert interval.low is not None and interval.high is not None
    assert 0 <= interval.low <= point <= interval.high <= 1
    assert interval.high - interval.low > 0.15


def test_a_perplexity_is_the_exponential_of_a_mean() -> None:
    assert exponential(Interval(math.log(8), math.log(4), None, 3)) == Interval(pytest.approx(8.0), pytest.approx(4.0), None, 3)


# (prompts, true rate without ties, answers per prompt, share of ties, how alike the answers to one prompt are: smaller is more)
ARENAS = [(30, 0.5, 3, 0.1, 2.0), (50, 0.7, 1, 0.2, None), (50, 0.3, 4, 0.3, 1.0), (100, 0.9, 3, 0.1, 2.0), (100, 0.5, 1, 0.0, None)]
MORE_ARENAS = [
    (prompts, rate, draws, ties, alike)
    for prompts in (50, 128, 300)
    for rate in (0.1, 0.3, 0.5, 0.7, 0.9)
    for draws, ties, alike in ((1, 0.2, None), (3, 0.1, 2.0), (4, 0.3, 1.0))
]


def coverage(prompts: int, rate: float, draws: int, ties: float, alike: float | None, arenas: int) -> float:
    random = np.random.default_rng([prompts, int(rate * 100), draws])
    covered, truth = 0, ties * 0.5 + (1 - ties) * rate
    for _ in range(arenas):
        wins = np.full(prompts, rate) if alike is None else random.beta(alike * rate, alike * (1 - rate), prompts)
        tied = random.random((prompts, draws)) < ties
        points = np.where(tied, 0.5, random.random((prompts, draws)) < wins[:, None])
        interval = of_points(points.ravel(), np.repeat(np.arange(prompts), draws)).rate
        assert interval.low is not None and interval.high is not None
        covered += interval.low <= truth <= interval.high
    return covered / arenas


@pytest.mark.parametrize("arena", ARENAS)
def test_win_rate_intervals_cover_the_truth(arena: tuple[Any, ...]) -> None:
    assert 0.92 <= coverage(*arena, arenas=500) <= 0.98


@pytest.mark.long
@pytest.mark.parametrize("arena", MORE_ARENAS)
def test_win_rate_intervals_cover_the_truth_in_2000_arenas(arena: tuple[Any, ...]) -> None:
    assert 0.93 <= coverage(*arena, arenas=2000) <= 0.97


def test_ignoring_that_answers_share_a_prompt_would_not_cover() -> None:
    """The arena of the test above fails an interval that takes every comparison for independent: the test can fail."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        wins = random.beta(0.5, 0.5, 50)
        points = (random.random((50, 4)) < wins[:, None]).astype(float).ravel()
        interval = of_points(points, np.arange(200)).rate  # each comparison as a prompt of its own
        covered += (interval.low or 0) <= 0.5 <= (interval.high or 1)
    assert covered / 300 < 0.9


# --- two policies ----------------------------------------------------------------------------------------------------------------


def test_differences_are_paired_by_prompt() -> None:
    # Prompts differ by 100, the policies by 1 ± 0.1: only pairing sees it.
    ours, theirs = np.array([101.0, 201.1, 300.9]), np.array([100.0, 200.0, 300.0])
    interval = paired(ours, np.arange(3), theirs, np.arange(3))
    assert interval.value == pytest.approx(1.0)
    assert interval.low == pytest.approx(1 - 4.3027 * 0.1 / math.sqrt(3), abs=1e-4)
    apart = paired(ours, np.arange(3), theirs[:2], np.arange(2))
    assert (apart.value, apart.prompts) == (pytest.approx(1.05), 2)  # what only one of them answered is left out


def test_win_rate_counts_ties_as_half() -> None:
    ours = [answer("b", prompt, score=score) for prompt, score in enumerate([2.0, 1.0, 0.0, 1.0])]
    theirs = [answer("a", prompt, score=score) for prompt, score in enumerate([1.0, 1.0 + 1e-9, 3.0, 0.0])]
    ours[3] = answer("b", 3, score=1.0, response="the same text")
    theirs[3] = answer("a", 3, score=0.0, response="the same text")  # equal texts are a tie, whatever a broken scorer says
    policies = by_policy([*theirs, *ours])
    against = win_rate(policies["b"], policies["a"], "score")
    assert (against.wins, against.ties, against.losses, against.rate.value) == (1, 2, 1, 0.5)
    other = win_rate(policies["a"], policies["b"], "score")
    assert (other.wins, other.ties, other.losses) == (1, 2, 1)
    assert win_rate(policies["a"], policies["b"], "gold").rate == NOTHING


def test_every_answer_meets_every_other_to_its_prompt() -> None:
    policies = by_policy([answer("a", 0), answer("a", 0, 1), answer("a", 1), *(answer("b", 0, draw) for draw in range(3))])
    pairs = pairs_of(policies["a"], policies["b"])
    assert sorted(zip(pairs.rows.tolist(), pairs.columns.tolist(), strict=True)) == [(row, column) for row in (0, 1) for column in range(3)]
    own = pairs_of(policies["b"], policies["b"])
    assert list(zip(own.rows.tolist(), own.columns.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2)]


def test_agreement_with_gold_by_hand() -> None:
    golds, rewards = [0.1, 0.5, 0.5, 0.9], [1.0, 2.0, 2.0, 0.0]
    own = [answer("late", 0, draw, gold=gold, score=reward) for draw, (gold, reward) in enumerate(zip(golds, rewards, strict=True))]
    own += [answer("late", 1, draw, gold=float(draw), score=float(draw)) for draw in range(2)]
    policies = by_policy([answer("start", 0, gold=0.2, score=2.0), *own])
    late, start = policies["late"], policies["start"]
    agrees = agreement(late, "score", pairs_of(late, late), start, pairs_of(late, start))
    # prompt 0: (0,1) (0,2) agree; (0,3) (1,3) (2,3) do not; (1,2) is equal in gold. Prompt 1: agrees.
    assert agrees.within.value == pytest.approx(3 / 6)
    # against 0.2 with score 2: lower gold and score agrees; 0.5, 0.5 equal in score count half; 0.9 with score 0 does not.
    assert agrees.against.value == pytest.approx((1 + 0.5 + 0.5 + 0) / 4)
    assert agreement(start, "score", pairs_of(start, start), start, None).against == NOTHING


# --- texts -----------------------------------------------------------------------------------------------------------------------


def test_distinct_by_hand() -> None:
    texts = ["a b a b", "A b"]  # unigrams a b a b a b: 2 of 6; bigrams ab ba ab ab: 2 of 4; trigrams aba bab: 2 of 2
    assert [distinct(texts, n) for n in (1, 2, 3)] == [pytest.approx(2 / 6), pytest.approx(2 / 4), 1.0]
    assert distinct(["a"], 2) is None and distinct([], 1) is None


def test_repetition_by_hand() -> None:
    assert repetition("one two three four one two three four") == pytest.approx(1 - 4 / 5)
    assert repetition("one two three") is None
    assert repetition("one two three four five") == 0.0


def test_words_keep_punctuation_and_apostrophes() -> None:
    assert words("It's FINE. Isn’t it?") == ["it's", "fine", ".", "isn’t", "it", "?"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("", ""), ("a", ""), ("The film is dull.", "The film is great, and long."), ("x\n y", "x y"), ("é ü", "é\u0301"), ("<b>", "<i>")],
)
def test_word_differences_give_both_texts_back(first: str, second: str) -> None:
    pieces = word_differences(first, second)
    assert "".join(piece.text for piece in pieces if piece.change != "only second") == first
    assert "".join(piece.text for piece in pieces if piece.change != "only first") == second


def test_chanting_texts_are_compared_in_bounded_time() -> None:
    """Two texts of a thousand equal words have a million pairs of equal words; what they share at both ends is still found."""
    first, second = "Well, " + "good " * 1000 + "film.", "Well, " + "good bad " * 700 + "film."
    pieces = word_differences(first, second)
    assert [piece.change for piece in pieces] == ["same", "only first", "only second", "same"]
    assert pieces[0].text.startswith("Well, good") and pieces[-1].text == " film."
    assert "".join(piece.text for piece in pieces if piece.change != "only second") == first
    assert "".join(piece.text for piece in pieces if piece.change != "only first") == second
    chant = word_differences("good " * 1900 + "a", "good " * 1900 + "b")
    assert [piece.change for piece in chant] == ["same", "only first", "only second"]


def test_word_differences_by_hand() -> None:
    expected = [Piece("same", "The film is"), Piece("only first", " dull"), Piece("only second", " great"), Piece("same", ".")]
    assert word_differences("The film is dull.", "The film is great.") == expected
    long = "word " * MOST_WORDS
    assert [piece.change for piece in word_differences(long + "a", long + "b")] == ["same", "only first", "only second"]


# --- frontier and report ---------------------------------------------------------------------------------------------------------


def over_optimised() -> list[Answer]:
    """Three snapshots: score rises all the way, gold turns after the second. Eight prompts that differ a little."""
    shape = {"start": (0.0, 0.0, 0.0), "middle": (1.0, 4.0, 0.8), "late": (2.0, 16.0, 0.2)}
    return [
        answer(name, prompt, score=score + 0.02 * prompt, kl=kl, gold=gold + 0.02 * prompt)
        for name, (score, kl, gold) in shape.items()
        for prompt in range(8)
    ]


def test_the_frontier_names_what_is_over_optimised() -> None:
    policies = by_policy(over_optimised())
    front = frontier(policies, known_measures(policies))
    assert [(point.policy, point.root_kl) for point in front.points] == [("start", 0.0), ("middle", 2.0), ("late", 4.0)]
    assert (front.best, front.over_optimised) == ("middle", ["late"])
    assert "from middle to late the score rises from 1.07 to 2.07 and gold falls from 0.87 to 0.27" in front.sentence
    steps = {"start": "start", "middle": "6", "late": "36"}
    of_one_run = by_policy([replace(one, policy=f"mine@{steps[one.policy]}") for one in over_optimised()])
    sentence = frontier(of_one_run, known_measures(of_one_run)).sentence
    assert "after 6 steps the score is 1.07 and gold 0.87; after 36 steps the score is 2.07 and gold 0.27." in sentence
    assert (
        "no policy has a higher score and a lower gold"
        in frontier({n: policies[n] for n in ("start", "middle")}, ["score", "gold"]).sentence
    )


def test_the_frontier_tells_what_is_missing_from_what_is_unsure() -> None:
    """One prompt: the late policy scores higher and has less gold, and nobody knows how much of that is chance."""
    alone = by_policy([record for record in over_optimised() if record.place == 0])
    front = frontier(alone, known_measures(alone))
    assert front.over_optimised == [] and "late has a higher score and a lower gold, but that may be chance" in front.sentence


def test_a_frontier_without_gold_or_kl_says_nothing() -> None:
    policies = by_policy([answer("a", 0), answer("file", 0, kl=math.nan)])
    front = frontier(policies, known_measures(policies))
    assert ([point.policy for point in front.points], front.best, front.sentence) == (["a"], "", "")


def test_thinned_keeps_both_ends() -> None:
    assert thinned(list(range(100)), 5) == [0, 25, 50, 74, 99]  # type: ignore[arg-type, comparison-overlap]
    assert thinned([1, 2], 5) == [1, 2]  # type: ignore[list-item, comparison-overlap]


def test_a_whole_report_by_hand() -> None:
    text = {TEXT_LOGPROB + "late": -20.0, TEXT_TOKENS + "late": 10.0}
    made = report(by_policy(over_optimised()), text)
    assert (made.measures, made.decides, made.first, made.prompts) == (["score", "gold"], "gold", "start", 8)
    start, middle, late = made.policies
    assert start.differences == {} and start.win_rates == {}
    assert late.differences["gold"].value == pytest.approx(0.2)
    assert late.differences["kl"].value == pytest.approx(16.0)
    assert middle.win_rates["gold"].wins == 8
    assert (late.text_perplexity, start.text_perplexity) == (pytest.approx(math.exp(2)), None)
    assert late.perplexity.value == pytest.approx(math.exp(0.5))  # −2 nats over 4 tokens
    assert (late.stopped, late.length.value, late.answers) == (1.0, 4.0, 8)
    assert late.agreements["score"].against.value == 1.0
    assert [row.name for row in report(by_policy(over_optimised()), {}, first="late").policies if not row.differences] == ["late"]


def test_disagreement_by_hand() -> None:
    # one ensemble says 1 and 3: deviation 1; with another that says 0, 0 and 6 the variances 1 and 8 add up to 9
    once, both = {"judges": [1.0, 3.0]}, {"judges": [1.0, 3.0], "more": [0.0, 0.0, 6.0]}
    answers = [answer("start", 0, members=once), answer("start", 1, members=both), answer("plain", 0)]
    means = {policy.name: policy.disagreement.value for policy in report(by_policy(answers), {}).policies}
    assert means == {"start": 2.0, "plain": None}
    table = table_of(report(by_policy(answers), {}))
    (column,) = [index for index, column in enumerate(table.columns) if column.key == "disagreement"]
    cell = table.rows[0][1][column]  # two prompts with 1 and 3: mean 2, standard error 1, t of one degree of freedom 12.7062
    assert isinstance(cell, Interval) and (cell.low, cell.high) == pytest.approx((2 - 12.7062, 2 + 12.7062), abs=1e-3)


def test_a_report_of_nothing_and_an_unknown_policy() -> None:
    assert report({}, {}).policies == []
    with pytest.raises(ValueError, match="no answers of 'other'; it has: start, middle, late"):
        report(by_policy(over_optimised()), {}, first="other")
