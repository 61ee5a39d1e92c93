"""What a run has trained, named by the run: its folder, perhaps with @ and a step, stands for the model in a checkpoint or snapshot.

Such a model has a manifest, which says what its files were when they were written: whoever loads it compares them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.language import S_
from rlhf_studio.regular import open_regular, read_regular

KINDS = ("policy", "reward_model")
"""The folders that a checkpoint may hold its model in."""
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[a-z0-9]{6}")
"""The ids of runs as the app makes them (:func:`rlhf_studio.runs.paths.new_run_id`)."""
_STEP = re.compile(r"step-([0-9]{6,9})")
_STEP_FOLDERS_IN = ("checkpoints", "snapshots")
_MANIFEST = "manifest.json"
_intact: dict[Path, list[tuple[int, ...]]] = {}
"""Folders whose files this process has read and found as they were written -> what the file system said of the files then."""


class DamagedError(ValueError):
    """A file of a model that a run has trained is not as it was written; the message names it, and what can be named instead."""


def resolve(name: str) -> str:
    """The path of a bundled name, or of the model that a run has trained (``RUN`` or ``RUN@STEP``); any other name unchanged."""
    path = bundled_path(name) or model_of_run(name)
    return name if path is None else str(path)


def model_of_run(name: str) -> Path | None:
    """The model's folder that ``RUN`` (its newest checkpoint) or ``RUN@STEP`` names; None for any other name.

    Only whole checkpoints count, which have their manifest. A run without one gives the run's folder, which nothing can be loaded from.
    """
    before, at, step_text = name.rpartition("@")
    run = Path(before if at and step_text.isdecimal() else name)
    if not all(os.path.isfile(run / name) for name in ("run.db", "config.yaml")):  # False too for a name that no path can have
        return None
    step = int(step_text) if at and run == Path(before) else None
    folders = [folder for folder in _step_folders(run) if step is None or _step_of(folder) == step]
    if step is None:
        folders = [folder for folder in folders if folder.parent.name == "checkpoints"]
    models = [folder / kind for folder in sorted(folders, key=_step_of) for kind in KINDS if (folder / kind).is_dir()]
    return models[-1] if models else run


def run_of_model(folder: Path) -> tuple[Path, int] | None:
    """The run's folder and the step that a model's folder inside a checkpoint or snapshot belongs to; None for any other folder."""
    if "\0" in str(folder):  # which no path holds, and the system refuses to follow
        return None
    resolved = folder.resolve()
    step_folder, kind_folder, run = resolved.parent, resolved.parent.parent, resolved.parent.parent.parent
    if resolved.name in KINDS and kind_folder.name in _STEP_FOLDERS_IN and _STEP.fullmatch(step_folder.name) and (run / "run.db").is_file():
        return run, _step_of(step_folder)
    return None


def require_intact(folder: Path, *, read: bool) -> None:
    """Compare a model's files with the manifest of its checkpoint or snapshot. Any other folder has no manifest and is not checked.

    Args:
        read: compare every byte, once in this process while the files do not change; else only compare the files' sizes.

    Raises:
        DamagedError: a file is missing or another one, or the manifest cannot be used.
    """
    model = next((path for path in (folder.absolute(), folder.resolve()) if _has_manifest(path)), None)
    if model is None:
        return
    step_folder = model.parent
    try:
        files = _written(step_folder, model.name)
        for name, (size, _) in files.items():
            path = step_folder / name
            if not path.is_file():
                raise ValueError(f"{name} is missing")
            if path.stat().st_size != size:
                raise ValueError(f"{name} is damaged: it has {path.stat().st_size:,} bytes, and was written with {size:,}")
        if read:
            _compare_bytes(step_folder, model, files)
    except (OSError, ValueError) as error:
        raise DamagedError(f"{step_folder.name}: {error}; {_instead(step_folder)}") from error


def _has_manifest(path: Path) -> bool:
    """Whether a folder is a model in a checkpoint or snapshot, by its names: ``checkpoints`` may be a link to another disk."""
    step_folder = path.parent
    if path.name not in KINDS or step_folder.parent.name not in _STEP_FOLDERS_IN or not _STEP.fullmatch(step_folder.name):
        return False
    return (step_folder / _MANIFEST).exists() or (step_folder.parent.parent / "run.db").is_file()


def _written(step_folder: Path, kind: str) -> dict[str, tuple[int, str]]:
    """What the manifest says of the model's files: size and hash of each. Raises OSError and ValueError."""
    if not (step_folder / _MANIFEST).is_file():
        raise ValueError(f"{_MANIFEST} is missing, so nothing says whether its files are whole")
    try:
        manifest = json.loads(read_regular(step_folder / _MANIFEST))
        entries: dict[str, Any] = {name: entry for name, entry in manifest["files"].items() if name.startswith(f"{kind}/")}
        files = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in entries.items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{_MANIFEST} is damaged") from None
    if not files or any(".." in name.split("/") for name in files):
        raise ValueError(f"{_MANIFEST} is damaged")
    return files


def _compare_bytes(step_folder: Path, folder: Path, files: dict[str, tuple[int, str]]) -> None:
    """Raises OSError, and ValueError naming the first file that is not as it was written."""
    stats = [(step_folder / name).stat() for name in files]
    marks: list[tuple[int, ...]] = [(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
    if _intact.get(folder) == marks:
        return
    for name, (_, sha256) in files.items():
        with open_regular(step_folder / name) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                raise ValueError(f"{name} is damaged: its SHA-256 hash is not the one that it was written with")
    _intact[folder] = marks


def _instead(step_folder: Path) -> str:
    run = step_folder.parent.parent
    others = sorted({_step_of(folder) for folder in _step_folders(run)} - {_step_of(step_folder)})
    return S_(f"name another step, such as {run}@{others[-1]}") if others else S_(f"{run} has kept no other step that could be named")


def _step_folders(run: Path) -> list[Path]:
    folders = [folder for name in _STEP_FOLDERS_IN for folder in (run / name).glob("step-*") if _STEP.fullmatch(folder.name)]
    return [folder for folder in folders if (folder / _MANIFEST).is_file()]


def _step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))
