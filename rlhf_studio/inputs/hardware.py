"""What this machine has: the device a run would take and its free memory, without torch."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEGABYTE = 1 << 20  # nvidia-smi counts in these
REMEMBERED_SECONDS = 10.0
CGROUP = Path("/sys/fs/cgroup")
QUERY = ("--query-gpu=name,memory.free,memory.total,compute_cap", "--format=csv,noheader,nounits")


@dataclass(frozen=True)
class Machine:
    """A device.

    Attributes:
        device: ``cpu`` or ``cuda``.
        name: for people.
        free, total: bytes of its memory; None when they cannot be read.
        bfloat16: whether it computes in bfloat16 at full speed.
    """

    device: str
    name: str
    free: int | None
    total: int | None
    bfloat16: bool


def find_machine(wanted: str) -> Machine:
    """The device that ``engine.device`` leads to: auto and cuda take the first GPU, cpu the processor."""
    gpu = _gpu() if wanted != "cpu" else None
    return gpu or processor()


def processor(cgroup: Path = CGROUP) -> Machine:
    """The CPU and its memory; in a container, at most what the container may use."""
    import psutil  # here, because only this needs it

    memory = psutil.virtual_memory()
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is None or limit >= memory.total:
        return Machine("cpu", "CPU", int(memory.available), int(memory.total), False)
    return Machine("cpu", "CPU", min(int(memory.available), max(limit - (used or 0), 0)), limit, False)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None


class _Remembered:
    """The last answer of nvidia-smi, kept for a few seconds: the form asks at every change."""

    answer: Machine | None = None
    at = float("-inf")


def _gpu() -> Machine | None:
    if time.monotonic() - _Remembered.at > REMEMBERED_SECONDS:
        _Remembered.answer, _Remembered.at = ask_gpu(), time.monotonic()
    return _Remembered.answer


def ask_gpu(run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> Machine | None:
    """The first GPU as nvidia-smi reports it; None without one, or when it does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        answer = run([tool, *QUERY], capture_output=True, text=True, timeout=5, check=True)
        name, free, total, capability = (cell.strip() for cell in answer.stdout.splitlines()[0].rsplit(",", 3))
        return Machine("cuda", name, int(free) * MEGABYTE, int(total) * MEGABYTE, float(capability) >= 8.0)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None  # no driver, no GPU, or figures such as "[N/A]": then there is none to plan for
