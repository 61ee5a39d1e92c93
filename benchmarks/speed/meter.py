"""What every contestant's process measures about itself. Torch is imported by the functions that need it."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

PHASES = ("rollout", "scoring", "optimisation")


@dataclass
class Laps:
    """Seconds of each update and of its phases; what no phase claims is the rest."""

    updates: list[dict[str, float]] = field(default_factory=list)
    _started: float | None = None
    _current: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """An update begins; one that is still open ends here."""
        self.stop()
        self._started, self._current = time.perf_counter(), {}

    def add(self, phase: str, seconds: float) -> None:
        self._current[phase] = self._current.get(phase, 0.0) + seconds

    def stop(self) -> None:
        """The update that is open, if any, ends."""
        if self._started is not None:
            total = time.perf_counter() - self._started
            claimed = {phase: self._current.get(phase, 0.0) for phase in PHASES}
            self.updates.append({"total": total, **claimed, "rest": total - sum(claimed.values())})
            self._started = None

    def timed(self, phase: str, function: Callable[..., Any], *, opens: bool = False) -> Callable[..., Any]:
        """``function`` with its seconds added to ``phase``; with ``opens`` each call begins a new update."""

        def wrapped(*arguments: Any, **named: Any) -> Any:
            if opens:
                self.start()
            began = time.perf_counter()
            result = function(*arguments, **named)
            wait_for_device()
            self.add(phase, time.perf_counter() - began)
            return result

        return wrapped


def wait_for_device() -> None:
    """Wait for the GPU where there is one, so that a phase's seconds are its own."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matrix_rate(device: str, seconds: float = 0.8) -> float:
    """Floating-point operations per second of large matrix products on this process's threads: the median of several."""
    import torch

    size, kind = (8192, torch.bfloat16) if device == "cuda" else (2048, torch.float32)
    left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    out = torch.mm(left, right)
    wait_for_device()
    rates: list[float] = []
    ends = time.perf_counter() + seconds
    while len(rates) < 5 or time.perf_counter() < ends:
        began = time.perf_counter()
        torch.mm(left, right, out=out)
        wait_for_device()
        rates.append(2 * size**3 / (time.perf_counter() - began))
    return sorted(rates)[len(rates) // 2]


def peak_resident(status: Path = Path("/proc/self/status")) -> int:
    """Largest resident size of this process in bytes. Linux's getrusage would start from the size of the process that started it."""
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def peak_allocated() -> int | None:
    """Most bytes of GPU memory held by tensors; None without a GPU."""
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None


def write_result(path: Path, laps: Laps, packages: tuple[str, ...], **more: Any) -> None:
    """Write what a contestant measured, with the threads, the device and the versions that it really had."""
    import torch

    on_gpu = torch.cuda.is_available()
    result = {
        "updates": laps.updates,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "versions": {name: version(name) for name in ("torch", "transformers", *packages)},
        **more,
    }
    path.write_text(json.dumps(result), encoding="utf-8")
