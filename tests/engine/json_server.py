"""A server on this machine that answers as a test says, and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[Any, ...]
"""(status, body) or (status, body, headers); the status "hang" never answers."""


class JsonServer(ThreadingHTTPServer):
    """Gives the listed answers in turn, the last for ever; or what ``reply`` makes of the request's body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Reply] = []
        self.reply: Callable[[dict[str, Any]], Reply] | None = None
        self.seen: list[dict[str, Any]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/score?key=s3cret"

    def start(self) -> JsonServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def close(self) -> None:
        self.release.set()
        self.shutdown()
        self.server_close()

    def answer_to(self, body: dict[str, Any]) -> Reply:
        if self.reply is not None:
            return self.reply(body)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Handler(BaseHTTPRequestHandler):
    server: JsonServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sent = {"path": self.path, "type": self.headers["Content-Type"], "key": self.headers["Authorization"], "body": body}
        self.server.seen.append(sent)
        status, text, headers = (*self.server.answer_to(body), {})[:3]
        if status == "hang":
            self.server.release.wait(30)
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())
        if headers.get("X-Then") == "hang":
            self.server.release.wait(30)

    def log_message(self, *arguments: Any) -> None:
        """Nothing on the screen."""
