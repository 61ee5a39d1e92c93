"""Files of prompts or examples that came through the browser, in parts: no request has to carry a whole one."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from threading import Lock

from rlhf_studio.inputs.choices.browsing import is_data
from rlhf_studio.inputs.choices.choice import NotOffered
from rlhf_studio.inputs.prompts.sources.opening import FORMATS
from rlhf_studio.language import _
from rlhf_studio.units import format_bytes
from rlhf_studio.visible import refuse_hidden

FOLDER = "uploads"
"""In the workspace."""
MOST_BYTES = 100_000_000
MOST_FILES = 200
MOST_OPEN_BYTES = 3 * MOST_BYTES  # of all files together that have not come whole yet
LEAST_FREE = 2 * MOST_BYTES  # bytes of the disk that uploads leave to the runs
LEFT_SECONDS = 3600.0  # after which the parts of a file that never came whole are removed
_KEY = re.compile(r"[0-9a-f]{16,32}")
_TURN = Lock()
"""One part at a time, so that what is checked is still so when it is written."""


def add_part(workspace: Path, key: str, name: str, offset: int, part: bytes, *, last: bool) -> Path | None:
    """Put a part behind those that came before; with the last one the file is there under its name, and its path is given.

    A file of the same name stays: the new one gets a number. ``key``: of this upload, made by the page. Raises :class:`NotOffered`, and
    OSError where the disk takes no more.
    """
    _check(key, name, offset, part)
    folder = workspace / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f".{key}.part"
    with _TURN:
        try:
            _require_room(folder, len(part), begins=offset == 0)
            if (whole.stat().st_size if whole.exists() else 0) != offset:
                raise NotOffered(_("A part of {name} is missing: upload it again.").format(name=name))
            with open(whole, "ab") as file:
                file.write(part)
            return _named(whole, folder, name) if last else None
        except (NotOffered, OSError):
            whole.unlink(missing_ok=True)
            raise


def _check(key: str, name: str, offset: int, part: bytes) -> None:
    if not _KEY.fullmatch(key):
        raise NotOffered(_("This upload has no key: reload the page."))
    if not name or len(name.encode(errors="replace")) > 200 or "/" in name or "\\" in name or name.startswith("."):
        raise NotOffered(_("The file's name cannot be used: give it a plain one, of at most 200 characters."))
    try:
        refuse_hidden(name, _("the file's name"))
    except ValueError as error:
        raise NotOffered(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
    if not is_data(Path(name)):
        raise NotOffered(
            _("{name} is no file of prompts or examples: its name must end in one of {formats}.").format(
                name=name, formats=", ".join(FORMATS)
            )
        )
    if offset + len(part) > MOST_BYTES:
        raise NotOffered(
            _("{name} is larger than {most_bytes}: copy it to the app's machine, and type its path.").format(
                name=name, most_bytes=format_bytes(MOST_BYTES)
            )
        )


def _require_room(folder: Path, coming: int, *, begins: bool) -> None:
    """Remove parts of files that never came whole. Raises :class:`NotOffered` where there are many files, or little room for ``coming``
    more bytes."""
    for part in folder.glob(".*.part"):
        if time.time() - part.stat().st_mtime > LEFT_SECONDS:
            part.unlink()
    parts = list(folder.glob(".*.part"))
    if begins and sum(1 for _ in folder.iterdir()) - len(parts) >= MOST_FILES:
        raise NotOffered(
            _("{folder} holds {most_files} files: remove some that are not needed any more.").format(folder=folder, most_files=MOST_FILES)
        )
    if (begins and len(parts) >= MOST_FILES) or sum(part.stat().st_size for part in parts) + coming > MOST_OPEN_BYTES:
        raise NotOffered(_("Many other uploads have begun and not ended: try again in an hour, when those that were given up are removed."))
    if shutil.disk_usage(folder).free - coming < LEAST_FREE:
        raise NotOffered(_("The disk of the app's machine is almost full."))


def _named(whole: Path, folder: Path, name: str) -> Path:
    """Give the file its name, or the first free one behind it."""
    stem, dot, ending = name.partition(".")
    for number in range(1, MOST_FILES + 2):
        path = folder / (name if number == 1 else f"{stem}-{number}{dot}{ending}")
        try:
            path.touch(exist_ok=False)  # takes the name: a rename alone would replace a file that has it
        except FileExistsError:
            continue
        try:
            return whole.replace(path)
        except OSError:
            path.unlink()
            raise
    raise NotOffered(_("There are many files called {name}: give this one another name.").format(name=name))
