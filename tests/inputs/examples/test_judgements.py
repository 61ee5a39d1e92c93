"""Rows with the same texts: a copy by accident is left out, what another annotator said is kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import PairsConfig
from rlhf_studio.inputs.examples import Pair, Pairs, PromptsError, read_pairs, split_held_out
from rlhf_studio.inputs.examples.preview import preview_examples
from rlhf_studio.runs.feedback.exchange import export_rows
from rlhf_studio.runs.feedback.records import NewItem, NewTask, NewVote
from rlhf_studio.runs.feedback.store import Feedback

PAIR = {"prompt": "a", "chosen": "b", "rejected": "c"}
OTHER_WAY = PAIR | {"chosen": "c", "rejected": "b"}


def read(folder: Path, rows: Sequence[dict[str, Any]], **settings: Any) -> Pairs:
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_pairs(PairsConfig(source=str(path), **settings))


def texts_of(pairs: Pairs) -> list[tuple[str, str]]:
    return [(row.chosen, row.rejected) for row in pairs.rows]


def two_to_one(pairs: int, prompts: bool = True) -> list[dict[str, Any]]:
    """Each pair judged by three people, of whom the third disagrees."""
    rows = []
    for number in range(pairs):
        good, bad = f"good {number}", f"bad {number}"
        for name, chosen, rejected in (("p0", good, bad), ("p1", good, bad), ("p2", bad, good)):
            row = {"chosen": chosen, "rejected": rejected, "annotator": name}
            rows.append(row | ({"prompt": f"prompt {number}"} if prompts else {}))
    return rows


def test_a_majority_of_annotators_stays_a_majority(tmp_path: Path) -> None:
    pairs = read(tmp_path, two_to_one(60))
    assert not pairs.left_out and Counter(Counter((row.prompt, row.chosen) for row in pairs.rows).values()) == {2: 60, 1: 60}
    assert pairs.shape == "pairs (chosen, rejected, prompt, annotator)"
    data = PairsConfig(source=str(tmp_path / "p.jsonl"))
    notes = [
        "120 pairs stand there the other way round too: people disagreed on them.",
        "60 pairs came with the texts of an earlier one, but with another annotator, confidence, margin or group: each is a judgement of "
        "its own, and all count.",
    ]
    assert pairs.notes == notes == preview_examples(data, 1, None).notes[:2]


def test_copies_are_left_out_and_the_notes_say_so(tmp_path: Path) -> None:
    ann, bob = PAIR | {"annotator": "ann"}, PAIR | {"annotator": "bob"}
    pairs = read(tmp_path, [ann, bob, ann, bob, ann, OTHER_WAY | {"annotator": "ann"}])
    assert texts_of(pairs) == [("b", "c"), ("b", "c"), ("c", "b")] and pairs.left_out == {"repeated": 3}
    notes = preview_examples(PairsConfig(source=str(tmp_path / "p.jsonl"), eval_share=0), 9, None).notes
    assert notes[-1] == "3 of 6 pairs were left out: 3 exact copies of earlier ones."
    assert len(read(tmp_path, [ann, ann], drop_duplicates=False)) == 2


@pytest.mark.parametrize(("part", "values"), [("confidence", (1, 0.5)), ("tie", (False, True))])
def test_a_row_that_says_something_else_is_no_copy(tmp_path: Path, part: str, values: tuple[Any, Any]) -> None:
    rows = [PAIR | {"told": value} for value in (*values, *values)]
    pairs = read(tmp_path, rows, **{f"{part}_column": "told"})
    assert len(pairs) == 2 and pairs.left_out == {"repeated": 2}
    assert len(read(tmp_path, rows)) == 1  # nobody reads that column


def test_rankings_of_several_annotators_are_all_kept(tmp_path: Path) -> None:
    ranking = {"prompt": "a", "responses": ["b", "c"], "ranks": [1, 2]}
    rows = [ranking | {"annotator": name} for name in (1, 2, 2)]
    pairs = read(tmp_path, rows)
    assert texts_of(pairs) == [("b", "c")] * 2 and pairs.left_out == {"repeated": 1}
    assert texts_of(read(tmp_path, [ranking] * 3)) == [("b", "c")]


def rated(*rows: tuple[str, float, str | None]) -> list[dict[str, Any]]:
    return [{"prompt": "a", "response": response, "rating": rating, "annotator": name} for response, rating, name in rows]


def test_ratings_are_compared_within_each_annotator(tmp_path: Path) -> None:
    """Ann is strict and Bob is kind: b is better than c for both, though Bob gives c more than Ann gives b."""
    pairs = read(tmp_path, rated(("b", 2, "ann"), ("c", 1, "ann"), ("b", 5, "bob"), ("c", 4, "bob"), ("b", 1, "cy"), ("c", 5, "cy")))
    assert [(row.chosen, row.annotator) for row in pairs.rows] == [("b", "ann"), ("b", "bob"), ("c", "cy")] and not pairs.left_out
    pairs = read(tmp_path, rated(("b", 2, "ann"), ("c", 1, "bob"), ("d", 3, "cy"), ("e", 4, "cy"), ("f", 1, None)))
    assert [(row.chosen, row.rejected) for row in pairs.rows] == [("b", "c"), ("b", "f"), ("e", "d")]  # one rating each: together
    with pytest.raises(PromptsError, match="all rated alike, by each annotator, so nothing tells"):
        read(tmp_path, rated(("b", 2, "ann"), ("c", 2, "ann"), ("b", 5, "bob"), ("c", 5, "bob")))


@pytest.mark.parametrize("prompts", [True, False])
def test_both_directions_are_on_the_same_side_of_the_split(tmp_path: Path, prompts: bool) -> None:
    pairs = read(tmp_path, two_to_one(40, prompts))
    for seed in range(5):
        train, held_out = split_held_out(pairs.rows, PairsConfig(eval_share=0.2), seed)
        texts = [{frozenset((row.chosen, row.rejected)) for row in side} for side in (train, held_out)]
        assert not texts[0] & texts[1] and len(held_out) == 24 and len(train) == 96


def test_who_judged_is_no_part_of_what_training_reads(tmp_path: Path) -> None:
    assert read(tmp_path, [PAIR]).fingerprint() == read(tmp_path, [PAIR | {"annotator": "ann"}]).fingerprint()
    assert read(tmp_path, [PAIR | {"annotator": ["ann", 3]}]).rows == [Pair(1, "a", "b", "c", annotator="['ann', 3]")]


TIES_READ = "Ties are read from the column 'tie'."
SURE_READ = "How sure people were is read from the column 'confidence'."


@pytest.mark.parametrize("written", [(True, False), (1, 0), ("true", "false")])
def test_exported_feedback_is_read_without_naming_its_columns(written: tuple[Any, Any], tmp_path: Path) -> None:
    """The rows are those of ``export_rows``: a vote for one response, one for none of them, and one that does not say how sure it is."""
    feedback = Feedback(tmp_path)
    task, _ = feedback.create(NewTask("A task", annotators=3), [NewItem("p", ("good", "bad"))])
    for name, verdict, value, sure in (("Ann", "chosen", 0, 1.0), ("Bob", "tie", None, 0.5), ("Cyd", "chosen", 0, None)):
        turn = feedback.turn(task.id, name)
        assert turn.shown is not None
        feedback.vote(task.id, name, NewVote(name, turn.shown.item.id, verdict, value, sure))  # type: ignore[arg-type]
    rows = list(export_rows(task, feedback.items(task.id), feedback.votes(task.id)))
    pairs = read(tmp_path, [row | {"tie": written[0] if row["tie"] else written[1]} for row in rows])
    assert [(row.annotator, row.tie, row.weight) for row in pairs.rows] == [("Ann", False, 1.0), ("Bob", True, 0.5), ("Cyd", False, 1.0)]
    assert pairs.notes[:2] == [TIES_READ, SURE_READ]
    named = read(tmp_path, rows, tie_column="tie", confidence_column="confidence")
    assert named.rows == pairs.rows and TIES_READ not in named.notes and SURE_READ not in named.notes


def test_columns_of_that_name_that_hold_something_else_are_told_and_not_used(tmp_path: Path) -> None:
    rows = [PAIR | {"tie": True, "confidence": 0.5}, PAIR | {"prompt": "d", "tie": "silk", "confidence": 80}]
    pairs = read(tmp_path, rows)
    assert [(row.tie, row.weight) for row in pairs.rows] == [(False, 1.0)] * 2
    assert pairs.notes == [
        "The column 'confidence' is not used: row 2 holds 80 in 'confidence'; confidence goes from 0 to 1.",
        "The column 'tie' is not used: row 2 holds 'silk' in 'tie', neither true nor false.",
    ]
    with pytest.raises(PromptsError, match="neither true nor false"):
        read(tmp_path, rows, tie_column="tie")
    with pytest.raises(PromptsError, match="all pairs are ties"):
        read(tmp_path, [PAIR | {"tie": True}])
