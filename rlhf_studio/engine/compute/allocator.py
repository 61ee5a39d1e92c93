"""How the C library (glibc) treats memory that the program has freed."""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # glibc's malloc.h
LARGEST = 1 << 30  # bytes of the largest block that is kept: a gigabyte


def keep_freed_memory() -> bool:
    """Let this process keep freed blocks of up to a gigabyte and use them again. Returns whether glibc has accepted the setting.

    By default glibc returns freed blocks of some megabytes to the operating system at once. The next block of that size comes from the
    system again, page by page, each page zeroed. A training step makes and frees hundreds of such tensors, and this would cost as much
    as the smaller matrix products. All threads share one pool of freed blocks (ARENA_MAX is 1), so that a block that one lane freed
    serves the next lane. Other C libraries are left as they are, and the result is False.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return all([mallopt(MMAP_THRESHOLD, LARGEST), mallopt(TRIM_THRESHOLD, 2 * LARGEST - 1), mallopt(ARENA_MAX, 1)])
