"""Clients that send nothing, half of a request, or read nothing, on real sockets; no test waits for the limits, they are made short."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from rlhf_studio.ui.serving import connections

BODY = b"x" * 40_000_000
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """A long answer, a short one, or one that takes its time."""
    if scope["path"] == "/slow":
        await asyncio.sleep(30)
    body = BODY if scope["path"] == "/long" else b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


class Served:
    """uvicorn with the limits, in this event loop; ``http`` is its parser, the one that is installed or the one in Python."""

    http = "auto"

    async def __aenter__(self) -> Served:
        self._writers: list[asyncio.StreamWriter] = []  # one that nobody keeps is closed
        config = uvicorn.Config(app, port=0, http=self.http, lifespan="off", log_level="error", timeout_keep_alive=30)
        config.load()
        connections.limit_connections(SimpleNamespace(server=SimpleNamespace(config=config)))
        self.server = uvicorn.Server(config)
        self._task = asyncio.create_task(self.server.serve())
        while not self.server.started:
            await asyncio.sleep(0)
        self._port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    async def connect(self, sent: bytes = b"", **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, **options)
        self._writers.append(writer)
        writer.write(sent)
        return reader, writer

    async def __aexit__(self, *_: Any) -> None:
        self.server.should_exit = self.server.force_exit = True
        await self._task


@pytest.fixture(autouse=True, params=["httptools", "h11"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Served, "http", request.param)
    return request.param


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection; waits for it, and at most as long as a broken test may take."""
    try:
        return await asyncio.wait_for(reader.read(), 20) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHo"])
def test_a_connection_without_a_whole_head_is_ended(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            reader, _ = await served.connect(sent)
            assert await is_ended(reader)

    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    asyncio.run(scene())


def test_the_beginning_of_a_later_request_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            reader, writer = await served.connect(GET)
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            writer.write(GET[:10])
            assert await is_ended(reader)

    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    asyncio.run(scene())


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            await served.connect(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n", limit=1000)
            state = served.server.server_state
            while not state.total_requests and not state.connections:
                await asyncio.sleep(0)
            async with asyncio.timeout(20):
                while state.connections:
                    await asyncio.sleep(0)

    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.05)
    asyncio.run(scene())


def test_one_that_is_at_work_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            reader, _ = await served.connect(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(20):
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(len(BODY)) == BODY

    for limit in ("HEAD_SECONDS", "UNREAD_SECONDS"):
        monkeypatch.setattr(connections, limit, 5.0)
    asyncio.run(scene())


def test_the_longest_idle_connection_makes_room_and_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            working, _ = await served.connect(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            while not served.server.server_state.tasks:
                await asyncio.sleep(0)
            oldest, _ = await served.connect()
            younger, asked = await served.connect()
            while len(served.server.server_state.connections) < 3:
                await asyncio.sleep(0)
            newest, _ = await served.connect(GET)
            assert (await newest.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert await is_ended(oldest)
            asked.write(GET)
            assert (await younger.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert served.server.server_state.tasks and not working.at_eof()

    monkeypatch.setattr(connections, "MOST", 3)
    asyncio.run(scene())


def test_many_that_come_at_once_or_send_half_a_body_stay_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            half = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"
            for sent in (b"", half):
                readers = [reader for reader, _ in await asyncio.gather(*(served.connect(sent) for _ in range(40)))]
                async with asyncio.timeout(8):  # sooner than they are ended for their patience
                    while sum(reader.at_eof() or reader.exception() is not None for reader in readers) < 35:
                        await asyncio.sleep(0)
                assert len(served.server.server_state.connections) <= 5
                newest, _ = await served.connect(GET)
                assert (await newest.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    monkeypatch.setattr(connections, "MOST", 5)
    asyncio.run(scene())


@pytest.mark.parametrize(
    "begin",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nx: ",
        b"GET /",
        b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n",
        b"POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx: ",
    ],
    ids=["headers", "one header", "address", "headers after the body", "one header after the body"],
)
def test_heads_without_an_end_do_not_fill_the_memory(begin: bytes) -> None:
    """Also headers after the body, of a request that is being answered."""

    async def scene() -> None:
        async with Served() as served:
            reader, writer = await served.connect(begin)
            piece = b"x" * 10_000 if not begin.endswith(b"\r\n") else b"y: x\r\n" * 1_000
            sent = 0
            while not (reader.at_eof() or reader.exception()) and sent < 20_000_000:
                writer.write(piece)
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(writer.drain(), 20)
                sent += len(piece)
                await asyncio.sleep(0)
            assert sent < 20_000_000  # all that the kernel holds, and the limit

    asyncio.run(scene())


def test_what_was_answered_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            reader, writer = await served.connect()
            for _ in range(20):
                writer.write(GET)
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    monkeypatch.setattr(connections, "MOST_HEAD_BYTES", 2 * len(GET))
    monkeypatch.setattr(connections, "MOST_BYTES", 2 * len(GET))
    asyncio.run(scene())
