"""Rows that somebody made to do harm, or a program by mistake: each gets its sentence, and none takes a minute or the memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow.parquet import write_table

from rlhf_studio.config import PairsConfig
from rlhf_studio.inputs.examples import Pair, PromptsError, read_pairs
from rlhf_studio.inputs.examples.reading import table
from rlhf_studio.inputs.examples.reading.pairs import MOST_RANKED

HUGE = 10**400
PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
RATED = {"prompt": "a", "response": "b", "rating": 1}


def read(folder: Path, *rows: dict[str, Any], **settings: Any) -> list[Pair]:
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_pairs(PairsConfig(source=str(path), **settings)).rows


def wrong(folder: Path, *rows: dict[str, Any], **settings: Any) -> tuple[str, str]:
    with pytest.raises(PromptsError) as caught:
        read(folder, *rows, **settings)
    return caught.value.field, caught.value.message


@pytest.mark.parametrize(
    ("row", "settings", "field", "column"),
    [
        (RATED | {"rating": HUGE}, {}, "rating", "rating"),
        ({"prompt": "a", "responses": ["b", "c"], "ranks": [1, HUGE]}, {}, "ranks", "ranks"),
        (PAIR | {"sure": HUGE}, {"confidence_column": "sure"}, "confidence", "sure"),
        (PAIR | {"by": -HUGE}, {"margin_column": "by"}, "margin", "by"),
        (PAIR | {"score_chosen": HUGE, "score_rejected": 1}, {"margin_from_ratings": True}, "margin", "score_chosen"),
    ],
)
def test_a_number_of_four_hundred_digits_is_refused(
    tmp_path: Path, row: dict[str, Any], settings: dict[str, Any], field: str, column: str
) -> None:
    where, message = wrong(tmp_path, row, row, **settings)
    digits = str(-HUGE if "by" in row else HUGE)[:60]
    assert (where, message) == (f"data.{field}_column", f"row 1 holds {digits} in {column!r}, not a finite number")


def test_a_margin_that_no_loss_can_hold_is_refused(tmp_path: Path) -> None:
    most = ": no scores are so far apart; it may be 1,000,000,000 at most"
    rated = (RATED | {"rating": -1.7e308}, RATED | {"response": "c", "rating": 1.7e308})
    assert wrong(tmp_path, *rated, margin_from_ratings=True)[1] == f"row 2 holds a margin of inf over row 1 in 'rating'{most}"
    assert len(read(tmp_path, *rated)) == 1  # which one is better is told all the same
    scored = PAIR | {"score_chosen": 1.7e308, "score_rejected": -1.7e308}
    assert wrong(tmp_path, scored, margin_from_ratings=True)[1] == f"row 1 holds a margin of inf in 'score_chosen'{most}"
    assert wrong(tmp_path, PAIR | {"by": 1e38}, margin_column="by") == (
        "data.margin_column",
        f"row 1 holds a margin of 1e+38 in 'by'{most}",
    )
    assert read(tmp_path, PAIR | {"by": 1e9}, margin_column="by")[0].margin == 1e9


@pytest.mark.parametrize("location", ["p.csv", "folder/p.csv"])
def test_two_columns_of_one_name_are_refused_where_they_are_read(tmp_path: Path, location: str) -> None:
    path = tmp_path / location
    path.parent.mkdir(exist_ok=True)
    source = path if location == "p.csv" else path.parent
    before = "" if location == "p.csv" else "p.csv: "
    path.write_text("prompt,chosen,note,chosen,rejected\na,b,n,x,c\n")
    with pytest.raises(PromptsError) as caught:
        read_pairs(PairsConfig(source=str(source)))
    assert caught.value.field == "data.source" and caught.value.message == (
        f"{before}2 columns are called 'chosen', so nothing tells which one is meant; give each column of the file a name of its own"
    )
    with pytest.raises(PromptsError, match="2 columns are called 'chosen'") as caught:
        read_pairs(PairsConfig(source=str(source), chosen_column="chosen"))
    assert caught.value.field == ("data.chosen_column" if location == "p.csv" else "data.source")
    path.write_text("prompt,chosen,note,note,,,rejected\na,b,n,x,,,c\n")  # what nobody reads may have any name
    assert read_pairs(PairsConfig(source=str(source))).rows[0].rejected == "c"


def test_two_columns_of_one_name_in_a_parquet_file_are_refused_too(tmp_path: Path) -> None:
    cells = [pyarrow.array([text]) for text in ("a", "b", "x", "c")]
    write_table(pyarrow.Table.from_arrays(cells, names=["prompt", "chosen", "chosen", "rejected"]), tmp_path / "p.parquet")
    with pytest.raises(PromptsError, match="2 columns are called 'chosen', so nothing tells which one is meant"):
        read_pairs(PairsConfig(source=str(tmp_path / "p.parquet")))


def test_ratings_of_pairs_are_told_apart_only_where_they_are_read(tmp_path: Path) -> None:
    row = PAIR | {"score_chosen": 2, "chosen_rating": 3, "score_rejected": 1}
    assert len(read(tmp_path, row)) == 1
    assert wrong(tmp_path, row, margin_from_ratings=True) == (
        "data.margin_column",
        "the columns 'score_chosen' and 'chosen_rating' could both be meant; use a file with one of them, or name a column with margins "
        "here",
    )


def ranking(count: int, text: str = "{}") -> dict[str, Any]:
    return {"prompt": "a", "responses": [text.format(number) for number in range(count)], "ranks": list(range(count))}


def test_a_ranking_of_too_many_responses_is_refused_before_any_two_are_compared(tmp_path: Path) -> None:
    assert len(read(tmp_path, ranking(MOST_RANKED))) == MOST_RANKED * (MOST_RANKED - 1) // 2
    where, message = wrong(tmp_path, ranking(2), ranking(5_000))
    assert where == "data.responses_column" and message == (
        "row 2 holds 5,000 responses in 'responses'; every two of them would be a pair, and at most 32 are compared: use fewer, or ratings"
    )


def test_pairs_of_equal_responses_count_against_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_BYTES", 100_000)
    assert len(read(tmp_path, *[ranking(2)] * 300)) == 1
    where, message = wrong(tmp_path, *[ranking(MOST_RANKED, "a")] * 300)
    assert where == "data.max_rows" and message.startswith("the examples of ") and "use at most " in message


@pytest.mark.parametrize("column", ["topic", "annotator"])
def test_a_long_group_or_annotator_counts_against_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    monkeypatch.setattr(table, "MAX_BYTES", 100_000)
    rows = [PAIR | {column: "x" * 10_000 + str(number)} for number in range(20)]
    assert wrong(tmp_path, *rows, group_column="topic" if column == "topic" else "")[0] == "data.max_rows"


def test_rated_rows_are_bounded_before_the_first_pair_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_BYTES", 100_000)
    rows = [RATED | {"prompt": str(number), "response": "b" * 10_000} for number in range(20)]
    where, message = wrong(tmp_path, *rows)
    assert where == "data.max_rows" and message == "the examples of 10 rows take more than 0 MB of memory; use at most 9 rows"
