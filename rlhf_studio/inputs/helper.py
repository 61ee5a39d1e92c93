"""Work on data that nobody has checked, in a process of its own: it cannot use up this one's memory, hang it or crash it.

The helper is a module of ours, started as ``python -m MODULE``. It gets its task as JSON on standard input and answers with one
JSON object per line.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Any

PACKAGE_PARENT = Path(__file__).resolve().parents[2]
MEMORY_VARIABLE = "RLHF_STUDIO_HELPER_BYTES"
TICK_SECONDS = 0.5
_BASIC = (
    r"PATH|HOME|USER|USERPROFILE|SYSTEMROOT|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TEMP|TMP|LD_LIBRARY_PATH|VIRTUAL_ENV|"
    r"PYTHON(HOME|UTF8|IOENCODING)"
)
_NETWORK = (
    r"HF_(HOME|TOKEN|TOKEN_PATH|STORED_TOKENS_PATH|ENDPOINT|MODULES_CACHE|ASSETS_CACHE|UPDATE_DOWNLOAD_COUNTS)|HUGGING_?FACE_HUB_(TOKEN|CACHE)|"
    r"HF_HUB_(CACHE|OFFLINE|VERBOSITY|(ETAG|DOWNLOAD)_TIMEOUT|DISABLE_\w+|ENABLE_\w+)|HF_XET_\w+|HF_DATASETS_\w+|HUGGINGFACE_ASSETS_CACHE|"
    r"XDG_CACHE_HOME|(HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)


class HelperError(RuntimeError):
    """The helper did not finish: ``reason`` is one clause for a person."""


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
        memory_bytes: the most memory that the helper may take (where the system can limit it).
        seconds: the longest wait for the next answer.
        network: whether it needs the hub: it then sees proxies and the hub's settings and token, and otherwise none of these.
        tick: called about twice a second; may raise to give up.

    Raises :class:`HelperError` when the helper dies or is too slow.
    """
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=_environment(memory_bytes, network),
        )
        assert process.stdin is not None and process.stdout is not None
        answers: queue.Queue[bytes | None] = queue.Queue(maxsize=8)
        pump = threading.Thread(target=_pump, args=(process.stdout, answers), daemon=True)
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:  # a helper that died at once: its end is reported below
                process.stdin.write(json.dumps(task).encode())
            pump.start()
            yield from _answers(answers, seconds, tick)
            if process.wait() != 0:
                raise HelperError(_last_words(complaints, process.returncode))
        finally:
            process.kill()
            process.wait()
            while pump.is_alive():  # empty the queue, so that the thread reaches the end of the stream
                with contextlib.suppress(queue.Empty):
                    answers.get(timeout=0.05)
            process.stdout.close()


def _answers(answers: queue.Queue[bytes | None], seconds: float, tick: Callable[[], None]) -> Iterator[dict[str, Any]]:
    heard = ticked = time.monotonic()
    while True:
        line: bytes | None = b""
        with contextlib.suppress(queue.Empty):
            line = answers.get(timeout=TICK_SECONDS)
        if line is None:
            return
        if line:
            yield json.loads(line)
            heard = time.monotonic()
        if time.monotonic() - ticked >= TICK_SECONDS:
            tick()
            ticked = time.monotonic()
        if time.monotonic() - heard > seconds:
            raise HelperError(f"it took longer than {seconds:.0f} seconds")


def _pump(stream: IO[bytes], answers: queue.Queue[bytes | None]) -> None:
    for line in stream:
        answers.put(line)
    answers.put(None)


def _environment(memory_bytes: int, network: bool) -> dict[str, str]:
    """What a helper sees of our environment: what Python needs, and for the hub what reaches it. No other names, no secrets."""
    wanted = re.compile(_BASIC if not network else f"{_BASIC}|{_NETWORK}", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if wanted.fullmatch(name)}
    earlier = os.environ.get("PYTHONPATH")
    path = f"{PACKAGE_PARENT}{os.pathsep}{earlier}" if earlier else str(PACKAGE_PARENT)
    # One thread and the plain allocator: both would reserve memory by the gigabyte that is never used.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
    light = dict.fromkeys(("USE_TORCH", "USE_TF", "USE_JAX"), "0")  # the dataset library would import them for nothing
    return {**kept, **threads, **quiet, **light, "PYTHONPATH": path, MEMORY_VARIABLE: str(memory_bytes)}


def _last_words(complaints: IO[bytes], code: int) -> str:
    complaints.seek(max(0, complaints.seek(0, os.SEEK_END) - 2000))
    lines = complaints.read().decode("utf-8", "replace").strip().splitlines()
    if any(sign in (lines[-1] if lines else "") for sign in ("MemoryError", "bad_alloc", "realloc", "malloc")) or code in (-9, 137):
        return "it needed too much memory"
    return f"it ended with code {code}" + (f" ({lines[-1][:200]})" if lines else "")


# --- inside the helper -----------------------------------------------------------------------------------------------------


def read_task() -> dict[str, Any]:
    """The task, with the memory limit in force. To be called first."""
    limit = int(os.environ.get(MEMORY_VARIABLE, "0"))
    if limit:
        with contextlib.suppress(ImportError, OSError, ValueError):  # systems without such limits
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return json.load(sys.stdin)


def leave_memory(count: int) -> None:
    """Lower the limit to what is taken now and ``count`` bytes more: once everything is imported, and before data is unpacked."""
    limit = int(os.environ.get(MEMORY_VARIABLE, "0"))
    with contextlib.suppress(ImportError, OSError, ValueError):  # systems without such limits
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if limit > taken + count:
            resource.setrlimit(resource.RLIMIT_AS, (taken + count, taken + count))


def answer(message: dict[str, Any]) -> None:
    """Send one answer; waits while the other side has enough of them."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
