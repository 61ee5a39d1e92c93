"""A child process that is spoken to in lines of JSON over pipes: with time limits, in a process group of its own, never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import subprocess
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_studio import system
from rlhf_studio.language import S_

CHUNK = 65_536
EXIT_SECONDS = 1.0  # between closing its pipe and its end


class LineTimeout(Exception):
    """The process did not read or answer in time."""


class LineEnded(Exception):
    """The process has ended; ``code`` is its exit code (minus the signal's number when one ended it)."""

    def __init__(self, code: int | None):
        self.code = code
        super().__init__(S_(f"it ended with exit code {code}") if code is None or code >= 0 else S_(f"it was ended by signal {-code}"))


class LineInvalid(Exception):
    """What the process wrote is not one JSON object in a line, or is too long."""


class LineProcess:
    """One child. It is killed, with everything in its process group, by :meth:`kill`, when this object goes, and when Python ends.

    A child should also end by itself when its standard input closes: then it cannot outlive a parent that was killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        errors: int | None = None,
        exit_seconds: float = EXIT_SECONDS,
    ):
        """Start ``command``. Raises OSError.

        Args:
            environment: all that it sees of variables; None means this process's own.
            errors: takes its error stream (default: this process's own).
            exit_seconds: how long it may take to end once it has closed its pipe; after that it is killed.
        """
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True, bufsize=0
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._chunks: queue.SimpleQueue[bytes] | None = None
        if system.WINDOWS:  # pipes cannot be waited for there: a thread reads, and who writes may have to wait
            self._chunks = queue.SimpleQueue()
            threading.Thread(target=_read_all, args=(self._output, self._chunks), daemon=True).start()
        else:
            os.set_blocking(self._input, False)
            os.set_blocking(self._output, False)
        self._held = bytearray()
        self._searched = 0  # bytes of ``_held`` that are known to hold no end of a line
        self._exit_seconds = exit_seconds
        self._end = weakref.finalize(self, _end, self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, message: Mapping[str, Any], seconds: float, most_bytes: int) -> dict[str, Any]:
        """Send one object and wait for one. Raises as :meth:`send` and :meth:`receive`."""
        deadline = time.monotonic() + seconds
        self.send(message, seconds)
        return self.receive(max(0.0, deadline - time.monotonic()), most_bytes)

    def send(self, message: Mapping[str, Any], seconds: float) -> None:
        """Write one line. Raises :class:`LineTimeout` and :class:`LineEnded`."""
        deadline = time.monotonic() + seconds
        rest = memoryview((json.dumps(message) + "\n").encode("ascii"))
        while rest:
            if self._chunks is None:
                self._wait(self._input, selectors.EVENT_WRITE, deadline)
            try:
                rest = rest[os.write(self._input, rest[:CHUNK]) :]
            except BrokenPipeError:
                raise self._ended() from None

    def receive(self, seconds: float, most_bytes: int) -> dict[str, Any]:
        """The next line. Raises :class:`LineTimeout`, :class:`LineEnded` and :class:`LineInvalid`.

        After a :class:`LineTimeout` it may be called again: nothing of a line that came in part is lost.
        """
        deadline = time.monotonic() + seconds
        while (end := self._held.find(b"\n", self._searched)) < 0:
            self._searched = len(self._held)
            if len(self._held) > most_bytes:
                raise LineInvalid(f"its answer is longer than {most_bytes} bytes")
            chunk = self._read(deadline)
            if not chunk:
                raise self._ended()
            self._held += chunk
        if end > most_bytes:
            raise LineInvalid(f"its answer is longer than {most_bytes} bytes")
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        self._searched = 0
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise LineInvalid("its answer is not a JSON object")
        return answer

    def kill(self) -> None:
        """End it and its whole process group now. Nothing happens the second time."""
        self._end()

    def interrupt(self) -> None:
        """Make whoever is waiting for it see :class:`LineEnded` at once; may be called from another thread."""
        if self._end.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                system.end_group(self._process.pid)

    def _read(self, deadline: float) -> bytes:
        """What has come; nothing at the end of its output."""
        if self._chunks is None:
            self._wait(self._output, selectors.EVENT_READ, deadline)
            return os.read(self._output, CHUNK)
        if not self._end.alive:
            raise self._ended()
        try:
            return self._chunks.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise LineTimeout from None

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        if not self._end.alive:
            raise self._ended()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, event)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise LineTimeout

    def _ended(self) -> LineEnded:
        # It closed its pipe, so it is ending: give it a moment, so that the message names its own exit code and not our signal.
        deadline = time.monotonic() + self._exit_seconds
        while self._end.alive and time.monotonic() < deadline and not system.has_ended(self._process):
            time.sleep(0.01)
        self._end()
        return LineEnded(self._process.returncode)


def _read_all(output: int, chunks: queue.SimpleQueue[bytes]) -> None:
    """Pass on what comes, then an empty chunk."""
    with contextlib.suppress(OSError):  # closed on our side
        while chunk := os.read(output, CHUNK):
            chunks.put(chunk)
    chunks.put(b"")


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the group, then collect the leader. The leader is not collected before, so its id cannot belong to others yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        system.end_group(process.pid)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
