"""How the C library handles memory that was given back."""

from __future__ import annotations

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LARGEST = 1 << 30


def keep_freed_memory() -> bool:
    """Let this process keep freed blocks below a gigabyte for its next ones; returns whether the C library could be told.

    glibc gives blocks of some megabytes back to the system at once and gets them again page by page, each page zeroed: for the
    tensors of a training step, which come and go by the hundred, that costs as much as the smaller matrix products. The largest
    amount held does not change, and other C libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return all([mallopt(MMAP_THRESHOLD, LARGEST), mallopt(TRIM_THRESHOLD, 2 * LARGEST - 1)])
