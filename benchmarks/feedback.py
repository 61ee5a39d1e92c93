"""Thirty raters at once, through the page's own address; and an app that is killed while people vote.

    python -m benchmarks.feedback                          # how long a vote takes
    python -m benchmarks.feedback --pause 0                # as fast as thirty programs can
    python -m benchmarks.feedback --items 1 --each 30 --pause 0      # thirty votes at the same moment
    python -m benchmarks.feedback --kills 8 --annotators 3 --items 500 --pause 0      # nothing is lost

It starts the app as a process of its own, with a workspace that is thrown away, and opens the rating link as people do.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_studio.runs.feedback.records import NewItem, NewTask
from rlhf_studio.runs.feedback.store import Feedback

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS, ANSWER_SECONDS, AGAIN_SECONDS = 120, 20, 0.05
Said = tuple[int, str, str]
"""What an annotator says that was stored: (item, the annotator, the text of the response that was chosen, or tie)."""


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class App:
    """The app in a process of its own, on a free port."""

    def __init__(self, workspace: Path):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._workspace = workspace
        self._process: subprocess.Popen[bytes] | None = None
        self.component = 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "app.py", "--workspace", str(self._workspace), "--port", str(self.port)]
        environment = {**os.environ, "RLHF_STUDIO_TOKEN": "an-operator", "PYTHONPATH": str(ROOT)}
        with open(self._workspace / "app.log", "ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.component = self._find_component()
                return
            except (OSError, http.client.HTTPException, ValueError):
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.1)

    def _find_component(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        connection.request("GET", "/config")
        components = json.loads(connection.getresponse().read())["components"]
        return int(next(one["id"] for one in components if one["props"].get("elem_id") == "feedback-page"))

    def kill(self) -> None:
        """End it at once, with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


@dataclass
class Rater:
    """A simulated annotator with a browser of its own: sends an answer again, under the same name, until the app says it is stored."""

    app: App
    task: str
    token: str
    name: str
    pause: float
    seconds: list[float] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    sent_again: int = 0
    problems: list[str] = field(default_factory=list)
    _connection: http.client.HTTPConnection | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.name)
        self._me = {"task": self.task, "name": self.name, "secret": f"secret of {self.name}"}

    def run(self, most: int) -> None:
        """Answer until there is nothing left, or ``most`` answers are given."""
        turn = self.ask("turn", {})
        while turn["state"] == "item" and len(self.said) < most:
            if self.pause:
                time.sleep(self._random.uniform(0, 2 * self.pause))
            item = turn["item"]
            place = self._random.choice((0, 0, 1, 1, None))
            answer = {"verdict": "tie", "value": None} if place is None else {"verdict": "chosen", "value": place}
            vote = {"id": f"{self.name} {len(self.said)} {self._random.random()}", "item": item["id"], "confidence": 1.0, **answer}
            before = time.monotonic()
            turn = self.ask("vote", vote)
            self.seconds.append(time.monotonic() - before)
            self.said.append((item["id"], self.name, "tie" if place is None else item["responses"][place]))

    def ask(self, function: str, data: dict[str, Any]) -> dict[str, Any]:
        """A question to the page's server, repeated until there is an answer."""
        body = {"component_id": self.app.component, "fn_name": function, "session_hash": "rater", "data": {**self._me, **data}}
        while True:
            try:
                status, reply = self._post(json.dumps(body))
            except (OSError, http.client.HTTPException):
                self._connection = None
                self.sent_again += 1
                time.sleep(AGAIN_SECONDS)
                continue
            if status != 200 or reply.get("problem"):
                self.problems.append(f"{function}: {status} {reply}")
                raise RuntimeError(self.problems[-1])
            return reply

    def _post(self, body: str) -> tuple[int, dict[str, Any]]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.app.port, timeout=ANSWER_SECONDS)
        headers = {"Content-Type": "application/json", "X-RLHF-Studio-Rating-Token": self.token}
        self._connection.request("POST", "/gradio_api/component_server/", body, headers)
        reply = self._connection.getresponse()
        return reply.status, json.loads(reply.read())


@dataclass(frozen=True)
class Outcome:
    """What the annotators say was stored, and what the store has."""

    raters: list[Rater]
    stored: list[Said]
    task: str
    wall: float

    @property
    def said(self) -> list[Said]:
        """All that any annotator was told is stored."""
        return [one for rater in self.raters for one in rater.said]


def rate(
    workspace: Path, *, annotators: int, items: int, each: int, pause: float, kills: int = 0, most: int = 10**9, seed: int = 0
) -> Outcome:
    """Let annotators vote at once, ``each`` of them on every item; kill the app ``kills`` times meanwhile. Raises what a rater raised."""
    feedback = Feedback(workspace)
    rows = [NewItem(f"Prompt {number}", (f"One answer to {number}", f"Another answer to {number}")) for number in range(items)]
    task = feedback.create(NewTask("Benchmark", annotators=each), rows)[0].id
    token = feedback.rating_link()
    feedback.close()
    app = App(workspace)
    app.start()
    raters = [Rater(app, task, token, f"rater {number}", pause) for number in range(annotators)]
    threads = [threading.Thread(target=rater.run, args=(most,), daemon=True) for rater in raters]
    before = time.monotonic()
    draw = random.Random(seed)
    try:
        for thread in threads:
            thread.start()
        total = min(annotators * most, items * each)
        for when in sorted(draw.uniform(0.02, 0.95) for _ in range(kills)):
            while sum(len(rater.said) for rater in raters) < when * total and any(thread.is_alive() for thread in threads):
                time.sleep(0.002)
            time.sleep(draw.uniform(0, 0.02))  # anywhere between two answers, or in the middle of one
            app.kill()
            app.start()
        for thread in threads:
            thread.join()
        wall = time.monotonic() - before
    finally:
        app.kill()
    known = {item.id: item for item in feedback.items(task)}
    stored = [
        (vote.item, vote.annotator, known[vote.item].responses[vote.value] if vote.verdict == "chosen" else vote.verdict)
        for vote in feedback.votes(task)
    ]
    return Outcome(raters, stored, task, wall)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was measured; 1 when an answer was lost or counted twice."""
    parser = argparse.ArgumentParser(prog="benchmarks.feedback", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annotators", type=int, default=30)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--each", type=int, default=3, help="annotators for each item")
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between an item and its answer (people take 5 or more)")
    parser.add_argument("--kills", type=int, default=0, help="how often the app is killed meanwhile")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = rate(
            Path(folder), annotators=options.annotators, items=options.items, each=options.each, pause=options.pause, kills=options.kills,
            seed=options.seed,
        )  # fmt: skip
    seconds = [one for rater in found.raters for one in rater.seconds]
    lost = set(found.said) - set(found.stored)
    twice = len(found.stored) - len({(item, name) for item, name, _ in found.stored})
    share = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    times = ", ".join(f"{name} {1000 * percentile(seconds, part):.0f} ms" for name, part in share.items())
    print(
        f"{options.annotators} annotators, {len(seconds)} votes in {found.wall:.1f} s ({len(seconds) / found.wall:.0f} a second): {times}"
    )
    print(f"{options.kills} kills, {sum(rater.sent_again for rater in found.raters)} questions sent again")
    print(f"{len(found.stored)} votes stored, {len(lost)} lost, {twice} counted twice")
    return 1 if lost or twice or len(found.stored) != len(found.said) else 0


if __name__ == "__main__":
    sys.exit(main())
