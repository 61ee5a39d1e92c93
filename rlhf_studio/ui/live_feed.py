"""One reader thread per app that follows the runs being watched and keeps ready-made answers for every viewer.

The thread alone touches the disk. A poll looks up a frozen :class:`Snapshot`, takes the bytes that were built for the first
viewer at the same position, and returns: no disk, no lock, however many people watch. What is larger than a poll (a step's
samples, a response's tokens, the log) is asked for once with :meth:`LiveFeed.detail`, read by the same thread and cached.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from rlhf_studio.analysis.ends import summary_ends
from rlhf_studio.logs.shareable import without_secrets
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.listing import Listing
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import live_charts, live_data, live_samples
from rlhf_studio.ui.feedback.held import Held
from rlhf_studio.ui.insights import Insights, Place
from rlhf_studio.ui.lab.varying import handed_over
from rlhf_studio.ui.sent import member

logger = logging.getLogger(__name__)

MOST_RUNS = 32
MOST_DELTA_ROWS = 500
MOST_EVENTS = 200
MOST_DETAILS = 128
MOST_WAITING = 200
MOST_ASKED = 2000  # names in the polls of all viewers, whether there are such runs or not
FORGET_MISSING = 2.0  # seconds after which a name that no run has is forgotten
MISSING_REST = 1.0  # seconds after which a name that no run has is looked for again
BROKEN_REST = 10.0  # seconds after which a run that could not be followed is looked at again
BROKEN = "This cannot be shown: {error}. The app's own log has more."
TOO_MANY = "Too many runs are being watched at once. Close some of the pages and reload this one."
OPENING = b'"opening":true'
MISSING = b'"missing":true'


@dataclass(frozen=True)
class Position:
    """Where a viewer stands: what the page sends with every poll. A member of another type counts as missing.

    ``sample`` is whose tokens are wanted, ``insight`` the version of the verdict that the page shows.
    """

    run: str = ""
    version: str = ""
    epoch: int = -1
    step: int = -1
    event: int = 0
    sample: int = 0
    insight: str = ""

    @classmethod
    def parse(cls, data: Any) -> Position:
        """Read a position from untrusted JSON."""
        run, version, insight = member(data, "run"), member(data, "version"), member(data, "insight")
        return cls(
            run=run if isinstance(run, str) and paths.is_run_name(run) else "",
            version=version if isinstance(version, str) else "",
            epoch=_integer(member(data, "epoch"), -1),
            step=_integer(member(data, "step"), -1),
            event=_integer(member(data, "event"), 0),
            sample=_integer(member(data, "sample"), 0),
            insight=insight if isinstance(insight, str) else "",
        )


def _integer(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else default


@dataclass(frozen=True)
class Snapshot:
    """One run at one moment. Answers are built on first demand and shared by all viewers at the same position."""

    version: str
    place: Place
    status: bytes
    settings: bytes
    settings_since: int
    sample_steps: bytes
    series: live_data.Series
    events: tuple[dict[str, Any], ...]
    checked_at: float
    _answers: dict[tuple[int, int], bytes] = field(default_factory=dict, repr=False)

    def answer(self, position: Position) -> bytes:
        """The inside of the reply's JSON object for a viewer at ``position``."""
        if position.version == self.version:
            return b'"same":true'
        full = (
            position.epoch != self.place.epoch
            or not 0 <= position.step <= self.series.last_step
            or position.step == 0 in self.series.steps()[:1]  # what was measured before training may be news
            or len(self.series.steps(position.step)) > MOST_DELTA_ROWS
        )
        key = (-1, 0) if full else (position.step, position.event)
        if key not in self._answers:
            if len(self._answers) >= 64:
                self._answers.clear()
            self._answers[key] = self._build(full, *key)
        return self._answers[key]

    def touched(self, now: float) -> Snapshot:
        """The same snapshot, seen to be still true at ``now``; it keeps the answers that were built."""
        return replace(self, checked_at=now)

    def _build(self, full: bool, step: int, event: int) -> bytes:
        events = [row for row in self.events if row["id"] > event][-MOST_EVENTS:]
        head = {"version": self.version, "epoch": self.place.epoch, "full": full, "last_step": self.series.last_step, "events": events}
        parts = [
            live_data.encode_text(head)[1:-1],
            b'"status":' + self.status,
            b'"sample_steps":' + self.sample_steps,
            b'"series":' + live_data.encode_numbers(self.series.payload(step, wanted=live_charts.is_shown)),
        ]
        if full or step < self.settings_since:
            parts.append(b'"settings":' + self.settings)
        return b",".join(parts)


class _Follower:
    """The thread's own view of one run: an open reader and all that was read so far."""

    def __init__(self, reader: Any, boot: str, held: Held | None = None) -> None:
        self.reader, self._held = reader, held
        self.snapshot: Snapshot | None = None
        self.status: RunStatus | None = None
        self._boot = boot
        self._changes = 0
        self._start_over()

    def _start_over(self) -> None:
        self._config = self.reader.config()
        self._settings, self._settings_since = self._read_settings(), 0
        self._series = live_data.Series()
        self._events: list[dict[str, Any]] = []
        self._sample_steps = b"[]"
        self._checkpoints: list[Any] = []
        self._first_and_last: dict[str, tuple[float | None, float | None]] = {}
        self._seen: tuple[int, int, str] | None = None

    def _read_settings(self) -> bytes:
        return live_data.encode_text(live_data.settings_payload(self._config, self.reader.changes()))

    def refresh(self, now: float) -> Snapshot:
        """Read what is new. One small read when nothing changed; the data only when the run's sequence number moved."""
        with self.reader.snapshot():
            return self._refresh(now)

    def _refresh(self, now: float) -> Snapshot:
        status = self.reader.status()
        if self.status is not None and status.epoch != self.status.epoch:
            self._start_over()
        seen = (status.epoch, status.seq, status.state)
        if moved := seen != self._seen:
            self._read(status)
            self._seen = seen
        self.status = status
        known = (self._series, self._checkpoints, self._first_and_last, self._config.stage)
        encoded = live_data.encode_text(live_data.status_payload(status, *known, self._held.by(status) if self._held else ""))
        if moved or self.snapshot is None or encoded != self.snapshot.status:
            self._changes += 1
            self.snapshot = Snapshot(
                version=f"{self._boot}-{self._changes}",
                place=Place(status.epoch, self._series.last_step, status.state, status.starter),
                status=encoded,
                settings=self._settings,
                settings_since=self._settings_since,
                sample_steps=self._sample_steps,
                series=self._series.freeze(),
                events=tuple(self._events),
                checked_at=now,
            )
        else:
            self.snapshot = self.snapshot.touched(now)
        return self.snapshot

    def _read(self, status: RunStatus) -> None:
        last_event = self._events[-1]["id"] if self._events else 0
        new_events: list[dict[str, Any]] = []
        while batch := self.reader.events_since(new_events[-1]["id"] if new_events else last_event, limit=MOST_EVENTS):
            new_events += live_data.event_rows(batch)
            self._series = live_data.Series(begun) if (begun := live_data.before_training(batch)) else self._series  # the newest counts
        while rows := self.reader.metrics_since(self._series.last_step if self._series.count else -1, limit=5000):
            self._series.append(rows)
        self._events = (self._events + new_events)[-5 * MOST_EVENTS :]
        self._sample_steps = live_data.encode_numbers(live_data.step_ranges(self.reader.rollout_steps()))
        if self._seen is None or status.state != self._seen[2] or any(event["kind"] in ("checkpoint", "resume") for event in new_events):
            self._checkpoints = self.reader.checkpoints()
        if any(event["kind"] == "setting" for event in new_events):
            self._settings, self._settings_since = self._read_settings(), self._series.last_step
        self._first_and_last = summary_ends(self.reader, self._config.stage) if status.state in ENDED else {}


class LiveFeed:
    """Follows runs of one workspace for all viewers of one app.

    Args:
        workspace: where the runs are.
        open_reader: gives a reader for a run folder; tests count reads through it.
        interval: seconds between two looks at a watched run.
        forget_after: seconds without a viewer after which a run is no longer followed.

    Attributes:
        insights: what the analyses say of the runs; a thread of its own.
    """

    def __init__(
        self, workspace: Workspace, *, open_reader: Callable[[Any], Any] = RunReader, interval: float = 0.4, forget_after: float = 30.0
    ) -> None:
        self._workspace = workspace
        self._all = Listing(workspace)
        self._open_reader = open_reader
        self._interval = interval
        self._forget_after = forget_after
        self.insights, self._held = Insights(workspace), Held(workspace)
        self._boot = secrets.token_hex(4)
        self._asked: dict[str, float] = {}
        self._followers: dict[str, _Follower] = {}
        self._answers: dict[str, Snapshot | bytes] = {}
        self._broken: dict[str, tuple[float, str]] = {}  # by run: when it is looked at again, and what was wrong
        self._listing: bytes | None = None
        self._listing_asked = 0.0
        self._listing_read = 0.0
        self._requests: queue.SimpleQueue[tuple[str, str, int, int, Future[bytes]]] = queue.SimpleQueue()
        self._details: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def poll(self, position: Position) -> bytes:
        """The inside of the JSON object that answers a poll. Looks at memory only."""
        self._ensure_thread()
        now = time.monotonic()
        if not position.run:
            self._listing_asked = now
            return self._listing or self._soon()
        if position.run not in self._asked and len(self._asked) >= MOST_ASKED:
            return _problem(TOO_MANY)[1:-1]
        self._asked[position.run] = now
        answer = self._answers.get(position.run)
        if isinstance(answer, Snapshot):
            return answer.answer(position) if now - answer.checked_at < 5 + 10 * self._interval else self._soon()
        return answer if answer is not None else self._soon()

    def place(self, run: str) -> Place | None:
        """How far a watched run has got; None before it was read. Looks at memory only."""
        answer = self._answers.get(run)
        return answer.place if isinstance(answer, Snapshot) else None

    def detail(self, run: str, kind: str, step: int = 0, sample: int = 0) -> Future[bytes]:
        """Ask the thread for one of :data:`_DETAILS` as complete JSON, e.g. the ``samples`` of a step or the ``tokens`` of a sample."""
        self._ensure_thread()
        answer: Future[bytes] = Future()
        if not paths.is_run_name(run) or kind not in _DETAILS:
            answer.set_result(_problem("There is no such thing to show."))
            return answer
        if self._requests.qsize() >= MOST_WAITING:
            answer.set_result(_problem("Too many people are asking at once. Try again in a moment."))
            return answer
        self._requests.put((run, kind, step, sample, answer))
        self._wake.set()
        return answer

    def close(self) -> None:
        """Stop the thread and let go of all run folders."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.insights.close()

    def _soon(self) -> bytes:
        self._wake.set()
        return OPENING

    def _ensure_thread(self) -> None:
        if (self._thread is None or not self._thread.is_alive()) and not self._closed.is_set():
            self._thread = threading.Thread(target=self._follow, name="live-feed", daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(self._interval)
            self._wake.clear()
            try:
                self._serve_requests()
                self._refresh_runs()
                self._refresh_listing()
            except Exception:
                logger.exception("the live feed could not refresh; trying again")

    def _refresh_runs(self) -> None:
        now = time.monotonic()
        for run, asked in list(self._asked.items()):
            if now - asked > (FORGET_MISSING if self._answers.get(run) == MISSING else self._forget_after):
                self._forget(run)
                continue
            self._answers[run] = self._look_at(run, now)
            self._serve_requests()

    def _look_at(self, run: str, now: float) -> Snapshot | bytes:
        """What the viewers of a run get. What is wrong with one run is said to them alone; the other runs go on."""
        if self._broken.get(run, (now, ""))[0] > now:
            return self._answers[run]
        try:
            snapshot = self._follower(run).refresh(now)
            self._broken.pop(run, None)
            return snapshot
        except StoreError as error:
            self._followers.pop(run, None)
            self._broken[run] = now + (MISSING_REST if error.reason == "missing" else 0.0), ""
            return MISSING if error.reason == "missing" else _problem(str(error))[1:-1]
        except Exception as error:
            self._followers.pop(run, None)
            if self._broken.get(run, (now, ""))[1] != repr(error):  # the same fault is logged once
                logger.exception("the live feed cannot follow run %s", run)
            self._broken[run] = now + BROKEN_REST, repr(error)
            return _problem(BROKEN.format(error=type(error).__name__))[1:-1]

    def _follower(self, run: str) -> _Follower:
        self._workspace.run_dir(run)  # raises StoreError when the run was deleted
        if run not in self._followers:
            if len(self._followers) >= MOST_RUNS:
                raise StoreError(TOO_MANY, "busy")
            self._followers[run] = _Follower(self._open_reader(self._workspace.run_dir(run)), self._boot, self._held)
        return self._followers[run]

    def _forget(self, run: str) -> None:
        for held in (self._asked, self._followers, self._answers, self._broken):
            held.pop(run, None)

    def _refresh_listing(self) -> None:
        now = time.monotonic()
        if now - self._listing_asked < 10 and now - self._listing_read > 1 and self._listing_asked:
            self._listing_read = now
            found = live_data.listing_payload(self._all.runs(), self._workspace.recordings.table)
            self._listing = live_data.encode_text(found)[1:-1]

    def _serve_requests(self) -> None:
        while not self._requests.empty():
            run, kind, step, sample, answer = self._requests.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(self._read_detail(run, kind, step, sample))
            except StoreError as error:
                answer.set_result(_problem(str(error)))
            except Exception as error:
                logger.exception("could not read %s of run %s", kind, run)
                answer.set_result(_problem(BROKEN.format(error=type(error).__name__)))

    def _read_detail(self, run: str, kind: str, step: int, sample: int) -> bytes:
        follower = self._follower(run)
        self._asked.setdefault(run, time.monotonic())
        status = follower.status or follower.reader.status()
        # samples and tokens never change once written; the log and the watched answers do, with or without a new step
        age = status.seq if kind in _CHANGING else int(time.monotonic()) if kind == "log" else 0
        key = (run, status.epoch, kind, *((step, sample) if kind in _OF_A_SAMPLE else ()), age)
        if key in self._details:
            self._details.move_to_end(key)
            return self._details[key]
        answer = _DETAILS[kind](follower.reader, step, sample)
        if step <= status.step:  # a later step may be there the next time
            self._details[key] = answer
            while len(self._details) > MOST_DETAILS:
                self._details.popitem(last=False)
        return answer


def _problem(text: str) -> bytes:
    return live_data.encode_text({"problem": text})


_DETAILS: dict[str, Callable[[Any, int, int], bytes]] = {
    "samples": live_samples.samples,
    "tokens": live_samples.tokens,
    "watched": lambda reader, step, sample: live_samples.watched_payload(reader.watched(ends=True)),
    "answer": lambda reader, step, sample: live_samples.answer_payload(reader.watched(ends=True), sample),
    "scratch": lambda reader, step, sample: live_samples.scratch_payload(reader.scratch(), sample, live_samples.ppo_of(reader)),
    "settings": lambda reader, step, sample: live_data.encode_text(handed_over(reader)),
    "log": lambda reader, step, sample: live_data.encode_text({"text": without_secrets(reader.log_tail())}),
}
_OF_A_SAMPLE = ("samples", "tokens", "answer", "scratch")
_CHANGING = ("watched", "answer", "scratch")  # with every commit
