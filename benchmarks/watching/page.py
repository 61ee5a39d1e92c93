"""A viewer of the Live page, without a browser: the same questions at the same times as ``live.js`` and ``work.js`` of ``ui/assets/live/``.

One kept connection and a cookie of its own, a poll about a second after the last answer. After a new step: its samples, with the best
response's tokens, where they did not come with the poll. When it is due: one watched answer token by token. With every new verdict: what
was learned. Compression is asked for as browsers do. A question that fails is noted, and asked again on a new connection. As light as
possible, because it runs beside the training.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

POLL_SECONDS = 1.0  # LOCAL of ui/assets/shared/poll.js
SPREAD = 0.1  # as there
LOST = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, RuntimeError, ValueError)
OPENING_SECONDS = 0.15


@dataclass
class Traffic:
    """What all viewers of a window noted: seconds and bytes of every poll, number and bytes of the larger questions, what went wrong."""

    latencies: list[float] = field(default_factory=list)
    poll_bytes: list[int] = field(default_factory=list)
    fetches: int = 0
    fetched_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def forget(self) -> None:
        """Begin anew: what was noted while all was set up does not count. Problems do."""
        self.latencies.clear()
        self.poll_bytes.clear()
        self.fetches = self.fetched_bytes = 0


class Viewer:
    """One page that is open on a run."""

    def __init__(self, port: int, component: int, run: str, number: int, traffic: Traffic):
        self._port, self._component, self._run, self._traffic = port, component, run, traffic
        self._number, self._session = number, f"viewer{number}"
        self._position: dict[str, Any] = {"version": "", "epoch": -1, "step": -1, "event": 0}
        self._shown, self._watched, self._insight = -1, "", ""
        self._watch_every = 1

    async def watch(self) -> None:
        """Poll until cancelled."""
        failures = 0
        while True:
            try:
                self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    while not self._reader.at_eof():  # the app ends connections that rest, and browsers open another one
                        wait = await self._turn()
                        failures = 0
                        await asyncio.sleep(wait * random.uniform(1 - SPREAD, 1 + SPREAD))
                finally:
                    self._writer.close()
            except LOST as error:
                self._traffic.problems.append(f"viewer {self._number}: {type(error).__name__}: {error}"[:300])
                await asyncio.sleep(min(15.0, POLL_SECONDS * 2**failures))
                failures += 1

    async def _turn(self) -> float:
        """One poll, and what it leads to; the seconds to the next."""
        reply = await self._poll()
        opening = bool(reply.get("opening"))
        if not opening and not reply.get("same"):
            await self._take_in(reply)
        if "insight" in reply:
            self._insight = reply["insight"]
            await self._fetch("learned")
        return OPENING_SECONDS if opening else POLL_SECONDS

    async def _poll(self) -> dict[str, Any]:
        began = time.perf_counter()
        position = {**self._position, "follows": self._shown}
        reply, size = await self._ask("poll", {"run": self._run, "view": False, "insight": self._insight, **position})
        self._traffic.latencies.append(time.perf_counter() - began)
        self._traffic.poll_bytes.append(size)
        return reply

    async def _take_in(self, reply: dict[str, Any]) -> None:
        if "status" not in reply:
            raise RuntimeError(f"the app does not show the run: {reply}")
        self._watch_every = reply.get("settings", {}).get("watch_every", self._watch_every)
        last_event = reply["events"][-1]["id"] if reply["events"] else self._position["event"]
        self._position = {"version": reply["version"], "epoch": reply["epoch"], "step": reply["last_step"], "event": last_event}
        newest = reply["sample_steps"][-1][1] if reply["sample_steps"] else -1
        if newest > self._shown:
            self._shown = newest
            if reply.get("samples", {}).get("step") != newest:
                await self._fetch("samples", newest, -1)
        status = reply["status"]
        key = f"{reply['epoch']}:{status['step'] // self._watch_every}:{status['step'] > 0}:{status['state']}"
        if key != self._watched:
            self._watched = key
            await self._fetch("answer", sample=-1)

    async def _fetch(self, kind: str, step: int = 0, sample: int = 0) -> None:
        _, size = await self._ask("fetch", {"kind": kind, "step": step, "sample": sample, "run": self._run})
        self._traffic.fetches += 1
        self._traffic.fetched_bytes += size

    async def _ask(self, function: str, data: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """One server function of the page's component; its reply and the bytes of the body on the wire."""
        body = {"data": data, "component_id": self._component, "fn_name": function, "session_hash": self._session}
        text = json.dumps(body).encode()
        head = (
            f"POST /gradio_api/component_server/ HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept-Encoding: gzip, deflate, br\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        self._writer.write(head.encode() + text)
        status, headers = await self._head()
        raw = await self._body(headers)
        if status != 200:
            raise RuntimeError(f"{function}: HTTP {status}: {raw[:200]!r}")
        return json.loads(gzip.decompress(raw) if headers.get("content-encoding") == "gzip" else raw), len(raw)

    async def _head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await self._reader.readexactly(int(headers["content-length"]))
        parts = []
        while size := int((await self._reader.readuntil(b"\r\n")).strip() or b"0", 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)


@contextlib.asynccontextmanager
async def watching(count: int, port: int, component: int, run: str) -> AsyncIterator[Traffic]:
    """``count`` viewers who arrived within one poll's time of each other. Raises what went wrong with any of them."""
    traffic = Traffic()
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(Viewer(port, component, run, number, traffic).watch()))
        await asyncio.sleep(POLL_SECONDS / count)
    try:
        yield traffic
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
