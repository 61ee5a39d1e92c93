"""Fifty people watch one run: what it costs the app and the run, how late they see a step, and how soon a stop is taken.

Windows take turns: the same viewers ask the app, and a program that only answers (:mod:`benchmarks.viewers.stand_in`). Whatever the viewers
cost this machine themselves is then on both sides, and the app's share is what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.startup import ROOT, free_port
from benchmarks.viewers.limits import Figure, percentile
from benchmarks.viewers.page import Seen, Viewer, watching
from benchmarks.viewers.watched_run import TOKEN, Watched
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.paths import DATABASE
from rlhf_studio.runs.reader import RunReader

SETTLE_SECONDS = 3.0  # for the last window's viewers to be gone, or for this one's first full answers
CPU_MS, STEP_RATIO, DELAY, STOP = 6.0, 1.10, 1.5, 1.0
KINDS = ("full", "delta", "samples", "answer", "learned")
PATIENCE = 60.0


@dataclass
class Part:
    """A window: seconds per step, the app's CPU, and what the viewers noted."""

    step: float
    app_cpu: float
    began: float
    ended: float
    seen: Seen = field(repr=False)


async def part(watched: Watched, viewers: int, port: int, component: int, seconds: float) -> Part:
    """Watch for a while."""
    async with watching(viewers, port, component, watched.run_dir.name) as seen:
        await asyncio.sleep(SETTLE_SECONDS)
        seen.forget()
        first, cpu, began, clock = watched.step, watched.app_seconds(), time.time(), time.perf_counter()
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - clock
        cpu = (watched.app_seconds() - cpu) / passed
        steps = watched.step_seconds(first + 1, watched.step)
        if not steps:
            raise SystemExit(f"no whole step in {seconds:.0f} s; use more --seconds or fewer --rounds")
        return Part(statistics.median(steps), cpu, began, time.time(), seen)


async def answers_of(watched: Watched) -> dict[str, Any]:
    """An answer of each kind that the app gives a viewer, and how long a step takes."""
    viewer = Viewer(watched.port, watched.component, watched.run_dir.name, 0, Seen())
    task, ends = asyncio.create_task(viewer.watch()), time.monotonic() + PATIENCE
    try:
        while not all(kind in viewer.kept for kind in KINDS[:-1]) and time.monotonic() < ends:
            await asyncio.sleep(0.2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if "full" not in viewer.kept or "delta" not in viewer.kept:
        raise SystemExit("the app did not answer a viewer")
    steps = watched.step_seconds(0, watched.step)
    return {**viewer.kept, "step_seconds": statistics.median(steps)}


@contextlib.asynccontextmanager
async def stand_in(answers: dict[str, Any], folder: Path) -> AsyncIterator[int]:
    """The program that only answers, as a process; gives its port."""
    file, port = folder / "answers.json", free_port()
    file.write_text(json.dumps(answers), encoding="utf-8")
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.viewers.stand_in", str(port), str(file)], cwd=ROOT)
    try:
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                if time.monotonic() > ends or process.poll() is not None:
                    raise
                await asyncio.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def delays(parts: list[Part], commits: dict[int, float]) -> list[float]:
    """Seconds from each step's commit until each viewer had it; steps in the last two seconds of a window may still be on their way."""
    found = []
    for one in parts:
        by_viewer: dict[int, list[tuple[int, float]]] = {}
        for viewer, step, at in one.seen.arrivals:
            by_viewer.setdefault(viewer, []).append((step, at))
        wanted = [(step, at) for step, at in commits.items() if one.began <= at <= one.ended - 2 * DELAY]
        for arrivals in by_viewer.values():
            for step, committed in wanted:
                seen = [at for newest, at in arrivals if newest >= step and at >= committed]
                found.append(min(seen) - committed if seen else math.inf)
    return found


def commits_of(run_dir: Path) -> dict[int, float]:
    """When each step was committed, in seconds since 1970."""
    connection = sqlite3.connect(f"file:{run_dir / DATABASE}?mode=ro", uri=True)
    try:
        return dict(connection.execute("SELECT step, at FROM steps").fetchall())
    finally:
        connection.close()


async def stop(watched: Watched, viewers: int) -> dict[str, float]:
    """Press Stop while people watch: seconds until the run was asked, until 95 % of the viewers saw that, and until it had ended."""
    async with watching(viewers, watched.port, watched.component, watched.run_dir.name) as seen:
        await asyncio.sleep(SETTLE_SECONDS)
        pressed = time.time()
        await asyncio.to_thread(press, watched, "stop_run")
        acted = await _until(lambda: RunReader(watched.run_dir).status().stop_asked_age is not None, pressed)
        ended = await _until(lambda: RunReader(watched.run_dir).status().state in ("stopped", "finished", "failed"), pressed)
        await asyncio.sleep(2 * DELAY)
        return {"acted": acted, "seen": percentile([at - pressed for at in seen.stops.values()], 0.95), "ended": ended}


async def _until(what: Any, since: float) -> float:
    while time.time() - since < PATIENCE:
        with contextlib.suppress(StoreError):
            if await asyncio.to_thread(what):
                return time.time() - since
        await asyncio.sleep(0.02)
    return math.inf


def press(watched: Watched, button: str) -> None:
    """Press a button of the Live page as the operator."""
    root = f"http://127.0.0.1:{watched.port}"
    with urllib.request.urlopen(f"{root}/config", timeout=PATIENCE) as answer:
        events = json.load(answer)["dependencies"]
    index = next(event["id"] for event in events if event["api_name"] == button)
    body = {"fn_index": index, "data": [], "event_data": {"run": watched.run_dir.name}, "trigger_id": None, "session_hash": "operator"}
    headers = {"Content-Type": "application/json", "X-RLHF-Studio-Token": TOKEN}
    request = urllib.request.Request(f"{root}/gradio_api/run/predict", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=PATIENCE).close()


async def measure(watched: Watched, viewers: int, seconds: float, rounds: int, folder: Path) -> list[Figure]:
    """``seconds`` of watching the app in ``rounds`` windows, and as many of asking the program that only answers."""
    parts: dict[str, list[Part]] = {"app": [], "stand-in": []}
    async with stand_in(await answers_of(watched), folder) as port:
        targets = {"app": (watched.port, watched.component), "stand-in": (port, 0)}
        for number in range(rounds):
            for name in ("app", "stand-in") if number % 2 else ("stand-in", "app"):
                parts[name].append(await part(watched, viewers, *targets[name], seconds / rounds))
            app, other = parts["app"][-1], parts["stand-in"][-1]
            print(f"round {number + 1}: a step takes {other.step:.3f} s beside the stand-in, {app.step:.3f} s beside the app", flush=True)
    stopped = await stop(watched, viewers)
    return figures(viewers, parts, commits_of(watched.run_dir), stopped)


def figures(viewers: int, parts: dict[str, list[Part]], commits: dict[int, float], stopped: dict[str, float]) -> list[Figure]:
    """The figures beside their limits."""
    app, other = parts["app"], parts["stand-in"]
    pairs = list(zip(app, other, strict=True))
    problems = [problem for one in (*app, *other) for problem in one.seen.problems]
    for problem in problems[:5]:
        print(f"error: {problem}", flush=True)
    polls = [latency for one in app for latency in one.seen.latencies]
    late = delays(app, commits)
    return [
        Figure(
            "CPU of the app for one viewer", 1000 * statistics.median((a.app_cpu - b.app_cpu) / viewers for a, b in pairs), "ms/s", CPU_MS
        ),
        Figure("a step beside the app ÷ beside the stand-in", statistics.median(a.step / b.step for a, b in pairs), "", STEP_RATIO),
        Figure("from a step's commit to a viewer, 95 %", percentile(late, 0.95), "s", DELAY),
        Figure("from Stop to the run being asked", stopped["acted"], "s", STOP),
        Figure("errors", len(problems), "", 0),
        Figure("from a step's commit to a viewer, median", percentile(late, 0.5), "s"),
        Figure("from Stop to 95 % of the viewers", stopped["seen"], "s"),
        Figure("from Stop to the end of the run", stopped["ended"], "s"),
        Figure("a poll, 95 %", 1000 * percentile(polls, 0.95), "ms"),
        Figure("polls", len(polls)),
        Figure("a step beside the stand-in", statistics.median(one.step for one in other), "s"),
        Figure("CPU of the app without viewers", 1000 * statistics.median(one.app_cpu for one in other), "ms/s"),
    ]
