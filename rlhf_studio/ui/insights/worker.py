"""One thread that makes the analyses of runs, once for everybody who wants to see them.

An analysis reads many steps and takes much longer than a poll or a table may wait. So no poll waits for one: the Live page says which run
it follows (:meth:`Insights.watch`), the Runs page which runs are in its table (:meth:`Insights.verdicts`), and both get what is known at
that moment. Details are requested with :meth:`Insights.detail`.

Each analysis of a run is made once for each epoch and step, and once more when the run has ended; everybody gets the same. First come
requested details, then the runs that somebody watches live, then the verdicts of the table, newest runs first. The analyses of a run that
goes on take a fiftieth of the time.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlhf_studio.language import ENGLISH, N_, _, language, speaking
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.insights.analyses import KINDS, Analyses, Begin, analyses, headline
from rlhf_studio.ui.insights.progress import Key, Progress
from rlhf_studio.ui.live import payloads

MOST_RUNS = 64  # remembered although they are not on the table
MOST_BODIES = 400  # remembered whole analyses
MOST_WAITING = 200
REST = 100  # the next analysis of a kind begins after this many times as long as the last one took; there are two kinds
RESTS = (2.0, 30.0)  # seconds, the shortest and the longest
FORGET_AFTER = 30.0  # seconds without a viewer after which new steps are left alone
IDLE = 0.5  # seconds
LONGEST_PAUSE = 2.0  # seconds
NOT_YET = N_("Nothing to say before the first step.")
TOO_MANY = N_("Too many people are asking at once. Try again in a moment.")
CLOSING = N_("The app is closing.")
IN_TABLE = ("kind", "sentence", "alarms", "warnings")
Json = dict[str, Any]


@dataclass
class _Known:
    """What is known of one run, but for the whole analyses.

    Attributes:
        made: by kind, how far the run had got when the newest analysis was made.
        rest_until: when the next analysis of each kind may be made.
        for_table: the verdict for the table; None when there is none.
        version, verdict: the same for a poll, as JSON with its version; both empty when there is none.
    """

    progress: Progress
    watched_at: float = float("-inf")
    made: dict[str, Key] = field(default_factory=dict)
    rest_until: dict[str, float] = field(default_factory=dict)
    for_table: Json | None = None
    version: str = ""
    verdict: bytes = b""

    def is_due(self, kind: str, now: float) -> bool:
        """Whether the analysis of the run as it is now is missing, and may be made."""
        return self.made.get(kind) != self.progress.key and self.rest_until.get(kind, 0.0) <= now

    def say(self, verdict: Json | None, key: Key) -> None:
        """Note the verdict on a run at this epoch and step; None when there is none."""
        self.for_table = None if verdict is None else {name: verdict[name] for name in IN_TABLE}
        self.verdict = b"" if verdict is None else payloads.encode_text(verdict)
        self.version = "" if verdict is None else f"{key[0]}-{verdict['step']}-{int(key[2])}"


@dataclass(frozen=True)
class _Question:
    """Somebody waits for a whole analysis. ``key`` says how far the run was at the time of the question."""

    run: str
    kind: str
    key: Key
    asked_at: float
    answer: Future[bytes]


class Insights:
    """Runs the analyses for all viewers and pages of one app. Arguments as :class:`Analyst`, of which there is one for each language that
    somebody reads."""

    def __init__(self, workspace: Workspace, **options: Any) -> None:
        self._begin, self._of = partial(Analyst, workspace, **options), {ENGLISH: Analyst(workspace, **options)}
        self._lock, self._closed = threading.Lock(), False

    def _mine(self) -> Analyst:
        with self._lock:
            if language() not in self._of and not self._closed:
                self._of[language()] = self._begin(spoken=language())
            return self._of.get(language(), self._of[ENGLISH])

    def watch(self, run: str, progress: Progress | None) -> tuple[str, bytes]:
        """As :meth:`Analyst.watch`."""
        return self._mine().watch(run, progress)

    def verdicts(self, progress: Mapping[str, Progress]) -> dict[str, Json]:
        """As :meth:`Analyst.verdicts`."""
        return self._mine().verdicts(progress)

    def detail(self, run: str, kind: str, progress: Progress | None) -> Future[bytes]:
        """As :meth:`Analyst.detail`."""
        return self._mine().detail(run, kind, progress)

    def verdict_of(self, run: str, progress: Progress, seconds: float = 60.0) -> Json:
        """As :meth:`Analyst.verdict_of`."""
        return self._mine().verdict_of(run, progress, seconds)

    def close(self) -> None:
        """As :meth:`Analyst.close`."""
        with self._lock:
            self._closed = True
        for analyst in self._of.values():
            analyst.close()


class Analyst:
    """Runs the analyses in one language.

    Args:
        workspace: where the runs are.
        open_reader: gives a reader for a run folder; tests count reads through it.
        find_analyses: says how each kind begins; tests put others there.
        rests: the shortest and the longest rest before an analysis of a run that goes on is made again, in seconds.
        spoken: the language of what they say.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        open_reader: Callable[[Any], Any] = RunReader,
        find_analyses: Callable[[], dict[str, Begin]] = analyses,
        rests: tuple[float, float] = RESTS,
        spoken: str = ENGLISH,
    ) -> None:
        self._rests, self._spoken = rests, spoken
        self._analyses = Analyses(workspace, open_reader, find_analyses)
        self._runs: OrderedDict[str, _Known] = OrderedDict()
        self._bodies: OrderedDict[tuple[str, str], tuple[Key, bytes]] = OrderedDict()
        self._questions: list[_Question] = []
        self._table: dict[str, None] = {}  # the runs on the table, the newest first
        self._table_seen = float("-inf")
        self._table_rests_until = 0.0
        self._lock = threading.Lock()  # held for look-ups alone, never during an analysis
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # --- what the pages ask ---------------------------------------------------------------------------------------------------

    def watch(self, run: str, progress: Progress | None) -> tuple[str, bytes]:
        """Note that somebody watches a run. Gives its newest verdict as (version, JSON); both are empty when there is none."""
        if progress is None or not progress.step:
            return "", b""
        with self._lock:
            known = self._at(run, progress)
            known.watched_at = now = time.monotonic()
            if any(
                known.is_due(kind, now) for kind in KINDS
            ):  # at the end of a rest the thread wakes by itself; waking it here would cost every poll
                self._begin()
            return known.version, known.verdict

    def verdicts(self, progress: Mapping[str, Progress]) -> dict[str, Json]:
        """The verdicts that are known of the runs on the table: ``kind``, ``sentence``, and how many ``alarms`` and ``warnings``.

        ``progress`` says how far each run has got, the newest run first; a run without a step has no verdict.
        """
        now = time.monotonic()
        with self._lock:
            self._table_seen = now
            self._table = {run: None for run, reached in progress.items() if reached.step}
            for run in self._table:
                if not self._is_watched(run, now):  # for a watched run, its viewers know the newest step
                    self._at(run, progress[run])
            self._let_go()
            if any(self._runs[run].made.get("diagnosis") != self._runs[run].progress.key for run in self._table):
                self._begin()
            return {run: verdict for run in self._table if (verdict := self._runs[run].for_table) is not None}

    def detail(self, run: str, kind: str, progress: Progress | None) -> Future[bytes]:
        """A whole analysis of a run as JSON.

        ``diagnosis`` and ``learned`` of a run that goes on are the newest that are there, else the first one as soon as it is made. All
        other kinds, and all analyses of a run that has ended, are of the run as it is now.
        """
        answer: Future[bytes] = Future()
        if progress is None or not progress.step:
            answer.set_result(payloads.encode_text({"problem": _(NOT_YET)}))
            return answer
        with self._lock:
            self._at(run, progress)
            key, body = self._bodies.get((run, kind), (None, b""))
            of_before = kind in KINDS and not progress.ended and key is not None and key[0] == progress.epoch
            if key == progress.key or of_before:
                answer.set_result(body)
            elif len(self._questions) >= MOST_WAITING or self._closed.is_set():
                answer.set_result(payloads.encode_text({"problem": _(CLOSING if self._closed.is_set() else TOO_MANY)}))
            else:
                self._questions.append(_Question(run, kind, progress.key, time.monotonic(), answer))
                self._begin()
        return answer

    def verdict_of(self, run: str, progress: Progress, seconds: float = 60.0) -> Json:
        """A run's verdict, as :class:`~rlhf_studio.analysis.records.Verdict` has it.

        It waits for the diagnosis, so it is not for the loop that answers everyone.

        Raises StoreError when the run cannot be diagnosed, or not within ``seconds``.
        """
        if not progress.step:
            return {"kind": "too early", "changes": {}}
        with self._lock:
            if self._is_watched(run, time.monotonic()):
                progress = self._runs[run].progress
        try:
            answer = json.loads(self.detail(run, "diagnosis", progress).result(timeout=seconds))
        except TimeoutError as error:
            raise StoreError(_("The diagnosis takes longer than usual. Try again in a moment."), "state") from error
        if "problem" in answer:
            raise StoreError(answer["problem"], "state")
        verdict: Json = answer["verdict"]
        return verdict

    def close(self) -> None:
        """Stop the thread after its present analysis; everybody who still waits gets an answer that says so."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        with self._lock:
            left, self._questions = self._questions, []
        with speaking(self._spoken):
            closing = payloads.encode_text({"problem": _(CLOSING)})
        _answer(left, closing)

    # --- who is remembered; the lock is held ----------------------------------------------------------------------------------

    def _at(self, run: str, progress: Progress) -> _Known:
        """What is known of a run, which has got to ``progress``."""
        known = self._runs.get(run)
        if known is None:
            known = self._runs[run] = _Known(progress)
            self._let_go()
        if known.progress.epoch != progress.epoch:  # the run went back: the old verdict no longer holds
            known.made = {}
            known.say(None, progress.key)
        if known.progress.epoch != progress.epoch or known.progress.ended is not progress.ended:
            known.rest_until = {}
        known.progress = progress
        self._runs.move_to_end(run)
        return known

    def _is_watched(self, run: str, now: float) -> bool:
        known = self._runs.get(run)
        return known is not None and now - known.watched_at < FORGET_AFTER

    def _let_go(self) -> None:
        """Forget the runs that nobody has looked at for longest, beyond :data:`MOST_RUNS`."""
        questioned = {question.run for question in self._questions}
        loose = [run for run in self._runs if run not in self._table and run not in questioned]
        for run in loose[: max(0, len(loose) - MOST_RUNS)]:
            del self._runs[run]

    def _begin(self) -> None:
        if (self._thread is None or not self._thread.is_alive()) and not self._closed.is_set():
            self._thread = threading.Thread(target=self._work, name="insights", daemon=True)
            self._thread.start()
        self._wake.set()

    # --- the thread -----------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._closed.is_set():
            due = self._next()
            if due is None:
                pause = self._table_rests_until - time.monotonic()
                self._wake.wait(pause if 0 < pause < IDLE else IDLE)
                self._wake.clear()
                continue
            self._analyse(*due)

    def _next(self) -> tuple[str, str, Progress] | None:
        """The run and the kind of analysis that comes next, with how far the run has got; None when nothing is due."""
        now = time.monotonic()
        with self._lock:
            due = self._first_question() or self._watched(now) or self._on_table(now)
            return None if due is None else (*due, self._runs[due[0]].progress)

    def _first_question(self) -> tuple[str, str] | None:
        return (self._questions[0].run, self._questions[0].kind) if self._questions else None

    def _watched(self, now: float) -> tuple[str, str] | None:
        """Of the watched runs, the analysis that has been due for longest; of the two kinds of one run, the diagnosis first."""
        watched = [(run, known) for run, known in self._runs.items() if now - known.watched_at < FORGET_AFTER]
        due = [
            (known.rest_until.get(kind, 0.0), order, run)
            for run, known in watched
            for order, kind in enumerate(KINDS)
            if known.is_due(kind, now)
        ]
        return (min(due)[2], KINDS[min(due)[1]]) if due else None

    def _on_table(self, now: float) -> tuple[str, str] | None:
        """The next diagnosis for the table. Between two of them, half of the time is left to those who wait for an answer."""
        if now - self._table_seen > FORGET_AFTER or now < self._table_rests_until:
            return None
        run = next((run for run in self._table if self._runs[run].is_due("diagnosis", now)), None)
        return None if run is None else (run, "diagnosis")

    def _analyse(self, run: str, kind: str, progress: Progress) -> None:
        began = time.monotonic()
        with speaking(self._spoken):
            record, body = self._analyses.make(run, kind, progress.ended)
        now = time.monotonic()
        took = now - began
        with self._lock:
            self._table_rests_until = now + min(LONGEST_PAUSE, took)
            known = self._runs.get(run)
            if known is None or known.progress.epoch != progress.epoch:
                return  # the people who have asked get the next analysis
            known.made[kind] = progress.key
            if not progress.ended and not known.progress.ended:  # the end of a run is analysed at once
                known.rest_until[kind] = now + max(self._rests[0], min(self._rests[1], REST * took))
            if kind == "diagnosis" and (record is not None or progress.ended):
                known.say(None if record is None else headline(record), progress.key)
            self._bodies[run, kind] = progress.key, body
            self._bodies.move_to_end((run, kind))
            while len(self._bodies) > MOST_BODIES:
                self._bodies.popitem(last=False)
            of_this = [question for question in self._questions if (question.run, question.kind) == (run, kind)]
            ready = [question for question in of_this if question.key == progress.key or question.asked_at <= began]
            self._questions = [question for question in self._questions if question not in ready]
        _answer(ready, body)


def _answer(questions: list[_Question], body: bytes) -> None:
    for question in questions:
        if question.answer.set_running_or_notify_cancel():
            question.answer.set_result(body)
