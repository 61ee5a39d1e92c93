"""Demonstrations: every shape against rows worked out by hand, and every sentence a bad file gets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from rlhf_studio.config import DemonstrationsConfig
from rlhf_studio.inputs.examples import PromptsError, read_demonstrations
from rlhf_studio.inputs.examples.reading import table

USER, ASSISTANT, SYSTEM = ({"role": role} for role in ("user", "assistant", "system"))
CHAT = [SYSTEM | {"content": "Be short."}, USER | {"content": "Hi"}, ASSISTANT | {"content": "Hello."}]
TWO_TURNS = [*CHAT, USER | {"content": "And?"}, ASSISTANT | {"content": "Bye."}]
DIALOGUE = "\n\nHuman: Who?\n\nAssistant: Ada.\n\nHuman: When?\n\nAssistant: In 1843."


def write(folder: Path, rows: list[dict[str, Any]], name: str = "d.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, **settings: Any) -> list[tuple[Any, ...]]:
    rows = read_demonstrations(DemonstrationsConfig(source=str(path), **settings)).rows
    return [(row.number, row.prompt, row.completion, row.messages and list(row.messages)) for row in rows]


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[Any, ...]]] = {
    "prompt and completion": ({"prompt": "Two?", "completion": " 2"}, {}, ("Two?", " 2", None)),
    "question and answer": ({"question": "Two?", "answer": "2"}, {}, ("Two?", "2", None)),
    "instruction with input": ({"instruction": "Add.", "input": "1 + 1", "output": "2"}, {}, ("Add.\n\n1 + 1", "2", None)),
    "instruction without input": ({"instruction": "Say 2.", "input": "", "output": "2"}, {}, ("Say 2.", "2", None)),
    "instruction with context": ({"instruction": "Add.", "context": "1, 1", "response": "2"}, {}, ("Add.\n\n1, 1", "2", None)),
    "text": ({"text": "Some text."}, {}, ("", "Some text.", None)),
    "dialogue": ({"text": DIALOGUE}, {}, (DIALOGUE.removesuffix(" In 1843."), " In 1843.", None)),
    "dialogue as chat": (
        {"text": DIALOGUE},
        {"chat_template": True},
        (
            DIALOGUE.removesuffix(" In 1843."),
            " In 1843.",
            [
                USER | {"content": "Who?"},
                ASSISTANT | {"content": "Ada."},
                USER | {"content": "When?"},
                ASSISTANT | {"content": "In 1843."},
            ],
        ),
    ),
    "messages": ({"messages": CHAT, "prompt": "Hi"}, {"chat_template": True}, ("Be short.\nHi", "Hello.", CHAT)),
    "two turns": ({"messages": TWO_TURNS}, {"chat_template": True}, ("Be short.\nHi\nHello.\nAnd?", "Bye.", TWO_TURNS)),
    "nobody answers the end": ({"messages": [*CHAT, USER | {"content": "?"}]}, {"chat_template": True}, ("Be short.\nHi", "Hello.", CHAT)),
    "from and value": (
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]},
        {"chat_template": True},
        ("Hi", "Hello.", CHAT[1:]),
    ),
    "a list answers a text": ({"prompt": "Hi", "completion": CHAT[2:]}, {"chat_template": True}, ("Hi", "Hello.", CHAT[1:])),
    "a text answers a list": ({"prompt": CHAT[:2], "completion": "Hello."}, {"chat_template": True}, ("Be short.\nHi", "Hello.", CHAT)),
    "preferred responses": ({"prompt": "Two?", "chosen": "2", "rejected": "3"}, {}, ("Two?", "2", None)),
    "preferred dialogues": (
        {"chosen": DIALOGUE, "rejected": DIALOGUE + "?"},
        {},
        (DIALOGUE.removesuffix(" In 1843."), " In 1843.", None),
    ),
    "columns named": (
        {"q": "Two?", "a": "2", "prompt": "no", "completion": "no"},
        {"prompt_column": "q", "completion_column": "a"},
        ("Two?", "2", None),
    ),
    "text named": ({"text": "no", "body": "Yes.", "prompt": "no"}, {"text_column": "body"}, ("", "Yes.", None)),
    "input named": ({"prompt": "Add.", "more": "1 + 1", "answer": "2"}, {"input_column": "more"}, ("Add.\n\n1 + 1", "2", None)),
    "choice between two": (
        {"instruction": "Say 2.", "output": "2", "text": "Say 2. 2"},
        {"completion_column": "output"},
        ("Say 2.", "2", None),
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_a_shape_is_recognised(case: str, tmp_path: Path) -> None:
    row, settings, expected = SHAPES[case]
    assert read(write(tmp_path, [row]), **settings) == [(1, *expected)]


def test_files_of_every_kind_hold_the_same(tmp_path: Path) -> None:
    rows = [{"prompt": "Two?", "completion": " 2"}, {"prompt": 'He, "she"', "completion": " it\nis"}]
    expected = [("Two?", " 2"), ('He, "she"', " it\nis")]
    pandas.DataFrame(rows).to_csv(tmp_path / "d.csv", index=False)
    pandas.DataFrame(rows).to_csv(tmp_path / "d.tsv", index=False, sep="\t")
    pandas.DataFrame(rows).to_parquet(tmp_path / "d.parquet")
    write(tmp_path, rows)
    write(tmp_path, rows, "d.json")
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress((tmp_path / "d.jsonl").read_bytes()))
    for name in ("d.csv", "d.tsv", "d.parquet", "d.jsonl", "d.json", "d.jsonl.gz"):
        assert [row[1:3] for row in read(tmp_path / name)] == expected, name


def test_a_folder_is_read_as_a_dataset(tmp_path: Path) -> None:
    for kind in ("lines", "parquet"):
        (tmp_path / kind).mkdir()
    write(tmp_path / "lines", [{"prompt": "Two?", "completion": " 2", "other": 1}], "train.jsonl")
    write(tmp_path / "lines", [{"prompt": "Three?", "completion": " 3", "other": 1}], "test.jsonl")
    assert read(tmp_path / "lines", split="test")[0][1:3] == ("Three?", " 3")
    rows = [{"other": 1, "completion": " 2", "prompt": "Two?"}]
    pandas.DataFrame(rows).to_parquet(tmp_path / "parquet" / "train.parquet")
    assert read(tmp_path / "parquet")[0][1:3] == ("Two?", " 2")


def test_a_text_file_holds_one_text_a_line(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("One text.\n\nAnother.\n")
    assert [row[:3] for row in read(tmp_path / "d.txt")] == [(1, "", "One text."), (3, "", "Another.")]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Two?", "completion": " 2"},
        {"prompt": "Two?", "completion": " 2"},
        {"prompt": "Three?", "completion": "  "},
        {"prompt": "Four?", "completion": None},
        {"prompt": "", "completion": ""},
        {"prompt": "", "completion": "x"},
        {"completion": "y"},
    ]
    demonstrations = read_demonstrations(DemonstrationsConfig(source=str(write(tmp_path, rows))))
    assert [(row.number, row.completion) for row in demonstrations.rows] == [(1, " 2"), (6, "x")]
    assert demonstrations.left_out == {"repeated": 1, "empty_response": 2, "blank": 1, "no_prompt": 1}
    assert demonstrations.columns == ["prompt", "completion"] and demonstrations.shape == "prompts with completions (prompt, completion)"
    assert len(read(tmp_path / "d.jsonl", drop_duplicates=False)) == 3
    assert len(read(tmp_path / "d.jsonl", max_rows=1)) == 1
    chats = [{"messages": CHAT[:2]}, {"messages": TWO_TURNS}, {"messages": []}]
    demonstrations = read_demonstrations(DemonstrationsConfig(source=str(write(tmp_path, chats)), chat_template=True))
    assert demonstrations.left_out == {"no_answer": 1, "blank": 1} and len(demonstrations) == 1


def test_notes_say_what_was_made_of_rows(tmp_path: Path) -> None:
    path = write(tmp_path, [{"chosen": DIALOGUE, "rejected": DIALOGUE + "?"}])
    assert read_demonstrations(DemonstrationsConfig(source=str(path))).notes == [
        "The preferred responses of pairs are learned from (column 'chosen').",
        "1 text was read as a dialogue: the response begins behind the mark of the last answer.",
        "Not used: the column 'rejected'.",
    ]


WRONG: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "no shape": ({"a": "x", "prompt": "y"}, {}, "data.source", "the columns are: a, prompt; demonstrations need a prompt and a"),
    "two completions": ({"prompt": "x", "completion": "y", "response": "z"}, {}, "data.completion_column", "could both be meant"),
    "two shapes": ({"instruction": "x", "output": "y", "text": "z"}, {}, "data.completion_column", "could both be meant"),
    "no such column": (
        {"prompt": "x", "completion": "y"},
        {"completion_column": "gold"},
        "data.completion_column",
        "there is no column 'gold'; the columns are: prompt, completion",
    ),
    "which are needed beside it": ({"a": "x", "q": "y"}, {"prompt_column": "q"}, "data.completion_column", "there is no column"),
    "named together": (
        {"text": "x", "prompt": "y"},
        {"prompt_column": "prompt", "text_column": "text"},
        "data.text_column",
        "cannot be used together with data.prompt_column",
    ),
    "not text": ({"prompt": "x", "completion": 4}, {}, "data.completion_column", "row 1 holds int in 'completion', not text"),
    "chat without a form": ({"messages": CHAT}, {}, "data.messages_column", "row 1 holds chat messages in 'messages', not"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_at_its_setting(case: str, tmp_path: Path) -> None:
    row, settings, field, message = WRONG[case]
    with pytest.raises(PromptsError) as caught:
        read(write(tmp_path, [row]), **settings)
    assert caught.value.field == field and message in caught.value.message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.jsonl", "there is no file none.jsonl"),
        ("bundled/world-pairs", "bundled/world-pairs holds pairs; bundled demonstrations are bundled/world-reviews and"),
        ("bundled/world", "bundled/world does not exist; bundled demonstrations are bundled/world-reviews"),
    ],
)
def test_a_source_that_is_not_there(source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PromptsError) as caught:
        read_demonstrations(DemonstrationsConfig(source=source))
    assert caught.value.field == "data.source" and message in caught.value.message


def test_errors_in_files_blame_the_source(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{oops\n')
    (tmp_path / "d.parquet").write_bytes(b"no")
    (tmp_path / "d.csv").write_text("")
    (tmp_path / "d.txt").write_text("x")
    for name, settings, field, message in (
        ("d.jsonl", {}, "data.source", "row 2 is not valid JSON"),
        ("d.parquet", {}, "data.source", "is not a readable Parquet file"),
        ("d.csv", {}, "data.source", "holds no demonstrations"),
        ("d.txt", {"text_column": "line"}, "data.text_column", "a text file has no columns"),
    ):
        with pytest.raises(PromptsError) as caught:
            read(tmp_path / name, **settings)
        assert caught.value.field == field and message in caught.value.message


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, [{"prompt": "x", "completion": f"{number:,}" * 1000} for number in range(10)])
    monkeypatch.setattr(table, "MAX_BYTES", 3_000)
    with pytest.raises(PromptsError) as caught:
        read(path)
    assert caught.value.field == "data.max_rows" and "use at most 2 rows" in caught.value.message
    monkeypatch.setattr(table, "MAX_BLANK_ROWS", 3)
    path = write(tmp_path, [{"prompt": "", "completion": ""}] * 5)
    with pytest.raises(PromptsError, match="4 rows are blank and 0 are not"):
        read(path)


def test_the_fingerprint_changes_with_any_of_it(tmp_path: Path) -> None:
    prints = set()
    for row in ({"prompt": "a", "completion": "b"}, {"prompt": "ab", "completion": " "}, {"prompt": "a", "completion": "c"}):
        rows = [row, {"prompt": "x", "completion": "y"}]
        prints.add(read_demonstrations(DemonstrationsConfig(source=str(write(tmp_path, rows)))).fingerprint())
    assert len(prints) == 3
    again = read_demonstrations(DemonstrationsConfig(source=str(tmp_path / "d.jsonl"))).fingerprint()
    assert again in prints
