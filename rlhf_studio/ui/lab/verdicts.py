"""The doctor's verdict for each run of the table: found out by one thread of its own, once for all viewers.

A diagnosis reads a whole run, so it is never made while somebody waits for the table: :meth:`Verdicts.look` says which runs are on
the table, and gives what is known by now. A verdict holds for one (epoch, step, whether the run has ended).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.insights import Place, analyses
from rlhf_studio.ui.live_data import without_secrets

logger = logging.getLogger(__name__)

FORGET_AFTER = 30.0  # seconds without a viewer after which nothing more is found out
REST = 10.0  # a run that goes on is looked at again after so many times the seconds that its last diagnosis took
LEAST_REST = 5.0  # seconds
Json = dict[str, Any]


@dataclass
class _Known:
    """What is known of one run. ``key`` is the place that the verdict holds for; None before the first."""

    place: Place
    key: tuple[int, int, bool] | None = None
    verdict: Json | None = None
    next_at: float = 0.0


class Verdicts:
    """Finds out the verdicts of the runs on the table, the newest runs first.

    Args:
        workspace: where the runs are.
        diagnose: gives the diagnosis of an open reader; the doctor without it. Tests put another there.
    """

    def __init__(self, workspace: Workspace, diagnose: Callable[[RunReader], Any] | None = None) -> None:
        self._workspace, self._diagnose = workspace, diagnose
        self._runs: dict[str, _Known] = {}
        self._asked_at = float("-inf")
        self._lock = threading.Lock()  # held for look-ups alone, never during a diagnosis
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, places: Mapping[str, Place]) -> dict[str, Json]:
        """The verdicts that are known of these runs: ``kind``, ``sentence``, and how many ``alarms`` and ``warnings``.

        ``places`` are the runs of the table with how far each has got; a run without a step has no verdict.
        """
        with self._lock:
            self._asked_at = time.monotonic()
            kept = {run: self._runs.get(run) or _Known(place) for run, place in places.items() if place.step}
            for run, known in kept.items():
                if known.key is not None and known.key[0] != places[run].epoch:
                    known.key = known.verdict = None
                if known.place.ended is not places[run].ended:
                    known.next_at = 0.0
                known.place = places[run]
            self._runs = kept
            if any(known.key != known.place.key for known in kept.values()):
                self._start()
            return {run: known.verdict for run, known in kept.items() if known.verdict is not None}

    def kind_now(self, run: str, place: Place) -> str:
        """The kind of a run's verdict, found out at once when it is not known. It reads the whole run. Raises StoreError."""
        with self._lock:
            known = self._runs.get(run)
            if known is not None and known.key == place.key and known.verdict is not None:
                return str(known.verdict["kind"])
        return str(self._made(run)["kind"]) if place.step else "too early"

    def close(self) -> None:
        """Stop the thread, after the diagnosis that it is making."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _start(self) -> None:
        if (self._thread is None or not self._thread.is_alive()) and not self._closed.is_set():
            self._thread = threading.Thread(target=self._work, name="verdicts", daemon=True)
            self._thread.start()
        self._wake.set()

    def _work(self) -> None:
        while not self._closed.is_set():
            due = self._next()
            if due is None:
                self._wake.wait(1.0)
                self._wake.clear()
                continue
            took = self._find(*due)
            self._closed.wait(min(2.0, took))  # half of the time is left to those who wait for an answer

    def _next(self) -> tuple[str, Place] | None:
        now = time.monotonic()
        with self._lock:
            if now - self._asked_at > FORGET_AFTER:
                return None
            due = (run for run, known in self._runs.items() if known.key != known.place.key and now >= known.next_at)
            run = next(due, None)
            return None if run is None else (run, self._runs[run].place)

    def _find(self, run: str, place: Place) -> float:
        """Make a diagnosis and note it; gives the seconds that it took."""
        began = time.monotonic()
        try:
            verdict = self._made(run)
        except StoreError:
            verdict = None  # the row's own state and cause say what is wrong
        except Exception:
            logger.exception("the diagnosis of run %s failed", run)
            verdict = None
        took = time.monotonic() - began
        with self._lock:
            known = self._runs.get(run)
            if known is not None and known.place.epoch == place.epoch:
                known.key, known.verdict = place.key, verdict
                known.next_at = 0.0 if place.ended else time.monotonic() + max(LEAST_REST, REST * took)
        return took

    def _made(self, run: str) -> Json:
        diagnose = self._diagnose or analyses()["diagnosis"]
        diagnosis = diagnose(self._workspace.reader(run))
        levels = [finding.level for finding in diagnosis.findings]
        return {
            "kind": diagnosis.verdict.kind,
            "sentence": without_secrets(diagnosis.verdict.sentence),
            "alarms": levels.count("alarm"),
            "warnings": levels.count("warning"),
        }
