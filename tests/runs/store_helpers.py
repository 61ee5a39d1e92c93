"""Making runs, records and engine processes for the tests of the store."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_studio.child_process.environment import START_FD_VARIABLE
from rlhf_studio.config import RunConfig
from rlhf_studio.runs import launch, paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.launch import engine_arguments
from rlhf_studio.runs.liveness import EngineLock, StartTicket
from rlhf_studio.runs.records import TOKEN_QUANTITIES, EventRecord, RolloutRecord, StartMode, StepRecord, TokenRecord, WatchRecord
from rlhf_studio.runs.values import encode_text
from rlhf_studio.runs.writer import RunWriter

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
FAKE_ENGINE = HERE / "fake_engine.py"

NASTY_TEXTS = [
    "",
    "plain",
    "nul\x00inside",
    "\ud800",
    "two lone ones \ud83d\ude00 are not one 😀",
    "x" * 10_000,
    "<img src=x onerror=alert(1)>",
    "${alert(1)} {{x}} `\\",
    "‮ right to left, \r\n and \x1b[31m",
]


def config(**ppo: Any) -> RunConfig:
    return RunConfig.model_validate({"ppo": ppo})


def new_run(folder: Path, **ppo: Any) -> Path:
    create_run(folder, config(**ppo), name="a run")
    return folder


def call(folder: Path, name: str) -> None:
    """Give a run a name that no door takes: others may have made it, or an earlier version."""
    with contextlib.closing(sqlite3.connect(folder / paths.DATABASE)) as connection, connection:
        connection.execute("UPDATE run SET name = ?", (encode_text(name),))


def token_record(length: int, prompt: int = 3, seed: int = 0, pieces: list[str] | None = None) -> TokenRecord:
    draw = np.random.default_rng(seed)
    return TokenRecord(
        prompt_ids=draw.integers(0, 50_000, prompt, dtype=np.int32),
        response_ids=draw.integers(0, 50_000, length, dtype=np.int32),
        prompt_pieces=[f"p{index}" for index in range(prompt)],
        response_pieces=pieces or [f"r{index}" for index in range(length)],
        arrays={name: draw.standard_normal(length).astype(np.float32) for name in TOKEN_QUANTITIES},
        top_ids=draw.integers(0, 50_000, (length, 5), dtype=np.int32),
        top_logprobs=draw.standard_normal((length, 5)).astype(np.float32),
        ref_top_ids=draw.integers(0, 50_000, (length, 5), dtype=np.int32),
        ref_top_logprobs=draw.standard_normal((length, 5)).astype(np.float32),
        top_pieces={1: "one", 50_256: "<|endoftext|>"},
        gamma=1.0,
        lam=0.95,
        kl_coef=0.1,
    )


def rollout(sample: int, score: float = 1.0, tokens: TokenRecord | None = None, **changes: Any) -> RolloutRecord:
    values = {
        "sample": sample,
        "prompt": f"prompt {sample}",
        "response": f"response {sample}",
        "score": score,
        "parts": {"reward": score},
        "gold": None,
        "kl": 0.5,
        "length": 4,
        "stopped": True,
        "tokens": tokens,
    }
    return RolloutRecord(**{**values, **changes})


def step_record(step: int, samples: int = 2) -> StepRecord:
    """A step whose every number says which step it is."""
    return StepRecord(
        step=step,
        metrics={"objective/scores": float(step), "objective/kl": step / 10, "gold/score": step / 2},
        rollouts=[rollout(sample, score=float(step), tokens=token_record(4, seed=step)) for sample in range(samples)],
        watched=[WatchRecord(0, "watch", f"answer {step}", float(step), None)],
        events=[EventRecord("info", "phase", f"step {step}", {"step": step})],
    )


def same(left: Any, right: Any) -> bool:
    """Equality that treats NaN as equal to itself and compares arrays with their dtype."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(mine, theirs) for mine, theirs in zip(left, right, strict=True))
    if hasattr(left, "__dataclass_fields__"):
        return type(left) is type(right) and all(same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))
    return type(left) is type(right) and left == right


def python_environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **extra}


def run_python(code: str, *arguments: object, **extra: str) -> str:
    """Run code in another process and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], env=python_environment(**extra), capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` gives, or the words of its StoreError, in a forked child: another process, without the cost of a new Python.

    Anything else that goes wrong there comes back with its traceback.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            outcome = repr(work())
        except StoreError as error:
            outcome = str(error)
        except BaseException:  # noqa: BLE001 - the child must end here, whatever it was
            outcome = traceback.format_exc()
        finally:
            os.write(writing, outcome.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        outcome = answer.read().decode()
    os.waitpid(child, 0)
    return outcome


class EndsAtOnce:
    """Stands in for engine processes: works in this process, and has ended when the dispatcher has started it."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, StartMode]] = []
        self.pid = os.getpid()

    def __call__(self, run_dir: Path, mode: StartMode, *, ticket: StartTicket) -> EndsAtOnce:
        self.starts.append((run_dir.name, mode))
        ticket.close()
        with EngineLock(run_dir), RunWriter(run_dir) as writer:
            writer.set_state("running")
            writer.set_state("finished")
        return self

    def poll(self) -> int:
        return 0


def use_fake_engine(monkeypatch: Any, mode: str) -> None:
    """Let :func:`start_engine` start ``fake_engine.py`` in the given mode instead of the real engine."""
    monkeypatch.setattr(launch, "engine_command", fake_command)
    monkeypatch.setenv("RLHF_STUDIO_FAKE_ENGINE", mode)


def fake_command(run_dir: Path, mode: StartMode = "train") -> list[str]:
    return [sys.executable, str(FAKE_ENGINE), *engine_arguments(run_dir, mode)[2:]]


def start_fake(run_dir: Path, mode: str, resume: bool = False) -> subprocess.Popen[bytes]:
    """A fake engine started by hand, as from a shell."""
    return subprocess.Popen(fake_command(run_dir, resume), env=python_environment(RLHF_STUDIO_FAKE_ENGINE=mode), start_new_session=True)


def start_process(run_dir: Path, arguments: list[str], ticket: StartTicket) -> subprocess.Popen[bytes]:
    """A stand-in for an engine, started as the app starts one: it inherits the ticket, so that the run shows as loading until it writes."""
    assert ticket.descriptor is not None
    with (run_dir / "engine.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env=python_environment(**{START_FD_VARIABLE: str(ticket.descriptor)}),
            pass_fds=(ticket.descriptor,),
        )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait(20)


def open_descriptors() -> int:
    """How many files this process has open, without what only waits for Python's garbage collection (of earlier tests, too)."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
