"""An app that does nothing but answer: what the viewers themselves cost a run, so that it is not counted as the app's.

    python -m benchmarks.viewers.stand_in PORT ANSWERS.json

It sends what the real app sent before, a new step as often as the run makes one, from memory.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

SMALLEST = 1000  # bytes that the app compresses
RUNNING = "stand-in"


class StandIn:
    """Answers polls and larger questions. ``answers``: an answer of each kind, and ``step_seconds``."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._kinds = {kind: self._packed(answer) for kind, answer in answers.items() if isinstance(answer, dict)}
        self._news = {kind: answers[kind] for kind in ("full", "delta")}
        self._samples = answers["samples"]  # the app sends them with the poll, to all but the first who follows the run
        self._seconds, self._began = answers["step_seconds"], time.monotonic()
        self._first = answers["full"]["last_step"]
        self._made: dict[tuple[str, int], bytes] = {}
        self._same = self._packed({"now": time.time(), "run": RUNNING, "operator": False, "why_not": "", "same": True})

    @staticmethod
    def _packed(answer: dict[str, Any]) -> bytes:
        body, packed = json.dumps(answer).encode(), b""
        if len(body) >= SMALLEST:
            body, packed = gzip.compress(body, 1), b"Content-Encoding: gzip\r\n"
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (packed, len(body), body)

    def answer(self, asked: dict[str, Any]) -> bytes:
        """The whole HTTP response."""
        data = asked["data"]
        if asked["fn_name"] == "fetch":
            return self._kinds.get(data["kind"], self._same)
        step = self._first + int((time.monotonic() - self._began) / self._seconds)
        if data["version"] == f"v{step}":
            return self._same
        key = ("delta" if data["version"] else "full", step)
        if key not in self._made:
            if len(self._made) > 8:
                self._made.clear()
            news = {**self._news[key[0]], "version": f"v{step}", "last_step": step}
            news["sample_steps"] = [[1, step]]
            news["samples"] = {**self._samples, "step": step}
            news["status"] = {**news["status"], "step": step}
            news.pop("insight", None)
            self._made[key] = self._packed(news)
        return self._made[key]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                writer.write(self.answer(json.loads(await reader.readexactly(length))))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main(port: int, answers: Path) -> None:
    """Serve until ended."""
    stand_in = StandIn(json.loads(answers.read_text(encoding="utf-8")))
    async with await asyncio.start_server(stand_in.serve, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
