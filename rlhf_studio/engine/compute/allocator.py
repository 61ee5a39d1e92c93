"""How the C library handles memory that was given back."""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # glibc's malloc.h
LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Let this process keep freed blocks below a gigabyte for its next ones; returns whether the C library could be told.

    glibc gives blocks of some megabytes back to the system at once and gets them again page by page, each page zeroed: for the
    tensors of a training step, which come and go by the hundred, that costs as much as the smaller matrix products. All threads share
    one pool, so that what one lane gave back serves the next; a pool for each thread would be given back piece by piece again. Other C
    libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return all([mallopt(MMAP_THRESHOLD, LARGEST), mallopt(TRIM_THRESHOLD, 2 * LARGEST - 1), mallopt(ARENA_MAX, 1)])
