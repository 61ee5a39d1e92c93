"""The process that answers prompts, and the line of those who wait for it.

The app itself never loads a model. The process is started when it is first needed, answers one prompt after the other, and is ended
after some minutes without one, with the app, and when a run needs the GPU that it uses. While any run is alive it works on the CPU.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.estimate.gpus import find_gpus
from rlhf_studio.ui.talk.sent import Refused

IDLE = 300.0  # seconds after which an unused process is ended
PATIENCE = 300.0  # seconds without any sign of life
LOOK_SECONDS = 0.2  # between two looks at whether someone wants to stop
RUN_LOOK_SECONDS = 2.0  # between two looks at whether a run has begun
STOP_SECONDS = 5.0  # until a process that does not stop is ended
SEND_SECONDS = 30.0
MOST_BYTES = 4_000_000
MOST_WAITING = 4
MOST_KEPT = 12  # exchanges whose events can still be asked for
NEEDED_BY_A_RUN = "A run has begun and needs the GPU. Ask again: the answer then comes from the CPU."
Json = dict[str, Any]


@dataclass
class Exchange:
    """One prompt and its answers. ``events`` only grows, so it can be read without a lock. ``state``: waiting, working or done."""

    request: Json
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: str = "waiting"
    events: list[Json] = field(default_factory=list)
    stopping: bool = False


class Line:
    """One process at most, one exchange at a time; others wait their turn.

    Args:
        permissions: what rewards outside the program may use.
        run_alive: whether any run is alive or about to start.
        command: starts the process; replaced in tests.
        keep_hub_token: whether the process may use the Hugging Face token, as runs do.
        has_gpu: whether there is a GPU at all.
    """

    def __init__(
        self,
        permissions: Permissions = NOTHING_ALLOWED,
        run_alive: Callable[[], bool] = lambda: False,
        command: Sequence[str] = (),
        *,
        keep_hub_token: bool = False,
        has_gpu: Callable[[], bool] = lambda: bool(find_gpus()),
    ) -> None:
        self._permissions, self._keep_hub_token = permissions, keep_hub_token
        self._run_alive, self._has_gpu = run_alive, has_gpu
        self._command = list(command) or [sys.executable, "-m", "rlhf_studio", "talk-server"]
        self._changed = threading.Condition()
        self._waiting: deque[Exchange] = deque()
        self._kept: OrderedDict[str, Exchange] = OrderedDict()
        self._current: Exchange | None = None
        self._process: LineProcess | None = None
        self._on_gpu = False
        self._used_at = 0.0
        self._looked_at = float("-inf")
        self._number = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    # --- what the page's functions call ----------------------------------------------------------------------------------------

    def ask(self, request: Json) -> Exchange:
        """Put a request in line. Raises :class:`Refused` when too many wait already."""
        with self._changed:
            if self._closed:
                raise Refused("The app is stopping.")
            if len(self._waiting) >= MOST_WAITING:
                raise Refused(f"{MOST_WAITING} prompts are waiting already. Try again in a moment.")
            exchange = Exchange(request)
            self._waiting.append(exchange)
            self._kept[exchange.key] = exchange
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="talk", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return exchange

    def find(self, key: Any) -> Exchange | None:
        """The exchange with this key, while it is kept."""
        return self._kept.get(key) if isinstance(key, str) else None

    def place(self, exchange: Exchange) -> int:
        """How many answers come before this one; 0 when it is being answered, or next. Policies that are only loaded are no answer."""
        waiting, current = list(self._waiting), self._current
        if exchange not in waiting:
            return 0
        before = [*waiting[: waiting.index(exchange)], *([current] if current else [])]
        return sum(other.request.get("prompt") is not None for other in before)

    def stop(self, exchange: Exchange) -> None:
        """End an answer, or take it out of the line."""
        with self._changed:
            exchange.stopping = True
            if exchange in self._waiting:
                self._waiting.remove(exchange)
                _end(exchange)

    def close(self) -> None:
        """End the process and whatever it is doing."""
        with self._changed:
            self._closed = True
            if self._process is not None:
                self._process.interrupt()
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

    # --- the thread ------------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    if not self._changed.wait(None if self._process is None else min(RUN_LOOK_SECONDS, IDLE)):
                        self._rest()
                if self._closed:
                    return
                exchange = self._current = self._waiting.popleft()
                exchange.state = "working"
            try:
                self._answer(exchange)
            except (LineTimeout, LineEnded, LineInvalid, OSError) as error:
                self._end_process()
                _end(exchange, "" if exchange.stopping else _cause(error))
            self._used_at, self._current = time.monotonic(), None

    def _rest(self) -> None:
        """End a process that nobody has used for long, or that keeps a GPU which a run needs."""
        if time.monotonic() - self._used_at >= IDLE or (self._on_gpu and self._run_alive()):
            self._end_process()

    def _answer(self, exchange: Exchange) -> None:
        process = self._send(exchange.request)
        heard, asked_to_stop = time.monotonic(), 0.0
        while True:
            now = time.monotonic()
            if self._closed:  # perhaps just before the process was started
                return _end(exchange, "The app is stopping.")
            if exchange.stopping and not asked_to_stop:
                asked_to_stop = now
                process.send({"op": "cancel", "number": self._number}, SEND_SECONDS)
            if self._on_gpu and now - self._looked_at > RUN_LOOK_SECONDS:
                self._looked_at = now
                if self._run_alive():
                    self._end_process()
                    return _end(exchange, NEEDED_BY_A_RUN)
            try:
                event = process.receive(LOOK_SECONDS, MOST_BYTES)
            except LineTimeout:
                if now - heard > PATIENCE or (asked_to_stop and now - asked_to_stop > STOP_SECONDS):
                    raise
                continue
            heard = now
            if event.pop("number", None) != self._number:
                continue
            if event.get("event") == "done":
                return _end(exchange)
            exchange.events.append(event)

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
        """The process, on the GPU when there is one and no run is alive. It is started anew when it must leave the GPU, or may use it."""
        may_use_gpu = self._has_gpu() and not self._run_alive()
        if self._process is not None and self._on_gpu != may_use_gpu:
            self._end_process()
        if self._process is None:
            seen = child_environment(os.environ, keep_hub_token=self._keep_hub_token, permissions=self._permissions)
            if not may_use_gpu:
                seen["CUDA_VISIBLE_DEVICES"] = ""
            self._process, self._on_gpu = LineProcess(self._command, environment=seen), may_use_gpu
        return self._process

    def _end_process(self) -> None:
        process, self._process, self._on_gpu = self._process, None, False
        if process is not None:
            process.kill()


def _end(exchange: Exchange, error: str = "") -> None:
    if error:
        exchange.events.append({"event": "failed", "side": None, "error": error})
    elif exchange.stopping:
        exchange.events.append({"event": "stopped"})
    exchange.state = "done"


def _cause(error: Exception) -> str:
    if isinstance(error, LineTimeout):
        return f"Nothing was heard for {PATIENCE:g} seconds, so the process that answers was ended. Ask again: it starts anew."
    if isinstance(error, OSError):
        return f"The process that answers could not be started: {error.strerror or error}."
    return f"The process that answers has ended in the middle of this ({error}). Ask again: it starts anew."
