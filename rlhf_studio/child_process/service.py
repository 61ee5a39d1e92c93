"""The app's side of a child process that works beside it: a queue of requests, and the events that each of them has brought.

The app itself never loads a model. The process is started when it is first needed, works on one request after the other, and is ended
after some minutes without one, with the app, and when a run needs the GPU that it uses. It speaks lines of JSON, see :mod:`.serving`.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.language import S_

LOOK_SECONDS = 0.2  # between two looks at whether someone wants to cancel
RUN_LOOK_SECONDS = 2.0  # between two looks at whether a run has begun
CANCEL_SECONDS = 5.0  # until a process that does not stop is ended
SEND_SECONDS = 30.0
MOST_BYTES = 8_000_000  # of one event
MOST_REMEMBERED = 12  # jobs whose events can still be asked for
NEEDED_BY_A_RUN = S_("A run has begun and needs the GPU. Ask again: the answer then comes from the CPU.")
STOPPING = S_("The app is stopping.")
Json = dict[str, Any]


class Busy(Exception):
    """No further request is taken now; a sentence for people."""


@dataclass
class Job:
    """One request.

    Attributes:
        state: waiting, working or done.
        events: what came of it; the list only grows, so it can be read without a lock.
        after: called by the service's thread when the process is done with it, however that ended.
    """

    request: Json
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: str = "waiting"
    events: list[Json] = field(default_factory=list)
    after: Callable[[], None] = lambda: None
    cancelled: bool = False
    ended: threading.Event = field(default_factory=threading.Event)

    def last(self, event: str) -> Json | None:
        """The newest event with this name; None where there was none."""
        return next((known for known in reversed(list(self.events)) if known.get("event") == event), None)

    def end(self, error: str = "") -> None:
        """The last event, where it did not end by itself, and the end."""
        if error:
            self.events.append({"event": "failed", "side": None, "error": error})
        elif self.cancelled:
            self.events.append({"event": "stopped"})
        self.after()
        self.state = "done"
        self.ended.set()


class Service:
    """One child process at most, one request at a time; others wait their turn.

    Args:
        kind: what the process does, one of :data:`rlhf_studio.cli.job_server.KINDS`.
        permissions: what rewards outside the program may use.
        keep_hub_token: whether the process may use the Hugging Face token, as runs do.
        gpu: whether the process may use a GPU at this moment.
        environment: further variables of the process.
        idle: seconds after which an unused process is ended.
        patience: seconds without any sign of life after which a process is ended.
        most_waiting: how many requests may wait.
        stops: whether the process itself ends a request that is cancelled; if not, the process is ended.
        command: starts the process; replaced in tests.
    """

    def __init__(
        self,
        kind: str,
        permissions: Permissions = NOTHING_ALLOWED,
        *,
        keep_hub_token: bool = False,
        gpu: Callable[[], bool] = lambda: False,
        environment: Iterable[tuple[str, str]] = (),
        idle: float = 300.0,
        patience: float = 300.0,
        most_waiting: int = 4,
        stops: bool = True,
        command: Sequence[str] = (),
    ) -> None:
        self._command = list(command) or [sys.executable, "-m", "rlhf_studio", "job-server", kind]
        self._permissions, self._keep_hub_token, self._gpu = permissions, keep_hub_token, gpu
        self._environment, self._idle, self._patience, self._most_waiting = dict(environment), idle, patience, most_waiting
        self._stops = stops
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._known: OrderedDict[str, Job] = OrderedDict()
        self._current: Job | None = None
        self._process: LineProcess | None = None
        self._on_gpu = False
        self._used_at = 0.0
        self._looked_at = float("-inf")
        self._number = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    # --- what the pages' functions call ----------------------------------------------------------------------------------------

    def submit(self, request: Json, after: Callable[[], None] = lambda: None) -> Job:
        """Put a request in the queue; ``after`` as in :class:`Job`.

        Raises :class:`Busy` when too many wait already, and when the app is stopping.
        """
        with self._changed:
            if self._closed:
                raise Busy(STOPPING)
            if len(self._waiting) + (self._current is not None) > self._most_waiting:
                raise Busy(f"{self._most_waiting} requests are waiting already. Try again in a moment.")
            job = Job(request, after=after)
            self._waiting.append(job)
            self._known[job.key] = job
            while len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return job

    def find(self, key: Any) -> Job | None:
        """The job with this key, while it is remembered."""
        return self._known.get(key) if isinstance(key, str) else None

    def before(self, job: Job) -> list[Job]:
        """The jobs that are worked on before this one: none when its turn has come."""
        waiting, current = list(self._waiting), self._current
        if job not in waiting:
            return []
        return [*([current] if current else []), *waiting[: waiting.index(job)]]

    def cancel(self, job: Job) -> None:
        """End a job, or take it out of the queue."""
        with self._changed:
            job.cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)
                job.end()
            elif job is self._current and not self._stops and self._process is not None:
                self._process.interrupt()

    def begin(self) -> None:
        """Start the process, which takes some seconds to load, because a request may come soon."""
        with self._changed:
            idle = self._process is None and self._current is None and not self._waiting and not self._closed
        if idle:
            self.submit({"op": "load"})

    def close(self) -> None:
        """End the process and whatever it is doing."""
        with self._changed:
            self._closed = True
            if self._process is not None:
                self._process.interrupt()
            for job in self._waiting:
                job.end(STOPPING)
            self._waiting.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()
        self._end_process()

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        process = self._process
        return process.pid if process else None

    @property
    def working(self) -> bool:
        """Whether a request is worked on, or waits."""
        return self._current is not None or bool(self._waiting)

    # --- the thread ------------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    if not self._changed.wait(None if self._process is None else min(RUN_LOOK_SECONDS, self._idle)):
                        self._rest()
                if self._closed:
                    return
                job = self._current = self._waiting.popleft()
                job.state = "working"
            try:
                error = "" if job.cancelled else self._follow(job)
            except (LineTimeout, LineEnded, LineInvalid, OSError) as failure:
                self._end_process()
                error = "" if job.cancelled else self._cause(failure)
            self._used_at, self._current = time.monotonic(), None
            if self._idle == 0:
                self._end_process()
            job.end(error)

    def _rest(self) -> None:
        """End a process that nobody has used for long, or that keeps a GPU which a run needs."""
        if time.monotonic() - self._used_at >= self._idle or (self._on_gpu and not self._gpu()):
            self._end_process()

    def _follow(self, job: Job) -> str:
        """Hand the job over and collect its events. Returns why it ended before its end; empty where it did not."""
        process = self._send(job.request)
        heard, asked_to_stop = time.monotonic(), 0.0
        while True:
            now = time.monotonic()
            if self._closed:  # perhaps just before the process was started
                return STOPPING
            if job.cancelled and not asked_to_stop:
                asked_to_stop = now
                process.send({"op": "cancel", "number": self._number}, SEND_SECONDS)
            if self._on_gpu and now - self._looked_at > RUN_LOOK_SECONDS:
                self._looked_at = now
                if not self._gpu():
                    self._end_process()
                    return NEEDED_BY_A_RUN
            try:
                event = process.receive(LOOK_SECONDS, MOST_BYTES)
            except LineTimeout:
                if now - heard > self._patience or (asked_to_stop and now - asked_to_stop > CANCEL_SECONDS):
                    raise
                continue
            heard = now
            if event.pop("number", None) != self._number:
                continue
            if event.get("event") == "done":
                return ""
            job.events.append(event)

    def _send(self, request: Json) -> LineProcess:
        """Hand a request to the process. One that has died since it was used last is replaced by another."""
        self._number += 1
        numbered = {**request, "number": self._number}
        process = self._ready_process()
        try:
            process.send(numbered, SEND_SECONDS)
        except LineEnded:
            self._end_process()
            process = self._ready_process()
            process.send(numbered, SEND_SECONDS)
        return process

    def _ready_process(self) -> LineProcess:
        """The process, on the GPU where it may use one. It is started anew when it must leave the GPU, or may use it."""
        may_use_gpu = self._gpu()
        if self._process is not None and self._on_gpu != may_use_gpu:
            self._end_process()
        if self._process is None:
            environment = child_environment(os.environ, keep_hub_token=self._keep_hub_token, permissions=self._permissions)
            if not may_use_gpu:
                environment["CUDA_VISIBLE_DEVICES"] = ""
            self._process, self._on_gpu = LineProcess(self._command, environment={**environment, **self._environment}), may_use_gpu
        return self._process

    def _end_process(self) -> None:
        process, self._process, self._on_gpu = self._process, None, False
        if process is not None:
            process.kill()

    def _cause(self, error: Exception) -> str:
        if isinstance(error, LineTimeout):
            return S_(f"Nothing was heard for {self._patience:g} seconds, so the process was ended. Ask again: it starts anew.")
        if isinstance(error, OSError):
            return S_(f"The process could not be started: {error.strerror or error}.")
        return S_(f"The process has ended in the middle of this ({error}). Ask again: it starts anew.")
