"""The memory limit of a process that reads data which nobody has checked; it sets the limit for itself."""

from __future__ import annotations

import contextlib
from pathlib import Path


def limit_memory(total: int) -> None:
    """Let this process map at most ``total`` bytes from now on. A lower limit that holds already stays."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # systems without such limits
        import resource

        now, _ = resource.getrlimit(resource.RLIMIT_AS)
        if now == resource.RLIM_INFINITY or total < now:
            resource.setrlimit(resource.RLIMIT_AS, (total, total))


def leave_memory(count: int) -> None:
    """Lower a limit that is already set: this process may map ``count`` bytes more than it maps now.

    To be called when every library is loaded and before data is unpacked: loading torch alone maps from 0.6 GB to several.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):  # systems without such limits
        import resource

        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            limit_memory(mapped + count)
