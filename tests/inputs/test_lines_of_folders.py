"""A folder's text files are looked at before a library takes their lines into memory."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts.cached import state_of
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.read import read_prompts
from rlhf_studio.inputs.prompts.sources import lines, rows


def test_a_folder_of_too_many_files_is_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_FILES", 20)
    listed = []
    walk = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: (listed.append(entry) or entry for entry in walk(self, pattern)))
    for number in range(50):
        (tmp_path / f"{number}.jsonl").write_text('{"prompt": "a"}\n')
    with pytest.raises(PromptsError, match=f"{tmp_path} holds more than 20 files and folders; name the one that holds the data alone"):
        read_prompts(DataConfig(prompts=str(tmp_path)))
    assert len(listed) == 21 and state_of(str(tmp_path)) == ()


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
