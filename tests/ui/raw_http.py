"""Requests as anyone can send them: every byte is ours, and no library mends what is wrong."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

SECONDS = 20


@dataclass(frozen=True)
class Raw:
    """A server on this machine's ``port``."""

    port: int

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """(status, body). ``body`` is sent as JSON unless it is bytes; ``headers`` may replace Host and Content-Type.

        Of a stream that goes on, the first line is read.
        """
        sent = {"Host": f"127.0.0.1:{self.port}", **({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            if data is not None and "Transfer-Encoding" not in sent:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            stream = (answer.getheader("content-type") or "").startswith("text/event-stream")
            return answer.status, answer.readline() if stream else answer.read()
        finally:
            connection.close()
