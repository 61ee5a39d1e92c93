"""What a result says about the machine: enough to compare, nothing that names it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def threads_here() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, Any]:
    """Processor, CPUs, memory and Python; no host name, no path."""
    import psutil

    return {
        "cpu": cpu_name(),
        "cpus": threads_here(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def cpu_name(info: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name with the widest vector instructions that it has."""
    if not info.exists():
        return platform.processor() or platform.machine()
    fields = [line.partition(":") for line in info.read_text(encoding="utf-8", errors="replace").splitlines()]
    by_key = {key.strip(): value.strip() for key, _, value in fields}
    flags = by_key.get("flags", by_key.get("Features", "")).split()
    best = next((name for flag, name in (("amx_tile", "AMX"), ("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")
    name = by_key.get("model name", platform.machine())
    return f"{name}, {best}" if best else name
