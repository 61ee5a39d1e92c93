"""What it costs a run to be watched, for each viewer: time of the run's steps, CPU of the app, bytes.

    python -m benchmarks.watching                          # 30 viewers; about three minutes

The world recipe trains in one process, the app shows it in another, and viewers ask for what the Live page asks for. Windows with and
without viewers take turns within one run; the ratio of the step times is taken round by round. The viewers run on the same machine here, so
what they use of it themselves is listed apart: in a classroom they have machines of their own. The result goes to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed import machine
from benchmarks.speed.__main__ import RESULTS
from benchmarks.speed.summary import spread_of
from benchmarks.watching.page import Traffic, watching
from benchmarks.watching.watched_run import Watched, watched_run

SETTLE_SECONDS = 3.0  # before a window: viewers have come, or gone


@dataclass(frozen=True)
class Window:
    """A stretch of training with so many viewers. Seconds per step are of the steps that lie in it whole; the rest is per second."""

    viewers: int
    step_seconds: float
    steps: int
    app_cpu: float
    viewers_cpu: float


async def window(watched: Watched, viewers: int, seconds: float) -> tuple[Window, Traffic]:
    """Watch with ``viewers`` pages for a while."""
    if not viewers:
        await asyncio.sleep(SETTLE_SECONDS)
        return await _observe(watched, 0, seconds), Traffic()
    async with watching(viewers, watched.port, watched.component, watched.run_dir.name) as traffic:
        await asyncio.sleep(SETTLE_SECONDS)
        traffic.forget()
        observed = await _observe(watched, viewers, seconds)
        if traffic.problems:
            raise SystemExit(traffic.problems[0])
        return observed, traffic


async def _observe(watched: Watched, viewers: int, seconds: float) -> Window:
    first, app, own, began = watched.step, watched.app_seconds(), _own_seconds(), time.perf_counter()
    await asyncio.sleep(seconds)
    passed = time.perf_counter() - began
    app, own = watched.app_seconds() - app, _own_seconds() - own
    steps = watched.step_seconds(first + 1, watched.step)  # the step under way at the start lies only partly in here
    if not steps:
        raise SystemExit(f"no whole step in {seconds:.0f} s; use longer windows (--seconds)")
    return Window(viewers, statistics.median(steps), len(steps), app / passed, own / passed)


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system


async def watch_rounds(watched: Watched, viewers: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Pairs of windows, without and with viewers; every second pair the other way round."""
    pairs: list[dict[int, Window]] = []
    all_traffic: list[Traffic] = []
    for number in range(rounds):
        counts = (0, viewers) if number % 2 == 0 else (viewers, 0)
        pair = {}
        for count in counts:
            pair[count], traffic = await window(watched, count, seconds)
            if count:
                all_traffic.append(traffic)
        pairs.append(pair)
        print(
            f"round {number + 1}: {pair[0].step_seconds:.3f} s alone, {pair[viewers].step_seconds:.3f} s watched",
            file=sys.stderr,
            flush=True,
        )
    return summarise(viewers, pairs, all_traffic, seconds)


def summarise(viewers: int, pairs: list[dict[int, Window]], all_traffic: list[Traffic], seconds: float) -> dict[str, Any]:
    """Medians over the rounds; ``cpu_per_viewer`` is the app's CPU share that one more viewer takes."""
    latencies = sorted(latency for each in all_traffic for latency in each.latencies)
    sizes = [size for each in all_traffic for size in each.poll_bytes]
    traffic = sum(sizes) + sum(each.fetched_bytes for each in all_traffic)
    return {
        "viewers": viewers,
        "slowdown": spread_of([pair[viewers].step_seconds / pair[0].step_seconds for pair in pairs]),
        "per_round": [pair[viewers].step_seconds / pair[0].step_seconds for pair in pairs],
        "app_cpu_alone": statistics.median(pair[0].app_cpu for pair in pairs),
        "cpu_per_viewer": statistics.median((pair[viewers].app_cpu - pair[0].app_cpu) / viewers for pair in pairs),
        "viewers_cpu": statistics.median(pair[viewers].viewers_cpu for pair in pairs),
        "polls": len(latencies),
        "poll_bytes": {"median": statistics.median(sizes), "mean": statistics.mean(sizes)},
        "bytes_per_viewer_second": traffic / viewers / seconds / len(pairs),
        "latency": {"median": statistics.median(latencies), "p95": latencies[int(0.95 * (len(latencies) - 1))]},
        "windows": [[asdict(observed) for observed in pair.values()] for pair in pairs],
    }


def viewer_lines(result: dict[str, Any]) -> list[str]:
    slow = result["slowdown"]
    return [
        f"{result['viewers']} viewers: a step takes {slow['median']:.3f} times as long ({slow['min']:.3f} to {slow['max']:.3f})",
        f"the app: {1000 * result['cpu_per_viewer']:.1f} ms of CPU a second per viewer, "
        f"{1000 * result['app_cpu_alone']:.1f} ms without any; the viewers themselves {1000 * result['viewers_cpu']:.0f} ms",
        f"a poll: {result['poll_bytes']['median']:.0f} bytes (mean {result['poll_bytes']['mean']:.0f}), answered in "
        f"{1000 * result['latency']['median']:.1f} ms, 95 % within {1000 * result['latency']['p95']:.1f} ms ({result['polls']} polls); "
        f"everything: {result['bytes_per_viewer_second'] / 1000:.2f} kB a second per viewer",
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="benchmarks.watching")
    parser.add_argument("--viewers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of windows")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a window")
    parser.add_argument("--threads", type=int, default=machine.threads_here(), help="CPU threads of the training")
    parser.add_argument("--json", type=Path, metavar="FOLDER", default=RESULTS, help="write the result here")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as workspace, watched_run(Path(workspace), "world", options.threads) as watched:
        result = asyncio.run(watch_rounds(watched, options.viewers, options.rounds, options.seconds))
    print("\n".join(viewer_lines(result)), flush=True)
    counts = f"--viewers {options.viewers} --seconds {options.seconds:g} --rounds {options.rounds} --threads {options.threads}"
    command = f"python -m benchmarks.watching {counts}"
    about = {"command": command, "date": datetime.date.today().isoformat(), "machine": machine.describe()}
    options.json.mkdir(parents=True, exist_ok=True)
    (options.json / "watching.json").write_text(json.dumps({**result, **about}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
