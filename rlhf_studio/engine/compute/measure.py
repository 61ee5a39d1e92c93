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

SECONDS = 1.0  # long enough for a steady result
LEAST_SHARE = 0.25  # of the processor, by which a rate is corrected: beyond that nothing was measured
PRODUCTS = {"cpu": (768, 4), "cuda": (8192, 16)}
"""Size of the matrices, and products in a trial. On a CPU a typical hidden size of small models. A fast GPU multiplies such matrices in
less time than it takes to start the product, so there they are large, and many are under way before it is waited for."""


def multiply_rate(device: torch.device, seconds: float = SECONDS) -> float:
    """Floating-point operations per second in (n × n) matrix products of 2 · n³ each; the mean of the faster half of trials.

    The first trial, in which libraries and clocks start up, does not count.
    """
    size, products = PRODUCTS[device.type]
    half = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16 if half else None) for _ in range(2))
    rates: list[float] = []
    ends = time.perf_counter() + seconds
    while len(rates) < 5 or time.perf_counter() < ends:
        started = time.perf_counter()
        for _ in range(products):
            left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rates.append(2 * products * size**3 / (time.perf_counter() - started))
    best = sorted(rates[1:])[len(rates) // 2 :]
    return sum(best) / len(best)


def quiet_rate(device: torch.device) -> float:
    """:func:`multiply_rate`; on a CPU as it would be if no other program had worked meanwhile.

    Threads that had to wait for a core used less of the processor than time passed: the rate is divided by that share.
    """
    began, worked = time.perf_counter(), time.process_time()
    rate = multiply_rate(device)
    if device.type != "cpu":
        return rate
    share = (time.process_time() - worked) / ((time.perf_counter() - began) * torch.get_num_threads())
    return rate / min(max(share, LEAST_SHARE), 1.0)


def main(arguments: list[str]) -> int:
    target, device = Path(arguments[0]), torch.device(arguments[1] if len(arguments) > 1 else "cpu")
    result = {"device": device.type, "rate": quiet_rate(device), "threads": torch.get_num_threads()}
    part = target.with_name(f".{target.name}-{os.getpid()}")
    part.write_text(json.dumps(result), encoding="utf-8")
    os.replace(part, target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
