"""Work on data that nobody has checked, in a process of its own: it cannot use up this one's memory, hang it or crash it.

The helper is a module of ours, started as ``python -m MODULE``. It gets its task as one line of JSON on standard input and answers
with one JSON object per line (:mod:`rlhf_studio.child_process.line_process`).
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from typing import IO, Any

from rlhf_studio.child_process.environment import helper_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.child_process.memory import limit_memory
from rlhf_studio.language import S_

MEMORY_VARIABLE = "RLHF_STUDIO_HELPER_BYTES"
TICK_SECONDS = 0.5
MOST_BYTES = 2**40  # of one answer, where the helper's memory does not bound it
# One thread and the plain allocator: both would reserve memory by the gigabyte that is never used. And no library that the dataset
# library would import for nothing.
SMALL = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    **{"HF_HUB_DISABLE_PROGRESS_BARS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
    **dict.fromkeys(("USE_TORCH", "USE_TF", "USE_JAX"), "0"),
}


class HelperError(RuntimeError):
    """The helper did not finish; the message is one clause for a person."""


def ask_helper(
    module: str,
    task: dict[str, Any],
    *,
    memory_bytes: int,
    seconds: float,
    network: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> Generator[dict[str, Any], None, None]:
    """The helper's answers, one by one; closing the iterator ends the helper.

    Args:
        memory_bytes: the most memory that the helper may take (where the system can limit it); 0 means no limit.
        seconds: the longest wait for the next answer.
        network: whether it needs the hub. Only then it sees proxies, and the hub's settings and token.
        tick: called about twice a second; may raise to give up.

    Raises :class:`HelperError` when the helper dies or is too slow.
    """
    environment = {**helper_environment(os.environ, network=network), **SMALL, MEMORY_VARIABLE: str(memory_bytes)}
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", module]
        process = LineProcess(command, environment=environment, errors=errors.fileno(), exit_seconds=seconds)
        try:
            process.send(task, seconds)
            while True:
                yield _next_answer(process, seconds, memory_bytes or MOST_BYTES, tick)
        except LineEnded as end:
            if end.code != 0:
                raise HelperError(_why_it_ended(errors, end.code)) from None
        except LineTimeout:
            raise HelperError(f"it took longer than {seconds:.0f} seconds") from None
        except LineInvalid as error:
            raise HelperError(str(error)) from None
        finally:
            process.kill()


def _next_answer(process: LineProcess, seconds: float, most_bytes: int, tick: Callable[[], None]) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return process.receive(min(TICK_SECONDS, seconds), most_bytes)
        except LineTimeout:
            tick()
            if time.monotonic() >= deadline:
                raise


def _why_it_ended(errors: IO[bytes], code: int | None) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    if any(sign in (lines[-1] if lines else "") for sign in ("MemoryError", "bad_alloc", "realloc", "malloc")) or code in (-9, 137):
        return S_("it needed too much memory")
    return S_(f"it ended with code {code}") + (f" ({lines[-1][:200]})" if lines else "")


# --- inside the helper -----------------------------------------------------------------------------------------------------


def read_task() -> dict[str, Any]:
    """The task; sets the memory limit. To be called first. From here on this process ends when the process that asked is gone."""
    limit_own_memory()
    gc.freeze()  # what is loaded stays to the end, which comes soon: Python need not look through it then
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_the_other_side, daemon=True).start()
    task: dict[str, Any] = json.loads(line)
    return task


def limit_own_memory() -> None:
    """Take no more memory than whoever started this process allows (:data:`MEMORY_VARIABLE`)."""
    if limit := int(os.environ.get(MEMORY_VARIABLE, "0")):
        limit_memory(limit)


def _end_with_the_other_side() -> None:
    # By its descriptor: a thread that waits inside sys.stdin would make Python's own end fail.
    while os.read(0, 1):
        continue
    os._exit(1)


def answer(message: dict[str, Any]) -> None:
    """Send one answer; waits while the other side has enough of them."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
