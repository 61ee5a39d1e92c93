"""Rounds of contestants in processes of their own, one after the other, and what came of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.speed.job import Job
from benchmarks.speed.meter import PHASES

ROOT = Path(__file__).resolve().parents[2]
OURS = "ours"
MODULES = {OURS: "benchmarks.speed.ours", "trl-1.12": "benchmarks.speed.trl_112", "trl-0.11": "benchmarks.speed.trl_011"}
SUPERVISED = {OURS: "benchmarks.speed.ours_supervised", "trl-1.12": "benchmarks.speed.trl_112_supervised"}
"""The contestants of the stages but PPO."""


@dataclass(frozen=True)
class Outcome:
    """One contestant's process in one round: medians over its counted updates.

    Attributes:
        seconds: per update, ``total`` and every phase.
        spread: fastest and slowest counted update.
        tokens: sampled per second; read per second in a stage but PPO.
        peak_resident, peak_gpu: bytes; None without a GPU.
        matrix_rate: operations per second around the updates; None when it was not measured.
    """

    contestant: str
    seconds: dict[str, float]
    spread: tuple[float, float]
    episodes: float
    tokens: float
    peak_resident: float
    peak_gpu: float | None
    matrix_rate: float | None
    threads: int
    device: str
    versions: dict[str, str]


def order(names: Sequence[str], number: int) -> list[str]:
    """The contestants of round ``number``, every second round the other way round: whoever comes later meets a warmer machine."""
    return list(names) if number % 2 == 0 else list(reversed(names))


def outcome(name: str, job: Job, result: dict[str, Any]) -> Outcome:
    """Medians of what the process wrote. Raises :class:`ValueError` when it did not do what it was told."""
    workload = job.workload
    if len(result["updates"]) != workload.all_updates:
        raise ValueError(f"{name} did {len(result['updates'])} updates instead of {workload.all_updates}")
    counted = result["updates"][workload.warm_up :]
    tokens = result["tokens"][workload.warm_up :]
    if workload.stage == "ppo" and not workload.stops and any(number != workload.batch * workload.response for number in tokens):
        raise ValueError(f"{name} sampled {tokens} tokens per update instead of {workload.batch * workload.response}")
    seconds = {phase: statistics.median(update[phase] for update in counted) for phase in ("total", *PHASES, "rest")}
    totals = [update["total"] for update in counted]
    return Outcome(
        contestant=name,
        seconds=seconds,
        spread=(min(totals), max(totals)),
        episodes=workload.batch / seconds["total"],
        tokens=statistics.median(tokens) / seconds["total"],
        peak_resident=result["peak_resident"],
        peak_gpu=result["peak_gpu"],
        matrix_rate=statistics.mean(result["matrix_rates"]) if result["matrix_rates"] else None,
        threads=result["threads"],
        device=result["device"],
        versions=result["versions"],
    )


def play(names: Sequence[str], job: Job, rounds: int, say: Callable[[str], None]) -> list[list[Outcome]]:
    """All rounds; each is a list in the order of ``names``."""
    played = []
    for number in range(rounds):
        outcomes = {name: run_once(name, job) for name in order(names, number)}
        played.append([outcomes[name] for name in names])
        say(f"round {number + 1}: " + ", ".join(f"{done.contestant} {done.seconds['total']:.2f} s" for done in played[-1]))
    return played


def run_once(name: str, job: Job) -> Outcome:
    """One contestant in a process of its own. Raises :class:`SystemExit` with its last words when it fails."""
    with tempfile.TemporaryDirectory() as temporary:
        job_file, result_file = Path(temporary) / "job.json", Path(temporary) / "result.json"
        job.write(job_file)
        interpreter = sys.executable if name == OURS else str(peers.interpreter(name))
        module = (MODULES if job.workload.stage == "ppo" else SUPERVISED)[name]
        run_quietly([interpreter, "-m", module, str(job_file), str(result_file)], name, job.threads)
        return outcome(name, job, json.loads(result_file.read_text(encoding="utf-8")))


def run_quietly(command: list[str], name: str, threads: int) -> float:
    """Run a command without showing what it prints; its seconds. Raises :class:`SystemExit` when it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment(threads), capture_output=True, text=True, errors="replace")
    seconds = time.perf_counter() - began
    if done.returncode:
        last = "\n".join(done.stderr.splitlines()[-15:])
        raise SystemExit(f"{name} failed with exit code {done.returncode}:\n{last}")
    return seconds


def environment(threads: int) -> dict[str, str]:
    """The same for every contestant: equal threads, no network, nothing of this process's Python path."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    number = str(threads)
    return inherited | {
        **{"OMP_NUM_THREADS": number, "MKL_NUM_THREADS": number, "TOKENIZERS_PARALLELISM": "false"},
        **{"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONWARNINGS": "ignore"},
    }
