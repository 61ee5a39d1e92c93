"""Files of JSON Lines on the app's machine: all of a file is added, or nothing, and what is wrong is said with its row."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.runs.feedback.records import NewTask
from rlhf_studio.runs.feedback.store import Feedback, NotPossible
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback import files, work

ROWS = [f'{{"prompt": "p{number} \u00e4", "chosen": "good", "rejected": "bad {number}"}}' for number in range(700)]
PLAIN = ("\n".join(ROWS) + "\n").encode()


class Importer:
    """A task, and what comes of adding a file to it."""

    def __init__(self, root: Path) -> None:
        self.root, self.feedback = root, Feedback(root)
        self.work = work.TaskWork(self.feedback, Workspace(root))
        self.task = self.feedback.create(NewTask("t"))[0].id

    def add(self, path: str | Path, **more: Any) -> dict[str, Any]:
        return self.work.add({"task": self.task, "path": str(path), **more})

    def refusal(self, path: str | Path) -> str:
        """Why a file is not added. Nothing of it may be stored."""
        with pytest.raises(NotPossible) as refused:
            self.add(path)
        assert self.feedback.progress(self.task).items == 0
        return str(refused.value)


@pytest.fixture
def importer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    monkeypatch.setattr(work, "AT_ONCE", 100)
    return Importer(tmp_path)


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".JSONL.GZ", ".ndjson", ".txt"])
def test_a_whole_file_is_added_in_parts(importer: Importer, tmp_path: Path, ending: str) -> None:
    content = b"\xef\xbb\xbf\n" + PLAIN.replace(b"\n", b"\r\n")
    path = written(tmp_path, f"rows{ending}", gzip.compress(content) if ending.lower().endswith("gz") else content)
    assert importer.add(path, calibration=2) == {"added": 700, "repeated": 0, "problems": []}
    assert [item.prompt for item in importer.feedback.items(importer.task, calibration=True)] == ["p0 \u00e4", "p1 \u00e4"]
    assert importer.add(path) == {"added": 0, "repeated": 700, "problems": []}


def broken_files() -> dict[str, tuple[bytes, str]]:
    packed = gzip.compress(PLAIN, mtime=0)
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    wrong_sum = bytearray(packed)
    wrong_sum[-6] ^= 0xFF
    return {
        "truncated.jsonl.gz": (packed[:-200], "cannot be unpacked"),
        "flipped.jsonl.gz": (bytes(flipped), ""),
        "sum.jsonl.gz": (bytes(wrong_sum), "cannot be unpacked"),
        "none.jsonl.gz": (b"no gzip", "cannot be unpacked"),
        "latin.jsonl": (PLAIN + b"\xff\n", "Row 701 of "),
        "utf16.jsonl": ("{}".encode("utf-16"), "is UTF-16 text"),
        "table.csv": (b"a,b", "must end in .jsonl"),
        "table.gz": (packed, "must end in .jsonl"),
    }


@pytest.mark.parametrize("name", broken_files())
def test_nothing_is_added_of_a_file_that_cannot_be_read_to_its_end(importer: Importer, tmp_path: Path, name: str) -> None:
    content, wrong = broken_files()[name]
    assert wrong in importer.refusal(written(tmp_path, name, content))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_damaged_archive_holds_is_told_in_a_sentence(importer: Importer, tmp_path: Path, seed: int) -> None:
    packed = bytearray(gzip.compress(PLAIN, mtime=0))
    for number in range(3):
        packed[20 + (seed * 7919 + number * 104729) % (len(packed) - 40)] ^= 1 + seed
    importer.refusal(written(tmp_path, "rows.jsonl.gz", bytes(packed)))


def test_names_that_are_no_files(importer: Importer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name, wrong in (
        (tmp_path / "none.jsonl", "There is no file"),
        (tmp_path / "pipe.jsonl", "is no file"),
        (tmp_path / "folder.jsonl", "is no file"),
        (f"{tmp_path}/nul\0.jsonl", "There is no file"),
        ("~nobody-of-this-name/x.jsonl", "There is no file"),
        (f"{tmp_path}/{'a' * 3000}.jsonl", "There is no file"),
        (written(tmp_path, "x.jsonl", b"{}\n") / "y.jsonl", "There is no file"),
    ):
        message = importer.refusal(name)
        assert wrong in message and len(message) < 400, name


def test_rows_and_files_have_limits(importer: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is never read beyond what one may have: a small archive can hold one of gigabytes."""
    sizes: list[int] = []
    opened = files._opened

    class Watched:
        def __init__(self, path: Path) -> None:
            self.file = opened(path)

        def readline(self, size: int) -> bytes:
            sizes.append(size)
            return self.file.readline(size)

        def close(self) -> None:
            self.file.close()

    monkeypatch.setattr(files, "_opened", Watched)
    monkeypatch.setattr(files, "LONGEST_ROW", 1_000_000)
    bomb = written(tmp_path, "bomb.jsonl.gz", gzip.compress(PLAIN + b"a" * 5_000_000))
    assert "Row 701 of " in importer.refusal(bomb) and set(sizes) == {1_000_001}
    monkeypatch.setattr(files, "MOST_BYTES", 100_000)
    assert "split it" in importer.refusal(written(tmp_path, "long.jsonl.gz", gzip.compress(b"\n" * 100_001)))
    monkeypatch.setattr(files, "MOST_LINES", 50)
    assert "split it" in importer.refusal(written(tmp_path, "lines.jsonl", b"\n" * 51))
    monkeypatch.setattr(work, "MOST_ITEMS", 60)
    monkeypatch.setattr(files, "MOST_LINES", 5000)
    assert "more than 60 items" in importer.refusal(written(tmp_path, "items.jsonl", PLAIN))


def test_problems_of_a_file_name_its_rows_and_are_counted(importer: Importer, tmp_path: Path) -> None:
    wrong = {150, 151, *range(300, 330)}
    lines = [row if number not in wrong else "nonsense" for number, row in enumerate(ROWS, start=1)]
    reply = importer.add(written(tmp_path, "rows.jsonl", "\n".join(lines).encode()))
    assert reply["added"] == 700 - len(wrong)
    assert [text.split(":")[0] for text in reply["problems"]] == [*(f"Row {number}" for number in sorted(wrong)[:20]), "And 12 more rows."]


def test_a_file_that_changes_meanwhile_says_how_many_were_added(
    importer: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "rows.jsonl", PLAIN)
    add_items = importer.feedback.add_items

    def then_cut(*arguments: Any) -> Any:
        os.truncate(path, 0)
        with path.open("wb") as file:
            file.write(PLAIN[: len(PLAIN) // 2] + b"\xff")
        return add_items(*arguments)

    monkeypatch.setattr(importer.feedback, "add_items", then_cut)
    with pytest.raises(NotPossible, match=r"^\d+ items were added, then it went wrong: Row \d+ of .* is not UTF-8"):
        importer.add(path)
    assert 0 < importer.feedback.progress(importer.task).items < 700
