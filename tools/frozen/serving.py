"""The app of a checkout in one of its modes, and requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tools.frozen.running import Checkout

LOCAL, CLASS, SPACE, READ_ONLY = "local", "classroom", "space", "read-only"
MODES = (LOCAL, CLASS, SPACE, READ_ONLY)
TOKEN = "the-operators-token"
VISITOR, RATER_HEADER, CLASS_HEADER, TOKEN_HEADER = (
    *("rlhf_studio_visitor", "X-RLHF-Studio-Rating-Token", "X-RLHF-Studio-Class-Token", "X-RLHF-Studio-Token"),
)
OPERATOR = {TOKEN_HEADER: TOKEN}
_ON_A_SPACE = {"SPACE_ID": "ann/studio", "SPACE_HOST": "ann-studio.hf.space", "SPACE_AUTHOR_NAME": "Ann", "OAUTH_CLIENT_ID": "client-1"}
_FLAGS = {CLASS: ("--classroom", "--host", "0.0.0.0"), READ_ONLY: ("--read-only",)}
SECONDS = 120


@dataclass
class App:
    """A running app at ``port``."""

    process: subprocess.Popen[bytes]
    port: int

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
        """(status, headers, text) of a request; of a stream, what comes until its event is over."""
        sent = {"Content-Type": "application/json"} if body is not None else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), {**sent, **(headers or {})})
            answer = connection.getresponse()
            stream = (answer.getheader("content-type") or "").startswith("text/event-stream")
            text = b"".join(_event(answer)) if stream else answer.read()
            cookies = "\n".join(answer.headers.get_all("set-cookie") or ())
            return (
                answer.status,
                {**{key.lower(): value for key, value in answer.getheaders()}, "set-cookie": cookies},
                text.decode(errors="replace"),
            )

    def functions(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """Every function that a request can name, from the app's own list: (its path, the members of the body that name it)."""
        config = json.loads(self.send("GET", "/config", None, OPERATOR)[2])
        functions: dict[str, tuple[str, dict[str, Any]]] = {}
        for event in config["dependencies"]:
            path = "/gradio_api/queue/join" if event["queue"] else "/gradio_api/run/predict"
            functions[event["api_name"]] = path, {"fn_index": event["id"], "trigger_id": None}
        for component in config["components"]:
            for name in component["props"].get("server_fns") or ():
                body = {"component_id": component["id"], "fn_name": name}
                functions[f"{component['props']['elem_id']}.{name}"] = "/gradio_api/component_server/", body
        return functions

    def call(self, function: tuple[str, dict[str, Any]], data: Any, headers: dict[str, str]) -> tuple[int, str]:
        """(status, text) of a function of :meth:`functions`; of an event, what comes of it."""
        path, body = function
        session = f"frozen-{time.monotonic_ns()}"
        given = {"data": data} if "component_server" in path else {"data": [], "event_data": data}
        status, _, text = self.send("POST", path, {**body, **given, "session_hash": session}, headers)
        if status == 200 and path.endswith("/join"):
            status, _, text = self.send("GET", f"/gradio_api/queue/data?session_hash={session}", None, headers)
        return status, text

    def ask(self, name: str, data: Any, headers: dict[str, str] = OPERATOR) -> Any:
        """What a server function answers. Raises RuntimeError where it does not."""
        status, text = self.call(self.functions()[name], data, headers)
        if status != 200:
            raise RuntimeError(f"{name} answered {status}: {text}")
        return json.loads(text) if "component_server" in self.functions()[name][0] else text

    def class_token(self) -> str:
        """What is in the class link."""
        link = str(self.ask("shell-page.class_link", None)["link"])
        return parse_qs(urlsplit(link).query)["class"][0]

    def student(self) -> dict[str, str]:
        """The headers of a new student, who has opened the class link."""
        token = self.class_token()
        _, headers, _ = self.send("GET", f"/?class={token}")
        return {CLASS_HEADER: token, "Cookie": _cookie(headers["set-cookie"])}

    def visitor(self) -> dict[str, str]:
        """The headers of a new visitor, who has opened the page."""
        return {"Cookie": _cookie(self.send("GET", "/")[1]["set-cookie"])}

    def close(self, *, kill: bool = False) -> None:
        """End the app, with ``kill`` in the middle of its work."""
        self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        self.process.wait(SECONDS)


def _cookie(set_cookie: str) -> str:
    """The visitor's cookie out of the lines that set cookies."""
    lines = [line.split(";")[0] for line in set_cookie.splitlines()]
    return next((line for line in lines if line.startswith(f"{VISITOR}=")), "")


def _event(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    for line in answer:
        yield line
        if any(end in line for end in (b"process_completed", b"unexpected_error", b"close_stream")):
            return


@contextlib.contextmanager
def served(checkout: Checkout, workspace: Path, mode: str = LOCAL, *, kill: bool = False, token: str = TOKEN) -> Iterator[App]:
    """The app on a workspace, until the block ends. Without a ``token`` everybody at this machine is an operator."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = {"RLHF_STUDIO_TOKEN": token, **(_ON_A_SPACE if mode == SPACE else {})}
    environment = checkout.environment(**{name: value for name, value in more.items() if value})
    command = [sys.executable, str(checkout.root / "app.py"), "--workspace", str(workspace), "--port", str(port), *_FLAGS.get(mode, ())]
    with (checkout.work / f"app-{mode}.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=checkout.work, env=environment, stdout=log, stderr=log, start_new_session=True)
    app = App(process, port)
    try:
        _wait_for(app, checkout.work / f"app-{mode}.log")
        yield app
    finally:
        app.close(kill=kill)


def _wait_for(app: App, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and app.process.poll() is None:
        with contextlib.suppress(OSError):
            if app.send("GET", "/health")[0] == 200:
                return
        time.sleep(0.2)
    if app.process.poll() is None:
        os.kill(app.process.pid, signal.SIGKILL)
    raise RuntimeError(f"the app did not start:\n{log.read_text()}")
