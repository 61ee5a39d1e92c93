"""The line in which the students of a class wait to ask a model.

Each has one open question, so the order of arrival is fair: who asks again waits behind everybody else. One question at a time goes to the
process that also answers the teacher, and only when nothing else is there: the teacher never waits for more than one answer. While a run
is at work, the line rests after each answer, so that most of the machine is the run's.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.child_process.service import Busy, Job, Service
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.language import S_, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.classroom.room import Classroom
from rlhf_studio.ui.jobs import MOST_EVENTS
from rlhf_studio.ui.sent import QuestionRefused
from rlhf_studio.ui.talk.sent import request_of

OFF = S_("Asking the model is off. Your teacher can turn it on for the class.")
ENDED_BY_TEACHER = S_("Your teacher has turned off asking the model.")
AWAY = S_("Your page was out of sight for too long, so your question left the line. Ask again.")
NO_PLACE = S_("You have no place in the class any more.")
GONE = S_("This answer is no longer here. Ask again.")
LOOK_SECONDS = 0.1  # between two looks at whether the process is free
RESTS = 3.0  # times as long as the last answer took, while a run is at work
WAITING_PAGE, WORKING_PAGE = 1000, 300  # milliseconds after which a page asks again
REMEMBERED = 5  # answers by whose times the next ones are estimated
Json = dict[str, Any]


@dataclass(frozen=True)
class LineLimits:
    """What students may ask for.

    Attributes:
        prompt: characters of a question.
        tokens: of an answer.
        waiting: questions in line, of all together.
        of_one: questions of one student within ``within`` seconds.
        away: seconds after which a question is dropped whose page asks no more.
    """

    prompt: int = 400
    tokens: int = 32
    waiting: int = 60
    of_one: int = 20
    within: float = 300.0
    away: float = 30.0


@dataclass(eq=False)
class Question:
    """A student's question. ``why`` says why it ended without its turn, or in the middle of its answer."""

    person: str
    request: Json
    step: int
    seen: float
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    job: Job | None = None
    why: str = ""
    taken_back: bool = False

    @property
    def state(self) -> str:
        """As a job's: waiting, working or done."""
        if self.job is not None:
            return "done" if self.job.state == "done" else "working"
        return "done" if self.why or self.taken_back else "waiting"

    @property
    def events(self) -> list[Json]:
        """What came of it so far."""
        own = list(self.job.events) if self.job is not None else [{"event": "stopped"}] if self.taken_back else []
        return [*own, {"event": "failed", "side": None, "error": told(self.why)}] if self.why and self.state == "done" else own


class Line:
    """The questions of one app's class. Its methods may be called from several threads.

    Args:
        service: answers; it is the teacher's, too.
        busy: whether a run is at work.
        now: gives the time in seconds.
    """

    def __init__(
        self,
        workspace: Workspace,
        room: Classroom,
        service: Service,
        busy: Callable[[], bool],
        limits: LineLimits = LineLimits(),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace, self._room, self._service, self._busy, self._now = workspace, room, service, busy, now
        self.limits = limits
        self._changed = threading.Condition()
        self._waiting: list[Question] = []
        self._current: Question | None = None
        self._newest: dict[str, Question] = {}  # of each student
        self._asked_at: dict[str, deque[float]] = {}
        self._took: deque[float] = deque(maxlen=REMEMBERED)
        self._rests_until, self._run_is_alive = 0.0, False
        self._asked = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    # --- what the class asks for ---------------------------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """The run whose policies answer; empty while students may not ask."""
        return self._room.talks_to

    @property
    def counts(self) -> Mapping[str, int]:
        """How many questions are ``asking`` now, in line or being answered, and how many were ``asked`` since the app began."""
        return {"asking": len(self._waiting) + (self._current is not None), "asked": self._asked}

    def ask(self, person: str, prompt: Any) -> Question:
        """Put a question in the line; it takes the place of one that this student has in it. Raises :class:`QuestionRefused`."""
        self._admit(person)  # before files are read for somebody who may not ask
        request, step = self._request(prompt)
        busy = self._busy()
        with self._changed:
            self._admit(person)
            self._run_is_alive = busy
            question = Question(person, request, step, self._now())
            before = self._newest.get(person)
            if before in self._waiting:
                before.taken_back = True
                self._waiting[self._waiting.index(before)] = question
            else:
                self._waiting.append(question)
            self._newest[person] = question
            self._asked_at.setdefault(person, deque(maxlen=self.limits.of_one)).append(self._now())
            self._asked += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="class-talk", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return question

    def warm(self) -> None:
        """Load the policies of the class's run: its first question comes soon."""
        with contextlib.suppress(QuestionRefused, Busy):  # the first question says what is wrong, or loads them
            request, _ = self._request("x")
            self._service.submit({**request, "prompt": None})

    def news(self, person: str, key: Any, since: Any) -> Json:
        """What has come of a student's own question, as :func:`rlhf_studio.ui.jobs.news` tells it. Reads memory only.

        While it waits: its ``place`` (1 is the next one), ``seconds`` until its answer is there (None while no answer was timed), and who
        goes ``first`` now: ``teacher``, ``training`` or nobody in particular. ``rest`` is for how many milliseconds the page waits.
        """
        question = self._newest.get(person)
        if question is None or question.key != key:
            return {"error": told(GONE)}
        question.seen = self._now()
        state = question.state  # before the events: one that is done then has all of them
        answer: Json = {"state": state, "place": 0, "rest": WAITING_PAGE if state == "waiting" else WORKING_PAGE}
        if state == "waiting":
            answer |= self._of_place(question)
        first = since if type(since) is int and since >= 0 else 0
        events = question.events
        return answer | {"events": events[first : first + MOST_EVENTS], "more": len(events) > first + MOST_EVENTS}

    def take_back(self, person: str, key: Any) -> None:
        """A student's own question is not asked any more."""
        with self._changed:
            question = self._newest.get(person)
            if question is None or question.key != key:
                return
            if question in self._waiting:
                self._waiting.remove(question)
                question.taken_back = True
        if question.job is not None:
            self._service.cancel(question.job)

    def stop(self, why: str = ENDED_BY_TEACHER) -> None:
        """End all questions. The room no longer says whom to ask, so no other comes."""
        with self._changed:
            current = self._current
            for question in (*self._waiting, *([current] if current else [])):
                question.why = why
            self._waiting.clear()
        if current is not None and current.job is not None:
            self._service.cancel(current.job)

    def forget(self) -> None:
        """The class is over: end all questions, and forget who has asked."""
        self.stop()
        with self._changed:
            self._newest, self._asked_at, self._asked = {}, {}, 0

    def close(self) -> None:
        """The app stops."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self.stop(S_("The app is stopping."))

    # --- who may ask, and what is asked ----------------------------------------------------------------------------------------------

    def _admit(self, person: str) -> None:
        limits, now = self.limits, self._now()
        if not self.run:
            raise QuestionRefused(OFF)
        if not self._room.students.has_place(person):
            raise QuestionRefused(NO_PLACE)
        newest = self._newest.get(person)
        if newest is not None and newest is self._current and newest.state != "done":  # the thread learns of an end a moment later
            raise QuestionRefused("Your question before this one is being answered.")
        times = self._asked_at.get(person) or deque[float]()
        if len(times) == limits.of_one and now - times[0] < limits.within:
            rest = math.ceil(limits.within - (now - times[0]))
            minutes = f"{limits.within / 60:g} minutes"
            raise QuestionRefused(f"You have asked {limits.of_one} questions in {minutes}. You can ask again in {rest} s.")
        if len(self._waiting) >= limits.waiting and newest not in self._waiting:
            raise QuestionRefused(f"{limits.waiting} questions are in line already. Try again in a moment.")

    def _request(self, prompt: Any) -> tuple[Json, int]:
        """What the process is asked, and the step of the trained policy."""
        if not isinstance(prompt, str) or not prompt.strip():
            raise QuestionRefused("Type something first.")
        if len(prompt) > self.limits.prompt:
            raise QuestionRefused(f"That is {len(prompt):,} characters long. Use at most {self.limits.prompt}.")
        run = self.run
        try:
            reader = self._workspace.reader(run)
            steps = [info.step for info in reader.policies()]
            length = as_sampled(reader.config()).generation.response_length
        except (StoreError, ValueError):
            steps, length = [], 1
        if not steps:
            raise QuestionRefused("The run that answers is not there any more. Tell your teacher.")
        sides = [{"run": run, "step": None}, {"run": run, "step": steps[-1]}]
        settings = {"response_length": min(length, self.limits.tokens)}
        asked = {"sides": sides, "prompt": prompt, "settings": settings, "seed": secrets.randbelow(2**31)}
        return request_of(asked, self._workspace), steps[-1]

    def _of_place(self, question: Question) -> Json:
        waiting, current = list(self._waiting), self._current
        before = waiting.index(question) if question in waiting else 0
        place = before + 1 + (current is not None)
        rest = max(0.0, self._rests_until - self._now())
        first = "training" if rest else "teacher" if current is None and self._service.working else ""
        took = statistics.median(self._took) if self._took else None
        each = None if took is None else took * (1 + RESTS if self._run_is_alive else 1)
        return {"place": place, "first": first, "seconds": None if each is None else math.ceil(place * each + rest)}

    # --- the thread ----------------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (question := self._next()) is not None:
            began, job = self._now(), question.job
            assert job is not None  # _next has handed it over
            while not job.ended.wait(LOOK_SECONDS):
                with self._changed:
                    self._drop()
            took, busy = self._now() - began, self._busy()
            with self._changed:
                if job.last("end") is not None:
                    self._took.append(took)
                self._run_is_alive, self._rests_until = busy, self._now() + RESTS * took if busy else 0.0
                self._current = None

    def _next(self) -> Question | None:
        """The next question, handed over to the process; None when the app stops."""
        with self._changed:
            while not self._closed:
                self._drop()
                if self._waiting and not self._service.working and self._now() >= self._rests_until:
                    try:
                        self._waiting[0].job = self._service.submit(self._waiting[0].request)
                    except Busy:
                        self._changed.wait(LOOK_SECONDS)
                        continue
                    self._current = self._waiting.pop(0)
                    return self._current
                self._changed.wait(LOOK_SECONDS if self._waiting else None)
        return None

    def _drop(self) -> None:
        """Take out of the line whoever has left: the page, or the class."""
        places = self._room.students
        for question in self._waiting:
            stays, away = places.has_place(question.person), self._now() - question.seen > self.limits.away
            question.why = NO_PLACE if not stays else AWAY if away else ""
        self._waiting = [question for question in self._waiting if not question.why]
