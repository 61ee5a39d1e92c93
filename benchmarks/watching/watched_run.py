"""A training run and an app that shows it, as two real processes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.paths import new_run_id
from rlhf_studio.runs.reader import RunReader

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0
TOKEN = "an-operator"
STEADY = {
    # Every step costs the same: the policy hardly moves, and every response has its full length.
    **{"ppo.steps": "100000", "ppo.learning_rate": "1e-9", "ppo.critic_learning_rate": "1e-9"},
    **{"generation.stop_token": "none", "engine.checkpoint_every": "0"},
}


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Watched:
    """A run under way and the app that shows it."""

    run_dir: Path
    port: int
    component: int
    app: psutil.Process

    @property
    def step(self) -> int:
        return RunReader(self.run_dir).status().step

    def app_seconds(self) -> float:
        """CPU seconds of the app so far."""
        times = self.app.cpu_times()
        return times.user + times.system

    def step_seconds(self, after: int, until: int) -> list[float]:
        """Seconds of the steps ``after`` < step <= ``until``."""
        rows = RunReader(self.run_dir).metrics_since(after, limit=100_000)
        return [metrics["time/total"] or 0.0 for step, metrics in rows if step <= until]


@contextlib.contextmanager
def watched_run(workspace: Path, recipe: str, threads: int) -> Iterator[Watched]:
    """Start both and wait until the run has done two steps and the app answers. Raises :class:`SystemExit` when one does not."""
    run_dir = workspace / "runs" / new_run_id()
    options = [part for name, value in {**STEADY, "engine.threads": str(threads)}.items() for part in (f"--{name}", value)]
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RLHF_STUDIO_TOKEN": TOKEN}
    commands = (
        [sys.executable, "-m", "rlhf_studio", "train", "--recipe", recipe, "--run-dir", str(run_dir), *options],
        [sys.executable, "-m", "rlhf_studio", "app", "--workspace", str(workspace), "--port", str(port)],
    )
    processes = []
    try:
        for command in commands:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, **quiet))
        component = _component(port)
        watched = Watched(run_dir, port, component, psutil.Process(processes[1].pid))
        _wait_for_steps(watched, processes[0])
        yield watched
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=60)


def _component(port: int) -> int:
    """The number of the Live page's component."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/config", timeout=5) as answer:
                config = json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
            continue
        return next(part["id"] for part in config["components"] if part["props"].get("elem_id") == "live-page")
    raise SystemExit("the app did not start")


def _wait_for_steps(watched: Watched, engine: subprocess.Popen) -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and engine.poll() is None:
        with contextlib.suppress(StoreError):  # not there yet
            if watched.step >= 2:
                return
        time.sleep(0.5)
    raise SystemExit("the run did not start")
