"""Requests as anyone can send them: the tests write every byte, and no library corrects what is wrong."""

from __future__ import annotations

import http.client
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlhf_studio.ui import html
from rlhf_studio.ui.app import Server

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


PARTS = {
    "path:path": "index.js",
    "path_or_url:path": f"{html.ASSETS.as_posix()}/train/train.js",
    "url_path:path": "https://x.hf.space/a",
    "component_id": "4",
    "size": "8",
    "environment": "client",
}


def functions_of(server: Server) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Every function of the running app that a request can name: (its address, a function that makes the body for some data).

    A function for programs takes what it is given by its arguments' names."""
    every: dict[str, tuple[str, Callable[..., Any]]] = {}
    for index, event in server.demo.fns.items():
        taken = inspect.signature(event.fn).parameters.values() if event.api_visibility == "public" else ()
        names = {part.name: "" if part.default is part.empty else part.default for part in taken if part.name != "request"}

        def send(data: Any, session: str = "s1", index: int = index, names: dict[str, Any] = names) -> Any:
            given = data if isinstance(data, dict) else {}
            values = [given[name] if isinstance(given.get(name), str) else default for name, default in names.items()]
            return {"data": values, "event_data": data, "fn_index": index, "trigger_id": None, "session_hash": session}

        assert event.fn.__name__ not in every
        every[event.fn.__name__] = ("/gradio_api/run/predict", send)
    for index, block in server.demo.blocks.items():
        for function in getattr(block, "server_fns", None) or ():

            def ask(data: Any, session: str = "s1", index: int = index, name: str = function.__name__) -> Any:
                return {"data": data, "component_id": index, "fn_name": name, "session_hash": session}

            every[f"{block.elem_id}.{function.__name__}"] = ("/gradio_api/component_server/", ask)
    return every


def routes_of(server: Server) -> dict[str, str]:
    """Every route of the served app, those of included routers and of Gradio's app too: "METHOD /pattern", and a path that fits."""

    def walk(routes: Any) -> Iterator[Any]:
        for route in routes:
            if hasattr(route, "effective_route_contexts"):
                yield from route.effective_route_contexts()
            elif getattr(route, "routes", None):
                yield from walk(route.routes)
            else:
                yield route

    assert server.served is not None
    rows = {(method, route.path) for route in walk(server.served.app.routes) for method in route.methods}
    return {f"{method} {path}": re.sub(r"{([^}]+)}", lambda part: PARTS.get(part[1], "x"), path) for method, path in rows}
