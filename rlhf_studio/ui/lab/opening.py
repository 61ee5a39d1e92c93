"""Others' logs as read-only runs: the text of a file that the browser read, or the path of a file on this machine.

A log is opened in a process of its own, so that a huge one cannot hold the app.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.analysis.logs.apart import open_log_apart, open_log_text
from rlhf_studio.analysis.logs.open_log import Opened
from rlhf_studio.config.io import ConfigError
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import MAX_NAME, Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy

MOST_SHOWN = 5  # problems
Json = dict[str, Any]


class Opening:
    """Opens one log at a time."""

    def __init__(self, workspace: Workspace, access: Access) -> None:
        self._workspace, self._access = workspace, access
        self._work = Bounded("open-log", threads=1, waiting=3)
        self._once = Once(lambda answer: "run" in answer)
        self._closing = threading.Event()

    @callable_by(Role.OPERATOR)
    async def open_log(self, data: Any, request: gr.Request) -> Json:
        """Open a log: its ``text`` with ``file_name``, or a ``path``; ``name`` is what the run is to be called, or empty.

        Gives the ``run``, ``steps``, ``rollouts`` and ``notes``, or a ``problem`` that names line and field, with nothing made.
        Asked again with the same ``nonce``, it gives the same run.
        """
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        try:
            return await self._work.run(lambda: self._once.answer(data, lambda: self._opened(data)))
        except ConfigError as error:
            return {"problem": " ".join(f"{problem}." for problem in error.problems[:MOST_SHOWN]).replace("..", ".")}
        except (StoreError, ValueError, OSError, TooBusy) as error:
            return {"problem": str(error)}

    def close(self) -> None:
        """Take no more files, and end what is being opened."""
        self._closing.set()
        self._work.close()

    def _tick(self) -> None:
        if self._closing.is_set():
            raise StoreError("The app is closing; open the log again when it is back.", "state")

    def _opened(self, data: Any) -> Json:
        opened = self._read(data)
        return {"run": opened.run_id, "steps": opened.steps, "rollouts": opened.rollouts, "notes": opened.notes}

    def _read(self, data: Any) -> Opened:
        text, path, name = sent.member(data, "text"), sent.member(data, "path"), sent.member(data, "name") or ""
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise ValueError(f"A run's name has at most {MAX_NAME} characters.")
        if isinstance(text, str) and text:
            file_name = sent.member(data, "file_name")
            return open_log_text(text, file_name if isinstance(file_name, str) else "log.jsonl", self._workspace.root, name, self._tick)
        if isinstance(path, str) and path.strip():
            return open_log_apart(_path_of(path.strip()), self._workspace.root, name, self._tick)
        raise ValueError("Choose a file, or give the path of one on the app's machine.")


def _path_of(path: str) -> Path:
    """The path that a person wrote, with their home folder for ``~``. Raises ValueError for the home of somebody who has none here."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{path.split('/')[0][:100]} is nobody's home folder on this machine. Write the whole path.") from error
