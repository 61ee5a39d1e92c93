"""Files as other tools write them: read where one look tells what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import DataConfig, DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.examples import PromptsError, read_demonstrations, read_pairs
from rlhf_studio.inputs.prompts import read_prompts

CHAT = {"chat_template": True}
ASKED = [{"from": "human", "value": "Why?"}]
SHP = {"post_id": "a", "domain": "b", "history": "Why?", "human_ref_A": "one", "human_ref_B": "two", "score_A": 3, "score_B": 9}
CALL = {"type": "function", "function": {"name": "count", "arguments": {"what": "apples"}}}

PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, str, str]]] = {
    "SHP, the second is better": ({**SHP, "labels": 0}, {}, ("Why?", "two", "one")),
    "SHP, the first is better": ({**SHP, "labels": 1}, {}, ("Why?", "one", "two")),
    "LLaMA-Factory's sharegpt": (
        {"conversations": ASKED, "chosen": {"from": "gpt", "value": "good"}, "rejected": {"from": "gpt", "value": "bad"}},
        CHAT,
        ("Why?", "good", "bad"),
    ),
    "its alpaca form": ({"instruction": "Why?", "input": "It.", "chosen": "good", "rejected": "bad"}, {}, ("Why?\n\nIt.", "good", "bad")),
    "Argilla's UltraFeedback": (
        {"instruction": "Why?", "chosen_response": "good", "rejected_response": "bad"},
        {},
        ("Why?", "good", "bad"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str, tmp_path: Path) -> None:
    row, settings, expected = PAIRS[name]
    (tmp_path / "it.jsonl").write_text(json.dumps(row) + "\n")
    (pair,) = read_pairs(PairsConfig(source=str(tmp_path / "it.jsonl"), **settings)).rows
    assert (pair.prompt, pair.chosen, pair.rejected) == expected


def test_sharegpt_calls(tmp_path: Path) -> None:
    call = {"from": "function_call", "value": json.dumps(CALL["function"])}
    turns = [*ASKED, call, {"from": "observation", "value": "3"}, {"from": "gpt", "value": "Three."}]
    (tmp_path / "it.jsonl").write_text(json.dumps({"conversations": turns, "tools": '[{"name": "count"}]'}) + "\n")
    (row,) = read_demonstrations(DemonstrationsConfig(source=str(tmp_path / "it.jsonl"), **CHAT)).rows
    assert row.messages == (
        {"role": "user", "content": "Why?", "tools": [{"name": "count"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "3"},
        {"role": "assistant", "content": "Three."},
    )


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_reference_inside_an_object(kind: str, tmp_path: Path) -> None:
    rows = [{"prompt": "two plus two", "reward_model": {"style": "rule", "ground_truth": "4"}, "index": 1}]
    path = tmp_path / f"it.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    prompts = read_prompts(DataConfig(prompts=str(path), reference_column="reward_model.ground_truth"))
    assert prompts.references == ["4"] and prompts.notes == ["Not used: the column 'index'."]
    with pytest.raises(PromptsError, match=r"no.*'reward_model\.gold'"):
        read_prompts(DataConfig(prompts=str(path), reference_column="reward_model.gold"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("name", ["it.csv", "it.jsonl", "it.json", "it.txt"])
def test_texts_with_a_mark_of_their_encoding(name: str, encoding: str, tmp_path: Path) -> None:
    lines = {"it.csv": "prompt\nné\n", "it.jsonl": '{"prompt": "né"}\n', "it.json": '[{"prompt": "né"}]', "it.txt": "né\n"}
    (tmp_path / name).write_bytes(lines[name].encode(encoding))
    assert read_prompts(DataConfig(prompts=str(tmp_path / name))).texts == ["né"]


REFUSED = {
    "Argilla's records": ({"fields": {}, "responses": [], "suggestions": []}, "write each record as prompt, chosen and rejected"),
    "Argilla's table": ({"prompt": "a", "response1": "b", "response2": "c", "preference.responses": ["response1"]}, "write each record as"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_would_do(name: str, tmp_path: Path) -> None:
    row, message = REFUSED[name]
    (tmp_path / "it.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(PromptsError, match=message):
        read_pairs(PairsConfig(source=str(tmp_path / "it.jsonl")))


def test_packed_files_say_how_they_are_unpacked(tmp_path: Path) -> None:
    (tmp_path / "it.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(PromptsError, match=r"zstd -d it\.jsonl\.zst"):
        read_prompts(DataConfig(prompts=str(tmp_path / "it.jsonl.zst")))
