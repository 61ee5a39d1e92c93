"""Files of completions: what a line may hold, and what damaged and hostile files get."""

from __future__ import annotations

import gzip
import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from rlhf_studio.inputs.completions import MOST_LINE, read_completions
from rlhf_studio.inputs.prompts.errors import PromptsError


def wrong(path: Path) -> str:
    with pytest.raises(PromptsError) as caught:
        read_completions(path, "FILE")
    assert caught.value.field == "FILE"
    return caught.value.message


def test_lines_with_the_same_prompt_belong_together(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "completion": "1"}, {"prompt": "b", "responses": ["2", "3"]}, {"prompt": "a", "completions": ["4"]}]
    text = "\n".join(map(json.dumps, rows)) + "\n\n"
    (tmp_path / "c.jsonl").write_text(text, encoding="utf-8-sig")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("c.jsonl", "c.jsonl.gz"):
        assert read_completions(tmp_path / name, "FILE") == {"a": ["1", "4"], "b": ["2", "3"]}


def test_a_packed_line_without_end_is_never_whole_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(60):
            file.write(b"a" * 1_000_000)
    tracemalloc.start()
    try:
        message = wrong(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message == f"{path} cannot be read: row 1 is longer than {MOST_LINE:,} characters; use shorter texts"
    assert peak < 6 * MOST_LINE


def test_a_damaged_archive_gets_one_sentence_wherever_it_is_damaged(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [{"prompt": f"p{rng.random()}", "completion": "x"} for _ in range(400)]
    archive = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)
    path, messages = tmp_path / "c.jsonl.gz", set()
    for seed in range(60):
        rng, damaged = random.Random(seed), bytearray(archive)
        for _ in range(3):
            damaged[rng.randrange(20, len(damaged) - 20)] ^= rng.randrange(1, 256)
        path.write_bytes(damaged[: None if seed % 3 else len(damaged) - 9])
        messages.add(wrong(path).removeprefix(str(path)))
    assert " cannot be read: c.jsonl.gz is damaged: its gzip compression breaks off" in messages


def test_what_is_no_file_is_told_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name, why in (("pipe", "is no file"), ("folder", "is no file"), ("gone", "does not exist")):
        assert wrong(tmp_path / f"{name}.jsonl") == f"{tmp_path / name}.jsonl cannot be read: {tmp_path / name}.jsonl {why}"
    assert "/dev/zero is no file" in wrong(Path("/dev/zero"))
    (tmp_path / "c.jsonl").write_bytes(b'{"prompt": "a", "completion": "b"}\n\xff\n')
    assert wrong(tmp_path / "c.jsonl").endswith("row 2 is not UTF-8 text (byte 0xff); save the file as UTF-8")
