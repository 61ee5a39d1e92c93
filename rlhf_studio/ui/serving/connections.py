"""Connections that are slow, or do nothing: the server ends them, so that they keep nobody else out.

Whoever wants to harm an app opens many connections and sends little on them, or reads nothing of the answer. A request's head must be there
within :data:`HEAD_SECONDS`, and an answer that nobody reads is given up after :data:`UNREAD_SECONDS`. A head may have
:data:`MOST_HEAD_BYTES`, and all that is not answered yet :data:`MOST_BYTES`, headers after the body included: parsers keep what they
read. Of requests that are sent before the last one was answered, :data:`MOST_AHEAD` may come in a row; browsers send none. Beyond
:data:`MOST` connections, one makes room for each new one, however many come at once, see :class:`Places`.

Headers that come after the body are dropped: httptools would put them beside those that tell who asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import chain
from typing import Any

import gradio as gr

from rlhf_studio.ui.serving.one_packet import OnePacket

HEAD_SECONDS = 15.0
UNREAD_SECONDS = 30.0
MOST = 800
MOST_HEAD_BYTES = 64_000
MOST_BYTES = 1_200_000  # an operator's longest body, in chunks, and its head
MOST_AHEAD = 16
_OF_GARBAGE = ("Invalid HTTP request received.", "Unsupported upgrade request.", "No supported WebSocket library detected.")


def limit_connections(demo: gr.Blocks) -> None:
    """Hold the connections of a launched app's server, a uvicorn, to these limits, from the next one on."""
    config = demo.server.config
    config.http_protocol_class = watched(config.http_protocol_class)
    config.ws_protocol_class = None  # no page needs a websocket, and one would be a connection without limits
    logging.getLogger("uvicorn.error").addFilter(tells_more_than_garbage)


def tells_more_than_garbage(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's log is about the server: anybody can send garbage, and would fill the log with it."""
    return not str(record.msg).startswith(_OF_GARBAGE)


class Places:
    """The connections of a server, in the order in which they have no whole request or read nothing, or came to work."""

    def __init__(self) -> None:
        self._waiting: dict[Any, None] = {}
        self._at_work: dict[Any, None] = {}

    def wait(self, connection: Any) -> None:
        """It is now the one that has waited shortest."""
        self.leave(connection)
        self._waiting[connection] = None

    def work(self, connection: Any) -> None:
        """Its request is whole, and it reads."""
        self._waiting.pop(connection, None)
        self._at_work.setdefault(connection)

    def leave(self, connection: Any) -> None:
        """It has ended."""
        self._waiting.pop(connection, None)
        self._at_work.pop(connection, None)

    def make_room(self, newest: Any) -> None:
        """End the connection that has waited longest; where all are at work, the one that has been so for longest."""
        ended = next(chain(self._waiting, self._at_work), newest)
        self.leave(ended)
        with contextlib.suppress(OSError):
            ended.transport.abort()


def watched(base: type[Any]) -> type[Any]:
    """uvicorn's protocol of one connection, with the limits."""
    places, base = Places(), with_patience(with_plain_requests(base))

    class Watched(base):
        """A connection that is given up when it has done nothing for too long."""

        _unanswered = 0  # bytes that came since all was answered
        _ahead = 0  # requests in a row that came before the last one was answered

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(OnePacket(transport, self.loop))
            if len(self.connections) > MOST:
                places.make_room(self)
            places.wait(self)
            self._have_patience(HEAD_SECONDS)

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            self._unanswered += len(data)
            super().data_received(data)
            end_if_long(self, self._unanswered)
            if self.flow.write_paused:
                return  # whatever comes, it is given up where the answer is not read
            if self.cycle is not before:
                self._have_patience(None)
            elif is_idle(self.cycle) and self._patience is None:
                places.wait(self)  # these are the first bytes of a later request
                self._have_patience(HEAD_SECONDS)
            work_if_whole(places, self)

        def connection_lost(self, exc: Exception | None) -> None:
            places.leave(self)
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._ahead += 1
            if is_idle(self.cycle):
                self._unanswered = self._ahead = 0
                places.wait(self)
            if self._ahead > MOST_AHEAD:
                self.transport.abort()
            elif self.transport.is_closing():
                self._have_patience(UNREAD_SECONDS)  # the end of the answer may still wait to be read

        def pause_writing(self) -> None:
            super().pause_writing()
            places.wait(self)
            self._have_patience(UNREAD_SECONDS)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._have_patience(patience_with_reader(self, self._unanswered))
            work_if_whole(places, self)

    return Watched


def with_patience(base: type[Any]) -> type[Any]:
    """uvicorn's protocol of one connection, which can be given up later."""

    class Patient(base):
        """A connection that is ended when patience with it is over."""

        _patience: asyncio.TimerHandle | None = None

        def _have_patience(self, seconds: float | None) -> None:
            """Give the connection up after this time; None: it goes on."""
            if self._patience is not None:
                self._patience.cancel()
            self._patience = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._have_patience(UNREAD_SECONDS)  # the end of an answer may still wait to be read

        def connection_lost(self, exc: Exception | None) -> None:
            self._have_patience(None)
            super().connection_lost(exc)

    return Patient


def with_plain_requests(base: type[Any]) -> type[Any]:
    """uvicorn's protocol of one connection, for requests as browsers send them: headers before the body, and one after the other."""

    class Plain(base):
        """A connection whose requests have no headers after the body, and do not pile up. Only httptools calls the first three."""

        _in_head = True

        def on_message_begin(self) -> None:
            self._in_head = True
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_head:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()
            if len(self.pipeline) > MOST_AHEAD:
                self.transport.abort()
                raise ValueError("too many requests at once")  # it ends the parser, which would go on with what has come

        def send_400_response(self, msg: str) -> None:
            """Only where no answer is cut in two by it."""
            if is_between_answers(self):
                super().send_400_response(msg)
            else:
                self.transport.abort()

    return Plain


def is_idle(cycle: Any) -> bool:
    """Whether a connection has no request that is not answered."""
    return cycle is None or bool(cycle.response_complete)


def is_between_answers(connection: Any) -> bool:
    """Whether another answer can be sent now: none has begun whose end, or whose request's end, is still to come."""
    cycle = connection.cycle
    if connection.transport.is_closing() or getattr(connection, "pipeline", None):
        return False
    return cycle is None or not cycle.response_started or (cycle.response_complete and not cycle.more_body)


def patience_with_reader(connection: Any, unanswered: int) -> float | None:
    """How long one that has just read may do nothing: the end of its last answer, or half a head, may be what is still to come."""
    if connection.transport.is_closing():
        return UNREAD_SECONDS
    return HEAD_SECONDS if is_idle(connection.cycle) and unanswered else None


def work_if_whole(places: Places, connection: Any) -> None:
    """It is at work where it has a request that is whole and not answered."""
    if not is_idle(connection.cycle) and not connection.cycle.more_body:
        places.work(connection)


def end_if_long(connection: Any, unanswered: int) -> None:
    """End it where more is not answered yet than a head, or a request, may have."""
    if unanswered > (MOST_HEAD_BYTES if is_idle(connection.cycle) else MOST_BYTES):
        connection.transport.abort()
