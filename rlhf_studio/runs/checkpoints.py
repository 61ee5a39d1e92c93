"""Checkpoint folders: which are whole, which belong to the run as it is recorded, and where a resumed run goes on.

A checkpoint is whole when everything that its manifest names is there with the size and SHA-256 hash that it names. Files that the
manifest does not name (``.DS_Store``, an editor's backup) are ignored, here and when it is loaded.

It belongs to the run when its step is still the one that was recorded when it was written: a step that is trained again after a
resume is another one, and a checkpoint of the earlier one would mix two histories.

Beside ``step-000040`` there may be, after a crash, ``.step-000040.part`` (not complete), ``.step-000040.old`` (whole; it was just
being replaced) and ``.step-000040.gone`` (it was just being removed). :func:`tidy` clears them away.

Only real folders are checkpoints. A link or a file with such a name is passed over with a sentence and never removed; where it stands in
the way of a checkpoint that is written, it gets the name ``step-000040.moved-aside-1``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_studio.config.changes import changes_between, depends_on_checkpoint
from rlhf_studio.language import S_
from rlhf_studio.regular import open_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.manifest import (
    USED_BY,
    belongs,
    carry_uses,
    entries_by_step,
    final_of,
    is_folder,
    is_used,
    left_aside,
    read_object,
    step_of,
)
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.system import sync

FORMAT = 1

# Folders that this process wrote or verified, with what the file system said of their files then: see prune.
_known: dict[Path, list[tuple[int, ...]]] = {}


class CheckpointError(RuntimeError):
    """A checkpoint is incomplete or damaged, or not of this run as it is recorded; the message names the file."""


class NoCheckpoint(StoreError):
    """A run with recorded steps could only start again from step 0, which nobody asked for.

    Attributes:
        why: why no checkpoint can be used.
        steps: how many steps are recorded.
    """

    def __init__(self, run_dir: Path, why: str, steps: int):
        noun = "step" if steps == 1 else "steps"
        super().__init__(
            S_(
                f"{run_dir} cannot be resumed: {why}. Nothing was changed. To start again from step 0, and to replace the {steps} recorded "
                f"{noun} one by one, say: python -m rlhf_studio resume {run_dir} --from-start"
            ),
            "from-start",
        )
        self.why, self.steps = why, steps


@dataclass(frozen=True)
class StartingPoint:
    """Where a resumed run goes on.

    Attributes:
        step: of the checkpoint to load; None means the beginning, without a checkpoint.
        problems: a sentence for each newer checkpoint that was passed over.
    """

    step: int | None
    problems: list[str]


BEGINNING = StartingPoint(None, [])


def where_to_resume(run_dir: Path, *, read_again: bool = True) -> StartingPoint:
    """The newest checkpoint that can be used. Only looks; reads every file of the checkpoints that it tries.

    Without ``read_again``, files that this process has read or written, and that have not changed since, are not read a second time:
    for the app, which looks twice before it starts an engine. The engine itself always reads them.

    Raises:
        NoCheckpoint: steps are recorded (or a checkpoint was damaged), but the run would start at step 0.
        StoreError: the run cannot be read.
    """
    folder, problems = newest_valid(run_dir, read_again=read_again)
    step = None if folder is None else step_of(folder)
    steps = RunReader(run_dir).status().last_recorded_step
    if step or not (steps or problems):
        return StartingPoint(step, problems)
    reason = "its only whole checkpoint is of step 0" if step == 0 else "none of its checkpoints can be used" if problems else ""
    why = f"{reason} ({'; '.join(problems)})" if problems else reason or "it has no checkpoint"
    raise NoCheckpoint(Path(run_dir), why, steps)


def newest_valid(run_dir: Path, *, read_again: bool = True) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is whole and belongs to the run, and a sentence for each newer one that is not. Raises StoreError.

    ``read_again``: see :func:`where_to_resume`.
    """
    problems: list[str] = []
    try:
        entries = entries_by_step(Path(run_dir) / paths.CHECKPOINTS)
    except OSError as error:
        raise store_error(error, Path(run_dir) / paths.CHECKPOINTS) from error
    for folder in reversed(entries):
        try:
            _check(folder, read_again=read_again)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        return folder, problems
    return None, problems


def by_step(folder: Path) -> list[Path]:
    """Checkpoint folders, oldest first; among them one that was being replaced when the engine was killed, where there is no other."""
    return [path for path in entries_by_step(folder) if is_folder(path)]


def require_whole(folder: Path) -> None:
    """Read a checkpoint's files. Raises :class:`CheckpointError` when one is missing or damaged, or when it is not the run's own.

    Files that this process has read before, and that have not changed since, are not read again. Raises StoreError too.
    """
    _check(folder, read_again=False)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest. Raises :class:`CheckpointError` when it is missing, no manifest, of another format, or names what cannot be in it."""
    try:
        manifest = read_object(folder / paths.MANIFEST)
        if manifest["format"] == FORMAT and not (isinstance(manifest["files"], dict) and manifest["files"]):
            raise ValueError("it has no list of files")
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder.name}: the manifest cannot be read ({error})") from error
    if manifest["format"] != FORMAT:
        raise CheckpointError(f"{folder.name}: format {manifest['format']!r:.60} is not format {FORMAT}, which this version reads")
    for name in manifest["files"]:
        if not paths.is_plain_path(name):
            raise CheckpointError(f"{folder.name}: the manifest names {name!r:.100}, which cannot be a file of the checkpoint")
    return manifest


def _verify(folder: Path, manifest: dict[str, Any]) -> None:
    for name, entry in manifest["files"].items():
        path = folder / name
        try:
            status = path.stat()
            is_whole = stat.S_ISREG(status.st_mode) and status.st_size == entry["bytes"] and sha256(path) == entry["sha256"]
        except FileNotFoundError as error:
            raise CheckpointError(f"{folder.name}: {name} is missing") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{folder.name}: {name} cannot be read ({error})") from error
        if not is_whole:
            raise CheckpointError(f"{folder.name}: {name} is damaged")
    _known[folder] = _marks(folder, manifest)


def _check(folder: Path, *, read_again: bool = True) -> None:
    if not is_folder(folder):
        what = "a link" if folder.is_symlink() else "a file"
        raise CheckpointError(f"{folder.name}: it is {what}, and only a folder in the run's own folder is taken for a checkpoint")
    manifest = read_manifest(folder)
    if not _belongs(folder, manifest):
        raise CheckpointError(f"{folder.name}: it is not of this run as it is recorded (from before a resume, or renamed)")
    if read_again or not _is_untouched(folder, manifest):
        _verify(folder, manifest)
    _check_settings(folder)


def _check_settings(folder: Path) -> None:
    """A run that was to begin again with other settings may have ended before its first step: its old checkpoints do not fit them."""
    state, run_dir = folder / "state.json", folder.parent.parent
    try:
        before = read_object(state).get("settings") if state.exists() else None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder.name}: state.json cannot be read ({error})") from error
    if not isinstance(before, dict) or not (run_dir / paths.CONFIG).exists():
        return
    other = depends_on_checkpoint(changes_between(before, RunReader(run_dir).config().model_dump(mode="json")))
    if other:
        raise CheckpointError(f"{folder.name}: it was written with other settings ({', '.join(map(str, other[:3]))})")


def _belongs(folder: Path, manifest: dict[str, Any]) -> bool:
    """As :func:`rlhf_studio.runs.manifest.belongs`; without a run around it, a folder belongs. Raises StoreError."""
    step, run_dir = step_of(folder) or 0, folder.parent.parent
    if not (run_dir / paths.DATABASE).exists():
        return manifest.get("step") == step
    return belongs(step, manifest, RunReader(run_dir).recorded_at(step))


def recorded_at(run_dir: Path, step: int) -> float | None:
    """What the manifest of a new checkpoint says: when its step was recorded. Raises StoreError."""
    return RunReader(run_dir).recorded_at(step) if (run_dir / paths.DATABASE).exists() else None


def sha256(path: Path) -> str:
    """The file's hash in hexadecimal. Raises OSError."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def only_named(folder: Path) -> Iterator[Path]:
    """The checkpoint without what its manifest does not name, for loaders that take what they find.

    The folder itself where there is nothing else in it, or a temporary one of links.
    """
    named = {*read_manifest(folder)["files"], paths.MANIFEST}
    others = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    if all(str(path) in named or path.parts[0] == USED_BY for path in others):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        view = Path(temporary) / folder.name
        for name in named:
            (view / name).parent.mkdir(parents=True, exist_ok=True)
            (view / name).symlink_to((folder / name).resolve())
        yield view


# --- changing; the engine alone does this ----------------------------------------------------------------------------------


def begin(final: Path) -> Path:
    """An empty folder to write a checkpoint in before it is complete; what an earlier engine left is cleared away. Raises OSError."""
    final.parent.mkdir(exist_ok=True)
    tidy(final.parent)
    part = _aside(final, "part")
    part.mkdir()
    return part


def put_in_place(complete: Path, final: Path) -> None:
    """Give a complete, synced folder its name. At every moment it or the one that it replaces is there, whole. Raises OSError.

    What other runs have noted in the one that it replaces goes on in it: they name the step, and this is the step now.
    """
    manifest, old = read_manifest(complete), _aside(final, "old")
    _clear_the_way(final)
    if final.exists():  # a resumed run passes this step again
        carry_uses(final, complete)
        os.rename(final, old)
    os.rename(complete, final)
    sync(final.parent)
    if old.exists():
        carry_uses(old, final, move=True)  # what was noted in the meantime
        shutil.rmtree(old)
    _known[final] = _marks(final, manifest)


def tidy(folder: Path) -> None:
    """Clear away what a killed engine left; a checkpoint that it was replacing gets its name back. Raises OSError."""
    for old in left_aside(folder, "old"):
        if not is_folder(final_of(old)):
            _clear_the_way(final_of(old))
            os.rename(old, final_of(old))
    for ending in ("old", "part", "gone"):
        for left in left_aside(folder, ending):
            shutil.rmtree(left)


def _clear_the_way(path: Path) -> None:
    """Give a link or a file that has the name of a folder to be made another name, which says so. Raises OSError."""
    if os.path.lexists(path) and not is_folder(path):
        number = 1
        while os.path.lexists(aside := path.with_name(f"{path.name}.moved-aside-{number}")):
            number += 1
        os.rename(path, aside)


def prune(newest: Path, keep: int, best_by: str | None = None) -> None:
    """Remove the checkpoints that are older than the ``keep`` newest good ones up to ``newest``, but for the best one and what is used.

    Only whole checkpoints of this run count, and nothing later than ``newest`` is touched: a damaged one stays until ``keep``
    good ones have been written after it. The best is the good one whose policy had the highest value of the metric ``best_by`` in the
    step after it, which sampled with it. ``newest`` has no such step yet, and stays anyway. What another run is made from
    (:func:`rlhf_studio.runs.manifest.is_used`) stays as long as that run is there. Raises OSError and StoreError.
    """
    folders = by_step(newest.parent)
    folders = folders[: folders.index(newest) + 1]
    best = _best(folders, best_by) if best_by else None
    good = 0
    for folder in reversed(folders):
        if good >= keep and folder != best and not is_used(folder):
            gone = _aside(folder, "gone")
            os.rename(folder, gone)
            shutil.rmtree(gone)
        elif _is_good(folder):
            good += 1


def _best(folders: list[Path], metric: str) -> Path | None:
    by_number = {step_of(folder) or 0: folder for folder in folders}
    best_first = RunReader(folders[-1].parent.parent).best_first(list(by_number), metric)
    return next((by_number[step] for step in best_first if _is_good(by_number[step])), None)


def _is_good(folder: Path) -> bool:
    """As :func:`_check`, but files that this process has read or written, and nobody has touched since, are not read again."""
    try:
        manifest = read_manifest(folder)
        if not _is_untouched(folder, manifest) or not _belongs(folder, manifest):
            _check(folder)
    except (CheckpointError, OSError):
        return False
    return True


def _is_untouched(folder: Path, manifest: dict[str, Any]) -> bool:
    """Whether this process has read or written these very files."""
    try:
        return _known.get(folder) == _marks(folder, manifest)
    except OSError:
        return False


def _marks(folder: Path, manifest: dict[str, Any]) -> list[tuple[int, ...]]:
    files = [(folder / name).stat() for name in (*manifest["files"], paths.MANIFEST)]
    return [(file.st_ino, file.st_size, file.st_mtime_ns) for file in files]


def _aside(final: Path, ending: str) -> Path:
    """The name beside ``final``, free of links and files. Raises OSError."""
    path = final.with_name(f".{final.name}.{ending}")
    _clear_the_way(path)
    return path
