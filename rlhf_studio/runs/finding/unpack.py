"""An archive that came with the program, unpacked once into a cache folder; every file is compared with the hash that was packed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs.create import new_folder
from rlhf_studio.runs.errors import RunExists, StoreError
from rlhf_studio.system import user_mark

MANIFEST = "manifest.json"
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)  # what zipfile raises for bits that were turned


class DamagedBundle(Exception):
    """What came with the program is not what was packed; the message is one sentence for people."""


@dataclass(frozen=True)
class Bundle:
    """What is to be unpacked.

    Attributes:
        archive: a zip file with a :data:`MANIFEST`, which has the hash of every other file.
        title: what people call it, at the beginning of a sentence.
        folder_prefix: how the name of the folder begins; the hash of the archive follows.
        folders: folder in the archive -> its name when it is unpacked, and nothing else is; empty for everything as it is.
    """

    archive: Path
    title: str
    folder_prefix: str
    folders: Mapping[str, str]

    def name_of(self, member: str) -> str | None:
        """The path of an archive's file after unpacking; None for a file that stays in the archive."""
        folder, _, rest = member.partition("/")
        if not self.folders:
            return member
        return f"{self.folders[folder]}/{rest}" if folder in self.folders else None


def unpack(bundle: Bundle, cache_folder: Path | None = None) -> Path:
    """The folder with the archive's files: in the cache folder, named by the archive's hash, unpacked there once.

    Where the cache folder may not be written, it is a folder of this user beside the system's temporary files.
    Raises :class:`DamagedBundle` when a file's hash is not the one that was packed, and when no folder can be written.
    """
    hashes, name = _manifest(bundle)
    problem = "there is no folder for it"
    for parent in (cache_folder or _cache_folder(), Path(tempfile.gettempdir()) / f"rlhf-studio-{user_mark()}"):
        folder = parent / name
        with contextlib.suppress(StoreError, OSError):  # it may not be written there
            if _problem(folder, hashes):
                _unpack(bundle, folder)
        problem = _problem(folder, hashes)
        if not problem:
            return folder
    raise DamagedBundle(f"{bundle.title} cannot be unpacked: {problem}.")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "rlhf-studio"


def _manifest(bundle: Bundle) -> tuple[dict[str, str], str]:
    """(hash of each file by its name when unpacked, the folder's name). The hashes are the archive's own, not those that a folder says of
    itself."""
    try:
        name = f"{bundle.folder_prefix}-{hashlib.sha256(bundle.archive.read_bytes()).hexdigest()[:16]}"
        with zipfile.ZipFile(bundle.archive) as files:
            hashes = dict(json.loads(files.read(MANIFEST))["sha256"])
    except (OSError, KeyError, TypeError, *_DAMAGE) as error:
        raise DamagedBundle(f"{bundle.title} is damaged: {error}.") from error
    return {path: digest for member, digest in hashes.items() if (path := bundle.name_of(member)) is not None}, name


def _unpack(bundle: Bundle, folder: Path) -> None:
    """Raises StoreError and OSError."""
    if folder.is_dir():  # damaged, or half of it removed by hand
        folder.rename(folder.with_name(f"{folder.name}.damaged-{os.getpid()}"))
    try:
        with contextlib.suppress(RunExists), new_folder(folder) as temporary, zipfile.ZipFile(bundle.archive) as files:
            for member in files.namelist():
                if (name := bundle.name_of(member)) is None:
                    continue
                path = temporary / name
                if not path.resolve().is_relative_to(temporary.resolve()):
                    raise DamagedBundle(f"{bundle.title} holds a file that leads out of its folder: {member}.")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(files.read(member))
    except _DAMAGE as error:
        raise DamagedBundle(f"{bundle.title} is damaged: {error}.") from error


def _problem(folder: Path, hashes: Mapping[str, str]) -> str:
    """Why the folder's files are not those that were packed; empty when they are."""
    try:
        different = [name for name, digest in hashes.items() if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest]
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return S_(f"{different[0]} has another hash than when it was packed") if different else ""
