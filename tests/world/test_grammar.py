"""The writer and the parser of reviews: texts parsed by hand, and properties that tie one to the other."""

from __future__ import annotations

from random import Random

import pytest

from rlhf_studio.inputs.world import vocabulary
from rlhf_studio.inputs.world.corpus import write_corpus
from rlhf_studio.inputs.world.grammar import MAX_SENTENCES
from rlhf_studio.inputs.world.parser import LONGEST_TEXT, Parsed, parse_review
from rlhf_studio.inputs.world.writer import LONGEST_RESPONSE, SHORTEST_REVIEW, write_opening, write_response

PLOT = "The plot of this western"
GOOD = f"{PLOT} is superb. The score is quite lively, and the cast lights up the screen. I loved every minute."


@pytest.fixture(scope="module")
def corpus() -> list:
    return write_corpus(seed=17, size=800)


def marks(text: str) -> str:
    """One character per word or mark: + accepted, - not."""
    return "".join("+" if accepted else "-" for accepted in parse_review(text).accepted)


def test_a_review_with_its_opinions() -> None:
    parsed = parse_review(GOOD)
    assert parsed.sentiments == (1.0, 0.6, 1.0, 1.0)
    assert parsed.complete and all(parsed.accepted)
    assert [GOOD[start] for start in parsed.starts[:4]] == ["T", "p", "o", "t"]
    assert parse_review(GOOD.upper()) == parsed


@pytest.mark.parametrize(
    ("text", "expected", "sentiments"),
    [
        (f"{PLOT} is superb.", "+++++++" + "+", (1.0,)),
        (f"{PLOT} is superb", "+++++++", ()),  # no end mark: it could go on, but it is no sentence yet
        (f"{PLOT} is superb superb.", "+++++++--", ()),
        (f"{PLOT} is wooden.", "++++++--", ()),  # only actors are wooden
        (f"{PLOT} is superb?", "+++++++-", ()),
        (f"{PLOT} is superb!", "++++++++", (1.0,)),
        (f"{PLOT} is superb!!", "+++++++--", ()),  # neither mark is an allowed end
        (f"{PLOT} is superb! Once is enough.", "+++++++-" + "++++", (-0.6,)),
        (f"{PLOT} is superb, and the score is dull.", "+" * 12 + "--", ()),  # and joins equal signs
        (f"{PLOT} is superb, but the score is dull.", "+" * 14, (1.0, -0.6)),
        (f"{PLOT} is superb, but the plot is dull.", "+" * 10 + "-" * 4, ()),  # the plot again
        (f"{PLOT} is superb. Even the score is superb.", "+" * 8 + "++++--", (1.0,)),  # superb again
        (f"{PLOT} is fresh and superb.", "+" * 10, (0.6, 1.0)),
        (f"{PLOT} is superb and fresh.", "+" * 7 + "-" * 3, ()),  # the mild word comes first
        (f"{PLOT} is superb. I loved every minute. The score is dull.", "+" * 8 + "+" * 5 + "-" * 5, (1.0, 1.0)),
        ("I loved every minute.", "+----", ()),  # a verdict is no opening, but "I think the ..." would be one
        ("", "", ()),
        (" .. ! , ", "----", ()),
        ("\ud800 \x00 <img src=x> ${alert(1)} \N{PILE OF POO}", "-" * 16, ()),
    ],
)
def test_how_far_the_grammar_follows(text: str, expected: str, sentiments: tuple[float, ...]) -> None:
    assert marks(text) == expected
    assert parse_review(text).sentiments == sentiments


def test_a_review_has_at_least_two_sentences_and_at_most_four() -> None:
    assert not parse_review(f"{PLOT} is superb.").complete
    sentences = [f"{PLOT} is superb."] + [
        f" The {noun} is {word}." for noun, word in zip(("score", "cast", "script"), ("dull", "bland", "stale"), strict=True)
    ]
    assert parse_review("".join(sentences)).complete
    fifth = parse_review("".join(sentences) + " The ending is fresh.")
    assert not fifth.complete and MAX_SENTENCES == 4
    assert fifth.accepted[-5:] == (False,) * 5 and all(fifth.accepted[:-5])


def test_very_long_texts_are_read_up_to_a_limit() -> None:
    parsed = parse_review("superb " * 10_000)
    assert len(parsed.starts) == -(-LONGEST_TEXT // 7)
    assert not any(parsed.accepted)


def test_everything_written_is_read_back(corpus: list) -> None:
    for review in corpus:
        parsed = parse_review(review.prompt + review.response)
        assert parsed.complete and all(parsed.accepted), review
        assert len(parsed.sentiments) >= 2


def test_every_beginning_of_a_review_can_go_on_and_nonsense_cannot(corpus: list) -> None:
    for review in corpus[:60]:
        text = review.prompt + review.response
        starts = parse_review(text).starts
        for start in starts[1:]:
            assert all(parse_review(text[:start]).accepted)
            broken = parse_review(text[:start] + " zebra " + text[start:])
            position = starts.index(start)
            assert all(broken.accepted[:position]) and not broken.accepted[position]
            assert not broken.complete


def test_lengths(corpus: list) -> None:
    for review in corpus:
        length, prompt_length = (len(parse_review(text).starts) for text in (review.prompt + review.response, review.prompt))
        assert 3 <= prompt_length <= 8
        assert length >= SHORTEST_REVIEW and length - prompt_length <= LONGEST_RESPONSE
        assert review.response.startswith(" ") and review.response[-1] in ".!"


def test_sentiment_is_balanced_and_shows_in_the_opinions(corpus: list) -> None:
    """800 fair coins: 5 standard errors are 0.09. An opinion agrees with the review nine times in ten, before redrawing."""
    assert abs(sum(review.sentiment > 0 for review in corpus) / 800 - 0.5) < 0.09
    signs = [
        (opinion > 0) == (review.sentiment > 0) for review in corpus for opinion in parse_review(review.prompt + review.response).sentiments
    ]
    assert 0.83 < sum(signs) / len(signs) < 0.95


def test_prompts_are_neutral_and_say_nothing_about_the_rest() -> None:
    opening = write_opening(Random(3))
    rng = Random(4)
    balance = {
        sign: sum(sum(parse_review(opening.prompt + write_response(opening, rng, sign)).sentiments) for _ in range(50)) for sign in (1, -1)
    }
    assert balance[1] > 50 and balance[-1] < -50
    for _ in range(200):
        parsed: Parsed = parse_review(write_opening(rng).prompt)
        assert all(parsed.accepted) and parsed.sentiments == ()


def test_writing_depends_on_the_seed_alone() -> None:
    assert write_corpus(5, 20) == write_corpus(5, 40)[:20]
    assert write_corpus(5, 20) != write_corpus(6, 20)


def test_no_phrase_stands_in_two_tables() -> None:
    """A word that both praises and condemns, or fits two aspects by chance, would make a text ambiguous."""
    tables = (vocabulary.ANY_ADJECTIVE, vocabulary.ADJECTIVE, vocabulary.ANY_NOUN, vocabulary.VERB_PHRASE, vocabulary.VERDICT)
    phrases = [phrase for table in tables for group in table.values() for phrase in group]
    assert len(phrases) == len(set(phrases))
