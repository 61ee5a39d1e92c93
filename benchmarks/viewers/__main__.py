"""What it costs a run to be watched and to be recorded.

    python -m benchmarks.viewers                          # 30 viewers, then recording; about five minutes
    python -m benchmarks.viewers --only recording
    python -m benchmarks.viewers --only acceptance        # 50 viewers for five minutes, against limits; about eleven minutes
    python -m benchmarks.viewers --only slow              # 20 viewers beside 200 clients that are slow on purpose; about six minutes

Watching: the world recipe trains in one process, the app shows it in another, and viewers ask for what the Live page asks for. Windows
with and without viewers take turns within one run; the ratio of the step times is taken round by round. The viewers run on the same
machine here, so what they use of it themselves is listed apart: in a classroom they have machines of their own.

Recording: steps of one trainer with and without it in turn, workload w1 unless --workload names another one or a recipe. The results go to
benchmarks/results/.
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
from benchmarks.speed.__main__ import RESULTS, workload_job
from benchmarks.speed.summary import spread_of
from benchmarks.speed.workloads import WORKLOADS
from benchmarks.viewers import acceptance, slow
from benchmarks.viewers.acceptance import SETTLE_SECONDS
from benchmarks.viewers.page import Seen, watching
from benchmarks.viewers.recording import measure_recording, recipe_config, workload_config
from benchmarks.viewers.watched_run import Watched, watched_run

RECIPES = ("world", "world-lora")  # whose recording may be measured too
AGAINST_LIMITS = {"acceptance": (50, 300.0), "slow": (20, 15.0)}  # with their usual viewers and seconds


@dataclass(frozen=True)
class Window:
    """A stretch of training with so many viewers. Seconds per step are of the steps that lie in it whole; the rest is per second."""

    viewers: int
    step_seconds: float
    steps: int
    app_cpu: float
    viewers_cpu: float


async def window(watched: Watched, viewers: int, seconds: float) -> tuple[Window, Seen]:
    """Watch with ``viewers`` pages for a while."""
    if not viewers:
        await asyncio.sleep(SETTLE_SECONDS)
        return await _observe(watched, 0, seconds), Seen()
    async with watching(viewers, watched.port, watched.component, watched.run_dir.name) as seen:
        await asyncio.sleep(SETTLE_SECONDS)
        seen.forget()
        found = await _observe(watched, viewers, seconds)
        if seen.problems:
            raise SystemExit(seen.problems[0])
        return found, seen


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
    all_seen: list[Seen] = []
    for number in range(rounds):
        counts = (0, viewers) if number % 2 == 0 else (viewers, 0)
        pair = {}
        for count in counts:
            pair[count], seen = await window(watched, count, seconds)
            if count:
                all_seen.append(seen)
        pairs.append(pair)
        print(
            f"round {number + 1}: {pair[0].step_seconds:.3f} s alone, {pair[viewers].step_seconds:.3f} s watched",
            file=sys.stderr,
            flush=True,
        )
    return summarise(viewers, pairs, all_seen, seconds)


def summarise(viewers: int, pairs: list[dict[int, Window]], all_seen: list[Seen], seconds: float) -> dict[str, Any]:
    """Medians over the rounds; ``cpu_per_viewer`` is the app's CPU share that one more viewer takes."""
    latencies = sorted(latency for seen in all_seen for latency in seen.latencies)
    sizes = [size for seen in all_seen for size in seen.poll_bytes]
    traffic = sum(sizes) + sum(seen.fetched_bytes for seen in all_seen)
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
        "windows": [[asdict(one) for one in pair.values()] for pair in pairs],
    }


def viewer_lines(found: dict[str, Any]) -> list[str]:
    slow = found["slowdown"]
    return [
        f"{found['viewers']} viewers: a step takes {slow['median']:.3f} times as long ({slow['min']:.3f} to {slow['max']:.3f})",
        f"the app: {1000 * found['cpu_per_viewer']:.1f} ms of CPU a second per viewer, {1000 * found['app_cpu_alone']:.1f} ms without any; "
        f"the viewers themselves {1000 * found['viewers_cpu']:.0f} ms",
        f"a poll: {found['poll_bytes']['median']:.0f} bytes (mean {found['poll_bytes']['mean']:.0f}), answered in "
        f"{1000 * found['latency']['median']:.1f} ms, 95 % within {1000 * found['latency']['p95']:.1f} ms ({found['polls']} polls); "
        f"everything: {found['bytes_per_viewer_second'] / 1000:.2f} kB a second per viewer",
    ]


def recording_lines(found: dict[str, Any]) -> list[str]:
    gap = found["difference"]
    apart = ", ".join(f"{name} {100 * share:.2f} %" for name, share in found["parts"].items())
    return [
        f"recording {found['workload']}: {found['on']:.3f} s a step with it, {found['off']:.3f} s without, {found['pairs']} pairs; "
        f"{100 * found['openly']:.2f} % of a step is spent on it openly ({apart}), "
        f"{100 * found['cpu']['openly']:.2f} % of its processor time; pair by pair {100 * gap['median']:.2f} % "
        f"({100 * gap['min']:.2f} to {100 * gap['max']:.2f} %)"
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="benchmarks.viewers")
    parser.add_argument("--only", choices=["watching", "recording", *AGAINST_LIMITS])
    workloads = [*RECIPES, *(name for name, one in WORKLOADS.items() if not one.gpu)]
    parser.add_argument("--workload", default="w1", choices=workloads, help="for recording")
    parser.add_argument("--viewers", type=int, help="30; for acceptance 50, for slow 20")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of windows, and pairs of steps divided by two")
    parser.add_argument("--seconds", type=float, help="length of a window, 15; for acceptance of all windows together, 300")
    parser.add_argument("--clients", type=int, default=200, help="that are slow on purpose")
    parser.add_argument("--threads", type=int, default=machine.threads_here(), help="CPU threads of the training")
    parser.add_argument("--json", type=Path, metavar="FOLDER", default=RESULTS, help="write the results here")
    options = parser.parse_args(arguments)
    viewers, seconds = AGAINST_LIMITS.get(options.only, (30, 15.0))
    options.viewers = options.viewers or viewers
    options.seconds = options.seconds or seconds
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    common = f"--rounds {options.rounds} --threads {options.threads}"
    if options.only in AGAINST_LIMITS:
        return against_limits(options)
    if options.only != "recording":
        with tempfile.TemporaryDirectory() as workspace, watched_run(Path(workspace), "world", options.threads) as watched:
            found = asyncio.run(watch_rounds(watched, options.viewers, options.rounds, options.seconds))
        print("\n".join(viewer_lines(found)), flush=True)
        write(options.json / "viewers.json", found, f"--only watching --viewers {options.viewers} --seconds {options.seconds:g} {common}")
    if options.only != "watching":
        found = measure_recording(options.workload, recorded_run(options), 2 * options.rounds)
        print("\n".join(recording_lines(found)), flush=True)
        write(options.json / f"recording-{options.workload}.json", found, f"--only recording --workload {options.workload} {common}")
    return 0


def against_limits(options: argparse.Namespace) -> int:
    """Measure, print each figure beside its limit, and keep them; 1 when a limit was broken."""
    with tempfile.TemporaryDirectory() as workspace, watched_run(Path(workspace), "world", options.threads) as watched:
        if options.only == "slow":
            found = asyncio.run(slow.measure(watched, options.viewers, options.clients, options.seconds))
        else:
            run = acceptance.measure(watched, options.viewers, options.seconds, options.rounds, Path(workspace))
            found = asyncio.run(run)
    print("\n".join(figure.line() for figure in found), flush=True)
    own = f"--clients {options.clients}" if options.only == "slow" else f"--rounds {options.rounds}"
    command = f"--only {options.only} --viewers {options.viewers} --seconds {options.seconds:g} {own} --threads {options.threads}"
    kept = {"viewers": options.viewers, "seconds": options.seconds, "figures": [figure.as_json() for figure in found]}
    name = f"viewers-{options.only}-{options.viewers}" if options.only == "acceptance" else f"viewers-{options.only}"
    write(options.json / f"{name}.json", kept, command)
    return 0 if all(figure.holds for figure in found) else 1


def recorded_run(options: argparse.Namespace) -> Any:
    """The settings of the run whose recording is measured."""
    if options.workload in RECIPES:
        return recipe_config(options.workload, options.threads, 2 * options.rounds)
    return workload_config(workload_job(WORKLOADS[options.workload], options.threads), 2 * options.rounds)


def write(path: Path, found: dict[str, Any], options: str) -> None:
    about = {"command": f"python -m benchmarks.viewers {options}", "date": datetime.date.today().isoformat(), "machine": machine.describe()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**found, **about}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
