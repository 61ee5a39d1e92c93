"""Prompts: what is read, and every sentence a bad file gets."""

from __future__ import annotations

import csv
import gzip
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pandas
import pytest

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts import PromptsError, cached, read, read_prompts
from rlhf_studio.inputs.prompts.sources import lines
from rlhf_studio.inputs.prompts.sources.rows import MAX_ROW_CHARACTERS


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


def test_a_json_array_is_read_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"number {row} ],[ {{}}" for row in range(40)]
    monkeypatch.setattr(lines, "START_CHARACTERS", 12)
    for size in (1, 7, 65_536):
        monkeypatch.setattr(lines, "PIECE_CHARACTERS", size)
        for indent in (None, 2):
            path = write(
                tmp_path, "p.json", " \n" * 5 + json.dumps([{"prompt": text, "more": [[1]]} for text in texts], indent=indent) + "\n"
            )
            assert read_prompts(data(path)).texts == texts
    packed = write(tmp_path, "p.json.gz", gzip.compress(b'\xef\xbb\xbf[{"prompt": "one"}]'))
    assert read_prompts(data(packed)).texts == ["one"]


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
    "no column": ("p.csv", "text,label\na,1\n", "data.column", "there is no column 'prompt'; the columns are: text, label"),
    "semicolons": ("p.csv", "id;prompt\n1;x\n", "data.column", "the columns are: id;prompt; it seems to have semicolons"),
    "key missing later": ("p.jsonl", '{"prompt": "a"}\n{"text": "b"}\n', "data.column", "row 2 has no 'prompt'"),
    "short csv row": ("p.csv", "a,prompt\n1,x\n2\n", "data.prompts", "row 3 has 1 of 2 columns"),
    "not text": ("p.jsonl", '{"prompt": 3}\n', "data.column", "row 1 holds int in 'prompt', not text"),
    "not json": ("p.jsonl", '{"prompt": "a"}\n{oops\n', "data.prompts", "row 2 is not valid JSON"),
    "array without end": ("p.json", '[{"prompt": "a"}, {"prompt": "b"}', "data.prompts", "row 3 is not valid JSON"),
    "array with an error": ("p.json", '[{"prompt": "a"}, {oops}]' + " " * 400_000, "data.prompts", "row 2 is not valid JSON, or longer"),
    "deep json": ("p.jsonl", "[" * 100_000, "data.prompts", "row 1 is not valid JSON"),
    "not utf-8": ("p.txt", b"one\ntwo\ncaf\xe9\n", "data.prompts", "row 3 is not UTF-8 text (byte 0xe9)"),
    "not utf-8 far down": ("p.csv", b"prompt\n" + b"a fine row\n" * 5000 + b"\xff\n", "data.prompts", "row 5002 is not UTF-8"),
    "utf-16": ("p.csv", "prompt\nrow\n".encode("utf-16-le"), "data.prompts", "p.csv is no UTF-8 text, but perhaps UTF-16"),
    "huge row": ("p.jsonl", json.dumps({"prompt": LONG}), "data.prompts", "row 1 is longer than 100,000 characters"),
    "huge csv cell": ("p.csv", 'prompt\n"' + ("x" * 70_000 + "\n") * 3 + '"\n', "data.prompts", "row 3 is longer than 100,000 characters"),
    "half a character": ("p.jsonl", '{"prompt": "\\ud800"}\n', "data.prompts", "row 1 holds half a character"),
    "chat messages": ("p.jsonl", '{"prompt": [{"role": "user", "content": "x"}]}', "data.column", "holds a list in 'prompt',"),
    "no gzip": ("p.jsonl.gz", "{}", "data.prompts", "p.jsonl.gz is damaged: its gzip compression breaks off"),
    "unknown ending": ("p.docx", "x", "data.prompts", "the ending .docx is not known"),
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


def test_a_device_is_no_source() -> None:
    with pytest.raises(PromptsError, match="is neither a file nor a folder"):
        read_prompts(DataConfig(prompts="/dev/null"))


def test_a_file_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "p.txt", "a\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PromptsError, match=".* cannot be read: Permission denied"):
        read_prompts(data(path))


# --- independent readers and writers -----------------------------------------------------------------------------------------------

TRICKY = [
    "007",
    "a, b",
    'she said "no"',
    "two\nlines",
    "\u00e9\u00e8 \U0001f600",
    "NA",
    "null",
    " spaced ",
    "tab\there",
    "'",
    "\\n",
    "=1+1",
    "x\x0by",
]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl.gz"])
def test_what_other_libraries_write_is_read_back(ending: str, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"id": range(len(TRICKY)), "prompt": TRICKY, "answer": TRICKY[::-1]})
    path = tmp_path / f"p.{ending}"
    if ending.startswith(("csv", "tsv")):
        frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    else:
        frame.to_json(path, orient="records", lines=True)
    prompts = read_prompts(data(path, reference_column="answer"))
    assert (prompts.texts, prompts.references, prompts.columns) == (TRICKY, TRICKY[::-1], ["id", "prompt", "answer"])


@pytest.mark.parametrize("seed", range(3))
def test_any_csv_that_python_writes(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    cells = [["".join(draw.choices("ab ,\"'\n\r;\t\u00fc", k=draw.randint(0, 12))) for _ in range(3)] for _ in range(30)]
    path = tmp_path / "p.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["a", "prompt", "c"], *cells])
    assert read_prompts(data(path)).texts == [row[1] for row in cells if row[1].strip()]


def test_a_null_is_a_blank_row(tmp_path: Path) -> None:
    prompts = read_prompts(data(write(tmp_path, "p.jsonl", '{"prompt": null}\n{"prompt": "x", "r": null}\n'), reference_column=""))
    assert (prompts.texts, dict(prompts.left_out)) == (["x"], {"blank": 1})


def test_a_csv_that_the_reader_gives_up_on(tmp_path: Path) -> None:
    path = write(tmp_path, "p.csv", "prompt\nshort\nlonger than the limit\n")
    usual = csv.field_size_limit(10)
    try:
        with pytest.raises(PromptsError, match="row 3 is not valid CSV: field larger than field limit"):
            read_prompts(data(path))
    finally:
        csv.field_size_limit(usual)


# --- filters: nothing is left out silently --------------------------------------------------------------------------------------------


def test_filters_by_text_are_counted_by_reason(tmp_path: Path) -> None:
    path = write(tmp_path, "p.txt", "ab\n\nabc\nabcd\nabc\nabcdef\n  \nab\n")
    assert read_prompts(data(path)).left_out == {"blank": 2}
    prompts = read_prompts(data(path, drop_duplicates=True, min_characters=3, max_characters=5))
    assert prompts.texts == ["abc", "abcd"]
    assert prompts.left_out == {"blank": 2, "repeated": 2, "few_characters": 1, "many_characters": 1}


def test_nothing_left_blames_the_setting_that_left_out_the_most(tmp_path: Path) -> None:
    path = write(tmp_path, "p.txt", "ab\nabcdef\nabcdefg\n\n")
    with pytest.raises(PromptsError) as caught:
        read_prompts(data(path, min_characters=3, max_characters=5))
    assert caught.value.field == "data.max_characters"
    assert "no prompts that are left: 1 blank, 1 with fewer than 3 characters, 2 with more than 5 characters" in caught.value.message


# --- bombs: bounded memory and an end ---------------------------------------------------------------------------------------------------


def peak_bytes(path: Path, **settings: Any) -> tuple[int, str]:
    """The most memory that Python took while it read, and what it said."""
    tracemalloc.start()
    try:
        with pytest.raises(PromptsError) as caught:
            read_prompts(data(path, **settings))
        return tracemalloc.get_traced_memory()[1], caught.value.message
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv"])
def test_one_endless_row_costs_no_memory(name: str, tmp_path: Path) -> None:
    row = {"p.txt": b"x" * 30_000_000, "p.jsonl": b'{"prompt": "' + b"x" * 30_000_000, "p.csv": b'prompt\n"' + b"x,\n" * 10_000_000}[name]
    plain, packed = write(tmp_path, name, row), write(tmp_path, f"{name}.gz", gzip.compress(row, 1))
    for path in (plain, packed):
        memory, message = peak_bytes(path)
        assert "is longer than 100,000 characters" in message
        assert memory < 3_000_000


def test_an_archive_of_blank_lines_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "p.txt.gz", gzip.compress(b"\n" * 200_000))
    monkeypatch.setattr(lines, "MAX_BLANK_CHARACTERS", 1000)
    memory, message = peak_bytes(path)
    assert "nothing but blank lines before row 1001" in message
    assert memory < 1_000_000


def test_an_archive_of_blank_prompts_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "p.jsonl.gz", gzip.compress(b'{"prompt": "x"}\n' + b'{"prompt": ""}\n' * 2000))
    monkeypatch.setattr(read, "MAX_BLANK_ROWS", 1000)
    assert "1,011 rows are blank and 1 are not; this is no list of prompts" in peak_bytes(path)[1]


def test_an_archive_of_long_prompts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "p.txt.gz", gzip.compress((b"x" * 50_000 + b"\n") * 400))
    monkeypatch.setattr(read, "MAX_BYTES", 1_010_000)
    memory, message = peak_bytes(path)
    assert message == "the first 20 prompts take 1 MB of memory already; use at most 20"
    assert memory < 5_000_000


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_memory_is_counted_as_python_takes_it(character: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text with one wide character takes two or four bytes for each; messages take their own beside the text."""
    monkeypatch.setattr(read, "MAX_BYTES", 3_000_000)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x" * 30_000 + character}]
    row = json.dumps({"prompt": messages}, ensure_ascii=False)
    memory, message = peak_bytes(write(tmp_path, "p.jsonl", f"{row}\n" * 200), chat_template=True)
    assert "take 3 MB of memory already" in message
    assert 2_000_000 < memory < 4_000_000


def test_what_the_form_keeps_of_long_prompts_is_bounded_and_the_rest_is_still_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "LOCAL_BYTES", 200_000)
    good = write(tmp_path, "good.txt.gz", gzip.compress((b"x" * 10_000 + b"\n") * 400))
    tracemalloc.start()
    prompts = cached.read_once(data(good))
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert memory < 1_000_000 and prompts.partial and len(prompts) == 19
    bad = write(tmp_path, "bad.txt.gz", gzip.compress((b"x" * 10_000 + b"\n") * 400 + b"\xff\n"))
    with pytest.raises(PromptsError, match="row 401 is not UTF-8"):
        cached.read_once(data(bad))
