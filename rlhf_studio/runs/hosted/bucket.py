"""A bucket: a folder, usually on a network, that outlives this machine's disk. It holds copies of ended runs.

The copy of a run is a folder ``RUN.NUMBER`` with the run's files and, written last, :data:`MARK`: it names every file with its size and
hash. A copy without that file, or with one that was cut off, is not whole, and is passed over. A newer copy is a folder of its own, and
only when it is whole the older ones go; so there is no moment without a whole copy, and no file is ever changed or renamed. Nothing here
is a database that is in use.

Others may put what they like into a bucket. So a copy is read only from plain files inside its folder: not through a link, nor from a
pipe or a device, which may have no end.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rlhf_studio.language import S_
from rlhf_studio.regular import UnfitFile, open_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.values import DAMAGE

MARK = "kept.json"
FORMAT = 1
_NAME = re.compile(r"(.{1,100})\.([1-9][0-9]{0,8})")
_CHUNK = 1 << 20
_LONGEST_MARK = 16 << 20  # bytes: about 100,000 files
Json = dict[str, Any]


class BucketError(Exception):
    """The bucket cannot be used just now; the message is one sentence."""


@dataclass(frozen=True)
class Copy:
    """A whole copy of a run.

    Attributes:
        about: what was noted of the run: ``run``, ``mark``, and what the caller of :meth:`Bucket.write` gave.
        files: bytes and hash by the path in the run's folder.
    """

    run_id: str
    number: int
    folder: Path
    about: Json
    files: Mapping[str, tuple[int, str]]


class Bucket:
    """Every method raises :class:`BucketError` when the bucket cannot be read or written, or is another disk than at first.

    Args:
        root: the folder; it need not be there yet.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._disk: int | None = None

    def names(self) -> set[str]:
        """The names of all copies, whole or not."""
        self._check()
        try:
            return {entry.name for entry in os.scandir(self.root) if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)}
        except OSError as error:
            raise _bucket_error(self.root, "read", error) from error

    def copies(self) -> tuple[dict[str, Copy], list[str]]:
        """(the newest whole copy of each run, by run id; the ids of runs that have only incomplete copies)."""
        newest: dict[str, Copy] = {}
        broken = set()
        for name in sorted(self.names()):
            copy = self._read(name)
            run_id = _split(name)[0]
            if copy is None:
                broken.add(run_id)
            elif run_id not in newest or newest[run_id].number < copy.number:
                newest[run_id] = copy
        return newest, sorted(broken - newest.keys())

    def write(self, run_id: str, sources: Mapping[str, Path], about: Json, check: Callable[[], None]) -> Copy:
        """Make a new copy of a run from these files, read each of them again, and remove older copies.

        ``check`` is called when all files are there. It raises an error when they do not belong together. Raises OSError when a source file
        cannot be read.
        """
        number = 1 + max((_split(name)[1] for name in self.names() if _split(name)[0] == run_id), default=0)
        folder = self.root / f"{run_id}.{number}"
        try:
            folder.mkdir()
        except OSError as error:  # FileExistsError: another app has just begun a copy of the same number, which is its own
            raise _bucket_error(folder, "written", error) from error
        try:
            files = {name: self._write_file(source, folder / name) for name, source in sources.items()}
            check()
            noted = {"format": FORMAT, "run": run_id, **about, "files": files}
            text = json.dumps(noted, sort_keys=True, allow_nan=False)
            with (folder / MARK).open("xb") as file:
                _put(file, f"{text}\n{_hash(text)}\n".encode())
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, _SourceError):
                raise error.cause from error
            if isinstance(error, OSError):
                raise _bucket_error(folder, "written", error) from error
            raise
        copy = self._read(folder.name)
        if copy is None:
            raise BucketError(f"The bucket {self.root} did not keep what was written: {folder.name}/{MARK} reads differently.")
        self._remove(run_id, below=number)
        return copy

    def remove(self, run_id: str) -> None:
        """Remove all copies of a run."""
        self._remove(run_id, below=None)

    def _remove(self, run_id: str, below: int | None) -> None:
        for name in self.names():
            run, number = _split(name)
            if run == run_id and (below is None or number < below):
                try:
                    (self.root / name / MARK).unlink(missing_ok=True)  # first: what is left after a failure is no whole copy
                    shutil.rmtree(self.root / name)
                except OSError as error:
                    raise _bucket_error(self.root / name, "removed", error) from error

    def _check(self) -> None:
        """Raises BucketError unless the bucket is there and on the same disk as at first: an unmounted disk leaves an empty folder
        behind.
        """
        try:
            disk = self.root.stat().st_dev if self.root.is_dir() else None
        except OSError as error:
            raise _bucket_error(self.root, "read", error) from error
        if disk is None:
            raise BucketError(f"The bucket {self.root} is not there.")
        self._disk = disk if self._disk is None else self._disk
        if disk != self._disk:
            raise BucketError(f"The bucket {self.root} is not mounted any more.")

    def _read(self, name: str) -> Copy | None:
        """A copy, if its last file says that it is whole; else None."""
        run_id, number = _split(name)
        try:
            with open_plain(self.root / name, MARK) as file:
                text, noted_hash, end = file.read(_LONGEST_MARK).decode().split("\n")
            noted = json.loads(text)
            files = {path: (size, digest) for path, (size, digest) in noted["files"].items()}
        except (FileNotFoundError, PermissionError):
            return None
        except OSError as error:
            raise _bucket_error(self.root / name, "read", error) from error
        except DAMAGE:
            return None
        right = not end and _hash(text) == noted_hash and noted.get("format") == FORMAT and noted.get("run") == run_id
        return Copy(run_id, number, self.root / name, noted, files) if right and all(map(paths.is_plain_path, files)) else None

    def _write_file(self, source: Path, target: Path) -> tuple[int, str]:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _opened(source) as given, target.open("xb") as file:
            size, digest = copy_hashed(given, file)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise BucketError(f"The bucket {self.root} did not keep what was written: {target.name} reads differently.")
        return size, digest


class _SourceError(Exception):
    """A file that was to be copied cannot be read. The bucket is not to blame."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _opened(source: Path) -> BinaryIO:
    try:
        return open_regular(source)
    except OSError as error:
        raise _SourceError(error) from error


def open_plain(folder: Path, name: str) -> BinaryIO:
    """Open a file of a copy. Raises OSError, and ValueError when it is not a plain file of that folder, such as a link or a pipe."""
    path = paths.contained_path(folder, name)
    if path != folder.resolve() / name:
        raise ValueError(S_(f"{name} is a link"))
    try:
        return open_regular(path, follow=False)
    except UnfitFile as error:
        raise ValueError(S_(f"{name} is not a file")) from error


def copy_hashed(given: BinaryIO, file: BinaryIO) -> tuple[int, str]:
    """Copy a file and wait until the disk has it. Returns (size in bytes, SHA-256 hash). Raises OSError."""
    digest, size = hashlib.sha256(), 0
    while chunk := given.read(_CHUNK):
        file.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    _put(file, b"")
    return size, digest.hexdigest()


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _split(name: str) -> tuple[str, int]:
    match = _NAME.fullmatch(name)
    assert match is not None  # names() gives no other
    return match[1], int(match[2])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _bucket_error(path: Path, verb: str, error: OSError) -> BucketError:
    why = S_("it is full") if error.errno in _FULL else error.strerror or str(error)
    return BucketError(f"{path} in the bucket could not be {verb}: {why}.")


_FULL = (errno.ENOSPC, errno.EDQUOT)
