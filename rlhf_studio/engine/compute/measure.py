"""``python -m rlhf_studio.engine.compute.measure FILE [cpu|cuda]``: measure how fast this machine multiplies matrices.

The result is written to FILE as JSON. The app starts this as a separate process, so that the app itself never loads torch and never waits.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch

SECONDS, SIZE = 1.0, 768  # long enough for a steady result; a typical hidden size of small models


def multiply_rate(device: torch.device, seconds: float = SECONDS, size: int = SIZE) -> float:
    """Floating-point operations per second in (size × size) matrix products of 2 · size³ each; the mean of the faster half of trials."""
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16 if device.type == "cuda" else None) for _ in range(2))
    rates: list[float] = []
    ends = time.perf_counter() + seconds
    while len(rates) < 4 or time.perf_counter() < ends:
        started = time.perf_counter()
        for _ in range(4):
            left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rates.append(8 * size**3 / (time.perf_counter() - started))
    best = sorted(rates)[len(rates) // 2 :]
    return sum(best) / len(best)


def main(arguments: list[str]) -> int:
    target, device = Path(arguments[0]), torch.device(arguments[1] if len(arguments) > 1 else "cpu")
    result = {"device": device.type, "rate": multiply_rate(device), "threads": torch.get_num_threads()}
    part = target.with_name(f".{target.name}-{os.getpid()}")
    part.write_text(json.dumps(result), encoding="utf-8")
    os.replace(part, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
