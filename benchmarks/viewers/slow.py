"""Clients that are slow on purpose, beside viewers who are not: what the others feel of them, and how soon the app is rid of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable

from benchmarks.viewers.limits import Figure, percentile
from benchmarks.viewers.page import watching
from benchmarks.viewers.watched_run import Watched
from rlhf_studio.ui.html import plotly_script

SETTLE_SECONDS = 2.0
SLOWER, SLACK = 1.5, 0.05  # times the seconds without slow clients, and seconds, that the others' 95 % may take
LEFT_SECONDS, LEFT = 75.0, 0  # after that time, none of them may hold a connection any more
MEGABYTES = 2.0  # for each of them
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
        self.held = False
        self.gone_after = float("inf")

    async def hold(self) -> None:
        """Hold a connection as long as the app lets it."""
        loop, began = asyncio.get_running_loop(), time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            with contextlib.suppress(ConnectionError):
                await loop.sock_connect(connection, ("127.0.0.1", self._port))
                self.held = True
                await loop.sock_sendall(connection, self._sent)
                while await loop.sock_recv(connection, 1 if self._reads_slowly else 65536):
                    await asyncio.sleep(1.0 if self._reads_slowly else 0)
            self.held = False
            self.gone_after = time.monotonic() - began


@contextlib.asynccontextmanager
async def slow_clients(port: int, kind: str, count: int) -> AsyncIterator[list[Client]]:
    """``count`` of a kind, all at once."""
    clients = [Client(port, kind) for _ in range(count)]
    tasks = [asyncio.create_task(client.hold()) for client in clients]
    await asyncio.sleep(SETTLE_SECONDS)
    try:
        yield clients
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


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
            memory = watched.app.memory_info().rss
            async with slow_clients(watched.port, kind, count) as clients:
                seen.forget()
                await asyncio.sleep(seconds)
                beside, most = percentile(seen.latencies, 0.95), max(usual * SLOWER, usual + SLACK)
                grown = (watched.app.memory_info().rss - memory) / 1e6 / count
                await asyncio.sleep(max(0.0, LEFT_SECONDS - seconds))
                left = sum(client.held for client in clients)
                longest = max((client.gone_after for client in clients if not client.held), default=0.0)
            about = f"{count} clients, {kind}"
            found.append(Figure(f"{about}: a poll of the others, 95 %", 1000 * beside, "ms", 1000 * most))
            found.append(Figure(f"{about}: memory for each", grown, "MB", MEGABYTES))
            found.append(Figure(f"{about}: connected after {max(LEFT_SECONDS, seconds):.0f} s", left, "", LEFT))
            found.append(Figure(f"{about}: the last was let go after", longest, "s"))
    found.append(Figure("errors of the others", len(seen.problems), "", 0))
    for problem in seen.problems[:5]:
        print(f"error: {problem}", flush=True)
    return found
