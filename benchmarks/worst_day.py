"""A visitor's worst day: an app in Space mode, and everybody comes at once, with the worst intentions.

    python -m benchmarks.worst_day                       # 200 starts, 500 tabs, three minutes
    python -m benchmarks.worst_day --seconds 40 --tabs 100

The app is a process of its own with a workspace that is thrown away, and may keep 40 MB of visitors' runs. 200 visitors start runs with
odd settings, and try again when the queue is full. Meanwhile 500 tabs ask for news, people reload the page and drop their cookies, one
person behind one address forges addresses and cookies, and hostile texts go into whatever takes text. Figures are printed beside their
limits and kept in benchmarks/results/; the exit code is 1 when a limit was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.speed import machine
from benchmarks.speed.__main__ import RESULTS
from benchmarks.startup import ROOT, free_port
from benchmarks.viewers.limits import Figure, percentile
from benchmarks.viewers.page import Seen
from benchmarks.viewers.visitors import App, Noted, Tab, Visitor, odd_settings
from rlhf_studio.runs import studio
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.visitors.janitor import size_of
from rlhf_studio.runs.visitors.limits import Limits
from rlhf_studio.runs.workspace import Workspace

SPACE = {"SPACE_ID": "someone/studio", "SPACE_HOST": "someone-studio.hf.space", "SYSTEM": "spaces", "RLHF_STUDIO_TOKEN": "an-operator"}
DISK = 40_000_000
AT_WORK = 40_000_000  # bytes that runs which wait or are at work may have beside the budget
PAGE, POLL, START, GROWN = 5.0, 1.0, 10.0, 300.0  # seconds, and MB
PATIENCE = 180.0
ONE_PLACE = "81.2.69.142"


@dataclass
class Watch:
    """What is looked at all the while, from outside the app."""

    workspace: Workspace
    app: psutil.Process
    disk: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    most: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)  # runs as they were seen to have begun

    def look(self) -> None:
        """Once a second: sizes, and how much of the queue is whose."""
        self.disk.append(size_of(self.workspace.root))
        self.memory.append(self.app.memory_info().rss)
        with contextlib.suppress(StoreError):
            known = studio.read(self.workspace.root)
            waiting = known.waiting()
            now = [entry for entry in known.entries.values() if entry.state in ("waiting", "claimed")]
            starters = [known.starters[entry.run_id] for entry in now if entry.run_id in known.starters]
            people, places = Counter(one.key for one in starters), Counter(one.address for one in starters)
            own = {"waiting": len(waiting), "of one person": max(people.values(), default=0)}
            for name, value in {**own, "of one address": max(places.values(), default=0)}.items():
                self.most[name] = max(self.most[name], value)
            for entry in sorted(known.entries.values(), key=lambda one: one.position):
                if entry.state != "waiting" and entry.run_id not in self.order:
                    self.order.append(entry.run_id)


@contextlib.contextmanager
def space(workspace: Path) -> Iterator[tuple[psutil.Process, App]]:
    """The app as on a Space; gives its process and its addresses."""
    port = free_port()
    environment = {**os.environ, **SPACE, "PYTHONPATH": str(ROOT)}
    with open(workspace / "app.log", "wb") as log:
        command = [sys.executable, "-m", "benchmarks.worst_day", "--serve", str(port), "--workspace", str(workspace / "space")]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        yield psutil.Process(process.pid), App(port, _config(port, process))
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            engines = psutil.Process(process.pid).children(recursive=True)
            for one in (*engines, process):
                one.terminate()
            process.wait(timeout=60)


def _config(port: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/config", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
        time.sleep(0.2)
    raise SystemExit("the app did not start")


def serve(port: int, workspace: Path) -> None:
    """The app with a small budget of room, until it is ended."""
    from rlhf_studio.ui import app
    from rlhf_studio.ui.visiting.allowed import Budget

    app.budget_for = lambda mode: Budget(limits=Limits(disk=DISK), here="On this Space")  # type: ignore[assignment]
    sys.exit(app.main(["--workspace", str(workspace), "--port", str(port)]))


# --- the day ----------------------------------------------------------------------------------------------------------------------------


async def start_again_and_again(app: App, noted: Noted, ends: float) -> None:
    """One of the many: tries until the queue takes a run of theirs, once with odd settings, then with good ones."""
    await asyncio.sleep(random.uniform(0, 2))
    async with Visitor(app, noted) as visitor:
        odd = odd_settings()
        while time.monotonic() < ends:
            outcome = await visitor.start(odd)
            if outcome == "settings refused":
                odd = {}
            elif outcome not in ("queue full", "HTTP 503", "error"):
                return
            await asyncio.sleep(random.uniform(1, 6))


async def forge(app: App, noted: Noted, ends: float) -> None:
    """One person who wants all: another cookie and another invented address each time."""
    async with Visitor(app, noted, at=ONE_PLACE, forges=True, cookie=False) as visitor:
        while time.monotonic() < ends:
            await visitor.start({})
            await asyncio.sleep(0.5)


async def reload(app: App, noted: Noted, ends: float) -> None:
    """Opens the page anew all the time, as somebody new."""
    while time.monotonic() < ends:
        async with Visitor(app, noted) as visitor:
            await visitor.load()
        await asyncio.sleep(random.uniform(1, 3))


async def send_garbage(app: App, noted: Noted, ends: float) -> None:
    """Hostile texts, twice a second."""
    async with Visitor(app, noted) as visitor:
        while time.monotonic() < ends:
            await visitor.send_garbage()
            await asyncio.sleep(0.5)


async def day(app: App, watch: Watch, options: argparse.Namespace) -> tuple[Noted, Seen]:
    """All of it at once."""
    noted, seen, ends = Noted(), Seen(), time.monotonic() + options.seconds

    async def kept(one: Awaitable[None]) -> None:
        try:
            await one
        except httpx.HTTPError as error:
            noted.problems.append(f"{type(error).__name__}: {error}")

    port = int(app.root.rpartition(":")[2])
    Tab.table = app.runs
    tabs = [asyncio.create_task(Tab(port, app.live, "", number, seen).watch()) for number in range(options.tabs)]
    people: list[Awaitable[None]] = [start_again_and_again(app, noted, ends) for _ in range(options.starts)]
    people += [forge(app, noted, ends)]
    others: tuple[tuple[int, Callable[..., Awaitable[None]]], ...] = ((10, reload), (4, send_garbage))
    people += [act(app, noted, ends) for count, act in others for _ in range(count)]
    tasks = [asyncio.create_task(kept(one)) for one in people]
    while time.monotonic() < ends:
        await asyncio.to_thread(watch.look)
        await asyncio.sleep(1)
    await asyncio.gather(*tasks)
    for task in tabs:
        task.cancel()
    await asyncio.gather(*tabs, return_exceptions=True)
    return noted, seen


def begun_out_of_turn(watch: Watch) -> int:
    """Pairs of runs that began in another order than they were queued."""
    places = studio.read(watch.workspace.root).entries
    order = [places[run].position for run in watch.order if run in places]
    return sum(first > second for first, second in zip(order, order[1:], strict=False))


def figures(noted: Noted, seen: Seen, watch: Watch, log: str, limits: Limits) -> list[Figure]:
    """The figures beside their limits."""
    for problem in [*noted.problems[:5], *seen.problems[:5]]:
        print(f"error: {problem}", flush=True)
    first = watch.memory[min(3, len(watch.memory) - 1)]
    started = noted.outcomes["started"]
    return [
        Figure("a fresh page (document and configuration), 95 %", percentile(noted.pages, 0.95), "s", PAGE),
        Figure("a poll of a tab, 95 %", percentile(seen.latencies, 0.95), "s", POLL),
        Figure("an answer to Start, 95 %", percentile(noted.starts, 0.95), "s", START),
        Figure("most runs waiting", watch.most["waiting"], "", limits.waiting),
        Figure("most runs of one person", watch.most["of one person"], "", limits.own),
        Figure("most runs of one address", watch.most["of one address"], "", limits.of_address),
        Figure("runs begun out of turn", begun_out_of_turn(watch), "", 0),
        Figure("most room of the workspace", max(watch.disk) / 1e6, "MB", (DISK + AT_WORK) / 1e6),
        Figure("memory of the app, grown by", (max(watch.memory) - first) / 1e6, "MB", GROWN),
        Figure("polls that failed", len(seen.problems), "", 0),
        Figure("other requests that failed", len(noted.problems), "", 0),
        Figure("tracebacks in the app's log", log.count("Traceback"), "", 0),
        Figure("no run was started", float(started == 0), "", 0),
        *(Figure(f"starts: {what}", count) for what, count in sorted(noted.outcomes.items())),
        *(Figure(f"answers: {what}", count) for what, count in sorted(noted.statuses.items())),
        Figure("polls", len(seen.latencies)),
        Figure("memory of the app at most", max(watch.memory) / 1e6, "MB"),
    ]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.worst_day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=200, help="visitors who start a run")
    parser.add_argument("--tabs", type=int, default=500, help="open pages that ask for news")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FOLDER", default=RESULTS)
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep the app's log here")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.serve:
        serve(options.serve, options.workspace)
    random.seed(options.seed)
    with tempfile.TemporaryDirectory() as folder, space(Path(folder)) as (process, app):
        watch = Watch(Workspace(Path(folder) / "space"), process)
        noted, seen = asyncio.run(day(app, watch, options))
        log = (Path(folder) / "app.log").read_text(encoding="utf-8", errors="replace")
        found = figures(noted, seen, watch, log, Limits())
    if options.log:
        options.log.write_text(log, encoding="utf-8")
    print("\n".join(figure.line() for figure in found), flush=True)
    command = f"python -m benchmarks.worst_day --starts {options.starts} --tabs {options.tabs} --seconds {options.seconds:g}"
    about = {"command": command, "date": datetime.date.today().isoformat(), "machine": machine.describe()}
    options.json.mkdir(parents=True, exist_ok=True)
    kept = {"figures": [figure.as_json() for figure in found], **about}
    (options.json / "worst-day.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
