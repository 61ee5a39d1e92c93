"""Following a log from the page: the command that a person can copy, in a process of its own. One that has made a run goes on when the app
ends, as an engine does, and ends when its run is stopped. One that has made none could not be stopped: it ends with the app, when patience
is over, when another log needs its place, and when the page that waits for it goes back or asks no more.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rlhf_studio.analysis.logs.apart import MEMORY_BYTES
from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.inputs.helper import MEMORY_VARIABLE, SMALL
from rlhf_studio.language import N_, S_, _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace

MOST = 8  # logs that are followed at the same time
LOOK_SECONDS, LOOKS = 0.2, 10  # how often one request of the page looks for the first response
PATIENCE = 120  # minutes without a line, after which following ends
END_SECONDS = 5.0  # in which a process ends by itself
UNASKED_SECONDS = 120.0  # after which nobody waits any more; a page in the background asks once a minute
NOTHING = N_(
    "Nothing is there yet; waiting. The run appears with the first response. When nothing comes for {minutes} minutes, waiting ends."
)
WAITING = N_(
    "No response has come yet; waiting. The run appears with the first response. When nothing comes for {minutes} minutes, waiting ends."
)
Json = dict[str, Any]


@dataclass(eq=False)
class _Follow:
    """A process that follows a log, the file with what it says, and what ends it when no page waits for it."""

    path: Path
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    unasked: threading.Timer | None = None

    def lines(self) -> list[str]:
        return os.pread(self.said.fileno(), 20_000, 0).decode("utf-8", "replace").splitlines()

    def run(self) -> str:
        """The id of its run; empty until there is one."""
        return next((Path(line.removeprefix("run: ")).name for line in self.lines() if line.startswith("run: ")), "")

    def asked(self, then: Callable[[], None] | None = None) -> None:
        """Somebody has asked for it: ``then`` is called when nobody does again for :data:`UNASKED_SECONDS`."""
        if self.unasked is not None:
            self.unasked.cancel()
        self.unasked = None
        if then is not None:
            self.unasked = threading.Timer(UNASKED_SECONDS, then)
            self.unasked.daemon = True
            self.unasked.start()

    def end(self) -> None:
        """End the process: as Ctrl-C does, and by force when that takes too long."""
        self.asked()
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.close()


class Following:
    """The logs that this app has begun to follow."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._follows: list[_Follow] = []
        self._lock = threading.RLock()

    def start(self, path: Path, name: str, tokenizer: str, weights: str, tick: Callable[[], None]) -> Json:
        """Begin to follow a log. Raises StoreError and ValueError with a sentence for the person; ``tick`` may raise to give up waiting.

        Gives the ``run``, or with ``waiting`` the name by which :meth:`go_on` and :meth:`leave` know it.
        """
        with self._lock:
            self._make_room()
            follow = self._begin(path, name, tokenizer, weights)
            self._follows.append(follow)
        return self._asked(follow, tick)

    def go_on(self, name: str, tick: Callable[[], None]) -> Json:
        """What has become of a log that is waited for, as :meth:`start` tells it."""
        follow = self._known(name)
        if follow is None:
            raise ValueError(_("The log is no longer followed. Open it again."))
        return self._asked(follow, tick)

    def leave(self, name: str) -> Json:
        """Nobody waits for the first response any more."""
        follow = self._known(name)
        if follow is not None:
            self._leave(follow)
        return {}

    def _known(self, name: str) -> _Follow | None:
        with self._lock:
            return next((follow for follow in self._follows if follow.name == name), None)

    def _leave(self, follow: _Follow) -> None:
        with self._lock:
            if follow in self._follows and not follow.run():
                self._end(follow)

    def _asked(self, follow: _Follow, tick: Callable[[], None]) -> Json:
        follow.asked()
        try:
            return self._first_words(follow, tick)
        except BaseException:
            self._end(follow)
            raise

    def close(self) -> None:
        """End those that have made no run, and leave the others alone."""
        with self._lock:
            for follow in self._follows:
                follow.asked()
                if not follow.run():
                    follow.end()
                follow.said.close()
            self._follows = []

    def _make_room(self) -> None:
        for ended in [follow for follow in self._follows if follow.process.poll() is not None]:
            self._end(ended)
        if len(self._follows) >= MOST:
            without = next((follow for follow in self._follows if not follow.run()), None)
            if without is None:
                raise StoreError(f"{MOST} logs are followed already; stop the run of one that has ended.", "state")
            self._end(without)

    def _end(self, follow: _Follow) -> None:
        with self._lock:
            if follow in self._follows:
                self._follows.remove(follow)
            follow.end()

    def _first_words(self, follow: _Follow, tick: Callable[[], None]) -> Json:
        for _look in range(LOOKS):
            tick()
            if run := follow.run():
                return {"run": run, "following": True, "notes": []}
            try:
                follow.process.wait(LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            why = follow.lines()[-1:] or [S_("The log could not be followed.")]
            raise ValueError(why[0].removeprefix("rlhf-studio: "))
        follow.asked(lambda: self._leave(follow))
        return {
            "following": True,
            "waiting": follow.name,
            "notes": [_(WAITING if follow.path.exists() else NOTHING).format(minutes=PATIENCE)],
        }

    def _begin(self, path: Path, name: str, tokenizer: str, weights: str) -> _Follow:
        root = str(self._workspace.root.absolute())
        command = [sys.executable, "-m", "rlhf_studio", "--lang=en", "open-log", str(path.absolute()), "--follow", f"--patience={PATIENCE}"]
        command += ["--workspace", root]
        command += [f"--name={name}"] if name else []
        command += [f"--tokenizer={tokenizer}"] if tokenizer else []
        command += [f"--reward-weights={weights}"] if weights else []
        environment = {**child_environment(os.environ), **SMALL, MEMORY_VARIABLE: str(MEMORY_BYTES)}
        with ExitStack() as stack:
            said = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=root, start_new_session=True
            )
            stack.pop_all()
        return _Follow(path, process, said)
