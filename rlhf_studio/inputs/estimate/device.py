"""The processor or the GPU that a run's settings lead to, and its memory, without torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config import EngineConfig
from rlhf_studio.runs.gpus import Gpu, find_gpus

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Device:
    """What a run computes on.

    Attributes:
        kind: ``cpu`` or ``cuda``.
        name: for people.
        free, total: bytes of its memory; None when they cannot be read.
        bfloat16: whether it computes in bfloat16 at full speed.
        cores: of a processor, those that this process may use.
    """

    kind: str
    name: str
    free: int | None
    total: int | None
    bfloat16: bool
    cores: int = 1


def find_device(engine: EngineConfig, gpus: Callable[[], tuple[Gpu, ...] | None] = find_gpus) -> Device:
    """The device that the settings lead to: the processor, the GPU that is named, else the first.

    Of several GPUs that train together, the one with the least free memory: every process must fit its own.
    """
    used = () if engine.device == "cpu" else gpus() or ()
    if engine.gpu_index is not None:
        used = tuple(gpu for gpu in used if gpu.index == engine.gpu_index) or used
    elif engine.processes == 1 and not engine.accelerate_config:
        used = used[:1]
    elif engine.processes and not engine.accelerate_config:
        used = used[: engine.processes]
    if not used:
        return processor()
    gpu = min(used, key=lambda gpu: gpu.free or 0)
    return Device("cuda", gpu.name, gpu.free, gpu.total, gpu.bfloat16)


def processor(cgroup: Path = CGROUP) -> Device:
    """The CPU and its memory; in a container, at most what the container may use."""
    import psutil  # here, because only this needs it

    memory = psutil.virtual_memory()
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    free, total, cores = int(memory.available), int(memory.total), core_count() or 1
    if limit is None or limit >= total:
        return Device("cpu", "CPU", free, total, False, cores)
    return Device("cpu", "CPU", min(free, max(limit - (used or 0), 0)), limit, False, cores)


def core_count() -> int | None:
    """Cores that this process may use; None when the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None
