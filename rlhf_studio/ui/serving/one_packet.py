"""A connection's transport that sends the head of an answer and the beginning of its body together.

uvicorn writes them one after the other, and each write is a call of the system, a packet, and a wake-up of whoever reads.
"""

from __future__ import annotations

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class OnePacket:
    """Around a transport: a head waits for what is written next, and no longer than the event loop's next turn."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._head = transport, loop, b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, or keep the head of an answer until the next write."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(_HEAD):
            self._head = data
            self._loop.call_soon(self.flush)
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Write a head that waits."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Write what waits, then close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what waits is lost."""
        self._head = b""
        self._transport.abort()
