"""A log that somebody is still writing, as a run that grows with it: what is new is stored step by step.

A step is stored when a later one has begun and nothing new came for it, or when nothing came for :data:`SETTLED_SECONDS`. What comes later
for the last step that was stored is added to it; for an earlier one it is left out, and the run's diary counts it. So does a line that
cannot be read: others' mistakes do not end the following.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rlhf_studio.analysis.logs import records
from rlhf_studio.analysis.logs.index import OF_STEPS, TRAINED, LogIndex
from rlhf_studio.analysis.logs.line import LogLine
from rlhf_studio.analysis.logs.open_log import Opened, StepLines, notes_of, settings_of, title_of
from rlhf_studio.analysis.logs.shape import MOST_STEP_BYTES, MOST_STEPS
from rlhf_studio.analysis.logs.sources import GrowingFile
from rlhf_studio.analysis.logs.translate import Places, TranslatedLine, Translation, encoded
from rlhf_studio.analysis.logs.waiting import Waiting, WaitingSteps
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import RunGone, StoreError
from rlhf_studio.runs.records import EventRecord, Origin
from rlhf_studio.runs.writer import RunWriter, write_run
from rlhf_studio.visible import visible

POLL_SECONDS = 1.0
SETTLED_SECONDS = 5.0
MOST_WAITING_BYTES = 16_000_000  # of steps that are not stored yet
MOST_WARNINGS = 20
Level = Literal["info", "warning"]
STOPS = ("stop", "discard")
"""Commands that end the following: there is nothing to save or to discard."""


class Follower:
    """Follows one log. The run appears with its first response.

    Args:
        path: a file or folder, which may not be there yet.
        tokenizer, weights: as of :func:`~rlhf_studio.analysis.logs.open_log.open_log`.

    Attributes:
        run_dir: the run's folder; None until there is one.
    """

    def __init__(self, path: Path, workspace: Path, name: str = "", tokenizer: str = "", weights: str = ""):
        self._path, self._workspace = Path(path), Path(workspace)
        self._title = title_of(self._path, name)
        self._translation = Translation(self._path, tokenizer, weights)
        self._places: Places | None = None
        self._index = LogIndex()
        self._waiting = WaitingSteps()
        self._last: tuple[int, Waiting] | None = None  # the last step that was stored
        self._steps: list[int] = []
        self._without_metrics: set[int] = set()
        self._computed: set[str] = set()
        self._late = self._warnings = self._count = 0
        self._said: dict[str, Level] = {}
        self._unread_since: float | None = None  # when something could not be read for the first time since all could
        self._told_of_unread = False
        self._restarts: dict[int, int] = {}  # of each file that was written anew, by its id
        self._origin = Origin()
        self._writer: RunWriter | None = None
        self._opened = contextlib.ExitStack()
        self.run_dir: Path | None = None

    def poll(self, now: float, last: bool = False) -> list[int]:
        """Read what is new and store the steps that are whole; gives their numbers, as the run counts. ``now``: seconds of any clock.

        ``last``: nothing more is awaited. Raises ConfigError for a log of no form, StoreError when the run cannot be written.
        """
        stored: list[int] = []
        for line in self._translation.lines(last, patient=True):
            self._take(line, now)
            if self._waiting.trained_weight > MOST_WAITING_BYTES:
                stored += self._store(now, all_but_last=True)
        stored += self._store(now, everything=last)
        self._say_notes()
        self._say_unread(now, last)
        return stored

    def told_to_end(self) -> bool:
        """Whether somebody asked the run to stop; other requests are refused, as there is nothing to train. Raises StoreError."""
        if self._writer is None:
            return False
        commands = self._writer.pending_commands()
        for command in commands:
            outcome = "done" if command.kind in STOPS else "refused: a log that is followed can only be stopped"
            self._writer.acknowledge(command.id, outcome)
        return any(command.kind in STOPS for command in commands)

    @property
    def lines(self) -> int:
        """How many lines have come."""
        return self._count

    def close(self, failure: str = "", why: str = "") -> None:
        """End the run: as finished, for the sentence ``why`` where there is one, or as failed for the sentence ``failure``.

        Raises StoreError.
        """
        if self._writer is None:
            return
        try:
            if not failure:
                self._index.steps, self._index.without_metrics = self._steps, self._without_metrics
                self._index.passed_over |= dict.fromkeys(self._translation.reading.passed_over, "")
                assert self._places is not None
                notes = notes_of(self._index, self._origin, self._computed, self._places.of)
                notes += [S_(f"Lines that came after their step had been stored and were left out: {self._late:,}.")] if self._late else []
                text = " ".join([*[why][: bool(why)], S_(f"The log {self._origin.imported} is no longer followed."), *notes])
                self._writer.event(EventRecord("info", "import", text))
            self._writer.plan(self._last[0] + self._index.shift if self._last else 0)
            self._writer.set_state("failed" if failure else "finished", cause=failure)
        finally:
            self._writer = None
            self._opened.close()

    def why_nothing(self) -> str:
        """What is wrong with the files that are there, where none of them is read; else empty."""
        return self._translation.why_nothing() or next(iter(self._translation.unread.values()), "")

    def opened(self) -> Opened | None:
        """What was stored so far; None before the first response."""
        if self.run_dir is None:
            return None
        return Opened(self.run_dir.name, len(self._steps), self._index.rollouts, list(self._said))

    # --- reading -------------------------------------------------------------------------------------------------------------------

    def _take(self, new: TranslatedLine, now: float) -> None:
        if self._places is None and self._translation.form is not None:
            self._places = Places(self._translation.form)
        if new.fields is None or self._places is None:
            self._warn(f"{new.file.place(new.number)}: {new.problem}")
            return
        if new.file.restarts > self._restarts.get(id(new.file), 0):
            self._begin_anew(new.file, self._places)
        self._places.add(new)
        self._count += 1
        try:
            data = encoded(new)
            line = LogLine(self._count, data)
            self._index.add(line, 0, 0)
        except ConfigError as error:
            self._warn(str(self._places.in_their_words(error).problems[0]))
            return
        if line.kind in OF_STEPS:
            self._keep(records.step_of(line), line, len(data), now, again=new.file.restarts > 0)

    def _begin_anew(self, file: GrowingFile, places: Places) -> None:
        """A file was written anew: what it held before is replaced, as far as it is not stored."""
        self._restarts[id(file)] = file.restarts
        self._say(f"{file.name or 'The file'} was written anew while it was followed; the run may mix two trainings.", "warning")
        self._waiting.leave_out(lambda line: places.file_of(line.number) is file)

    def _keep(self, step: int, line: LogLine, size: int, now: float, again: bool) -> None:
        """Let a line wait with those of its step. ``again``: its file was written anew, so that it may be stored already."""
        if self._last is not None and step <= self._last[0] and step not in self._waiting:
            if step < self._last[0] or again:
                self._late += 1
                anew = S_(": a file was written anew") if again else ""
                self._say(f"Some lines came after their step had been stored{anew}. The diary counts them at the end.", "warning")
                return
            self._waiting.put(step, self._last[1])
        if line.kind not in TRAINED and self._waiting.untrained_weight > MOST_WAITING_BYTES:
            most = S_(f"{MOST_WAITING_BYTES:,} bytes of them")
            self._say(f"Some lines of steps that were not trained yet were left out: more than {most} would wait.", "warning")
            return
        waiting = self._waiting.add(step, line, size, now)
        if waiting.size > MOST_STEP_BYTES:
            raise ConfigError([Problem("", f"the lines of step {step} have more than {MOST_STEP_BYTES:,} bytes together")])

    # --- storing -------------------------------------------------------------------------------------------------------------------

    def _store(self, now: float, everything: bool = False, all_but_last: bool = False) -> list[int]:
        """Store the waiting steps that are whole, in order."""
        stored = []
        trained = self._waiting.trained()
        for step in trained:
            later, heard = step < trained[-1], self._waiting.heard(step)
            if not (everything or (later and all_but_last) or (later and now > heard) or now - heard >= SETTLED_SECONDS):
                break
            stored.append(self._store_step(step))
        if self._last is not None:
            for step in self._waiting.untrained_until(MOST_STEPS if everything else self._last[0]):
                self._store_rest(step)
        return stored

    def _store_rest(self, step: int) -> None:
        """Answers and diary lines of a step that has neither metrics nor responses."""
        assert self._writer is not None
        lines, at = StepLines(), step + self._index.shift if step else 0
        for line in self._waiting.pop(step).lines:
            lines.add(line, self._index.probes)
        if lines.watched:
            self._writer.watched(at, lines.watched)
        for event in lines.events:
            self._writer.event(event, at)

    def _store_step(self, step: int) -> int:
        if self._writer is None:
            self._begin(step)
        assert self._writer is not None
        waiting, lines, shift = self._waiting.pop(step), StepLines(), self._index.shift
        for line in waiting.lines:
            lines.add(line, self._index.probes)
        if not lines.metrics:
            self._without_metrics.add(step)
        self._computed |= lines.complete(self._index.is_ours, not lines.metrics)
        record = lines.record(step + shift, self._index.pieces)
        if len({rollout.sample for rollout in record.rollouts}) < len(record.rollouts):
            self._warn(f"step {step} has two responses of one number; they are numbered anew")
            record = replace(record, rollouts=[replace(rollout, sample=number) for number, rollout in enumerate(lines.rollouts)])
        if self._last is not None and step == self._last[0]:
            self._writer.go_back(step + shift - 1)
        else:
            self._steps.append(step)
        self._writer.commit_step(record)
        self._last = (step, waiting)
        return step + shift

    def _begin(self, first: int) -> None:
        """Make the run."""
        self._index.shift = 1 if first == 0 else 0
        label = visible(self._path.resolve().name, lines=False)
        words = self._translation.reading.words
        config, origin = settings_of(self._index, self._title, label, first + self._index.shift, words)
        reward, log_of = self._translation.reading.reward, self._places.log_of if self._places else ""
        self._origin = replace(origin, controls=["stop"], followed=True, log_of=log_of, reward=reward)
        run_dir = paths.run_dir(self._workspace, paths.new_run_id())
        create_run(run_dir, config, name=self._title, origin=self._origin)
        self._writer = self._opened.enter_context(write_run(run_dir, wait_for_disk=False))
        device = self._index.run.text("device") if self._index.run else None
        self._writer.plan(0)  # nobody knows how many steps will come
        self._writer.set_state("running", S_("Following the log"), device=device)
        self.run_dir = run_dir
        what = self._translation.form.what if self._translation.form else ""
        self._writer.event(EventRecord("info", "import", f"Following the log {label} ({what})."))
        for text, level in self._said.items():
            self._writer.event(EventRecord(level, "import", text))
        if self._index.probes:
            self._writer.probes(list(self._index.probes.values()), [])

    # --- saying --------------------------------------------------------------------------------------------------------------------

    def _say_notes(self) -> None:
        for note in self._translation.reading.notes:
            self._say(note)

    def _say_unread(self, now: float, last: bool) -> None:
        """Of files that cannot be read for longer than a file is rewritten."""
        unread = next(iter(self._translation.unread.values()), "")
        if not unread:
            if self._told_of_unread:
                self._say("What could not be read can be read again.")
            self._unread_since, self._told_of_unread = None, False
            return
        self._unread_since = now if self._unread_since is None else self._unread_since
        if last:
            self._say(f"{unread}. What it had at the end is missing here.", "warning")
        elif now - self._unread_since >= SETTLED_SECONDS:
            self._say(f"{unread}. It is tried again until following ends.", "warning")
            self._told_of_unread = True

    def _say(self, text: str, level: Level = "info") -> None:
        """Put a sentence in the diary, once. What is said before there is a run is written when it begins."""
        if text not in self._said:
            self._said[text] = level
            if self._writer is not None:
                self._writer.event(EventRecord(level, "import", text))

    def _warn(self, text: str) -> None:
        self._warnings += 1
        if self._warnings <= MOST_WARNINGS:
            self._say(S_(f"Left out: {text}.").replace("..", "."), "warning")


def follow_log(
    path: Path,
    workspace: Path,
    name: str = "",
    tokenizer: str = "",
    *,
    weights: str = "",
    stop: threading.Event,
    patience: float = math.inf,
    begun: Callable[[Path], None] = lambda run_dir: None,
    waiting: Callable[[str], None] = lambda why: None,
    stored: Callable[[int], None] = lambda step: None,
) -> Opened:
    """Follow a log until ``stop`` is set, somebody stops the run, or nothing came for ``patience`` seconds.

    Args:
        patience: the longest time between two lines, and before the first response.
        begun: hears the run's folder when there is one.
        waiting: hears once why the files that are there are not read, while none is.
        stored: hears the number of each step that is stored.

    Raises ConfigError for a log of no form, or when it has ended or patience is over before anything came; StoreError when the run cannot
    be written.
    """
    follower = Follower(path, workspace, name, tokenizer, weights)
    heard, said, ending, lines, deadline = False, "", "", 0, time.monotonic() + patience
    try:
        while not stop.is_set() and not follower.told_to_end():
            heard = _tell(follower, follower.poll(time.monotonic()), heard, begun, stored)
            if follower.lines > lines:
                lines, deadline = follower.lines, time.monotonic() + patience
            if (why := follower.why_nothing()) and not said:
                said = why
                waiting(why)
            if time.monotonic() >= deadline:
                minutes = S_(f"{patience / 60:g} minutes")
                if follower.run_dir is None:
                    nothing = S_(f"{path} had no response in {minutes}; it is no longer followed.")
                    raise ConfigError([Problem("", f"{nothing} {why}".strip())])
                ending = S_(f"Nothing came for {minutes}.")
                break
            stop.wait(POLL_SECONDS)
        _tell(follower, follower.poll(time.monotonic(), last=True), heard, begun, stored)
    except (ConfigError, StoreError) as error:
        if not isinstance(error, RunGone):
            follower.close(S_(f"The log could not be followed any further: {error}"))
        raise
    except MemoryError as error:
        message = S_("The log could not be followed any further: it needed too much memory.")
        follower.close(message)
        raise StoreError(message) from error
    follower.close(why=ending)
    opened = follower.opened()
    if opened is None:
        raise ConfigError([Problem("", f"{path} had no response")])
    return opened


def _tell(follower: Follower, new: list[int], heard: bool, begun: Callable[[Path], None], stored: Callable[[int], None]) -> bool:
    """Tell of the run, once, and of the steps that were stored; gives whether somebody has heard of the run."""
    if follower.run_dir is not None and not heard:
        heard = True
        begun(follower.run_dir)
    for step in new:
        stored(step)
    return heard
