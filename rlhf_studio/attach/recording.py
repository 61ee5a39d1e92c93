"""A run folder that is filled beside a training: in a thread of its own, from a queue, and never at the training's expense.

Whatever goes wrong here ends the recording with one warning; the training never hears of it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import RESERVE
from rlhf_studio.runs.errors import PROGRAM_ENDED, RECORDING_ENDED, RunGone, StoreError
from rlhf_studio.runs.program_end import end_of, watch_exit, what_ended_the_program
from rlhf_studio.runs.records import EventRecord, State, StepRecord
from rlhf_studio.runs.writer import Command, RunWriter, write_run
from rlhf_studio.system import OURS
from rlhf_studio.visible import text_of, visible

LOOK_SECONDS = 0.5  # between two looks at what people ask for
MOST_WAITING = 64  # steps that wait for the disk
PATIENCE = 1.0  # seconds that a full queue may hold the training up, once until it is empty again; steps without room are dropped
MOST_WORDS = 220  # characters of an error: of a log's last line 300 are read
UNCLOSED = S_(f"{PROGRAM_ENDED} before its training did.")
GOES_ON = S_("The training goes on without it.")
CLOSING_SECONDS = 60.0  # at the end, for the steps that still wait

Control = Literal["stop", "checkpoint"]
Job = Callable[[RunWriter], None]
_KINDS: dict[str, Control] = {"stop": "stop", "discard": "stop", "checkpoint": "checkpoint"}
_log = logging.getLogger("rlhf_studio.attach")


class Guard:
    """A block whose errors end the recording and go no further. Ctrl-C and the like pass."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._first = threading.Lock()

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        with self._first:
            first = self.error is None
            if first:
                self.error = error
        if first:
            known = isinstance(error, StoreError | OSError)
            text = "RLHF Studio records no more of this run: %s. The training goes on."
            _log.warning(text, text_of(error).rstrip("."), exc_info=None if known else error)
        return True


class Recording:
    """Writes one prepared run folder. Every method returns at once, may be called from any thread, and raises nothing.

    Args:
        controls: the requests that the training carries out; others are refused, and the run's diary says so.
        device: what the training computes on, for people.
        unclosed: the run's cause where the program ends and the recording was never closed.

    Attributes:
        words: set while the first step is built: lengths count words.
    """

    def __init__(self, run_dir: Path, guard: Guard, controls: Sequence[Control] = (), device: str = "", unclosed: str = UNCLOSED):
        self.run_dir, self.guard, self._controls, self._device = Path(run_dir), guard, controls, device
        self._jobs: queue.Queue[Job | None] = queue.Queue(MOST_WAITING)
        self.words = False
        self._open: dict[Control, list[Command]] = {}
        self._heard: set[int] = set()  # requests that are open, or whose answer waits to be written
        self._was_full, self._dropped, self._closed = False, 0, False  # was full: and not empty since
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._work, name="rlhf-studio-recording", daemon=True)
        self._thread.start()
        self._unclosed = unclosed
        watch_exit()
        atexit.register(self._end_with_program)

    # --- the training's side -------------------------------------------------------------------------------------------

    def commit(self, make: Callable[[], StepRecord]) -> None:
        """Store a step, which ``make`` builds in the recording's own thread."""
        self._put(lambda writer: self._commit(writer, make()))

    def event(self, record: EventRecord) -> None:
        """Store a line of the run's diary."""
        self._put(lambda writer: writer.event(record))

    def plan(self, total_steps: int) -> None:
        """Say how many steps the run is to have."""
        self._put(lambda writer: writer.plan(total_steps))

    def asked(self, control: Control) -> bool:
        """Whether a person has asked for it and it was not carried out yet."""
        return bool(self._open.get(control)) and not self.ended

    def saves(self) -> bool:
        """Whether the stop that was asked for shall save first."""
        return any(command.kind == "stop" for command in self._open.get("stop", []))

    def refuse(self, control: Control, why: str) -> None:
        """Refuse the requests of one kind, and say why in the run's diary."""
        self.carried_out(control, f"refused: {why}")
        self.event(EventRecord("warning", "control", why))

    def carried_out(self, control: Control, outcome: str) -> None:
        """Acknowledge the requests of one kind."""
        numbers = [command.id for command in self._open.pop(control, [])]

        def acknowledge(writer: RunWriter) -> None:
            for number in numbers:
                writer.acknowledge(number, outcome)

        self._put(acknowledge)

    @property
    def ended(self) -> bool:
        """Whether nothing is recorded any more. A forked process records nothing: the folder is its parent's."""
        return self._closed or self.guard.error is not None or os.getpid() != self._process

    def close(self, state: State | None, cause: str = "") -> None:
        """End the recording with the run's last state, after what still waits. None leaves the state open, as a killed process does."""
        if self._closed or os.getpid() != self._process:
            return
        ended, self._closed = self.ended, True
        atexit.unregister(self._end_with_program)
        with contextlib.suppress(queue.Full):
            if state is not None and not ended:
                self._jobs.put(lambda writer: writer.set_state(state, cause=cause), timeout=CLOSING_SECONDS)
            self._jobs.put(None, timeout=CLOSING_SECONDS)
        self._thread.join(CLOSING_SECONDS)
        if state is None and not ended:
            self._log_end(cause)

    def _end_with_program(self) -> None:
        """Nobody has closed the recording: what has ended the program says how, or nobody knows whether its training was over."""
        error = what_ended_the_program()
        state, cause = end_of(error) if error is not None else (None, "")
        self.close(state, cause or self._unclosed)

    def _put(self, job: Job) -> None:
        if self.ended:
            return
        if self._jobs.empty():
            self._was_full = False  # a disk that is merely slow frees a slot now and then: no reason to wait for each
        try:
            self._jobs.put(job, timeout=0 if self._was_full else PATIENCE)
        except queue.Full:
            self._was_full = True
            self._dropped += 1

    # --- the thread's side ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        stored = False
        with self.guard, write_run(self.run_dir, wait_for_disk=False) as writer:
            with self.guard:
                writer.set_state("running", device=self._device or None)
                self._write(writer)
            if self.guard.error is not None:
                writer.set_state("failed", cause=self._why_ended(self.guard.error))
            stored = True
        if not stored and self.guard.error is not None and not isinstance(self.guard.error, RunGone):
            self._log_end(self._why_ended(self.guard.error))

    def _why_ended(self, error: Exception) -> str:
        words = visible(text_of(error), lines=False).rstrip(".")[:MOST_WORDS]
        return f"{RECORDING_ENDED}: {words}. {GOES_ON}"

    def _log_end(self, text: str) -> None:
        """Say in the run's log what could not be stored, in one write: where the disk is full, what was set aside for it makes room."""
        with contextlib.suppress(OSError):
            (self.run_dir / RESERVE).unlink(missing_ok=True)
            log = os.open(self.run_dir / paths.LOG, os.O_WRONLY | os.O_APPEND | OURS)
            try:
                os.write(log, f"{text}\n".encode())
            finally:
                os.close(log)

    def _write(self, writer: RunWriter) -> None:
        next_look = 0.0
        while self.guard.error is None:
            with contextlib.suppress(queue.Empty):
                job = self._jobs.get(timeout=LOOK_SECONDS)
                if job is None:
                    return
                job(writer)
            if time.monotonic() >= next_look:
                self._look(writer)
                next_look = time.monotonic() + LOOK_SECONDS

    def _commit(self, writer: RunWriter, record: StepRecord) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            what = S_("1 record was") if dropped == 1 else S_(f"{dropped} records were")
            text = f"{what} dropped before this step: the disk was slower than the training."
            record.events.append(EventRecord("warning", "attach", text))
        if self.words:
            writer.counts_words()
            self.words = False
        writer.commit_step(record)

    def _look(self, writer: RunWriter) -> None:
        """Hear what people ask for."""
        for command in writer.pending_commands():
            if command.id in self._heard:
                continue
            self._heard.add(command.id)
            control = _KINDS.get(command.kind)
            if control in self._controls and control is not None:
                self._open.setdefault(control, []).append(command)
            else:
                text = f"The trainer that is recorded here does not carry out the request {command.kind!r}."
                writer.acknowledge(command.id, f"refused: {text}")
                writer.event(EventRecord("warning", "control", text))
