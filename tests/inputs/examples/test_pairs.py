"""Pairs: every shape against rows worked out by hand, and every sentence a bad file gets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlhf_studio.config import PairsConfig
from rlhf_studio.inputs.examples import Pair, PromptsError, read_pairs
from rlhf_studio.inputs.examples.reading.rated import BLOCK

USER, ASSISTANT = {"role": "user"}, {"role": "assistant"}
SHARED = "\n\nHuman: Who?\n\nAssistant: Ada.\n\nHuman: When?\n\nAssistant:"
ASKED = [USER | {"content": "Who?"}, ASSISTANT | {"content": "Ada."}, USER | {"content": "When?"}]
GOOD, BAD = ASSISTANT | {"content": "In 1843."}, ASSISTANT | {"content": "In 1842."}


def write(folder: Path, rows: Sequence[dict[str, Any]], name: str = "p.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, **settings: Any) -> list[Pair]:
    return read_pairs(PairsConfig(source=str(path), **settings)).rows


def rated(*rows: tuple[str, str, Any]) -> list[dict[str, Any]]:
    return [{"prompt": prompt, "response": response, "rating": rating} for prompt, response, rating in rows]


SHAPES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[Pair]]] = {
    "prompt, chosen and rejected": (
        [{"prompt": "Two?", "chosen": " 2", "rejected": " 3", "note": True}],
        {},
        [Pair(1, "Two?", " 2", " 3")],
    ),
    "plain texts": ([{"chosen": "Good text.", "rejected": "Bad text."}], {}, [Pair(1, "", "Good text.", "Bad text.")]),
    "dialogues": (
        [{"chosen": SHARED + " In 1843.", "rejected": SHARED + " In 1842."}],
        {},
        [Pair(1, SHARED, " In 1843.", " In 1842.")],
    ),
    "dialogues as chats": (
        [{"chosen": SHARED + " In 1843.", "rejected": SHARED + " In 1842."}],
        {"chat_template": True},
        [Pair(1, SHARED, "In 1843.", "In 1842.", tuple(ASKED))],
    ),
    "dialogues that part early": (
        [
            {
                "chosen": SHARED + " In 1843.\n\nHuman: Sure?\n\nAssistant: Yes.",
                "rejected": SHARED + " In 1842.\n\nHuman: Ah.\n\nAssistant: Yes.",
            }
        ],
        {},
        [Pair(1, SHARED, " In 1843.\n\nHuman: Sure?\n\nAssistant: Yes.", " In 1842.\n\nHuman: Ah.\n\nAssistant: Yes.")],
    ),
    "chats": (
        [{"chosen": [*ASKED, GOOD], "rejected": [*ASKED, BAD], "prompt": "When?"}],
        {"chat_template": True},
        [Pair(1, "Who?\nAda.\nWhen?", "In 1843.", "In 1842.", tuple(ASKED))],
    ),
    "the prompt is repeated": (
        [{"prompt": "How much are one and one?", "chosen": "How much are one and one? 2", "rejected": "How much are one and one? 3"}],
        {},
        [Pair(1, "How much are one and one?", " 2", " 3")],
    ),
    "columns named": (
        [{"q": "Two?", "good": " 2", "bad": " 3"}],
        {"prompt_column": "q", "chosen_column": "good", "rejected_column": "bad"},
        [Pair(1, "Two?", " 2", " 3")],
    ),
    "all that may be said of a pair": (
        [{"prompt": "Two?", "chosen": "2", "rejected": "3", "by": 1.5, "sure": 0.75, "topic": "sums", "same": False}],
        {"margin_column": "by", "confidence_column": "sure", "group_column": "topic", "tie_column": "same"},
        [Pair(1, "Two?", "2", "3", None, 1.5, 0.75, False, "sums")],
    ),
    "ratings in named columns": (
        [row | {"said": f"<{row['response']}>", "stars": -row["rating"]} for row in rated(("Two?", "2", 5), ("Two?", "4", 1))],
        {"response_column": "said", "rating_column": "stars"},
        [Pair(2, "Two?", "<4>", "<2>")],
    ),
    "margins from ratings": (
        [{"prompt": "Two?", "chosen": "2", "rejected": "3", "score_chosen": 8.5, "score_rejected": 6}],
        {"margin_from_ratings": True},
        [Pair(1, "Two?", "2", "3", None, 2.5)],
    ),
    "a ranking": (
        [{"prompt": "Two?", "responses": ["3", "2", "two", "4"], "ranks": [3, 1, 1, 4]}],
        {},
        [
            Pair(1, "Two?", "2", "two", tie=True),
            Pair(1, "Two?", "2", "3"),
            Pair(1, "Two?", "2", "4"),
            Pair(1, "Two?", "two", "3"),
            Pair(1, "Two?", "two", "4"),
            Pair(1, "Two?", "3", "4"),
        ],
    ),
    "ratings": (
        rated(("Two?", "2", 5), ("Three?", "3", 1), ("Two?", "4", 1), ("Two?", "two", 5), ("Three?", "2", 0.5)),
        {},
        [Pair(1, "Two?", "2", "4"), Pair(4, "Two?", "two", "4"), Pair(2, "Three?", "3", "2")],
    ),
    "labels": (
        [{"prompt": "Two?", "completion": "2", "label": True}, {"prompt": "Two?", "completion": "4", "label": False}],
        {},
        [Pair(1, "Two?", "2", "4")],
    ),
    "texts with stars": ([{"text": "Good.", "stars": 5}, {"text": "Bad.", "stars": 1}], {}, [Pair(1, "", "Good.", "Bad.", block=1)]),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_shape_is_recognised(case: str, tmp_path: Path) -> None:
    rows, options, expected = SHAPES[case]
    assert read(write(tmp_path, rows), **options) == expected


def test_lists_in_a_csv_file_are_json(tmp_path: Path) -> None:
    rows = [{"prompt": "Two?", "responses": json.dumps(["3", "2"]), "ranks": "[2, 1]", "sure": "0.5"}]
    pandas.DataFrame(rows).to_csv(tmp_path / "p.csv", index=False)
    assert read(tmp_path / "p.csv", confidence_column="sure") == [Pair(1 + 1, "Two?", "2", "3", weight=0.5)]
    rows = [{"prompt": "Two?", "response": "2", "score": "4.5"}, {"prompt": "Two?", "response": "3", "score": "true"}]
    pandas.DataFrame(rows).to_csv(tmp_path / "p.csv", index=False)
    assert read(tmp_path / "p.csv", margin_from_ratings=True) == [Pair(2, "Two?", "2", "3", None, 3.5)]
    pandas.DataFrame(rows).to_parquet(tmp_path / "p.parquet")
    assert read(tmp_path / "p.parquet") == [Pair(1, "Two?", "2", "3")]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    sure = {"prompt": "a", "chosen": "b", "rejected": "c", "sure": 1}
    rows = [
        sure,
        sure,
        sure | {"rejected": "b"},
        sure | {"chosen": " "},
        sure | {"rejected": None},
        sure | {"chosen": "", "rejected": ""},
        sure | {"prompt": "d", "sure": 0.5},
        sure | {"prompt": "e", "sure": 0.6},
        sure | {"prompt": "f", "sure": None},
    ]
    pairs = read_pairs(PairsConfig(source=str(write(tmp_path, rows)), confidence_column="sure", min_confidence=0.6))
    assert [(row.number, row.weight) for row in pairs.rows] == [(1, 1.0), (8, 0.6), (9, 1.0)]
    assert pairs.left_out == {"repeated": 1, "equal": 1, "empty_response": 2, "blank": 1, "low_confidence": 1}
    chats = [
        {"chosen": [*ASKED, GOOD], "rejected": [*ASKED[:1], BAD]},
        {"chosen": [*ASKED, GOOD], "rejected": [*ASKED, BAD]},
        {"chosen": [*ASKED, GOOD], "rejected": [*ASKED, GOOD]},
        {"chosen": ASKED, "rejected": ASKED},
    ]
    pairs = read_pairs(PairsConfig(source=str(write(tmp_path, chats)), chat_template=True))
    assert pairs.left_out == {"no_shared_prompt": 2, "equal": 1} and len(pairs) == 1
    apart = [{"chosen": SHARED + " b", "rejected": "\n\nHuman: I?\n\nAssistant: c"}, {"chosen": SHARED + " b", "rejected": SHARED + " c"}]
    pairs = read_pairs(PairsConfig(source=str(write(tmp_path, apart))))
    assert pairs.left_out == {"no_shared_prompt": 1} and len(pairs) == 1


def test_a_row_whose_prompt_is_missing_is_left_out(tmp_path: Path) -> None:
    for kind in (PAIR, {"prompt": "a", "response": "b", "rating": 1}, {"prompt": "a", "responses": ["b", "c"], "ranks": [1, 2]}):
        rows: list[dict[str, Any]] = [{key: value for key, value in kind.items() if key != "prompt"}, kind | {"prompt": None}]
        rows = [kind, *rows, kind | ({"response": "d", "rating": 2} if "rating" in kind else {"prompt": "e"})]
        pairs = read_pairs(PairsConfig(source=str(write(tmp_path, rows))))
        assert pairs.left_out == {"no_prompt": 2} and len(pairs) == (1 if "rating" in kind else 2)
    rows = [{"prompt": "a", "chosen": "b", "rejected": "c"}, {"chosen": SHARED + " b", "rejected": SHARED + " c"}]
    assert [pair.prompt for pair in read(write(tmp_path, rows))] == ["a", SHARED]


def test_rated_rows_that_make_no_pair_are_counted(tmp_path: Path) -> None:
    rows = rated(("a", "1", 1), ("a", "2", 2), ("b", "3", 1), ("c", "4", 3), ("c", "5", 3), ("d", "", 1), ("e", "6", None))
    pairs = read_pairs(PairsConfig(source=str(write(tmp_path, rows))))
    assert [(row.chosen, row.rejected) for row in pairs.rows] == [("2", "1")]
    assert pairs.left_out == {"alone": 1, "same_rating": 2, "empty_response": 1, "no_rating": 1}


def test_many_responses_to_one_prompt_are_compared_in_blocks(tmp_path: Path) -> None:
    rows = rated(*(("a", str(number), number) for number in range(20)))
    pairs = read(write(tmp_path, rows))
    assert len(pairs) == 28 + 28 + 6 and all(int(pair.chosen) > int(pair.rejected) for pair in pairs)
    used = [response for pair in pairs for response in (pair.chosen, pair.rejected)]
    assert {used.count(str(number)) for number in range(20)} == {BLOCK - 1, 3}
    assert pairs == read(tmp_path / "p.jsonl")  # dealt in the same way each time


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=6))
def test_a_ranking_gives_every_two_of_its_responses_once(tmp_path_factory: pytest.TempPathFactory, ranks: list[int]) -> None:
    responses = [f"r{number}" for number in range(len(ranks))]
    path = write(tmp_path_factory.mktemp("ranks"), [{"prompt": "a", "responses": responses, "ranks": ranks}])
    if len(set(ranks)) == 1:
        with pytest.raises(PromptsError, match="all pairs are ties"):
            read(path)
        return
    pairs = read(path)
    assert sorted(tuple(sorted((pair.chosen, pair.rejected))) for pair in pairs) == sorted(combinations(responses, 2))
    rank = dict(zip(responses, ranks, strict=True))
    for pair in pairs:
        assert rank[pair.chosen] <= rank[pair.rejected] and pair.tie == (rank[pair.chosen] == rank[pair.rejected])


PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
WRONG: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str, str]] = {
    "no shape": ([{"text": "a", "good": "b"}], {}, "data.source", "the columns are: text, good; pairs need chosen and"),
    "two ratings": ([{"prompt": "a", "response": "b", "rating": 1, "score": 2}], {}, "data.rating_column", "could both be meant"),
    "one rating only": (rated(("a", "b", 4), ("a", "c", 4), ("d", "e", 4)), {}, "data.rating_column", "every rating is 4, so"),
    "one response to each prompt": (rated(("a", "b", 4), ("d", "e", 3)), {}, "data.prompt_column", "no prompt has two responses"),
    "alike within each prompt": (
        rated(("a", "b", 4), ("a", "c", 4), ("d", "e", 3), ("d", "f", 3)),
        {},
        "data.rating_column",
        "the responses to each prompt are all rated alike",
    ),
    "only ties": ([PAIR | {"same": "yes"}], {"tie_column": "same"}, "data.tie_column", "all pairs are ties"),
    "confidence beyond 1": ([PAIR | {"sure": 80}], {"confidence_column": "sure"}, "data.confidence_column", "row 1 holds 80 in 'sure'"),
    "no number": ([PAIR | {"by": "much"}], {"margin_column": "by"}, "data.margin_column", "row 1 holds 'much' in 'by', not a number"),
    "margin below 0": ([PAIR | {"by": -1}], {"margin_column": "by"}, "data.margin_column", "row 1 holds a margin of -1 in"),
    "tie neither true nor false": ([PAIR | {"same": "maybe"}], {"tie_column": "same"}, "data.tie_column", "row 1 holds 'maybe'"),
    "ranks for some": ([{"prompt": "a", "responses": ["b", "c"], "ranks": [1]}], {}, "data.ranks_column", "row 1 holds 1 ranks"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_at_its_setting(case: str, tmp_path: Path) -> None:
    rows, options, field, message = WRONG[case]
    with pytest.raises(PromptsError) as caught:
        read(write(tmp_path, rows), **options)
    assert caught.value.field == field and message in caught.value.message


def test_notes_say_what_was_made_of_rows(tmp_path: Path) -> None:
    rows = [
        {"chosen": SHARED + " b", "rejected": SHARED + " c", "group": 0},
        {"chosen": SHARED + " b", "rejected": SHARED + " d", "group": 0},
    ]
    assert read_pairs(PairsConfig(source=str(write(tmp_path, rows)))).notes == [
        "2 pairs came as whole dialogues: what both share up to the mark of the last answer is the prompt.",
        "The column 'group' is not used; name it in data.group_column to use it.",
    ]


def test_pairs_that_contradict_each_other_are_kept_and_told(tmp_path: Path) -> None:
    rows = [PAIR, {"prompt": "a", "chosen": "c", "rejected": "b"}, {"prompt": "b", "chosen": "c", "rejected": "b"}]
    pairs = read_pairs(PairsConfig(source=str(write(tmp_path, rows))))
    assert len(pairs) == 3 and pairs.notes == ["2 pairs stand there the other way round too: people disagreed on them."]


def test_the_fingerprint_changes_with_any_of_it(tmp_path: Path) -> None:
    options = {"confidence_column": "sure", "tie_column": "same", "group_column": "topic", "margin_column": "by"}
    first = PAIR | {"sure": 1, "same": False, "topic": "x", "by": 1}
    changes = ({}, {"prompt": "z"}, {"chosen": "z"}, {"rejected": "z"}, {"sure": 0.5}, {"same": True}, {"topic": "y"}, {"by": 2})
    other = PAIR | {"prompt": "o", "sure": 1, "same": False, "topic": "x", "by": 1}
    prints = {read_pairs(PairsConfig(source=str(write(tmp_path, [first | change, other])), **options)).fingerprint() for change in changes}
    assert len(prints) == len(changes)
