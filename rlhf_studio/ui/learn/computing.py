"""The processes that compute lessons, and what they have answered.

Equal questions have equal answers, and a control has finitely many values: what one reader has asked for, the next one gets from memory.
Slow scenes have a process of their own, so that nobody waits for another's measurement to move a slider.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout

COMMAND = "lessons-server"
IDLE = 600.0  # seconds after which an unused process is ended
PATIENCE = 30.0  # seconds for one answer; the first one waits for torch
SLOW_PATIENCE = 300.0
MOST_BYTES = 8_000_000
MOST_WAITING = 40
MOST_KEPT = 3_000  # answers
KEPT_BYTES = 64_000_000
Json = dict[str, Any]


class NotComputed(Exception):
    """Why there is no answer, in a sentence for people."""


class Computer:
    """One process, started when it is first asked, and a memory of its answers.

    Args:
        command: starts the process; replaced in tests.
        patience: seconds for one answer.
    """

    def __init__(self, command: Sequence[str] = (), patience: float = PATIENCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = list(command) or [sys.executable, "-m", "rlhf_studio", COMMAND]
        self._patience, self._clock = patience, clock
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes, self._waiting, self._number = 0, 0, 0
        self._turn, self._memory = threading.Lock(), threading.Lock()
        self._process: LineProcess | None = None
        self._idle: threading.Timer | None = None  # ends the process when nobody asks any more
        self._used_at, self._closed = 0.0, False

    @property
    def has_begun(self) -> bool:
        """Whether the process is there."""
        return self._process is not None

    def begin(self) -> None:
        """Start the process, which takes some seconds to load, because a question may come soon."""
        if self._process is None and not self._closed and self._turn.acquire(blocking=False):
            try:
                self._process = self._process or self._started()
                self._used_at = self._clock()
            except OSError:
                self._process = None  # the question that comes is told why
            finally:
                self._turn.release()

    def _started(self) -> LineProcess:
        process = LineProcess(self._command, environment=_environment())
        self._look_after(IDLE)
        return process

    def _look_after(self, seconds: float) -> None:
        """Look then whether the process is still used."""
        self._idle = threading.Timer(seconds, self._look)
        self._idle.daemon = True
        self._idle.start()

    def _look(self) -> None:
        self.rest()
        if self._process is not None and not self._closed:
            self._look_after(IDLE / 10)

    def ask(self, question: Json) -> Any:
        """The answer to a question (see :mod:`rlhf_studio.lessons.server`). Raises :class:`NotComputed`."""
        key = json.dumps(question, sort_keys=True)
        if (known := self._known(key)) is not None:
            return json.loads(known)
        with self._memory:
            if self._waiting >= MOST_WAITING:
                raise NotComputed("Many readers are asking at once. Try again in a moment.")
            self._waiting += 1
        try:
            with self._turn:
                known = self._known(key)  # the reader before may have asked the same
                return json.loads(known) if known is not None else self._computed(key, question)
        finally:
            with self._memory:
                self._waiting -= 1

    def rest(self) -> None:
        """End a process that nobody has used for long."""
        if self._process is not None and self._clock() - self._used_at > IDLE and self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._closed = True
        process = self._process
        if process is not None:
            process.interrupt()
        with self._turn:
            self._end()

    def _known(self, key: str) -> bytes | None:
        with self._memory:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _computed(self, key: str, question: Json) -> Any:
        if self._closed:
            raise NotComputed("The app is stopping.")
        self._number += 1
        try:
            if self._process is None:
                self._process = self._started()
            reply = self._process.ask({**question, "number": self._number}, self._patience, MOST_BYTES)
        except (LineTimeout, LineEnded, LineInvalid, OSError) as error:
            self._end()
            raise NotComputed(f"The process that computes lessons has ended ({error or 'it took too long'}). Try again.") from None
        self._used_at = self._clock()
        if "error" in reply:
            raise NotComputed(str(reply["error"]))
        self._keep(key, json.dumps(reply["answer"]).encode())
        return reply["answer"]

    def _keep(self, key: str, answer: bytes) -> None:
        with self._memory:
            self._kept[key] = answer
            self._bytes += len(answer)
            while len(self._kept) > MOST_KEPT or self._bytes > KEPT_BYTES:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= len(gone)

    def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _environment() -> dict[str, str]:
    seen = dict(child_environment(os.environ, keep_hub_token=False))
    return {**seen, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # small tensors: more threads wait more than they work
