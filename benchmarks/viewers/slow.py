"""Clients that are slow on purpose, beside viewers who are not: what the others feel of them, and how soon the app is rid of them."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import psutil

from benchmarks.viewers.limits import Figure, percentile
from benchmarks.viewers.page import Seen, watching
from benchmarks.viewers.watched_run import Watched
from rlhf_studio.ui.html import plotly_script

SETTLE_SECONDS = 2.0
FIRST = 0.5  # seconds that the others' 95 % may take while the slow clients arrive, all at once
SLOWER, SLACK = 1.5, 0.1  # and while these hold on: times the seconds without them, and seconds
LEFT_SECONDS = 60.0  # after that time, none of them may hold a connection any more
MEGABYTES = 2.0  # for each of them
HOLDING = "a poll of the others, 95 %, while they hold on"
HEAD = b"POST /gradio_api/component_server/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"

Sent = Callable[[int], bytes]
KINDS: dict[str, tuple[Sent, bool]] = {
    # name: what it sends, and whether it reads a byte a second of the answer; the others read all there is
    "nothing sent": (lambda port: b"", False),
    "half a head": (lambda port: HEAD % port, False),
    "half a body": (lambda port: HEAD % port + b'Content-Length: 5000\r\n\r\n{"data":', False),
    "a byte a second read": (lambda port: b"GET /gradio_api/file=%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (_file(), port), True),
}


def _file() -> bytes:
    return plotly_script().as_posix().encode()


class Client:
    """One of them."""

    def __init__(self, port: int, kind: str) -> None:
        self._port, self._sent, self._reads_slowly = port, KINDS[kind][0](port), KINDS[kind][1]

    async def hold(self) -> None:
        """Hold a connection as long as the app lets it."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection, contextlib.suppress(ConnectionError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", self._port))
            await loop.sock_sendall(connection, self._sent)
            while await loop.sock_recv(connection, 1 if self._reads_slowly else 65536):
                await asyncio.sleep(1.0 if self._reads_slowly else 0)


@contextlib.asynccontextmanager
async def slow_clients(port: int, kind: str, count: int) -> AsyncIterator[None]:
    """``count`` of a kind, all at once."""
    tasks = [asyncio.create_task(Client(port, kind).hold()) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def connected(watched: Watched) -> int:
    """Connections that the app holds. A client that does not read learns of its end late, so the app's side is looked at."""
    return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr.port == watched.port for one in watched.app.net_connections("tcp"))


async def measure(watched: Watched, viewers: int, count: int, seconds: float) -> list[Figure]:
    """The others' polls without slow clients, and beside each kind of them."""
    found: list[Figure] = []
    async with watching(viewers, watched.port, watched.component, watched.run_dir.name) as seen:
        await asyncio.sleep(SETTLE_SECONDS)
        seen.forget()
        await asyncio.sleep(seconds)
        usual = percentile(seen.latencies, 0.95)
        found.append(Figure("a poll, 95 %, without slow clients", 1000 * usual, "ms"))
        for kind in KINDS:
            found += [
                replace(one, what=f"{count} clients, {kind}: {one.what}") for one in await _beside(watched, kind, count, seconds, seen)
            ]
            await asyncio.sleep(SETTLE_SECONDS)
    most = 1000 * max(usual * SLOWER, usual + SLACK)
    found = [replace(one, most=most) if one.what.endswith(HOLDING) else one for one in found]
    found.append(Figure("errors of the others", len(seen.problems), "", 0))
    for problem in seen.problems[:5]:
        print(f"error: {problem}", flush=True)
    return found


async def _beside(watched: Watched, kind: str, count: int, seconds: float, seen: Seen) -> list[Figure]:
    memory, before, began = watched.app.memory_info().rss, connected(watched), time.monotonic()
    gone, most = math.inf, 0
    async with slow_clients(watched.port, kind, count):
        seen.forget()
        await asyncio.sleep(seconds)
        first = percentile(seen.latencies, 0.95)
        seen.forget()
        while time.monotonic() - began < LEFT_SECONDS:
            now = connected(watched) - before
            most = max(most, now)
            gone = math.inf if now > 0 else min(gone, time.monotonic() - began)
            await asyncio.sleep(1)
        grown = (watched.app.memory_info().rss - memory) / 1e6 / count
    return [
        Figure("a poll of the others, 95 %, while they come", 1000 * first, "ms", 1000 * FIRST),
        Figure(HOLDING, 1000 * percentile(seen.latencies, 0.95), "ms"),
        Figure("memory for each", grown, "MB", MEGABYTES),
        Figure("the app is rid of all after", gone, "s", LEFT_SECONDS),
        Figure(f"held after {seconds:.0f} s", most),
    ]
