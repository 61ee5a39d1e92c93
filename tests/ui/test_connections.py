"""Clients that send nothing, half of a request, or read nothing, on real sockets; no test waits for the limits, they are made short."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from rlhf_studio.ui.serving import connections

BODY = b"x" * 40_000_000
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
SLOW, LONG = (GET.replace(b"GET /", b"GET /" + path) for path in (b"slow", b"long"))
CHUNKED = b"POST /%s HTTP/1.1\r\nHost: a\r\nX-Who: ann\r\nTransfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """A long answer, a short one, one that takes its time, or one that tells a header when the whole body is there."""
    if scope["path"] == "/slow":
        await asyncio.sleep(30)
    while scope["path"] == "/who" and (await receive()).get("more_body"):
        pass
    who = b",".join(value for name, value in scope["headers"] if name == b"x-who")
    body = {"/long": BODY, "/who": who}.get(scope["path"], b"ok")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


class Served:
    """uvicorn with the limits, in this event loop; ``http`` is its parser, the one that is installed or the one in Python."""

    http = "auto"

    def __init__(self, log_level: str = "error", websockets: Any = None) -> None:
        self._log_level, self._websockets = log_level, websockets

    async def __aenter__(self) -> Served:
        self._writers: list[asyncio.StreamWriter] = []  # one that nobody keeps is closed
        config = uvicorn.Config(app, port=0, http=self.http, lifespan="off", log_level=self._log_level, timeout_keep_alive=30)
        config.load()
        config.ws_protocol_class = self._websockets or config.ws_protocol_class
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

    async def until(self, condition: Callable[[Any], bool], number: int) -> None:
        """Wait until so many connections are so."""
        async with asyncio.timeout(20):
            while sum(condition(connection) for connection in self.server.server_state.connections) < number:
                await asyncio.sleep(0)

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


@pytest.mark.parametrize("sent", [GET, CHUNKED % b"" + b"1\r\nx\r\n0\r\n\r\n"], ids=["heads", "bodies"])
def test_requests_that_nobody_waits_for_do_not_pile_up(sent: bytes) -> None:
    async def scene() -> None:
        async with Served() as served:
            reader, _ = await served.connect(sent * 4)
            for _ in range(4):
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            reader, writer = await served.connect(sent * 500)
            answers, size = 0, 500
            with contextlib.suppress(ConnectionError):
                while size < 100_000 and (read := await asyncio.wait_for(reader.read(100_000), 20)):
                    answers += read.count(b"200")
                    writer.write(sent * 500)
                    size += 500
            assert size < 100_000 and answers <= connections.MOST_AHEAD + 1
            assert served.server.server_state.total_requests <= 4 + connections.MOST_AHEAD + 2  # one may be under way

    asyncio.run(scene())


def is_unread(connection: Any) -> bool:
    return bool(connection.flow.write_paused)


def is_at_work(connection: Any) -> bool:
    return connection.cycle is not None and not connection.cycle.response_complete


def test_those_who_read_nothing_make_room_before_one_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            working, _ = await served.connect(SLOW)
            await served.until(is_at_work, 1)
            first, _ = await served.connect(LONG, limit=1000)
            await served.until(is_unread, 1)
            await served.connect(LONG, limit=1000)
            await served.until(is_unread, 2)
            newest, _ = await served.connect(GET)
            assert (await newest.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionError):
                assert len(await asyncio.wait_for(first.read(), 20)) < len(BODY)
            assert served.server.server_state.tasks and not working.at_eof()
            await served.until(is_unread, 1)

    monkeypatch.setattr(connections, "MOST", 3)
    asyncio.run(scene())


def test_where_all_are_at_work_the_longest_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            oldest, _ = await served.connect(SLOW)
            await served.until(is_at_work, 1)
            younger, _ = await served.connect(SLOW)
            await served.until(is_at_work, 2)
            newest, _ = await served.connect(GET)
            assert (await newest.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            assert await is_ended(oldest) and not younger.at_eof()

    monkeypatch.setattr(connections, "MOST", 2)
    asyncio.run(scene())


@pytest.mark.parametrize("more", [GET, GET[:10]], ids=["a request", "half a head"])
def test_whoever_reads_nothing_gains_no_time_with_more_requests(more: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Served() as served:
            _, writer = await served.connect(LONG, limit=1000)
            await served.until(is_unread, 1)
            monkeypatch.setattr(connections, "UNREAD_SECONDS", 30.0)  # whatever begins anew has more time than the test
            writer.write(more)
            async with asyncio.timeout(20):
                while served.server.server_state.connections:
                    await asyncio.sleep(0)

    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.5)
    asyncio.run(scene())


def test_headers_after_the_body_are_none() -> None:
    async def scene() -> None:
        async with Served() as served:
            reader, writer = await served.connect(CHUNKED % b"who" + b"1\r\nx\r\n0\r\nX-Who: bob\r\nHost: b\r\n\r\n")
            assert (await reader.readuntil(b"ann")).startswith(b"HTTP/1.1 200")
            writer.write(CHUNKED.replace(b"ann", b"eve") % b"who" + b"0\r\n\r\n")
            assert (await reader.readuntil(b"eve")).startswith(b"HTTP/1.1 200")

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"\x16\x03\x01 no words\r\n\r\n", [b"400"]),
        (b"GET / HTTP/1.1\r\nHost: a\r\nx y: z\r\n\r\n", [b"400"]),
        (CHUNKED % b"who" + b"no length\r\n", [b"400"]),
        (CHUNKED % b"" + b"1\r\nx\r\n", [b"200"]),  # half a request, whose rest is garbage, has one answer
        (UPGRADE % b"websocket", [b"200", b"400"]),
        (UPGRADE % b"h2c", [b"200", b"400"]),
    ],
)
def test_garbage_is_not_told_in_the_log(sent: bytes, statuses: list[bytes], caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with Served(log_level="warning") as served:
            logging.getLogger("uvicorn.error").addHandler(caplog.handler)
            reader, writer = await served.connect(sent)
            answers = await asyncio.wait_for(reader.readline(), 20)
            writer.write(b"\x00\r\n" * 30)
            with contextlib.suppress(ConnectionError):
                answers += await asyncio.wait_for(reader.read(), 20)
            assert re.findall(rb"HTTP/1.1 (\d+)", answers) == statuses

    try:
        asyncio.run(scene())
    finally:
        logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert caplog.text == ""


def test_a_websocket_is_a_request_like_any_other() -> None:
    """Also where a library for them is installed: it would have a connection that no limit holds."""

    async def scene() -> None:
        async with Served(websockets=SimpleNamespace) as served:
            reader, _ = await served.connect(UPGRADE % b"websocket")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")

    asyncio.run(scene())
