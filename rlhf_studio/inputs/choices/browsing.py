"""The folders and files that a person may look at: those below the roots that the operator of the app allows, and no other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.inputs.choices.choice import NotOffered
from rlhf_studio.inputs.models.files import DESCRIPTIONS
from rlhf_studio.inputs.prompts.sources.opening import FORMATS
from rlhf_studio.language import _
from rlhf_studio.visible import visible

MOST = 500
"""Folders, and files, of a folder that are listed, in the order of their names."""
MOST_LINKS = 2 * MOST
"""Links of a folder that are followed; each takes some tens of microseconds or, on a disk of the network, much more."""
Wanted = Literal["model", "data"]


@dataclass(frozen=True)
class Roots:
    """Where people may look. Links count as what they lead to, and what begins with a dot is never shown.

    Attributes:
        folders: full paths, links resolved; none where nobody may look.
    """

    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, folders: Sequence[Path]) -> Roots:
        """Raises ValueError for one that is no folder."""
        for folder in folders:
            if not folder.is_dir():
                raise ValueError(_("there is no folder {folder} that could be looked into").format(folder=folder))
        return cls(tuple(dict.fromkeys(folder.resolve() for folder in folders)))

    def listing(self, path: str, wanted: Wanted) -> dict[str, Any]:
        """What is in a folder; with an empty ``path`` the roots themselves.

        Gives ``path``, ``parent`` (empty at the top), ``folders`` as ``{name, path, model}``, ``files`` as ``{name, path, bytes}`` that can
        be read as data or hold a model (GGUF), and ``left``, how many entries are not listed. Raises :class:`NotOffered`.
        """
        if not self.folders:
            raise NotOffered(_("Nobody may look into folders here. Type a path or a name instead."))
        if not path and len(self.folders) > 1:
            return {"path": "", "parent": "", "folders": [_folder(root, str(root)) for root in self.folders], "files": [], "left": 0}
        folder = self._allowed(path or str(self.folders[0]))
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: (entry.name.casefold(), entry.name))
        except OSError as error:
            raise NotOffered(
                _("{name} cannot be looked into: {strerror}.").format(name=visible(folder.name), strerror=error.strerror or error)
            ) from None
        folders, files, left = self._sorted_out(entries, wanted)
        top = folder in self.folders
        return {
            "path": str(folder),
            "parent": "" if top else str(folder.parent),
            "top": top and len(self.folders) == 1,
            "folders": [_folder(each, each.name) for each in folders[:MOST]],
            "files": [{"name": each.name, "path": str(each), "bytes": _size(each)} for each in files[:MOST]],
            "left": left + max(0, len(folders) - MOST) + max(0, len(files) - MOST),
        }

    def _sorted_out(self, entries: list[os.DirEntry[str]], wanted: Wanted) -> tuple[list[Path], list[Path], int]:
        """The folders, the files, and how many links were not followed. What is no link lies below a root as its folder does."""
        folders, files, links = [], [], 0
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            try:
                if entry.is_symlink():
                    links += 1
                    if links > MOST_LINKS or not self._is_below(path.resolve()):
                        continue
                if entry.is_dir():
                    folders.append(path)
                elif (is_data(path) if wanted == "data" else is_model(path)) and entry.is_file():
                    files.append(path)
            except (OSError, RuntimeError):  # a link that leads back to itself, or into a closed folder
                continue
        return folders, files, max(0, links - MOST_LINKS)

    def _allowed(self, path: str) -> Path:
        """The folder, links resolved. One that is not there and one that is not allowed give the same answer."""
        refused = NotOffered(_("There is no such folder, or it is not one that may be looked into here."))
        try:
            folder = Path(path).resolve()
        except (OSError, ValueError, RuntimeError):
            raise refused from None
        if not self._is_below(folder) or not os.path.isdir(folder):  # unlike Path.is_dir, false for a name that is too long
            raise refused
        return folder

    def _is_below(self, path: Path) -> bool:
        below = (path.relative_to(root).parts for root in self.folders if path.is_relative_to(root))
        return any(not any(part.startswith(".") for part in parts) for parts in below)


NOWHERE = Roots()


def is_data(path: Path) -> bool:
    """Whether a file's name says that it can be read as prompts or examples."""
    name = path.name.lower()
    return name.removesuffix(".gz").endswith(FORMATS)


def is_model(path: Path) -> bool:
    """Whether a file is a model by its name: it cannot be trained as it is, and whoever chooses it is told how to convert it."""
    return path.suffix.lower() == ".gguf"


def _size(path: Path) -> int:
    """In bytes; 0 for a file that went meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _folder(path: Path, name: str) -> dict[str, Any]:
    """A folder, and whether it holds a model or a run that could have trained one."""
    model = any(os.path.isfile(path / described) for described in (*DESCRIPTIONS, "run.db"))
    return {"name": name, "path": str(path), "model": model}
