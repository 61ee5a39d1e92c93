"""A run as closed files on their way into a bucket and back."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from rlhf_studio.language import S_
from rlhf_studio.runs import liveness, paths, people, schema, studio
from rlhf_studio.runs.classroom.records import LONGEST_NAME
from rlhf_studio.runs.create import RESERVE, new_folder
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.finding.folders import RunFolders
from rlhf_studio.runs.hosted.bucket import Bucket, BucketError, Copy, Json, copy_hashed, open_plain
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, Marks, RunStatus
from rlhf_studio.runs.values import DAMAGE
from rlhf_studio.runs.visitors.starters import LONGEST_KEY, ROLES, Starter, set_starter
from rlhf_studio.runs.workspace import MAX_NAME, MAX_NOTE

STAGING = ".to-bucket-"
_LEFT_OUT = frozenset(
    {paths.DATABASE, *(f"{paths.DATABASE}-{end}" for end in ("wal", "shm", "journal")), RESERVE, liveness.ENGINE_LOCK, liveness.START_LOCK}
)


class Changed(Exception):
    """The run went on, or was deleted, while it was copied."""


def noted(run: RunStatus, known: studio.Studio) -> Json:
    """What a copy notes about a run beside its files. When it differs from the note in a copy, the run needs a new copy."""
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
    files = {}
    for subfolder, subfolders, names in os.walk(folder):
        top = Path(subfolder) == folder
        subfolders[:] = [name for name in subfolders if not name.startswith(".") and not (top and name == paths.EXPORTS)]
        for name in names:
            path = Path(subfolder) / name
            if not (name.startswith(".") or path.is_symlink() or not path.is_file() or (top and name in _LEFT_OUT)):
                files[path.relative_to(folder).as_posix()] = path
    return dict(sorted(files.items()))


@contextmanager
def _closed_database(folder: Path, root: Path) -> Iterator[Path]:
    """A copy of the run's database on the local disk, in one file that nobody has open. Raises StoreError."""
    with tempfile.TemporaryDirectory(prefix=STAGING, dir=root) as staging:
        path = Path(staging) / paths.DATABASE
        try:
            with (
                closing(schema.connect(folder / paths.DATABASE, read_only=True)) as source,
                closing(schema.connect(path, create=True)) as target,
            ):
                source.backup(target)
                schema.set_journal(target, "delete", 1.0)
                report = target.execute("PRAGMA integrity_check").fetchone()[0]
        except sqlite3.Error as error:
            raise store_error(error, folder / paths.DATABASE) from error
        if report != "ok":
            raise StoreError(f"{folder / paths.DATABASE} is damaged ({report}), so it was not copied.", "damaged")
        yield path


def fetch(folders: RunFolders, copy: Copy) -> None:
    """Bring a run back from its copy: all of it appears at once, or nothing does.

    Raises BucketError when the copy cannot be read or is not what was written, RunExists, and StoreError when the disk is full.
    """
    try:
        folder = paths.run_dir(folders.root, copy.run_id)
        name, marks, starter = _read_noted(copy.about)
    except DAMAGE as error:
        raise _foreign(copy, error) from error
    with studio.change(folders.root) as connection:  # before the folder: it appears with its name, and with whose it is
        studio.set_name(connection, copy.run_id, name)
        studio.set_marks(connection, copy.run_id, marks)
        if starter.role:
            with people.change(folders.root) as known:
                set_starter(known, copy.run_id, starter)
    with new_folder(folder) as temporary:
        for path, expected in copy.files.items():
            target = temporary / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with _opened(copy, path) as given, target.open("xb") as file:
                if os.fstat(given.fileno()).st_size != expected[0] or copy_hashed(given, file) != expected:
                    raise BucketError(f"{copy.folder / path} in the bucket is damaged.")
        _check_row(copy, temporary)


def _read_noted(about: Json) -> tuple[str, Marks, Starter]:
    """The values that :func:`noted` wrote. Raises one of DAMAGE for values that it cannot have written."""
    noted_marks, name = about["marks"], about["name"]
    marks = Marks(**{**noted_marks, "tags": studio.checked_tags(noted_marks["tags"])})
    starter = Starter(**about["starter"])
    longest = [(name, MAX_NAME), (marks.note, MAX_NOTE), (starter.name, LONGEST_NAME)]
    _check_texts([*longest, (starter.key, LONGEST_KEY), (starter.address, LONGEST_KEY)])
    _check_printable([name, asdict(marks), asdict(starter)])
    if starter.role not in ROLES or not isinstance(marks.archived, bool):
        raise ValueError(S_("a role or a mark is none"))
    return name, marks, starter


def _check_texts(longest: list[tuple[Any, int]]) -> None:
    """Raises ValueError for a value that is not a text, and for a text that is longer than the app writes."""
    for text, most in longest:
        if not isinstance(text, str) or len(text) > most:
            raise ValueError(S_(f"a text is none, or has more than {most} characters"))


def _check_printable(values: Any) -> None:
    """Raises ValueError for half of a surrogate pair: a page could not show it."""
    json.dumps(values, ensure_ascii=False, default=str).encode()


def _check_row(copy: Copy, folder: Path) -> None:
    """Raises BucketError when the table of runs could not show this run. A run that cannot be read passes: the table says so itself."""
    try:
        reader = RunReader(folder)
        _check_printable([asdict(reader.status_in(studio.EMPTY)), reader.summary()])
    except StoreError:
        return
    except ValueError as error:
        raise _foreign(copy, error) from error


def _foreign(copy: Copy, error: Exception) -> BucketError:
    return BucketError(S_(f"{copy.folder} in the bucket was not written by this program: {_printable(error)}."))


def _printable(value: object) -> str:
    """A text that others may have written, shortened and safe to show."""
    return str(value)[:500].encode("utf-8", "backslashreplace").decode()


def _opened(copy: Copy, path: str) -> BinaryIO:
    try:
        return open_plain(copy.folder, path)
    except OSError as error:
        raise BucketError(f"{copy.folder / path} in the bucket could not be read: {error.strerror}.") from error
    except ValueError as error:
        raise _foreign(copy, error) from error
