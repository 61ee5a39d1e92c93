"""Loading large libraries at the start of a process that lives with them to its end."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def libraries_stay() -> Iterator[None]:
    """Load libraries in this block, before there is anything else: Python never looks through them for what nobody needs any more.

    Torch and transformers make about a million objects that stay. To search them again and again while they load, and twice at the end
    of the process, takes as long as all the rest of loading. Where all is loaded already, nothing happens.
    """
    before, collects = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if collects:
            gc.enable()
