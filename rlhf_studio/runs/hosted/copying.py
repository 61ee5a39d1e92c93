"""A run as closed files on their way into a bucket and back."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

from rlhf_studio.runs import liveness, paths, schema, studio
from rlhf_studio.runs.create import RESERVE, new_folder
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.finding.folders import RunFolders
from rlhf_studio.runs.hosted.bucket import Bucket, BucketError, Copy, Json, copy_hashed, open_plain
from rlhf_studio.runs.records import ENDED, Marks, RunStatus
from rlhf_studio.runs.values import DAMAGE
from rlhf_studio.runs.visitors.starters import Starter, set_starter

STAGING = ".to-bucket-"
_LEFT_OUT = frozenset(
    {paths.DATABASE, *(f"{paths.DATABASE}-{end}" for end in ("wal", "shm", "journal")), RESERVE, liveness.ENGINE_LOCK, liveness.START_LOCK}
)


class Changed(Exception):
    """The run went on, or was deleted, while it was copied."""


def noted(run: RunStatus, known: studio.Studio) -> Json:
    """What is kept of a run beside its files. It differs whenever another copy is needed."""
    marks = asdict(run.marks) | {"tags": list(run.marks.tags)}
    name = known.names.get(run.run_id, "")
    return {"epoch": run.epoch, "seq": run.seq, "name": name, "marks": marks, "starter": asdict(run.starter)}


def send(folders: RunFolders, bucket: Bucket, run_id: str) -> Copy:
    """Copy a run that has ended into a bucket.

    Raises :class:`Changed`, BucketError, and StoreError when the run cannot be read.
    """
    folder = folders.run_dir(run_id)
    before = noted(folders.status(run_id), studio.read(folders.root, run_id))

    def check() -> None:
        run = folders.status(run_id)
        if run.state not in ENDED or noted(run, studio.read(folders.root, run_id)) != before:
            raise Changed(run_id)

    try:
        with _closed_database(folder, folders.root) as database:
            return bucket.write(run_id, {paths.DATABASE: database, **_files(folder)}, before, check)
    except FileNotFoundError as error:  # a checkpoint, or the run, has just been removed
        raise Changed(run_id) from error
    except OSError as error:
        raise store_error(error, folder) from error


def _files(folder: Path) -> dict[str, Path]:
    """The files of a run that are copied, the database not among them: no locks, nothing half made, no exports, no links."""
    found = {}
    for place, subfolders, names in os.walk(folder):
        top = Path(place) == folder
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and not (top and name == paths.EXPORTS)]
        for name in names:
            path = Path(place) / name
            if not (name.startswith(".") or path.is_symlink() or not path.is_file() or (top and name in _LEFT_OUT)):
                found[path.relative_to(folder).as_posix()] = path
    return dict(sorted(found.items()))


@contextmanager
def _closed_database(folder: Path, root: Path) -> Iterator[Path]:
    """A copy of the run's database on the local disk, in one file that nobody has open. Raises StoreError."""
    with tempfile.TemporaryDirectory(prefix=STAGING, dir=root) as place:
        path = Path(place) / paths.DATABASE
        try:
            with (
                closing(schema.connect(folder / paths.DATABASE, read_only=True)) as source,
                closing(schema.connect(path, create=True)) as target,
            ):
                source.backup(target)
                schema.set_journal(target, "delete", 1.0)
                found = target.execute("PRAGMA integrity_check").fetchone()[0]
        except sqlite3.Error as error:
            raise store_error(error, folder / paths.DATABASE) from error
        if found != "ok":
            raise StoreError(f"{folder / paths.DATABASE} is damaged ({found}), so it was not copied.", "damaged")
        yield path


def fetch(folders: RunFolders, copy: Copy) -> None:
    """Bring a run back from its copy: all of it appears at once, or nothing does.

    Raises BucketError when the copy cannot be read or is not what was written, RunExists, and StoreError when the disk is full.
    """
    try:
        folder = paths.run_dir(folders.root, copy.run_id)
        name, marks, starter = _read_noted(copy.about)
    except DAMAGE as error:
        raise BucketError(f"{copy.folder} in the bucket was not written by this program: {error}.") from error
    with studio.change(folders.root) as connection:  # before the folder: it appears with its name, and with whose it is
        studio.set_name(connection, copy.run_id, name)
        studio.set_marks(connection, copy.run_id, marks)
        set_starter(connection, copy.run_id, starter)
    with new_folder(folder) as temporary:
        for path, told in copy.files.items():
            target = temporary / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with _opened(copy, path) as given, target.open("xb") as file:
                if os.fstat(given.fileno()).st_size != told[0] or copy_hashed(given, file) != told:
                    raise BucketError(f"{copy.folder / path} in the bucket is damaged.")


def _read_noted(about: Json) -> tuple[str, Marks, Starter]:
    """What :func:`noted` wrote; one of DAMAGE for what it cannot have written."""
    found = about["marks"]
    marks = Marks(**{**found, "tags": studio.checked_tags(found["tags"])})
    starter = Starter(**about["starter"])
    if not all(isinstance(text, str) for text in (about["name"], marks.note, *marks.tags, *asdict(starter).values())):
        raise TypeError("a text is none")
    return about["name"], replace(marks, archived=bool(marks.archived)), starter


def _opened(copy: Copy, path: str) -> BinaryIO:
    try:
        return open_plain(copy.folder, path)
    except OSError as error:
        raise BucketError(f"{copy.folder / path} in the bucket could not be read: {error.strerror}.") from error
    except ValueError as error:
        raise BucketError(f"{copy.folder} in the bucket was not written by this program: {error}.") from error
