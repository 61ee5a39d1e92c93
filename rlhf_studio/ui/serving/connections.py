"""Connections that are slow, or do nothing: the server ends them, so that they keep nobody else out.

Whoever wants to harm an app opens many connections and sends little on them, or reads nothing of the answer. A request's head must be there
within :data:`HEAD_SECONDS`, and an answer that nobody reads is given up after :data:`UNREAD_SECONDS`. A head may have
:data:`MOST_HEAD_BYTES`, and all that comes before an answer :data:`MOST_BYTES`, headers after the body included: parsers keep what they
read. Beyond :data:`MOST` connections, the one that has waited longest without a whole request makes room for a new one: each new one ends
another, however many come at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import gradio as gr

from rlhf_studio.ui.serving.one_packet import OnePacket

HEAD_SECONDS = 15.0
UNREAD_SECONDS = 30.0
MOST = 800
MOST_HEAD_BYTES = 64_000
MOST_BYTES = 1_200_000  # an operator's longest body, in chunks, and its head


def limit_connections(demo: gr.Blocks) -> None:
    """Hold the connections of a launched app's server, a uvicorn, to these limits, from the next one on."""
    config = demo.server.config
    config.http_protocol_class = watched(config.http_protocol_class)


def watched(base: type[Any]) -> type[Any]:
    """uvicorn's protocol of one connection, with the limits."""
    waiting: dict[Any, None] = {}  # connections without a whole request, in the order in which they began to wait

    class Watched(base):
        """A connection that is given up when it has done nothing for too long."""

        _patience: asyncio.TimerHandle | None = None
        _unanswered = 0  # bytes that came since the last answer

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(OnePacket(transport, self.loop))
            if len(self.connections) > MOST:
                make_room(waiting, self)
            begin_to_wait(waiting, self)
            self._have_patience(HEAD_SECONDS)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            self._unanswered += len(data)
            super().data_received(data)
            end_if_long(self, self._unanswered)
            if self.cycle is not before:
                self._have_patience(None)
            elif is_idle(self.cycle) and self._patience is None:
                begin_to_wait(waiting, self)  # these are the first bytes of a later request
                self._have_patience(HEAD_SECONDS)
            if not is_idle(self.cycle) and not self.cycle.more_body:
                waiting.pop(self, None)

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            self._have_patience(None)
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._unanswered = 0
            if is_idle(self.cycle):
                begin_to_wait(waiting, self)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._have_patience(UNREAD_SECONDS)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._have_patience(None)

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._have_patience(UNREAD_SECONDS)  # the end of an answer may still wait to be read

        def _have_patience(self, seconds: float | None) -> None:
            """Give the connection up after this time; None: it goes on."""
            if self._patience is not None:
                self._patience.cancel()
            self._patience = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    return Watched


def is_idle(cycle: Any) -> bool:
    """Whether a connection has no request that is not answered."""
    return cycle is None or bool(cycle.response_complete)


def end_if_long(connection: Any, unanswered: int) -> None:
    """End it where more came since the last answer than a head, or a request, may have."""
    if unanswered > (MOST_HEAD_BYTES if is_idle(connection.cycle) else MOST_BYTES):
        connection.transport.abort()


def begin_to_wait(waiting: dict[Any, None], connection: Any) -> None:
    """It is now the one that has waited shortest."""
    waiting.pop(connection, None)
    waiting[connection] = None


def make_room(waiting: dict[Any, None], newest: Any) -> None:
    """End the connection that has waited longest for a whole request; the newest one where all are at work."""
    ended = next(iter(waiting), newest)
    waiting.pop(ended, None)
    with contextlib.suppress(OSError):
        ended.transport.abort()
