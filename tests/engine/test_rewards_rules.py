"""Formats, word lists, references and penalties: what a response earns, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlhf_studio.config import BleuReward, LexiconReward, RegexReward, RewardConfig, RougeReward
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.kinds.lexicon import NEGATIONS, bundled_words, lexicon_rule
from rlhf_studio.engine.rewards.kinds.overlap import bleu, rouge
from rlhf_studio.engine.rewards.kinds.rules import regex_rule
from rlhf_studio.engine.rewards.scorer import Episodes, Scorer, build_scorer

CPU = Compute(torch.device("cpu"), torch.float32)


def scorer_of(*components: dict[str, Any], **settings: Any) -> Scorer:
    return build_scorer(RewardConfig.model_validate({"components": list(components), **settings}), CPU, lambda text, fraction: None)


# --- format ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "search", "full"),
    [("<a>1</a>", 1, 1), ("so <a>1</a>", 1, 0), ("<a>1</a>\n", 1, 0), ("<a></a>", 0, 0), ("<a>1</a><a>2</a>", 1, 0)],
)
def test_a_format_can_be_asked_of_the_whole_response(text: str, search: int, full: int) -> None:
    pattern = r"<a>\d</a>"
    assert regex_rule(RegexReward(pattern=pattern))(text, 0) == search
    assert regex_rule(RegexReward(pattern=pattern, match="full"))(text, 0) == full


# --- sentiment by words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("a good film", 1 / 3), ("Good, GOOD; good!", 1),
        ("good good good good good", 1),  # limited
        ("a bad film", -1 / 3), ("bad bad bad bad", -1), ("good and bad", 0), ("it was not good", -1 / 3), ("it isn't bad", 1 / 3),
        ("it isn\u2019t bad", 1 / 3),
        ("not a b c good", 1 / 3),  # three words lie between: beyond its reach
        ("not a b good", -1 / 3),
        ("It was not. Good film.", 1 / 3),  # a sentence ends the reach
        ("not good but good", -2 / 3),  # both lie within reach
        ("never ever a b c good", 1 / 3),
        ("not no good", -1 / 3),  # negations do not cancel
        ("goodness badly-made", 0),  # whole words
        ("", 0),
    ],
)  # fmt: skip
def test_lexicon_by_hand(text: str, score: float) -> None:
    settings = LexiconReward(use_bundled=False, positive="good", negative=" Bad ,")
    assert lexicon_rule(settings)(text, 0) == pytest.approx(score)


def test_lexicon_settings() -> None:
    assert lexicon_rule(LexiconReward(full_at=1))("a wonderful film", 0) == 1.0
    assert lexicon_rule(LexiconReward(full_at=4))("a wonderful film", 0) == 0.25
    assert lexicon_rule(LexiconReward(negation_span=0, full_at=1))("not wonderful", 0) == 1.0
    assert lexicon_rule(LexiconReward(use_bundled=False, positive="zany", full_at=1))("wonderful", 0) == 0.0
    assert lexicon_rule(LexiconReward(positive="zany", full_at=2))("zany and wonderful", 0) == 1.0
    assert {lexicon_rule(LexiconReward(negative="größer", full_at=1))(text, 0) for text in ("GRÖSSER", "Größer")} == {-1.0}


def test_the_bundled_lists_are_clean() -> None:
    positive, negative = bundled_words("positive"), bundled_words("negative")
    assert min(len(positive), len(negative)) > 200
    assert not positive & negative and not (positive | negative) & NEGATIONS
    assert all(word == word.strip().casefold() and " " not in word for word in positive | negative)


# --- references --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "reference", "settings", "score"),
    [
        ("the cat sat on the mat", "the cat is on the mat", {"max_order": 2, "smoothing": "none"}, math.sqrt(5 / 6 * 3 / 5)),
        ("the cat sat on the mat", "the cat is on the mat", {"max_order": 1}, 5 / 6),
        ("the cat", "the cat sat", {"max_order": 2}, math.exp(-0.5)),
        ("the cat sat on the mat", "the cat is on the mat", {"smoothing": "none"}, 0.0),  # no four words agree
        ("the cat sat", "the cat sat", {}, 1.0), ("The Cat", "the cat", {"max_order": 1}, 0.0),
        ("The Cat", "the cat", {"max_order": 1, "lowercase": True}, 1.0),
        ("it ends.", "it ends !", {"max_order": 1, "tokenizer": "none"}, 0.5 * math.exp(-0.5)),
        ("it ends.", "it ends !", {"max_order": 1, "tokenizer": "13a"}, 2 / 3),
        ("ab", "ac", {"max_order": 1, "tokenizer": "char"}, 0.5),
        ("5\u20ac", "5 $", {"max_order": 1, "tokenizer": "13a"}, 0.0),  # for 13a the sign belongs to the number
        ("5\u20ac", "5 $", {"max_order": 1, "tokenizer": "intl"}, 0.5), ("", "the cat", {}, 0.0),
        ("  ", "", {"smoothing": "floor"}, 0.0),
    ],
)  # fmt: skip
def test_bleu_by_hand(response: str, reference: str, settings: dict[str, Any], score: float) -> None:
    assert bleu(BleuReward(**settings))(response, reference) == pytest.approx(score, abs=1e-6)


def test_bleu_smoothing_fills_what_is_missing() -> None:
    """No four words agree: exp counts 1/2 of one of three, floor counts 0.1 of them, add-k (1) counts (0 + 1)/(3 + 1) and one more for
    the other lengths."""
    texts = ("the cat sat on the mat", "the cat is on the mat")
    assert bleu(BleuReward())(*texts) == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * (1 / 2) / 3) ** 0.25, abs=1e-6)
    assert bleu(BleuReward(smoothing="floor"))(*texts) == pytest.approx((5 / 6 * 3 / 5 * 1 / 4 * 0.1 / 3) ** 0.25, abs=1e-6)
    assert bleu(BleuReward(smoothing="add-k"))(*texts) == pytest.approx((5 / 6 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "score"),
    [
        ({"variant": "rouge1"}, 4 / 9),  # 2 common words of 3 and 6: p 2/3, r 1/3
        ({"variant": "rouge1", "measure": "precision"}, 2 / 3), ({"variant": "rouge1", "measure": "recall"}, 1 / 3),
        ({"variant": "rouge2"}, 2 / 7),  # 1 common pair of 2 and 5
        ({"variant": "rougeL"}, 4 / 9), ({"variant": "rougeLsum"}, 4 / 9),
    ],
)  # fmt: skip
def test_rouge_by_hand(settings: dict[str, Any], score: float) -> None:
    assert rouge(RougeReward(**settings))("the cat sat", "the cat is on the mat") == pytest.approx(score)


def test_rouge_stems_and_order() -> None:
    assert rouge(RougeReward(variant="rouge1"))("films", "film") == 0.0
    assert rouge(RougeReward(variant="rouge1", stemmer=True))("films", "film") == 1.0
    assert rouge(RougeReward(variant="rougeL", measure="recall"))("c b a", "a b c") == pytest.approx(1 / 3)
    assert rouge(RougeReward())("", "a") == 0.0


def test_rouge_line_by_line_or_as_one_sequence() -> None:
    """The same lines in another order: each is found whole, but only two of four words stand in one common sequence."""
    assert rouge(RougeReward(variant="rougeLsum"))("a b\nc d", "c d\na b") == 1.0
    assert rouge(RougeReward(variant="rougeL"))("a b\nc d", "c d\na b") == 0.5


def test_each_response_is_compared_with_its_own_reference() -> None:
    scorer = scorer_of({"kind": "bleu", "max_order": 1, "weight": 2.0}, {"kind": "rouge", "variant": "rouge1"})
    scores = scorer(Episodes(["", ""], ["a b", "c d"], [True, True], [2, 2], ["a b", "c e"]))
    assert scores.parts["bleu"].tolist() == pytest.approx([2.0, 1.0]) and scores.parts["rouge"].tolist() == pytest.approx([1.0, 0.5])


# --- penalties -----------------------------------------------------------------------------------------------------------------

LENGTH = {"kind": "length", "target": 4, "tolerance": 4}
EPISODES = Episodes([""] * 3, ["", "", ""], [True, False, True], [4, 2, 8])  # scores 1, 0.5 and 0


def shaped(**settings: Any) -> list[float]:
    return scorer_of(LENGTH, **settings)(EPISODES).shaped.tolist()


def test_length_penalty_is_per_token() -> None:
    assert shaped(length_penalty=0.25) == pytest.approx([1 - 1, 0.5 - 0.5, 0 - 2])


def test_missing_end_subtracts_or_replaces() -> None:
    assert shaped(missing_eos_penalty=1.5) == pytest.approx([1.0, -1.0, 0.0])
    assert shaped(missing_eos_penalty=1.5, missing_eos_mode="replace") == pytest.approx([1.0, -1.5, 0.0])
    assert shaped(missing_eos_penalty=0.0, missing_eos_mode="replace") == pytest.approx([1.0, 0.5, 0.0])  # 0 is off
    assert scorer_of(LENGTH, missing_eos_penalty=1.5, missing_eos_mode="replace")(EPISODES).raw.tolist() == [1.0, 0.5, 0.0]


def test_the_order_is_scale_clip_length_end() -> None:
    """Scores 1, 0.5, 0 have deviation 0.5: scaled 2, 1, 0; clipped at 1.5; less 0.1 a token; the cut-off one is then -3."""
    both = {"scaling": "scale", "score_clip": 1.5, "length_penalty": 0.1, "missing_eos_penalty": 3.0}
    assert shaped(**both) == pytest.approx([1.5 - 0.4, 1.0 - 0.2 - 3.0, -0.8])
    assert shaped(**both, missing_eos_mode="replace") == pytest.approx([1.1, -3.0, -0.8])
