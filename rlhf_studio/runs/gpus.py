"""Which GPUs this machine has, found without torch: for the form, for the checks before a start, and for starting processes.

They are numbered as torch numbers them when ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``, which the engine sets: cuda:0 is the first that
nvidia-smi lists, of those in ``CUDA_VISIBLE_DEVICES`` where that is set.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

MEBIBYTE = 1 << 20  # nvidia-smi counts in these
REMEMBERED_SECONDS = 10.0
QUERY = ("--query-gpu=uuid,name,memory.free,memory.total,compute_cap", "--format=csv,noheader,nounits")
NVIDIA_FILES = "/dev/nvidia[0-9]*"
GPU_FILES = (
    NVIDIA_FILES,
    "/dev/nvidiactl",
    "/dev/dxg",  # Windows Subsystem for Linux
    "/dev/kfd",  # AMD: torch calls it cuda too
    "/dev/nvhost-*gpu*",  # Jetson
    "/dev/nvgpu",
)
"""Device files of which a driver for torch's ``cuda`` devices makes at least one."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that torch can use.

    Attributes:
        index: its number for torch: cuda:``index``.
        name: for people.
        free, total: bytes of its memory; None when they cannot be read.
        bfloat16: whether it computes in bfloat16 at full speed.
        uuid: the driver's name for it, or empty.
    """

    index: int
    name: str
    free: int | None = None
    total: int | None = None
    bfloat16: bool = False
    uuid: str = ""


def has_gpu() -> bool | None:
    """False when torch cannot find a CUDA GPU here, True when there are signs of one, None when nothing can be told."""
    if sys.platform == "darwin":
        return False
    if not sys.platform.startswith("linux"):
        return None
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return any(glob.glob(pattern) for pattern in GPU_FILES)


def find_gpus() -> tuple[Gpu, ...] | None:
    """The GPUs in torch's order; empty when there is none, None when they cannot be counted.

    nvidia-smi tells what they are; where it does not answer, NVIDIA's device files still tell how many there are.
    """
    if has_gpu() is False:
        return ()
    listed = _remembered()
    if listed is None:
        files = [name for name in glob.glob(NVIDIA_FILES) if re.fullmatch(r"nvidia\d+", os.path.basename(name))]
        listed = tuple(Gpu(index, f"GPU {index}") for index in range(len(files))) or None
    return None if listed is None else visible(listed, os.environ)


def visible(listed: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, in its order and with new numbers. As in CUDA, a wrong entry ends the list."""
    entries = environment.get("CUDA_VISIBLE_DEVICES")
    if entries is None:
        return tuple(listed)
    left: list[Gpu] = []
    for entry in (part.strip() for part in entries.split(",")):
        named = entry.startswith(("GPU-", "MIG-"))
        same = [gpu for gpu in listed if entry == str(gpu.index) or (named and gpu.uuid.startswith(entry))]
        if len(same) == 1:
            left.append(replace(same[0], index=len(left)))
        elif named and not same:  # a slice of a GPU, or one whose name the driver did not tell
            left.append(Gpu(len(left), f"GPU {len(left)}"))
        else:
            break
    return tuple(left)


class _Remembered:
    """The last answer of nvidia-smi, kept for a few seconds: the form asks at every change."""

    answer: tuple[Gpu, ...] | None = None
    at = float("-inf")


def _remembered() -> tuple[Gpu, ...] | None:
    if time.monotonic() - _Remembered.at > REMEMBERED_SECONDS:
        _Remembered.answer, _Remembered.at = ask_nvidia(), time.monotonic()
    return _Remembered.answer


def ask_nvidia(run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> tuple[Gpu, ...] | None:
    """All GPUs as nvidia-smi lists them; None when it is not there or does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        answer = run([tool, *QUERY], capture_output=True, text=True, timeout=5, check=True)
        rows = [line for line in answer.stdout.splitlines() if line.strip()]
        return tuple(_read(index, line) for index, line in enumerate(rows)) or None
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # no driver, or an answer of another form: then nothing is known


def _read(index: int, line: str) -> Gpu:
    """One line of nvidia-smi; a name may hold commas, and a figure may be "[N/A]". Raises ValueError for another form."""
    uuid, rest = line.split(",", 1)
    name, free, total, capability = (cell.strip() for cell in rest.rsplit(",", 3))
    bytes_free, bytes_total = (int(cell) * MEBIBYTE if cell.isdigit() else None for cell in (free, total))
    return Gpu(index, name, bytes_free, bytes_total, capability[:1].isdigit() and float(capability) >= 8.0, uuid.strip())
