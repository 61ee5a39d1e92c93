"""Settings for freed memory, which the next tensors use again: of the C library (glibc), and of torch on a GPU."""

from __future__ import annotations

import ctypes
import os
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


ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Environment variables with torch's settings for a GPU's memory; the second is the older name, which every version reads."""


def let_gpu_memory_grow() -> None:
    """Let torch's blocks of GPU memory grow, unless a person has set it otherwise. Call it before the first tensor is on the GPU.

    Tensors have other sizes in every micro-batch. Blocks of fixed sizes would leave gaps between them that nothing fits into.
    """
    if not any(os.environ.get(name) for name in ALLOCATOR_VARIABLES):
        os.environ[ALLOCATOR_VARIABLES[1]] = "expandable_segments:True"
