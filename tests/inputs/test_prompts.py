"""Prompts: what is read, and every sentence a bad file gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts import MAX_ROW_CHARACTERS, PromptsError, count_tokens, preview_prompts, read_prompts


def data(path: Path, **settings: Any) -> DataConfig:
    return DataConfig(prompts=str(path), **settings)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_takes_the_named_column_and_keeps_text_as_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", 'id,text\n1,007\n2,"a, b\nc"\n3,NA\n4,\n5,<b>${x}</b>\n')
    assert read_prompts(data(path, column="text")).texts == ["007", "a, b\nc", "NA", "<b>${x}</b>"]


def test_json_lines(tmp_path: Path) -> None:
    rows = ["\n", json.dumps({"prompt": "één"}), "\n", json.dumps({"prompt": "two", "other": [1]}), "\n\n", json.dumps({"prompt": "  "})]
    assert read_prompts(data(write(tmp_path, "p.jsonl", "".join(rows)))).texts == ["één", "two"]


def test_text_one_prompt_a_line_with_a_byte_order_mark_and_windows_ends(tmp_path: Path) -> None:
    path = write(tmp_path, "p.TXT", b"\xef\xbb\xbfone\r\n\r\n two \r\n")
    assert read_prompts(data(path)).texts == ["one", " two "]


def test_only_the_first_prompts_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, "p.jsonl", '{"prompt": "one"}\n{"prompt": "two"}\nnot json\n')
    assert read_prompts(data(path, max_prompts=2)).texts == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.csv", 'answer,prompt\nParis,"Capital, of France?"\nnone, \n,Hm?\n'),
        (
            "p.jsonl",
            '{"answer": "Paris", "prompt": "Capital, of France?"}\n{"prompt": " ", "answer": "none"}\n{"prompt": "Hm?", "answer": ""}',
        ),
    ],
)
def test_a_reference_stays_with_its_prompt(name: str, content: str, tmp_path: Path) -> None:
    path = write(tmp_path, name, content)
    prompts = read_prompts(data(path, reference_column="answer"))
    assert list(zip(prompts.texts, prompts.references, strict=True)) == [("Capital, of France?", "Paris"), ("Hm?", "")]
    assert read_prompts(data(path)).references is None


BAD_REFERENCES = {
    "text file": ("p.txt", "a\n", "a text file has no columns"),
    "no column": ("p.csv", "prompt,b\nx,y\n", "there is no column 'answer'; the columns are: prompt, b"),
    "short row": ("p.csv", "prompt,answer\nx\n", "row 2 has 1 of 2 columns and so no 'answer'"),
    "no key": ("p.jsonl", '{"prompt": "x"}\n', "there is no column 'answer'"),
    "not text": ("p.jsonl", '{"prompt": "x", "answer": 4}\n', "row 1 holds int in 'answer', not text"),
}


@pytest.mark.parametrize("case", BAD_REFERENCES)
def test_references_that_cannot_be_read(case: str, tmp_path: Path) -> None:
    name, content, message = BAD_REFERENCES[case]
    with pytest.raises(PromptsError) as caught:
        read_prompts(data(write(tmp_path, name, content), reference_column="answer"))
    assert message in caught.value.message
    assert caught.value.field == ("data.prompts" if case == "short row" else "data.reference_column")


LONG = "x" * (MAX_ROW_CHARACTERS + 1)
BAD_FILES = {
    "empty text": ("p.txt", "", "data.prompts", "holds no prompts"),
    "empty csv": ("p.csv", "", "data.prompts", "holds no prompts"),
    "csv with a header only": ("p.csv", "prompt\n", "data.prompts", "holds no prompts"),
    "no column": ("p.csv", "text,label\na,1\n", "data.column", "there is no column 'prompt'; the columns are: text, label"),
    "no key": ("p.jsonl", '{"text": "a"}\n', "data.column", "there is no column 'prompt'; the columns are: text"),
    "key missing later": ("p.jsonl", '{"prompt": "a"}\n{"text": "b"}\n', "data.column", "row 2 has no 'prompt'"),
    "short csv row": ("p.csv", "a,prompt\n1,x\n2\n", "data.prompts", "row 3 has 1 of 2 columns"),
    "not text": ("p.jsonl", '{"prompt": 3}\n', "data.column", "row 1 holds int in 'prompt', not text"),
    "not an object": ("p.jsonl", '"a"\n', "data.prompts", "row 1 is not an object"),
    "not json": ("p.jsonl", '{"prompt": "a"}\n{oops\n', "data.prompts", "row 2 is not valid JSON"),
    "json array": ("p.json", "[\n{}]", "data.prompts", "a JSON array must be rewritten as one object a line"),
    "deep json": ("p.jsonl", "[" * 100_000, "data.prompts", "row 1 is not valid JSON"),
    "not utf-8": ("p.txt", b"caf\xe9\n", "data.prompts", "is not UTF-8 text (byte 0xe9)"),
    "huge row": ("p.jsonl", json.dumps({"prompt": LONG}), "data.prompts", "row 1 is longer than 100,000 characters"),
    "huge line": ("p.txt", "a\n" + LONG, "data.prompts", "row 2 is longer"),
    "huge csv cell": ("p.csv", 'prompt\n"' + ("x" * 70_000 + "\n") * 3 + '"\n', "data.prompts", "is not valid CSV: field larger"),
    "half a character": ("p.jsonl", '{"prompt": "\\ud800"}\n', "data.prompts", "row 1 holds half a character"),
    "unknown ending": ("p.parquet", "PAR1", "data.prompts", "the ending .parquet is not known"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_with_a_sentence_at_its_setting(case: str, tmp_path: Path) -> None:
    name, content, field, message = BAD_FILES[case]
    with pytest.raises(PromptsError) as caught:
        read_prompts(data(write(tmp_path, name, content)))
    assert caught.value.field == field
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.csv", "there is no file"),
        ("a\0b.txt", "there is no file"),
        ("bundled/nothing", "there is no bundled/nothing; there is bundled/world-prompts"),
    ],
)
def test_a_name_that_leads_nowhere(name: str, message: str) -> None:
    with pytest.raises(PromptsError, match="data.prompts") as caught:
        read_prompts(DataConfig(prompts=name))
    assert message in caught.value.message


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="is not a file"):
        read_prompts(data(tmp_path))


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "p.txt", "a\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PromptsError, match="cannot be read: Permission denied"):
        read_prompts(data(path))


def test_preview_counts_tokens(tmp_path: Path, make_model: Any) -> None:
    path = write(tmp_path, "p.txt", "the film was good\nbad\nthe end of it\n")
    rows = preview_prompts(data(path), 2, make_model() / "tokenizer.json")
    assert [(row.text, row.tokens) for row in rows] == [("the film was good", 4), ("bad", 1)]
    assert [row.tokens for row in preview_prompts(data(path), 2)] == [None, None]


def test_preview_of_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="holds no prompts"):
        preview_prompts(data(write(tmp_path, "p.txt", "\n")))


def test_no_counts_without_a_tokenizer_that_can_be_read(tmp_path: Path) -> None:
    assert count_tokens(["a"], write(tmp_path, "tokenizer.json", "{}")) is None
    assert count_tokens(["a"], tmp_path / "missing.json") is None
