"""When files were last changed, so that what was made from them anew is loaded anew."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rlhf_studio.inputs.trained import resolve


def version_of_model(name: str) -> int:
    """Of the newest file of a model's folder, in nanoseconds; 0 for a hub model."""
    return version_of_files(map(str, Path(resolve(name)).glob("*")))


def version_of_files(files: Iterable[str]) -> int:
    """Of the newest of these files, in nanoseconds; 0 where none can be looked at: whoever reads it says so."""
    return max(map(_changed, files), default=0)


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except (OSError, ValueError):
        return 0
