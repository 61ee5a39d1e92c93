"""Connections with one time limit for the whole exchange: a server that sends a byte now and then cannot make it longer.

httpcore limits each read and write alone. Here each one gets only the time that is left of the exchange of its thread.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

WRITTEN_AT_ONCE = 16_384  # bytes; the time that is left is checked in between


class Deadline(httpcore.NetworkBackend):
    """A network backend for httpcore; an exchange runs inside :meth:`within`. May be used by several threads at once."""

    def __init__(self) -> None:
        self._network = httpcore.SyncBackend()
        self._of_thread = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Inside, all reads and writes of this thread together take at most this many seconds; then :class:`TimeoutError`."""
        self._of_thread.end = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._of_thread.end

    def left(self) -> float:
        """Seconds that are left. Raises :class:`TimeoutError` when there are none."""
        seconds: float = self._of_thread.end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection whose every action is limited."""
        return _Stream(self._network.connect_tcp(host, port, self.left(), local_address, socket_options), self)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline):
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITTEN_AT_ONCE):
            self._stream.write(buffer[start : start + WRITTEN_AT_ONCE], self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._deadline.left()), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
