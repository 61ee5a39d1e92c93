"""One reader thread per app that follows the runs being watched and keeps ready-made answers for every viewer.

The thread alone touches the disk. A poll looks up a frozen snapshot (:mod:`rlhf_studio.ui.live.snapshot`), takes the bytes that were built
for the first viewer at the same position, and returns: no disk, no lock, however many people watch. What is larger than a poll
(:mod:`rlhf_studio.ui.live.details`) is asked for with :meth:`LiveFeed.detail`, and read by the same thread once for everybody. The samples
of the newest step then come to the other viewers who follow it with their next poll, without a question of their own.
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

from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.feedback.held import Held
from rlhf_studio.ui.insights import Insights, Place
from rlhf_studio.ui.live import payloads
from rlhf_studio.ui.live.details import BEST, KINDS, Details
from rlhf_studio.ui.live.snapshot import Follower, Position, Snapshot

logger = logging.getLogger(__name__)

MOST_RUNS = 32
MOST_WAITING = 200
MOST_ASKED = 2000  # names in the polls of all viewers, whether there are such runs or not
FORGET_MISSING = 2.0  # seconds after which a name that no run has is forgotten
MISSING_REST = 1.0  # seconds after which a name that no run has is looked for again
BROKEN_REST = 10.0  # seconds after which a run that could not be followed is looked at again
BROKEN = "This cannot be shown: {error}. The app's own log has more."
TOO_MANY = "Too many runs are being watched at once. Close some of the pages and reload this one."
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
        self.insights, self._held = Insights(workspace), Held(workspace)
        self._boot = secrets.token_hex(4)
        self._asked: dict[str, float] = {}
        self._followers: dict[str, Follower] = {}
        self._answers: dict[str, Snapshot | bytes] = {}
        self._broken: dict[str, tuple[float, str]] = {}  # by run: when it is looked at again, and what was wrong
        self._listing: bytes | None = None
        self._listing_asked = 0.0
        self._listing_read = 0.0
        self._requests: queue.SimpleQueue[tuple[str, str, int, int, Future[bytes]]] = queue.SimpleQueue()
        self._details = Details()
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
        if not isinstance(answer, Snapshot):
            return answer if answer is not None else self._soon()
        return answer.answer(position) + self._samples(position, answer) if self._holds(answer) else self._soon()

    def _holds(self, snapshot: Snapshot) -> bool:
        return time.monotonic() - snapshot.checked_at < 5 + 10 * self._interval

    def _samples(self, position: Position, now: Snapshot) -> bytes:
        """The samples of the newest step for a viewer who follows it, once somebody has asked for them: another part of the answer."""
        same = position.epoch == now.epoch and position.follows == now.newest
        if position.follows is None or same or position.version == now.version or now.newest < 0:
            return b""
        known = self._details.known(position.run, "samples", now.newest, BEST, now)
        return b',"samples":' + known if known else b""

    def place(self, run: str) -> Place | None:
        """How far a watched run has got; None before it was read. Looks at memory only."""
        answer = self._answers.get(run)
        return answer.place if isinstance(answer, Snapshot) else None

    def detail(self, run: str, kind: str, step: int = 0, sample: int = 0) -> Future[bytes]:
        """One of :data:`~rlhf_studio.ui.live.details.KINDS` as complete JSON, e.g. the ``samples`` of a step."""
        self._ensure_thread()
        answer: Future[bytes] = Future()
        if not paths.is_run_name(run) or kind not in KINDS:
            answer.set_result(_problem("There is no such thing to show."))
            return answer
        snapshot = self._answers.get(run)
        known = self._details.known(run, kind, step, sample, snapshot) if isinstance(snapshot, Snapshot) and self._holds(snapshot) else None
        if known is not None:  # nobody waits for the thread, and it sleeps on
            answer.set_result(known)
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

    def _follower(self, run: str) -> Follower:
        self._workspace.run_dir(run)  # raises StoreError when the run was deleted
        if run not in self._followers:
            if len(self._followers) >= MOST_RUNS:
                raise StoreError(TOO_MANY, "busy")
            self._followers[run] = Follower(self._open_reader(self._workspace.run_dir(run)), self._boot, self._held)
        return self._followers[run]

    def _forget(self, run: str) -> None:
        for held in (self._asked, self._followers, self._answers, self._broken):
            held.pop(run, None)

    def _refresh_listing(self) -> None:
        now = time.monotonic()
        if now - self._listing_asked < 10 and now - self._listing_read > 1 and self._listing_asked:
            self._listing_read = now
            found = payloads.listing_payload(self._workspace.runs(), self._workspace.recordings.table)
            self._listing = payloads.encode_text(found)[1:-1]

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
        return self._details.read(follower.reader, run, kind, step, sample, follower.status or follower.reader.status())


def _problem(text: str) -> bytes:
    return payloads.encode_text({"problem": text})
