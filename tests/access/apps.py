"""An app in one of the four modes, with runs of several people, and with secrets in its environment that no answer may contain."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest
from gradio import oauth

from rlhf_studio.child_process.environment import NO_HUB_TOKEN
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.lessons.server import MESSAGES, answer
from rlhf_studio.runs import launch as launching
from rlhf_studio.runs import people
from rlhf_studio.runs.feedback.records import NewItem, NewTask
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.visitors.starters import Starter, set_starter
from rlhf_studio.ui.app import Server, launch
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.learn.computing import Computer, NotComputed
from rlhf_studio.ui.live import feed
from rlhf_studio.ui.visiting.modes import Mode
from tests.access import table
from tests.ui import fake_insights
from tests.ui.fake_run import FakeRun
from tests.ui.raw_http import functions_of
from tests.ui.train_helpers import ENGINE, install_world

TOKEN = "canary-of-the-operator-51c3"
SECRETS = {
    "RLHF_STUDIO_TOKEN": TOKEN,
    "HF_TOKEN": "canary-of-the-hub-8a27",
    "WANDB_API_KEY": "canary-of-the-tracker-e9d0",
    "OAUTH_CLIENT_SECRET": "canary-of-the-login-3f6b",
    "AWS_SECRET_ACCESS_KEY": "canary-of-the-cloud-77b1",
}
ANN, BOB = "A" * 22, "B" * 22  # two visitors or students: the numbers in their cookies
SPACE = {
    "SPACE_ID": "ann/studio",
    "SPACE_HOST": "ann-studio.hf.space",
    "SPACE_AUTHOR_NAME": "Ann",
    "OAUTH_CLIENT_ID": "client-1",
    "OAUTH_SCOPES": "openid profile",
}


@dataclass
class ServedApp:
    """A served app, and requests to it that look for secrets in everything that comes back.

    Attributes:
        runs: by whose they are: ``operator``, ``waiting`` (the operator's, in the queue), ``ended`` (too), and ``bob``.
        people: the headers of everybody that there is.
        called: by what name the app is asked for.
    """

    mode: str
    server: Server
    runs: dict[str, str] = field(default_factory=dict)
    task: str = ""
    people: dict[str, dict[str, str]] = field(default_factory=dict)
    called: str = "127.0.0.1"
    started: list[dict[str, Any]] = field(default_factory=list)
    _connection: http.client.HTTPConnection | None = None

    @cached_property
    def functions(self) -> dict[str, tuple[str, Any]]:
        """Every function that can be called."""
        return functions_of(self.server)

    @property
    def port(self) -> int:
        match = re.search(r":(\d+)/", self.server.url)
        assert match is not None
        return int(match[1])

    @property
    def root(self) -> Path:
        return self.server.workspace.root

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of a request; fails where one of them holds a secret."""
        sent = {"Host": self.called, **({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        for attempt in (0, 1):
            connection = self._connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                connection.request(method, path, data, sent)
                answer = connection.getresponse()
                break
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()
                self._connection = None
                assert attempt == 0
        content = answer.read()
        self._connection = None if answer.will_close or connection.sock is None else connection
        headers_received = answer.headers
        lines = "\n".join(f"{name}: {value}" for name, value in headers_received.items())
        for name, secret in SECRETS.items():
            told_to_owner = secret == TOKEN and self.mode == table.CLASS and sent.get("X-RLHF-Studio-Token") == TOKEN  # the teacher's link
            leaks = secret.encode() in content or secret in lines
            assert told_to_owner or not leaks, f"{name} is in the answer to {method} {path}"
        cookies_set = {"set-cookie": "\n".join(headers_received.get_all("set-cookie") or ())}
        return answer.status, {key.lower(): value for key, value in headers_received.items()} | cookies_set, content

    def call(self, function: str, data: Any, headers: dict[str, str], session: str = "s1") -> tuple[int, bytes]:
        """Ask a server function, or send an event and wait for its outcome."""
        path, body = self.functions[function]
        status, _, content = self.send("POST", path, body(data, session), headers)
        return status, content

    def start(self, who: str, *, session: str = "start", cookies: Mapping[str, str] | None = None, **values: Any) -> dict[str, Any]:
        """Press Start with these settings of the form; gives the outcome that the page is shown."""
        data = {"values": values, "basis": "world", "nonce": f"{who} {session} {len(self.started)}"}
        status, text = self.call("start_run", data, self.as_person(who, **(cookies or {})), session=f"{session}{len(self.started)}")
        assert status == 200, text
        outcome: dict[str, Any] = json.loads(json.loads(text)["data"][0])
        self.started.append(outcome)
        return outcome

    def as_person(self, who: str, **cookies: str) -> dict[str, str]:
        """The headers of somebody, with these cookies as well."""
        own = dict(self.people[who])
        if cookies:
            own_cookies = [own["Cookie"]] if "Cookie" in own else []
            own["Cookie"] = "; ".join([*own_cookies, *(f"{name}={value}" for name, value in cookies.items())])
        return own


def contents(root: Path, *, but: tuple[str, ...] = ()) -> dict[str, str]:
    """A checksum of each file below ``root``: of its bytes, or for a database of its rows. SQLite's own files beside a database are left
    out, because every reader makes them.

    ``but``: names of files that may change.
    """
    sums = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not name.endswith(("-shm", "-wal", "-journal")) and path.name not in but:
            content = _rows(path) if path.suffix == ".db" else path.read_bytes()
            sums[name] = hashlib.sha256(content).hexdigest()
        elif path.is_dir():
            sums[f"{name}/"] = ""
    return sums


def _rows(path: Path) -> bytes:
    """The rows of a database, read from a copy, so that reading changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for file in path.parent.glob(f"{path.name}*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        with closing(sqlite3.connect(Path(folder) / path.name)) as connection:
            connection.text_factory = bytes
            tables = [row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
            return repr([(table, connection.execute(f'SELECT * FROM "{table}"').fetchall()) for table in tables]).encode()


@contextmanager
def served(mode: str, root: Path, world: Path, **environment: str) -> Iterator[ServedApp]:
    """An app in this mode on an empty workspace ``root``, with the secrets and ``environment`` in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        environment_of(mode, patch, **environment)
        patch.setattr(SpeedMeasurement, "begin", lambda self, device: None)
        patch.setattr(Computer, "begin", lambda self: None)
        patch.setattr(Computer, "ask", answered_here)
        patch.setattr(feed, "Insights", partial(Insights, find_analyses=lambda: fake_insights.analyses(lambda: "improving")))
        install_world(world, patch)
        run_stand_ins(patch)
        host = "0.0.0.0" if mode == table.CLASS else "127.0.0.1"
        app = ServedApp(mode, launch(root, host=host, mode=Mode(mode)))
        app.people = people_of(app)
        try:
            yield app
        finally:
            app.server.close()


def answered_here(computer: Computer, question: dict[str, Any]) -> Any:
    """What the lessons' own process answers, without its start."""
    try:
        return json.loads(json.dumps(answer(question)))
    except MESSAGES as error:
        raise NotComputed(str(error)) from None


def run_stand_ins(patch: pytest.MonkeyPatch) -> None:
    """Engines start as always, but work without a model. A run of more than three steps goes on until it is stopped."""

    def command(run_dir: Path, mode: str) -> list[str]:
        return [sys.executable, "-c", ENGINE, str(run_dir), str(min(RunReader(run_dir).config().planned_steps, 5))]

    patch.setattr(launching, "engine_command", command)


def environment_of(mode: str, patch: pytest.MonkeyPatch, **more: str) -> None:
    """The variables of an app in this mode, with the secrets."""
    for name in ("SPACE_ID", "SYSTEM", "SPACE_HOST", "GRADIO_SERVER_NAME"):
        patch.delenv(name, raising=False)
    patch.setenv(NO_HUB_TOKEN, "")  # so that it is put back afterwards
    for name, value in {**SECRETS, **(SPACE if mode == table.SPACE else {}), **more}.items():
        patch.setenv(name, value)
    if "OPENID_PROVIDER_URL" in more:
        patch.setenv("SYSTEM", "spaces")
        know_login(patch)


def know_login(patch: pytest.MonkeyPatch) -> None:
    """Let Gradio know the login of the environment, as if its variables had been there when Gradio was imported."""
    for name in ("OPENID_PROVIDER_URL", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES"):
        patch.setattr(oauth, name, os.environ[name])


def cookie_of(server: Server, number: str) -> str:
    """The cookie with this number, signed by the app. In a class, this also makes its student come."""
    value = server.access.visitors.signed(number)
    server.access.room.students.come(server.access.visitors.key_of(value))
    return f"rlhf_studio_visitor={value}"


def people_of(app: ServedApp) -> dict[str, dict[str, str]]:
    """The headers of everybody that there is in a mode."""
    rating = Feedback(app.root).rating_link()
    ann = {"Cookie": cookie_of(app.server, ANN)}
    every = {
        table.FOREIGN: {"Sec-Fetch-Site": "cross-site", "X-RLHF-Studio-Token": TOKEN},
        table.VIEWER: {},
        table.RATER: {"X-RLHF-Studio-Rating-Token": rating},
        table.STUDENT: {"X-RLHF-Studio-Class-Token": app.server.access.room.link, **ann},
        table.VISITOR: ann,
        table.OPERATOR: {"X-RLHF-Studio-Token": TOKEN},
    }
    return {who: every[who] for who in table.MAY[app.mode]}


@contextmanager
def inhabited(app: ServedApp) -> Iterator[ServedApp]:
    """The same app with runs of the operator and of Bob: two at work, one that waits and one that has ended; and a task of feedback."""
    key = hashlib.sha256(BOB.encode()).hexdigest()[:24]
    role = {table.CLASS: "student", table.SPACE: "visitor"}.get(app.mode, "")
    made = {name: FakeRun(app.root, steps=30) for name in ("operator", "bob", "ended")}
    app.runs = {name: run.run_id for name, run in made.items()}
    with people.change(app.root) as connection:
        set_starter(connection, app.runs["bob"], Starter(role, key=key, address="elsewhere"))
    for run in made.values():
        run.run()
        run.step(2)
    made["ended"].checkpoint(2)
    made["ended"].finish()
    app.runs["waiting"] = app.server.workspace.submit(made["ended"].config, "it waits")
    task, _ = Feedback(app.root).create(NewTask("which is better"), [NewItem("a prompt", ("one", "two"))])
    app.task = task.id
    try:
        yield app
    finally:
        for run in (made["operator"], made["bob"]):
            run.close()
