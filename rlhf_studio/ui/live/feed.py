"""One thread for each app that follows the watched runs and keeps finished answers for all viewers.

Only this thread reads the disk. A poll takes a frozen snapshot (:mod:`rlhf_studio.ui.live.snapshot`) and returns the bytes that were built
for the first viewer at the same position: no disk and no lock, however many people watch. Larger answers
(:mod:`rlhf_studio.ui.live.details`) are requested with :meth:`LiveFeed.detail`; the same thread reads each of them once for everybody. When
somebody has asked for the samples of the newest step, all other viewers who follow the run get them with their next poll.
"""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rlhf_studio.language import N_, _, language, speaking, told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback.held import Held
from rlhf_studio.ui.insights import Insights, Progress
from rlhf_studio.ui.live import payloads
from rlhf_studio.ui.live.details import BEST, KINDS, Details
from rlhf_studio.ui.live.snapshot import Follower, Position, Snapshot

logger = logging.getLogger(__name__)

MOST_RUNS = 32
MOST_WAITING = 200
MOST_ASKED = 2000  # names of runs in the polls of all viewers, also of runs that do not exist
FORGET_MISSING = 2.0  # seconds after which a name that no run has is forgotten
MISSING_REST = 1.0  # seconds after which the thread looks again for a run that did not exist
BROKEN_REST = 10.0  # seconds after which a run that could not be followed is looked at again
BROKEN = N_("This cannot be shown: {error}. The app's own log has more.")
TOO_MANY = N_("Too many runs are being watched at once. Close some of the pages and reload this one.")
OPENING = b'"opening":true'
MISSING = b'"missing":true'


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
        self._open_reader = open_reader
        self._interval = interval
        self._forget_after = forget_after
        self._old_after = 5 + 10 * interval
        self.insights, self._held = Insights(workspace), Held(workspace)
        self._boot = secrets.token_hex(4)
        self._asked_at: dict[str, float] = {}
        self._followers: dict[str, Follower] = {}
        self._answers: dict[str, Snapshot | bytes] = {}
        self._broken: dict[str, tuple[float, str]] = {}  # by run: when it is looked at again, and what was wrong
        self._listing: bytes | None = None
        self._listing_asked = 0.0
        self._listing_read = 0.0
        self._requests: queue.SimpleQueue[tuple[str, str, int, int, str, Future[bytes]]] = queue.SimpleQueue()
        self._details = Details()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def poll(self, position: Position) -> bytes:
        """The answer to a poll: the text inside the braces of a JSON object. Reads memory only."""
        self._ensure_thread()
        now = time.monotonic()
        if not position.run:
            self._listing_asked = now
            fresh = now - self._listing_read < self._old_after  # nobody may have asked for hours
            return payloads.told_again(b"{%b}" % self._listing)[1:-1] if self._listing and fresh else self._soon()
        if position.run not in self._asked_at and len(self._asked_at) >= MOST_ASKED:
            return _problem(_(TOO_MANY))[1:-1]
        self._asked_at[position.run] = now
        answer = self._answers.get(position.run)
        if not isinstance(answer, Snapshot):
            return self._soon() if answer is None else payloads.told_again(b"{%b}" % answer)[1:-1]
        return answer.answer(position) + self._samples(position, answer) if self._holds(answer) else self._soon()

    def _holds(self, snapshot: Snapshot) -> bool:
        return time.monotonic() - snapshot.checked_at < self._old_after

    def _samples(self, position: Position, now: Snapshot) -> bytes:
        """The samples of the newest step, as another part of the answer, for a viewer who follows the run; empty until somebody asked for
        them."""
        same = position.epoch == now.epoch and position.follows == now.newest
        if position.follows is None or same or position.version == now.version or now.newest < 0:
            return b""
        known = self._details.known(position.run, "samples", now.newest, BEST, now)
        return b',"samples":' + known if known else b""

    def progress(self, run: str) -> Progress | None:
        """How far a watched run has got; None before it was read. Reads memory only."""
        answer = self._answers.get(run)
        return answer.progress if isinstance(answer, Snapshot) else None

    def detail(self, run: str, kind: str, step: int = 0, sample: int = 0) -> Future[bytes]:
        """One of :data:`~rlhf_studio.ui.live.details.KINDS` as complete JSON, e.g. the ``samples`` of a step."""
        self._ensure_thread()
        answer: Future[bytes] = Future()
        if not paths.is_run_name(run) or kind not in KINDS:
            answer.set_result(_problem(_("There is no such thing to show.")))
            return answer
        snapshot = self._answers.get(run)
        known = self._details.known(run, kind, step, sample, snapshot) if isinstance(snapshot, Snapshot) and self._holds(snapshot) else None
        if known is not None:  # without waiting for the thread
            answer.set_result(known)
            return answer
        if self._requests.qsize() >= MOST_WAITING:
            answer.set_result(_problem(_("Too many people are asking at once. Try again in a moment.")))
            return answer
        self._requests.put((run, kind, step, sample, language(), answer))
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
        for run, asked_at in list(self._asked_at.items()):
            if now - asked_at > (FORGET_MISSING if self._answers.get(run) == MISSING else self._forget_after):
                self._forget(run)
                continue
            self._answers[run] = self._look_at(run, now)
            self._serve_requests()

    def _look_at(self, run: str, now: float) -> Snapshot | bytes:
        """What the viewers of a run get. When something is wrong with one run, only its viewers get the problem; the other runs go on."""
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

    def _follower(self, run: str) -> Follower:
        self._workspace.run_dir(run)  # raises StoreError when the run was deleted
        if run not in self._followers:
            if len(self._followers) >= MOST_RUNS:
                raise StoreError(TOO_MANY, "busy")
            self._followers[run] = Follower(self._open_reader(self._workspace.run_dir(run)), self._boot, self._held)
        return self._followers[run]

    def _forget(self, run: str) -> None:
        for by_run in (self._asked_at, self._followers, self._answers, self._broken):
            by_run.pop(run, None)

    def _refresh_listing(self) -> None:
        now = time.monotonic()
        if now - self._listing_asked < 10 and now - self._listing_read > 1 and self._listing_asked:
            self._listing_read = now
            listing = payloads.listing_payload(self._workspace.runs(), self._workspace.recordings.table)
            self._listing = payloads.encode_text(listing)[1:-1]

    def _serve_requests(self) -> None:
        while not self._requests.empty():
            run, kind, step, sample, spoken, answer = self._requests.get()
            if not answer.set_running_or_notify_cancel():
                continue
            with speaking(spoken):
                answer.set_result(self._answered(run, kind, step, sample))

    def _answered(self, run: str, kind: str, step: int, sample: int) -> bytes:
        try:
            return self._read_detail(run, kind, step, sample)
        except StoreError as error:
            return _problem(told(error))
        except Exception as error:
            logger.exception("could not read %s of run %s", kind, run)
            return _problem(_(BROKEN).format(error=type(error).__name__))

    def _read_detail(self, run: str, kind: str, step: int, sample: int) -> bytes:
        follower = self._follower(run)
        self._asked_at.setdefault(run, time.monotonic())
        return self._details.read(follower.reader, run, kind, step, sample, follower.status or follower.reader.status())


def _problem(text: str) -> bytes:
    return payloads.encode_text({"problem": text})
