"""A stand-in for the package ``spaces`` on a ZeroGPU Space, with what matters of its processes.

As in ``spaces`` 0.51: a call of a decorated function asks a scheduler, which may refuse with Gradio's error; arguments and result are
pickled; the work is done in a thread of a daemonic process that was forked for this call, or for an earlier one; the process is killed
when the lease is over, and then the caller gets "GPU task aborted". Outside of it CUDA seems to be there, and cannot be used.

What happens to each lease is set in ``plan``. In a worker a step takes 20 seconds of a clock of its own, and all else no time.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import gradio as gr
import torch
from gradio.context import LocalContext
from leases import clock

from rlhf_studio.engine.process.control import Control
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter

STEP_SECONDS = 20.0
ABORTED = "GPU task aborted"
_FORK = multiprocessing.get_context("fork")
_lazy_init, _is_available = torch.cuda._lazy_init, torch.cuda.is_available
_after_phase, _commit_step = Control.after_phase, RunWriter.commit_step


@dataclass(frozen=True)
class Refuse:
    """The scheduler gives no GPU."""

    title: str
    text: str


@dataclass(frozen=True)
class Grant:
    """A lease. After a phase of a step it may be over (``ends``), or its worker may be killed, as when memory runs out (``killed``)."""

    ends: tuple[str, int] = ("", 0)
    killed: tuple[str, int] = ("", 0)
    warm: bool = False  # the worker of the lease before takes this one as well


@dataclass
class Worker:
    """A forked process, and this process's end of the pipe to it."""

    process: Any
    pipe: Any


plan: list[Refuse | Grant] = []
asked: list[tuple[int, str]] = []
"""Of each request the seconds, and the header that says whose quota they are taken from."""
_kept: list[Worker] = []


def GPU(*, duration: Callable[..., int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorator. From now on CUDA cannot be used in this process."""

    def not_here() -> None:
        raise RuntimeError("CUDA was used outside of a lease")

    torch.cuda._lazy_init, torch.cuda.is_available = not_here, lambda: True
    return functools.partial(_decorated, duration)


def _decorated(duration: Callable[..., int], task: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        request = LocalContext.request.get(None)
        asked.append((duration(*arguments), request.headers["x-ip-token"] if request else ""))
        granted = plan.pop(0)
        if isinstance(granted, Refuse):
            raise gr.Error(granted.text, title=granted.title, print_exception=False)
        worker = _kept.pop() if granted.warm else _forked(task)
        worker.pipe.send((granted, arguments))
        try:
            if (reply := worker.pipe.recv()) == "over":
                worker.process.kill()
                reply = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            raise gr.Error(ABORTED, title="ZeroGPU worker error", print_exception=False) from None
        _kept.append(worker)
        if isinstance(reply, str):
            raise gr.Error(reply, title="ZeroGPU worker error", print_exception=False)
        return reply

    return call


def _forked(task: Callable[..., Any]) -> Worker:
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_serve, args=(task, theirs, ours), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours)


# --- inside a worker -------------------------------------------------------------------------------------------------------------


def _serve(task: Callable[..., Any], pipe: Any, other_end: Any) -> None:
    other_end.close()
    torch.cuda._lazy_init, torch.cuda.is_available = _lazy_init, _is_available
    while True:
        granted, arguments = pipe.recv()
        _let_time_pass()
        _end_in_a_step(granted, pipe)
        with ThreadPoolExecutor(1) as pool:
            try:
                answer = pool.submit(task, *arguments).result()
            except Exception as error:  # noqa: BLE001 - the name of the class is all that spaces tells
                answer = type(error).__name__
        pipe.send(answer)


def _end_in_a_step(granted: Grant, pipe: Any) -> None:
    def after_phase(control: Control, phase: str, so_far: StepSoFar) -> None:
        _after_phase(control, phase, so_far)
        now = phase, control._run.step_number + 1
        if now == granted.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        if now == granted.ends:
            pipe.send("over")
            threading.Event().wait()  # until it is killed

    Control.after_phase = after_phase  # type: ignore[method-assign]


def _let_time_pass() -> None:
    passed = [0.0]

    def commit_step(writer: RunWriter, record: StepRecord) -> None:
        _commit_step(writer, record)
        passed[0] += STEP_SECONDS

    RunWriter.commit_step = commit_step  # type: ignore[method-assign]
    clock.Clock.__init__.__defaults__ = (0.0, lambda: passed[0])  # type: ignore[attr-defined]
