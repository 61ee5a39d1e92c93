"""The one address that gives files of runs: what an operator had made in a run's folder ``exports``, as a download and nothing else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.system import open_below

ADDRESS = "/exports/{run}/{name}"
TYPES = {".zip": "application/zip", ".html": "text/html; charset=utf-8", ".csv": "text/csv; charset=utf-8", ".jsonl": "application/jsonl"}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,80}\.(zip|html|csv|jsonl)")
_WORDS = re.compile(r"\w+")
LONGEST_NAME = 60
"""Characters of a run's name in the name of a file."""
CHUNK = 1 << 18


def saved_name(run: str, name: str) -> str:
    """How an export is called where it is saved: the name of its run, as far as file names may have it, and the name of the file."""
    words = "-".join(_WORDS.findall(run))[:LONGEST_NAME].strip("-")
    return f"{words}-{name}" if words else name


def is_download(name: str) -> bool:
    """Whether a file of this name may be handed out."""
    return _NAME.fullmatch(name) is not None


def open_export(run_dir: Path, name: str) -> int:
    """A file descriptor of an export, open for reading. Raises FileNotFoundError unless it is a plain file that has one name only."""
    if not is_download(name):
        raise FileNotFoundError(name)
    descriptor = None
    try:
        descriptor = open_below(run_dir / paths.EXPORTS, name)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return descriptor
    except OSError:  # a link, a folder, no such file, no rights
        if descriptor is not None:
            _close(descriptor)
        raise FileNotFoundError(name) from None
    _close(descriptor)
    raise FileNotFoundError(name)


def _close(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)


def files_of(run_dir: Path) -> list[dict[str, object]]:
    """The exports of a run that can be downloaded, newest first: name, bytes, time of making."""
    files = []
    with suppress(OSError), os.scandir(run_dir / paths.EXPORTS) as entries:
        for entry in entries:
            if is_download(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                files.append({"name": entry.name, "bytes": status.st_size, "time": status.st_mtime})
    return sorted(files, key=lambda file: (-float(str(file["time"])), str(file["name"])))


def download_route(workspace: Workspace) -> Route:
    """The route of :data:`ADDRESS`. Who may ask is in :mod:`rlhf_studio.ui.roles`, and the door holds everyone to it."""

    def download(request: Request) -> Response:
        run, name = request.path_params["run"], request.path_params["name"]
        try:
            descriptor = open_export(workspace.exports_parent(run), name)
            saved = quote(saved_name(workspace.reader(run).status().name, name))
        except (StoreError, FileNotFoundError, ValueError):
            return JSONResponse({"detail": "There is no such file."}, 404)
        size = os.fstat(descriptor).st_size
        headers = {
            "Content-Disposition": f"attachment; filename=\"{name}\"; filename*=UTF-8''{saved}",
            "Content-Length": str(size),
            "Content-Security-Policy": "default-src 'none'; sandbox",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        kind = TYPES[Path(name).suffix]
        if request.method == "HEAD":
            _close(descriptor)
            return Response(headers=headers, media_type=kind)
        return StreamingResponse(_pieces(descriptor, size), headers=headers, media_type=kind)

    return Route(ADDRESS, download, methods=["GET"])


def _pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """The file as it was when it was opened: no more than its length then."""
    with os.fdopen(descriptor, "rb") as file:
        while size > 0 and (data := file.read(min(CHUNK, size))):
            size -= len(data)
            yield data
