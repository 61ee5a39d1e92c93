"""How long the Learn page waits: for the first numbers of a lesson, for a scene's numbers, and for a whole sweep of a control.

    python -m benchmarks.lessons [--draws 10]

Every lesson is opened in a new process of the kind that the app starts. Scenes that need the recorded run or the models are computed after
the others ("all numbers"). Then each scene is computed at random values of its controls, and each slider is swept. A scene should answer
within 200 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from rlhf_studio.child_process.line_process import LineProcess
from rlhf_studio.lessons import shelf

LIMIT = 0.2  # seconds for one answer
PATIENCE, MOST_BYTES = 60.0, 8_000_000
COMMAND = [sys.executable, "-m", "rlhf_studio", "lessons-server"]


def timed(process: LineProcess, question: dict[str, Any]) -> tuple[float, Any]:
    """Seconds until the answer is there, and the answer. Raises RuntimeError when there is none."""
    began = time.perf_counter()
    reply = process.ask(question, PATIENCE, MOST_BYTES)
    seconds = time.perf_counter() - began
    if "error" in reply:
        raise RuntimeError(f"{question}: {reply['error']}")
    return seconds, reply["answer"]


def main(arguments: list[str] | None = None) -> int:
    """Measure all lessons; the exit code is 1 when a scene is slower than the limit."""
    parser = argparse.ArgumentParser(description="How long lessons make a reader wait.")
    parser.add_argument("--draws", type=int, default=10, metavar="N", help="random values for each scene")
    draws = parser.parse_args(arguments).draws
    all_calls: list[float] = []
    slow: list[str] = []
    print(f"{'lesson':20} {'first numbers':>14} {'all numbers':>12} {'a call, median':>15} {'slowest':>9} {'slowest sweep':>14}")
    for entry in shelf.entries():
        process = LineProcess(COMMAND)
        first, described = timed(process, {"op": "describe", "lesson": entry.name})
        later = 0.0
        for name, scene in described["scenes"].items():
            if not scene["slow"] and scene["shown"] is None:
                start = {control["name"]: control["start"] for control in scene["controls"]}
                later += timed(process, {"op": "compute", "lesson": entry.name, "scene": name, "values": start})[0]
        calls, sweeps = [], [0.0]
        for name, scene in described["scenes"].items():
            if scene["slow"]:
                continue
            asked = {"lesson": entry.name, "scene": name}
            found = [timed(process, {"op": "draw", "seed": seed, **asked})[0] for seed in range(draws)]
            calls += found
            slow += [f"{entry.name}/{name}: {max(found):.2f} s"] if max(found) > LIMIT else []
            values = {control["name"]: control["start"] for control in scene["controls"]}
            for control in (one for one in scene["controls"] if one.get("swept", True)):
                sweeps.append(timed(process, {"op": "sweep", "control": control["name"], "values": values, **asked})[0])
        process.kill()
        all_calls += calls
        shown = f"{entry.name:20} {first:12.2f} s {first + later:10.2f} s {1000 * statistics.median(calls):12.0f} ms"
        print(f"{shown} {max(calls):7.2f} s {max(sweeps):12.2f} s")
    within = sum(seconds <= LIMIT for seconds in all_calls) / len(all_calls)
    print(f"{len(all_calls)} calls: median {1000 * statistics.median(all_calls):.0f} ms, {within:.1%} within {1000 * LIMIT:.0f} ms")
    print("\n".join(f"slower: {one}" for one in slow) or "no scene is slower")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
