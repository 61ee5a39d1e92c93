"""Where an export goes: it is made in a temporary folder beside its target, and gets its name when it is complete."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import clear_left, temporary_folder
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.units import format_bytes

LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can hold: the same files give the same zip
CHUNK = 1 << 20


def refuse(message: str) -> ConfigError:
    """An error with a sentence for the person who gave the wrong target."""
    return ConfigError([Problem("", message)])


def check_target(target: Path, *, replace: bool = False) -> None:
    """Raises ConfigError when something is there already that is not an empty folder; with ``replace`` a file may be."""
    if not os.path.lexists(target) or (target.is_dir() and not target.is_symlink() and not any(target.iterdir())):
        return
    if replace and target.is_file() and not target.is_symlink():
        return
    what = S_("is a folder that is not empty") if target.is_dir() else S_("exists already")
    raise refuse(f"{target} {what}; choose another name")


def check_outside_runs(target: Path) -> None:
    """Raises ConfigError for a target in a run's own folder, except in its folder of exports: the rest is the run's record."""
    path = target.resolve()
    for folder in path.parents:
        inside = path.relative_to(folder).parts
        if (folder / paths.DATABASE).is_file() and (inside[0] != paths.EXPORTS or len(inside) == 1):
            raise refuse(f"{target} is in the folder of the run {folder.name}; choose a place outside it, or in {folder / paths.EXPORTS}")


def make_folders(target: Path, run_dir: Path) -> None:
    """Make the folders above the target. A run's own folder that somebody has deleted is not made again. Raises StoreError."""
    above, run = target.resolve().parent, run_dir.resolve()
    try:
        if above.is_relative_to(run):
            make_inside(run, above)
        else:
            above.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(error, target.parent) from error


def make_inside(folder: Path, inner: Path) -> None:
    """Make ``inner`` and the folders between it and ``folder``, which must exist. Raises OSError."""
    for above in [*reversed(inner.relative_to(folder).parents), inner.relative_to(folder)][1:]:
        (folder / above).mkdir(exist_ok=True)


def check_room(target: Path, needed: int) -> None:
    """Raises StoreError when the disk of the target has less than ``needed`` bytes and a little more, or its folder is gone."""
    try:
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise store_error(error, target.parent) from error
    if free < needed + 10_000_000:
        raise StoreError(f"The disk is too full: this export needs {format_bytes(needed)}, and {format_bytes(free)} are free.", "full")


@contextmanager
def working_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside the target. It is removed afterwards with all that is in it, and so is what a killed export left there.

    Raises StoreError.
    """
    clear_left(target.parent, paths.EXPORT_PREFIX)
    try:
        with temporary_folder(target.parent, paths.EXPORT_PREFIX) as folder:
            yield folder
    except OSError as error:
        raise store_error(error, target) from error


@contextmanager
def new_file(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A path to write a file at; when the block ends well, the file gets the name ``target``. Raises ConfigError and StoreError."""
    check_target(target, replace=replace)
    with working_folder(target) as folder:
        path = folder / "file"
        yield path
        check_target(target, replace=replace)
        os.replace(path, target)


def put_folder(made: Path, target: Path) -> None:
    """Give a complete folder its name. Raises ConfigError when somebody else was quicker."""
    check_target(target)
    with suppress(FileNotFoundError):
        target.rmdir()
    os.rename(made, target)


def write_zip(folder: Path, top: str, path: Path, on_progress: Callable[[float], None] = lambda fraction: None) -> None:
    """All files of a folder as a zip in which they lie in a folder ``top``, in the order of their names. Weights do not shrink: stored.

    Raises ValueError for a name that could lead out of the folder where somebody unpacks it, or a link.
    """
    files = sorted(file for file in folder.rglob("*") if not file.is_dir() or file.is_symlink())
    total = sum(file.lstat().st_size for file in files) or 1
    done = 0
    with zipfile.ZipFile(path, "x", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for file in files:
            name = f"{top}/{file.relative_to(folder).as_posix()}"
            if file.is_symlink() or not paths.is_plain_path(name):
                raise ValueError(f"{name!r} cannot be put into a zip")
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = 0o100644 << 16
            with file.open("rb") as source, archive.open(entry, "w", force_zip64=file.stat().st_size > 1 << 31) as target:
                while data := source.read(CHUNK):
                    target.write(data)
                    done += len(data)
                    on_progress(done / total)


def bytes_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
