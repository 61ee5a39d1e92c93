"""What the analyses say about the runs being watched: computed by one thread of its own, once for all viewers.

An analysis reads many steps and takes much longer than a poll may. So the thread of the Live feed never runs one: a poll says how far
its run has got (:meth:`Insights.watch`) and takes the newest verdict there is, and the details are asked for with :meth:`Insights.detail`.
Each analysis of a run is made once per (epoch, step, whether it has ended); for a run that goes on they take a twenty-fifth of the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any

from rlhf_studio.logs.shareable import without_secrets
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import live_data, live_samples

logger = logging.getLogger(__name__)

KINDS = ("diagnosis", "learned")  # of every watched run
ON_DEMAND = ("scales",)  # made when somebody asks, of the place where the run is then
MOST_RUNS = 64
MOST_WAITING = 200
REST = 25  # how many times as long as an analysis took, the next one of a run that goes on is waited for
LEAST_REST, LONGEST_REST = 2.0, 30.0  # seconds
FORGET_AFTER = 30.0  # seconds without a viewer after which a run's new steps are left alone
BROKEN = "This analysis could not be made. The app's own log says why."
NOT_YET = "Nothing to say before the first step."


def analyses() -> dict[str, Callable[[Any], Any]]:
    """The analyses by kind, each from an open reader to a record. The one place that names them, so that tests can put others there.

    They are imported when the first run is watched: the app starts sooner.
    """
    from rlhf_studio.analysis.doctor import diagnose
    from rlhf_studio.analysis.learned import what_was_learned

    return {"diagnosis": diagnose, "learned": what_was_learned, "scales": live_samples.run_scales}


@dataclass(frozen=True)
class Place:
    """How far a run has got: what an analysis of it depends on."""

    epoch: int
    step: int
    state: str

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come for now."""
        return self.state in ENDED

    @property
    def key(self) -> tuple[int, int, bool]:
        return self.epoch, self.step, self.ended


@dataclass
class _Known:
    """What the thread holds of one run: answers by kind, each with the place that it is true of."""

    place: Place
    asked_at: float
    answers: dict[str, tuple[tuple[int, int, bool], bytes]] = field(default_factory=dict)
    verdict: bytes = b""
    version: str = ""
    next_at: float = 0.0
    waiting: list[tuple[str, Future[bytes]]] = field(default_factory=list)

    def lacks(self) -> list[str]:
        """The kinds whose answer is not of the newest place."""
        return [kind for kind in KINDS if self.answers.get(kind, (None, b""))[0] != self.place.key]


class Insights:
    """Runs the analyses for all viewers of one app.

    Args:
        workspace: where the runs are.
        open_reader: gives a reader for a run folder; tests count reads through it.
        find_analyses: gives the analyses by kind; :func:`analyses` without it.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        open_reader: Callable[[Any], Any] = RunReader,
        find_analyses: Callable[[], dict[str, Callable[[Any], Any]]] | None = None,
    ) -> None:
        self._workspace = workspace
        self._open_reader = open_reader
        self._find_analyses = find_analyses
        self._runs: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()  # held for look-ups alone, never during an analysis
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, run: str, place: Place | None) -> tuple[str, bytes]:
        """Say that somebody watches a run that has got to ``place``; gives the newest verdict as (version, JSON), both empty for none."""
        if place is None or not place.step:
            return "", b""
        with self._lock:
            known = self._known(run, place)
            if known.lacks():
                self._ensure_thread()
                self._wake.set()
            return known.version, known.verdict

    def detail(self, run: str, kind: str, place: Place | None) -> Future[bytes]:
        """The whole ``diagnosis`` or ``learned`` of a run as JSON: what is there by now, else the first one as soon as it is made.

        The ``scales`` are always of the newest place.
        """
        answer: Future[bytes] = Future()
        if place is None or not place.step:
            answer.set_result(live_data.encode_text({"problem": NOT_YET}))
            return answer
        with self._lock:
            known = self._known(run, place)
            have = known.answers.get(kind)
            of_before = kind in KINDS and not place.ended and have is not None and have[0][0] == place.epoch
            if have is not None and (have[0] == place.key or of_before):
                answer.set_result(have[1])
            elif sum(len(other.waiting) for other in self._runs.values()) >= MOST_WAITING:
                answer.set_result(live_data.encode_text({"problem": "Too many people are asking at once. Try again in a moment."}))
            else:
                known.waiting.append((kind, answer))
                self._ensure_thread()
                self._wake.set()
        return answer

    def close(self) -> None:
        """Stop the thread, after the analysis that it is making."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _known(self, run: str, place: Place) -> _Known:
        known = self._runs.get(run)
        if known is None:
            known = self._runs[run] = _Known(place, time.monotonic())
            while len(self._runs) > MOST_RUNS:
                _, dropped = self._runs.popitem(last=False)
                _answer(dropped.waiting, live_data.encode_text({"problem": "Too many runs are being watched at once."}))
        if known.place.epoch != place.epoch:
            known.answers, known.verdict, known.version = {}, b"", ""
        if known.place.ended is not place.ended:
            known.next_at = 0.0
        known.place, known.asked_at = place, time.monotonic()
        self._runs.move_to_end(run)
        return known

    def _ensure_thread(self) -> None:
        if (self._thread is None or not self._thread.is_alive()) and not self._closed.is_set():
            self._thread = threading.Thread(target=self._work, name="insights", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not self._closed.is_set():
            due = self._next()
            if due is None:
                self._wake.wait(0.5)
                self._wake.clear()
                continue
            self._analyse(*due)

    def _next(self) -> tuple[str, Place, list[str]] | None:
        """The run that has waited longest for what is due; None when nothing is."""
        now = time.monotonic()
        with self._lock:
            for run, known in self._runs.items():
                wanted = {kind for kind, _ in known.waiting}
                rested = now >= known.next_at and now - known.asked_at < FORGET_AFTER
                due = [kind for kind in known.lacks() if rested or (kind in wanted and kind not in known.answers)]
                if not due and known.waiting:
                    due = [kind for kind in KINDS if kind in wanted]
                due += [kind for kind in ON_DEMAND if kind in wanted]
                if due:
                    return run, known.place, due
        return None

    def _analyse(self, run: str, place: Place, kinds: list[str]) -> None:
        began = time.monotonic()
        made = {kind: self._make(run, kind) for kind in kinds}
        took = time.monotonic() - began
        with self._lock:
            known = self._runs.get(run)
            if known is None or known.place.epoch != place.epoch:
                return
            for kind, (record, body) in made.items():
                known.answers[kind] = (place.key, body)
                if kind == "diagnosis" and record is not None:
                    known.verdict = live_data.encode_text(_headline(record))
                    known.version = f"{place.epoch}-{record['step']}-{int(place.ended)}"
            pause = 0.0 if place.ended else max(LEAST_REST, min(LONGEST_REST, REST * took))
            known.next_at = max(known.next_at, time.monotonic() + pause)
            done = set(known.answers) - (set(ON_DEMAND) - set(kinds))
            ready = [pair for pair in known.waiting if pair[0] in done]
            known.waiting = [pair for pair in known.waiting if pair[0] not in done]
            bodies = {kind: body for kind, (_, body) in known.answers.items()}
        for kind, answer in ready:
            _answer([(kind, answer)], bodies[kind])

    def _make(self, run: str, kind: str) -> tuple[dict[str, Any] | None, bytes]:
        """One analysis: its record as plain data and as JSON; a failure is told to the page, and to the app's log with its cause."""
        try:
            reader = self._open_reader(self._workspace.run_dir(run))
            found = (self._find_analyses or analyses)()[kind](reader)
            record = _plain(found if isinstance(found, dict) else asdict(found))
            return record, live_data.encode_text(record)
        except StoreError as error:
            return None, live_data.encode_text({"problem": str(error)})
        except Exception:
            logger.exception("the analysis %s of run %s failed", kind, run)
            return None, live_data.encode_text({"problem": BROKEN})


def _answer(waiting: list[tuple[str, Future[bytes]]], body: bytes) -> None:
    for _, answer in waiting:
        if answer.set_running_or_notify_cancel():
            answer.set_result(body)


def _headline(diagnosis: dict[str, Any]) -> dict[str, Any]:
    """What rides on a poll: the verdict's kind, sentence and first note, and how many findings there are of each level."""
    verdict = diagnosis["verdict"]
    levels = [finding["level"] for finding in diagnosis["findings"]]
    return {
        "kind": verdict["kind"],
        "sentence": verdict["sentence"],
        "note": verdict["reason"] if verdict["kind"] == "too early" else next(iter(verdict["notes"]), ""),
        "step": diagnosis["step"],
        "alarms": levels.count("alarm"),
        "warnings": levels.count("warning"),
        "notes": levels.count("note"),
    }


def _plain(value: Any) -> Any:
    """Numbers that are not finite become None, numpy's numbers become Python's; the rest stays."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | None):
        return without_secrets(value) if isinstance(value, str) else value
    return live_data.finite(value)
