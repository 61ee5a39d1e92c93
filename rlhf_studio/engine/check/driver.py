"""Works through the list of checks with one child process at a time. Imports no torch.

The child has its own process group. After a check that was wrong, crashed or hung, a new child does the rest: a GPU whose context is
damaged answers no further question in the process that damaged it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.engine.check.checks import CHECKS, CRASHED, Check, NoDevice, Outcome, Task
from rlhf_studio.language import S_

LOG = "check.log"
MOST_BYTES = 1_000_000
SEND_SECONDS = 30.0
TRACE_BYTES = 4000
COMMAND = (sys.executable, "-m", "rlhf_studio", "job-server", "check")


def outcomes(task: Task, names: Sequence[str], seconds: float, command: Sequence[str] = COMMAND) -> Iterator[Outcome]:
    """The outcome of each check that ``names`` has, as it comes. ``command`` is replaced in tests.

    A check that would begin after ``seconds`` counts as wrong: nobody knows what it would have shown.

    Raises :class:`NoDevice` when the first check does not find the device, and OSError when the folder cannot be written.
    """
    ends = time.monotonic() + seconds
    with (task.folder / LOG).open("ab") as log:
        child = _Child(task, command, log.fileno())
        try:
            for check in (check for check in CHECKS if check.name in names):
                left = ends - time.monotonic()
                yield child.outcome(check, left) if left > 0 else Outcome(check.name, "wrong", S_("not done: the time was up (--minutes)"))
        finally:
            child.end()


class _Child:
    """The child process that is in use; a new one is started where there is none."""

    def __init__(self, task: Task, command: Sequence[str], log: int):
        self._task, self._command, self._log = task, list(command), log
        self._process: LineProcess | None = None

    def end(self) -> None:
        if self._process:
            self._process.kill()
        self._process = None

    def outcome(self, check: Check, left: float) -> Outcome:
        """Have one check done, in its own time and in what is ``left`` of all, in seconds."""
        started, limit = time.monotonic(), min(check.seconds, left)
        begins = (self._task.folder / LOG).stat().st_size
        try:
            outcome = self._ask(check.name, limit)
        except LineTimeout:
            outcome = Outcome(check.name, "wrong", S_(f"not at its end after {limit:.0f} s"))
        except (LineEnded, LineInvalid) as error:
            outcome = Outcome(check.name, "wrong", f"{CRASHED}: {S_(f'its process failed, {error}')}")
        if outcome.state == "wrong":
            self.end()
        if outcome.state == "wrong" and not outcome.seconds:  # the child had no time to say more
            took, trace = round(time.monotonic() - started, 2), _tail(self._task.folder / LOG, begins)
            return Outcome(outcome.name, "wrong", outcome.sentence, {}, took, trace)
        return outcome

    def _ask(self, name: str, seconds: float) -> Outcome:
        if self._process is None:
            environment = {**child_environment(os.environ, keep_hub_token=True), "PYTHONFAULTHANDLER": "1"}
            self._process = LineProcess(self._command, environment=environment, errors=self._log)
        self._process.send({"number": 1, "op": name, "task": self._task.to_json()}, SEND_SECONDS)
        ends, outcome = time.monotonic() + seconds, None
        while (event := self._process.receive(max(ends - time.monotonic(), 0.0), MOST_BYTES))["event"] != "done":
            if event["event"] == "no device":
                raise NoDevice(event["error"])
            outcome = _outcome(event, name)
        return outcome or Outcome(name, "wrong", f"{CRASHED}: {S_('it gave no answer')}")


def _outcome(event: dict[str, Any], name: str) -> Outcome:
    if event["event"] != "outcome":
        return Outcome(name, "wrong", f"{CRASHED}: {event.get('error', event['event'])}")
    return Outcome(**{field: event[field] for field in Outcome.__dataclass_fields__})


def _tail(log: Path, begins: int) -> str:
    """The end of what the log got since it had ``begins`` bytes."""
    with log.open("rb") as file:
        file.seek(max(begins, log.stat().st_size - TRACE_BYTES))
        return file.read().decode("utf-8", "replace")
