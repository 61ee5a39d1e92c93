"""Compares two folders that ``collect`` has written: each difference with its file and its position there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

MOST = 40  # differences that are named in one file; the rest are counted
FEW_PIXELS = 0.001  # the share of a picture's pixels that may differ: the last bit of smoothed edges


def differences(old: Path, new: Path) -> list[str]:
    """Each difference in one line. A part that one of the two folders lacks as a whole is named once."""
    lines = []
    parts = {path.name for folder in (old, new) for path in folder.iterdir()}
    for part in sorted(parts):
        missing = [str(folder) for folder in (old, new) if not (folder / part).exists()]
        if missing:
            lines.append(f"{part}: not in {missing[0]}")
            continue
        files = {path.relative_to(folder) for folder in (old, new) for path in (folder / part).rglob("*") if path.is_file()}
        for file in sorted(files):
            lines += list(_of_files(old / file, new / file, file.as_posix()))
    return lines


def _of_files(old: Path, new: Path, name: str) -> Iterator[str]:
    gone = [word for word, path in (("only new", old), ("only old", new)) if not path.exists()]
    if gone:
        yield f"{name}: {gone[0]}"
    elif old.read_bytes() != new.read_bytes():
        if old.suffix == ".json":
            lines = list(_of_values(json.loads(old.read_text(encoding="utf-8")), json.loads(new.read_text(encoding="utf-8")), ""))
        elif old.suffix == ".png":
            lines = _of_pictures(old, new)
        else:
            texts = (path.read_text(encoding="utf-8").splitlines() for path in (old, new))
            lines = [line for line in unified_diff(*texts, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
        yield from (f"{name}: {line[:300]}" for line in lines[:MOST])
        if len(lines) > MOST:
            yield f"{name}: and {len(lines) - MOST} more"


def _of_values(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                yield f"{path}/{key}: only {'old' if key in old else 'new'}"
            else:
                yield from _of_values(old[key], new[key], f"{path}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from _of_values(*pair, f"{path}/{number}")
    elif old != new or type(old) is not type(new):
        yield f"{path}: {_short(old)} -> {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 120 else f"{text[:117]}..."


def _of_pictures(old: Path, new: Path) -> list[str]:
    from PIL import Image, ImageChops

    with Image.open(old) as first, Image.open(new) as other:
        if first.size != other.size:
            return [f"size {first.size} -> {other.size}"]
        counts = ImageChops.difference(first.convert("RGB"), other.convert("RGB")).convert("L").histogram()
        share = sum(counts[4:]) / (first.size[0] * first.size[1])
        return [f"{share:.2%} of the pixels differ"] if share > FEW_PIXELS else []
