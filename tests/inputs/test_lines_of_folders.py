"""A folder's text files are looked at before a library takes their lines into memory."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.sources import lines


def test_a_first_row_without_end_is_refused_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_ROW_CHARACTERS", 50)
    (tmp_path / "deep").mkdir()
    (tmp_path / "good.jsonl").write_bytes(b'{"prompt": "short"}\n' + b"x" * 1000)
    (tmp_path / "picture.bin").write_bytes(b"x" * 1000)
    (tmp_path / "broken.txt.gz").write_bytes(b"no gzip")
    lines.check_first_rows(tmp_path)
    with gzip.open(tmp_path / "deep" / "bomb.jsonl.gz", "wb") as file:
        file.write(b"a" * 1000)
    with pytest.raises(PromptsError, match=r"bomb\.jsonl\.gz: row 1 is longer than 50 characters"):
        lines.check_first_rows(tmp_path)
