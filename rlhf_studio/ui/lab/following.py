"""Following a log from the page: the command that a person can copy, in a process of its own. It goes on when the app ends, as an engine
does, and ends when its run is stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace

MOST = 8  # logs that are followed at the same time
PATIENCE = 20.0  # seconds in which the first response may come
LOOK_SECONDS = 0.2
WAITING = "No response has come yet. The log is followed, and the run appears here with the first one."
Json = dict[str, Any]


class Following:
    """The logs that this app has begun to follow."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, path: Path, name: str, tokenizer: str, tick: Callable[[], None]) -> Json:
        """Begin to follow a log. Raises StoreError and ValueError with a sentence for the person; ``tick`` may raise to give up waiting."""
        self._processes = [process for process in self._processes if process.poll() is None]
        if len(self._processes) >= MOST:
            raise StoreError(f"{MOST} logs are followed already; stop the run of one that has ended.", "state")
        with tempfile.TemporaryFile() as said:
            process = self._begin(path, name, tokenizer, said)
            self._processes.append(process)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                tick()
                lines = _lines_of(said)
                if begun := [line for line in lines if line.startswith("run: ")]:
                    return {"run": Path(begun[0].removeprefix("run: ")).name, "following": True, "notes": []}
                try:
                    process.wait(LOOK_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
                why = _lines_of(said)[-1:] or ["The log could not be followed."]
                raise ValueError(why[0].removeprefix("rlhf-studio: "))
        return {"following": True, "notes": [WAITING]}

    def _begin(self, path: Path, name: str, tokenizer: str, said: IO[bytes]) -> subprocess.Popen[bytes]:
        root = str(self._workspace.root.absolute())
        command = [sys.executable, "-m", "rlhf_studio", "open-log", str(path.absolute()), "--follow", "--workspace", root]
        command += [f"--name={name}"] if name else []
        command += [f"--tokenizer={tokenizer}"] if tokenizer else []
        environment = child_environment(os.environ)
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=root, start_new_session=True
        )


def _lines_of(said: IO[bytes]) -> list[str]:
    return os.pread(said.fileno(), 20_000, 0).decode("utf-8", "replace").splitlines()
