"""Which entries of a ``checkpoints`` folder are checkpoints, and reading their manifests. Whatever lies there, nothing here hangs.

A checkpoint is a real folder. A link or a file with a checkpoint's name is somebody else's: it is never read, removed or written through.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlhf_studio.language import S_
from rlhf_studio.regular import UnfitFile, read_regular
from rlhf_studio.runs import paths
from rlhf_studio.system import sync

USED_BY = "used-by"
"""Folder in a checkpoint with a file for each other run that is made from it: as long as one of those runs is there, it is kept."""
_ASIDE = re.compile(r"\.(step-[0-9]+)\.(old|part|gone)")


def is_folder(path: Path) -> bool:
    """Whether a folder itself is there, and not a link to one. Raises OSError when that cannot be seen."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def final_of(path: Path) -> Path:
    """``step-000040`` for ``.step-000040.old``, ``.part`` and ``.gone``; any other path as it is."""
    match = _ASIDE.fullmatch(path.name)
    return path.with_name(match[1]) if match else path


def step_of(path: Path) -> int | None:
    """The step in the name of a checkpoint, or of one that is put aside; None for any other name."""
    return paths.checkpoint_step(final_of(path).name)


def entries_by_step(folder: Path) -> list[Path]:
    """All that has a checkpoint's name, oldest first, links and files among them.

    Where there is no such folder, one that was being replaced when the engine was killed (``.old``) stands for it. Raises OSError.
    """
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    named = [path for path in entries if paths.checkpoint_step(path.name) is not None]
    old = [path for path in left_aside(folder, "old") if not is_folder(final_of(path))]
    replaced = {final_of(path) for path in old}
    return sorted([*(path for path in named if path not in replaced), *old], key=lambda path: step_of(path) or 0)


def left_aside(folder: Path, ending: str) -> list[Path]:
    """The real folders that a killed engine left under ``.step-000040.ENDING``."""
    candidates = sorted(folder.glob(f".step-*.{ending}"))
    return [path for path in candidates if path != final_of(path) and step_of(path) is not None and is_folder(path)]


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a regular file. Raises OSError, and ValueError with what it is instead."""
    data = read_regular(path)
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError(S_("it is nested too deeply")) from None
    if not isinstance(content, dict):
        raise ValueError(S_("it is not a JSON object"))
    return content


def belongs(step: int, manifest: Mapping[str, Any], recorded_at: float | None) -> bool:
    """Whether the checkpoint with this manifest is of the run as it goes now: its step is still the one that was recorded then.

    Args:
        step: the step in the folder's name; another one in the manifest means that somebody renamed the folder.
        recorded_at: when the run recorded that step (``RunReader.recorded_at``). Manifests of earlier versions do not say when.
    """
    if manifest.get("step") != step:
        return False
    return step == 0 or (recorded_at is not None and manifest.get("recorded_at") in (recorded_at, None))


def mark_used(checkpoint: Path, user: Path) -> None:
    """Note in a checkpoint that the run in the folder ``user`` is made from it. Raises OSError.

    The note names the run's folder twice: as a full path, and as a path relative to the checkpoint, because a workspace may be moved.
    """
    checkpoint, user = checkpoint.resolve(), user.resolve()
    marks = checkpoint / USED_BY
    marks.mkdir(exist_ok=True)
    if not is_folder(marks):
        raise OSError(S_(f"{marks} is a link"))
    name = hashlib.sha256(os.fsencode(user)).hexdigest()[:16]
    locations = {"run": str(user), "from_here": os.path.relpath(user, checkpoint)}
    part = marks / f".{name}.{os.getpid()}"
    part.write_text(json.dumps(locations), encoding="utf-8")
    sync(part)
    os.replace(part, marks / f"{name}.json")
    sync(marks)
    sync(checkpoint)


def carry_uses(old: Path, new: Path, *, move: bool = False) -> None:
    """Copy the notes of the runs that are made from a checkpoint into the one that takes its place. Raises OSError.

    With ``move`` the old one is about to be removed, and a note that cannot be read is moved instead.
    """
    if not is_folder(old / USED_BY):
        return
    marks = new / USED_BY
    marks.mkdir(exist_ok=True)
    for note in _notes(old):
        if os.path.lexists(marks / note.name) or not _may_lead_to_a_run(note):
            continue
        if move:
            os.rename(note, marks / note.name)
            continue
        try:
            content = read_regular(note)
        except OSError:  # it is moved when the new one has its place
            continue
        (marks / note.name).write_bytes(content)
        sync(marks / note.name)
    sync(marks)
    sync(new)


def is_used(checkpoint: Path) -> bool:
    """Whether an existing run says that it is made from this checkpoint. A note that cannot be read now counts as one."""
    try:
        return any(_may_lead_to_a_run(note) for note in _notes(checkpoint))
    except OSError:
        return True


def users_of(checkpoint: Path) -> list[str]:
    """The names of the runs that are made from a checkpoint and are still there, as far as that can be seen."""
    names = []
    with suppress(OSError):
        for note in _notes(checkpoint):
            with suppress(OSError):
                names += [run.name] if (run := _run_of(note)) is not None else []
    return sorted(names)


def _notes(checkpoint: Path) -> list[Path]:
    marks = checkpoint / USED_BY
    return sorted(marks / name for name in os.listdir(marks) if name.endswith(".json")) if is_folder(marks) else []


def _may_lead_to_a_run(note: Path) -> bool:
    """Whether the run of a note still exists, or may exist.

    The answer is no only for a file that is not one of our notes, and for a note whose run is in neither of its two places.
    """
    try:
        return _run_of(note) is not None
    except (FileNotFoundError, UnfitFile):
        return False
    except OSError:  # no permission, a disk that does not answer: the run may well be there
        return True


def _run_of(note: Path) -> Path | None:
    """The folder of the run that wrote a note. None when that run is gone, or the file is not one of our notes. Raises OSError."""
    try:
        locations = read_object(note)
        folders = [Path(locations["run"]), note.resolve().parents[1] / locations["from_here"]]
        return next((folder for folder in folders if _is_there(folder / paths.DATABASE)), None)
    except (ValueError, KeyError, TypeError):  # not of ours, or damaged: nobody can say whose it was
        return None


def _is_there(path: Path) -> bool:
    """Raises OSError where nobody can say."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
