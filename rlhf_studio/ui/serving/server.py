"""The app on its socket: uvicorn with its own limits, in a thread, so that whoever starts it goes on.

Clients that send or read slowly are left to a proxy in front of the app, see docs/deploy.md.
"""

from __future__ import annotations

import errno
import socket
import threading
import time

import uvicorn
from fastapi import FastAPI

PORTS = range(7860, 7960)  # where no port is asked for, the first free one
MOST_CONNECTIONS = 800  # beyond them requests are answered with status 503
KEEP_ALIVE_SECONDS = 30  # a connection that rests for longer after an answer is closed
MOST_HEAD_BYTES = 32_000  # twice the limit of the door, so that people get the sentence of the door
CLOSING_SECONDS = 1  # for answers that are under way when the app ends


def listening_socket(host: str, port: int | None) -> socket.socket:
    """A socket that listens on an address of this machine. Raises OSError where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in PORTS if port is None else [port]:
        try:
            return socket.create_server((host.strip("[]"), number), family=family, backlog=512)
        except OSError as error:
            if port is not None or error.errno != errno.EADDRINUSE:
                raise
    raise OSError(f"all ports from {PORTS[0]} to {PORTS[-1]} are in use; choose one with --port")


def address_of(host: str, port: int) -> str:
    """The address that a browser on this machine opens."""
    name = "localhost" if host in ("", "0.0.0.0", "::") else host.strip("[]")
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


class AppServer:
    """An app that is served, from :meth:`start` to :meth:`close`. h11 reads requests: it bounds their heads, and drops headers that come
    after a body."""

    def __init__(self, app: FastAPI, listening: socket.socket) -> None:
        self.app = app
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=CLOSING_SECONDS,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, name="app-server", daemon=True)

    def start(self) -> None:
        """Return when the app answers. Raises OSError when it does not come to that."""
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise OSError("the app ended while it was starting")
            time.sleep(0.005)

    def close(self) -> None:
        """Answer nobody any more. May be called twice."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=5 + CLOSING_SECONDS)
