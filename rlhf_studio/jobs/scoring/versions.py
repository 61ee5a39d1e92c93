"""When files were last changed: a model or a rubric that has changed since is loaded again."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rlhf_studio.inputs.trained import resolve


def version_of_model(name: str) -> int:
    """When the newest file of a model's folder was changed, in nanoseconds since 1970; 0 for a hub model."""
    return version_of_files(map(str, Path(resolve(name)).glob("*")))


def version_of_files(files: Iterable[str]) -> int:
    """When the newest of these files was changed, in nanoseconds since 1970; 0 where none can be read: loading it gives the error."""
    return max(map(_changed, files), default=0)


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except (OSError, ValueError):
        return 0
