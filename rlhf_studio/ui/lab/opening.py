"""Others' logs as read-only runs: a file that the browser read, or the path of a file or folder on this machine.

A log is opened in a process of its own, so that a huge one cannot hold the app.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.analysis.logs.apart import open_log_apart, open_log_sent
from rlhf_studio.analysis.logs.open_log import Opened
from rlhf_studio.config.io import ConfigError
from rlhf_studio.language import N_, _, together, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import MAX_NAME, Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.lab.following import Following
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy

MOST_SHOWN = 5  # problems
MOST_CHARACTERS = 4000  # of a path
_FIELDS = {"leave": N_("The log"), "go_on": N_("The log"), "path": N_("The path"), "name": N_("The name")}
_FIELDS |= {"tokenizer": N_("The tokenizer"), "weights": N_("The weights")}
Json = dict[str, Any]


class Opening:
    """Opens one log at a time.

    Attributes:
        opened: called when a log has become a run.
    """

    def __init__(self, workspace: Workspace, access: Access) -> None:
        self._workspace, self._access = workspace, access
        self._work = Bounded("open-log", threads=1, waiting=3)
        self._once = Once(lambda answer: "problem" not in answer)
        self._following = Following(workspace)
        self._closing = threading.Event()
        self.opened: Callable[[], None] = lambda: None

    @callable_by(Role.OPERATOR)
    async def open_log(self, data: Any, request: gr.Request) -> Json:
        """Open a log: its ``text``, or its bytes as ``base64``, with ``file_name``, or a ``path``; ``name`` is what the run is to be
        called, or empty, ``tokenizer`` what cuts texts, and ``weights`` those of TRL's reward columns. With ``follow`` the path is read on
        while it grows.

        Gives the ``run``, ``steps``, ``rollouts`` and ``notes``, or a ``problem`` that names line and field, with nothing made. A log that
        is followed gives ``following``, and the ``run`` where it has a response already; else ``waiting``, by which the page asks again
        with ``go_on``, or says with ``leave`` that nobody waits any more.
        Asked again with the same ``nonce``, it gives the same run.
        """
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        try:
            answer = await self._work.run(lambda: self._once.answer(data, lambda: self._opened(data)))
            if "run" in answer:
                self.opened()
            return answer
        except ConfigError as error:
            return {"problem": together(*(told(f"{problem}.".replace("..", ".")) for problem in error.problems[:MOST_SHOWN]))}
        except (StoreError, ValueError, OSError, TooBusy) as error:
            return {"problem": told(error)}

    def close(self) -> None:
        """Take no more files, and end what is being opened, or followed without a run yet."""
        self._closing.set()
        self._work.close()
        self._following.close()

    def _tick(self) -> None:
        if self._closing.is_set():
            raise StoreError("The app is closing; open the log again when it is back.", "state")

    def _opened(self, data: Any) -> Json:
        if waiting := _short_text(data, "leave"):
            return self._following.leave(waiting)
        if waiting := _short_text(data, "go_on"):
            return self._following.go_on(waiting, self._tick)
        if sent.member(data, "follow") is True:
            path, name, tokenizer, weights = (_short_text(data, field) for field in ("path", "name", "tokenizer", "weights"))
            if not path:
                raise ValueError(_("Give the path of the log on the app's machine: a file that the browser sends does not grow."))
            return self._following.start(_path_of(path), name, tokenizer, weights, self._tick)
        opened = self._read(data)
        return {"run": opened.run_id, "steps": opened.steps, "rollouts": opened.rollouts, "notes": list(map(told, opened.notes))}

    def _read(self, data: Any) -> Opened:
        content, file_name = _content(data), sent.member(data, "file_name")
        path, name = (_short_text(data, field) for field in ("path", "name"))
        more = {field: _short_text(data, field) for field in ("tokenizer", "weights")}
        if len(name) > MAX_NAME:
            raise ValueError(_("A run's name has at most {most} characters.").format(most=MAX_NAME))
        if content is not None:
            called = file_name if isinstance(file_name, str) else "log.jsonl"
            return open_log_sent(content, called, self._workspace.root, name, self._tick, **more)
        if path:
            return open_log_apart(_path_of(path), self._workspace.root, name, self._tick, **more)
        raise ValueError(_("Choose a file, or give the path of a file or folder on the app's machine."))


def _content(data: Any) -> bytes | None:
    """The file that the browser read; None where it sent none. Raises ValueError for what is no base64."""
    text, encoded = sent.member(data, "text"), sent.member(data, "base64")
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError(_("The file came damaged. Choose it again.")) from error
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else None


def _short_text(data: Any, field: str) -> str:
    """A field that a person filled in, without blanks around it; empty where it is none. Raises ValueError for a very long one."""
    value = sent.member(data, field)
    if not isinstance(value, str):
        return ""
    if len(value) > MOST_CHARACTERS:
        raise ValueError(_("{field} has more than {most:,} characters.").format(field=_(_FIELDS[field]), most=MOST_CHARACTERS))
    return value.strip()


def _path_of(path: str) -> Path:
    """The path that a person wrote, with their home folder for ``~``. Raises ValueError for the home of somebody who has none here."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        home = path.split("/")[0][:100]
        raise ValueError(_("{home} is nobody's home folder on this machine. Write the whole path.").format(home=home)) from error
