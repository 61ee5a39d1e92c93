"""What the line above the pages asks in a class. Everyone may look, students may answer, and the teacher may do everything else.

Answers are handled by threads of their own, as votes are: thirty students who answer at the same time do not delay the people who watch,
and are not delayed by them. Functions that every page calls every few seconds read memory only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.jobs.export.text import cell
from rlhf_studio.language import N_, _, told
from rlhf_studio.runs.classroom.records import LONGEST_NAME, RoundQuestion, as_lines, as_table, clean_name, rows_of
from rlhf_studio.runs.classroom.secret import TEACHER, forget_secret, keep_secret, kept_secret
from rlhf_studio.runs.classroom.store import ClassStore, Holding
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import html, sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.classroom import ready
from rlhf_studio.ui.classroom.answering import Answering
from rlhf_studio.ui.classroom.link import address_for, class_link, code_of, only_here, operator_link
from rlhf_studio.ui.classroom.room import new_teachers_token, new_token
from rlhf_studio.ui.classroom.rounds import Rounds, without_people
from rlhf_studio.ui.classroom.students import MOST_PLACES, PLACES
from rlhf_studio.ui.learn.breaking import Breaking
from rlhf_studio.ui.learn.computing import NotComputed
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import number, text, whole_number
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy
from rlhf_studio.ui.talk.line import Line
from rlhf_studio.ui.talk.offered import runs_with_policies
from rlhf_studio.ui.visiting.identity import COOKIE_SECONDS
from rlhf_studio.ui.visiting.modes import Mode

logger = logging.getLogger(__name__)
Json = dict[str, Any]
PAGES = html.STYLES.keys() - {"shell"}  # where a class can be led
MOST_PARAMETERS, LONGEST = 12, 300
ANSWERING_THREADS, MOST_WAITING = 4, 400
ON, OFF = "on", "off"  # as the store has them
NO_CLASS = N_("This app was not started with --classroom.")
NOT_A_STUDENT = N_("Open the class link first: ask your teacher for it.")
_NAME = re.compile(r"[a-z_]{1,20}")


class ClassPage:
    """What one app's class can ask.

    Args:
        breaking: starts the runs of experiments.
        compute: the numbers of a lesson.
        line: in which students wait to ask a model.
    """

    def __init__(
        self,
        access: Access,
        workspace: Workspace,
        breaking: Breaking,
        compute: Callable[[Json], Any],
        line: Line,
    ) -> None:
        self._access, self._room, self._workspace = access, access.room, workspace
        self.breaking, self._compute, self._line = breaking, compute, line
        self._store, self._answering = ClassStore(workspace.root), Answering(workspace)
        self._rounds = Rounds(self._store, self._answering)
        self._holding = Holding(workspace.root)
        self._students = Bounded("class-answers", ANSWERING_THREADS, MOST_WAITING)
        self._teacher = Bounded("class-teacher", 2, 20)

    def open(self) -> None:
        """Go on with the class of an app that ended without closing it, for example because it was killed. The links stay the same. Raises
        StoreError, also when another app that still runs holds the class."""
        if self._access.mode is not Mode.CLASSROOM:
            return
        self._holding.take()
        self._store.end_older(COOKIE_SECONDS)
        left, room = self._store.notes(), self._room
        if left.get("link"):
            room.admit(left["link"])
            room.students_start_runs, room.names_allowed = left.get("runs") != OFF, left.get("names") != OFF
            room.talks_to = left.get("talk", "")
            room.admit_teacher("" if self._access.token_only else kept_secret(self._workspace.root, TEACHER))
            room.students.know(self._store.students(), _places_of(left.get("places", "")))
        else:
            self._store.note(link=room.link)
        room.students.keep = self._store.come
        self._keep_teacher(self._access.operator_token)
        room.know(self._store.names())
        self._rounds.load()

    def end(self) -> None:
        """End the class: the link is no longer valid, and of each student only the typed name is kept. Raises StoreError."""
        self._room.end()
        self._line.forget()
        self._store.end_class()
        forget_secret(self._workspace.root, TEACHER)
        self._workspace.forget_students()
        self._rounds.load()

    def _keep_teacher(self, token: str) -> None:
        """Write the teacher's token down for the app that goes on with this class. A token that a person has set is not written down.
        Raises StoreError."""
        if self._access.token_only or self._room.ended:
            forget_secret(self._workspace.root, TEACHER)
        else:
            keep_secret(self._workspace.root, TEACHER, token)

    def close(self) -> None:
        """The app stops, and its class ends with it. A class that another app holds goes on."""
        for pool in (self._students, self._teacher):
            pool.close()
        if self._holding.held:
            try:
                self.end()
            except StoreError as error:
                logger.warning("The class has ended, and who its students were could not be forgotten: %s", error)
            self._holding.release()
        self._store.close()

    def functions(self) -> list[Callable[..., Any]]:
        """The server functions."""
        students = [self._told(name, self._students) for name in ("answer", "name")]
        teacher = [self._told(name, self._teacher) for name in ("ready", "ask", "steer", "change")]
        return [self.class_now, self.class_link, *students, *teacher]

    def _told(self, name: str, pool: Bounded) -> Callable[..., Any]:
        """A server function that works in a thread, and tells refusals in one sentence."""
        work = getattr(self, f"_{name}")

        @wraps(work)  # this also copies who may call it
        async def ask(data: Any, request: gr.Request) -> Response:
            if self._access.mode is not Mode.CLASSROOM:
                return sent.as_json({"problem": _(NO_CLASS)})
            try:
                return sent.as_json(await pool.run(partial(work, data, request)))
            except (NotPossible, NotComputed) as error:
                return sent.as_json({"problem": told(error)})
            except (StoreError, TooBusy) as error:
                return sent.as_json({"problem": told(error), "retry": True})

        ask.__name__ = f"class_{name}"
        return ask

    # --- everyone ---------------------------------------------------------------------------------------------------------------

    @callable_by(Role.VIEWER, most_bytes=4_000)
    async def class_now(self, data: Any, request: gr.Request) -> Json:
        """Where the teacher is, and which round there is; asked every few seconds by everyone, so it looks at memory only.

        ``round`` is the version of the round that the page shows; where there is another one, ``present`` has it.
        """
        room, teachers_page = self._room, self._room.teachers_page
        answer: Json = {
            "seq": teachers_page.seq,
            "page": teachers_page.page,
            "params": dict(teachers_page.params),
            "ended": room.ended,
            "start": room.start,
        }
        answer |= {"came": len(room.students.came), "late": room.students.late}
        answer |= {"round": self._rounds.version, "answered": self._rounds.answered, "talk": bool(room.talks_to), **self._line.counts}
        return answer if sent.member(data, "round") == answer["round"] else answer | {"present": self._round_for(data, request)}

    def _round_for(self, data: Any, request: gr.Request) -> Json:
        """The present round, with one's own answer."""
        plays, person = self._person(data, request)
        view = self._rounds.view(person)
        view |= {"may": plays, "names": self._room.names_allowed, "name": self._room.name_of(person) if plays else ""}
        view["why_not"] = self._access.why_no_place(request)
        return view | {"longest_name": LONGEST_NAME}

    def _person(self, data: Any, request: Any) -> tuple[bool, str]:
        """(whether this is a student, the key by which students are told apart)."""
        plays = self._access.plays(request, data) and not self._access.is_operator(request, data)
        return plays, self._access.starter(request, data).key if plays else ""

    def _student(self, data: Any, request: Any) -> str:
        plays, person = self._person(data, request)
        if not plays:
            raise NotPossible(_(NOT_A_STUDENT))
        return person

    # --- students ---------------------------------------------------------------------------------------------------------------

    @callable_by(Role.OPERATOR, players_in={Mode.CLASSROOM})
    def _answer(self, data: Any, request: Any) -> Json:
        person = self._student(data, request)
        name, places = self._room.name_of(person), self._room.students.places
        self._rounds.answer(text(data, "round", 40), person, name, sent.member(data, "answer"), places)
        return {"answered": self._rounds.answered}

    @callable_by(Role.OPERATOR, players_in={Mode.CLASSROOM})
    def _name(self, data: Any, request: Any) -> Json:
        person = self._student(data, request)
        if not self._room.names_allowed:
            raise NotPossible(_("Your teacher has turned names off."))
        try:
            name = clean_name(text(data, "name", 400))
        except ValueError as error:
            raise NotPossible(told(error)) from None
        self._store.set_name(person, name)
        self._room.call(person, name)
        return {"name": name}

    # --- the teacher ------------------------------------------------------------------------------------------------------------

    @callable_by(Role.OPERATOR)
    def class_link(self, data: Any, request: gr.Request) -> Json:
        """The links with their QR code, and what students may do. For the teacher."""
        if self._access.mode is not Mode.CLASSROOM:
            return {"problem": _(NO_CLASS)}
        address, room = address_for(request.headers.get("host", ""), alone=self._access.loopback), self._room
        link = "" if room.ended else class_link(address, room.link)
        facts: Json = {"link": link, "code": code_of(link) if link else [], "teacher": operator_link(address, self._access.operator_token)}
        facts |= {"places": room.students.places, "most_places": MOST_PLACES, "students": self._students_now()}
        return facts | {
            "only_here": only_here(address),
            "runs": room.students_start_runs,
            "names": room.names_allowed,
            "leads": room.teachers_page.seq > 0,
            "ended": room.ended,
            "talk": room.talks_to,
            "talk_runs": self._talk_runs(),
            **self._line.counts,
        }

    def _talk_runs(self) -> list[Json]:
        try:
            return [{"id": run["id"], "name": run["name"]} for run in runs_with_policies(self._workspace)]
        except StoreError:  # the pages say what is wrong with the workspace
            return []

    def _students_now(self) -> list[Json]:
        """Who has come, the first one first."""
        room = self._room
        return [
            {"id": key, "name": room.name_of(key), "at": at, "late": not room.students.has_place(key)}
            for key, at in room.students.came.items()
        ]

    @callable_by(Role.OPERATOR)
    def _change(self, data: Any, request: gr.Request) -> Json:
        """What the teacher changes: ``renew`` the link (which also begins a class), the ``teacher``'s own link, ``runs`` and ``names`` of
        students, the run that students may ask on the Talk page (``talk``, empty for none), how many ``places`` there are, whom to
        ``strike`` (a student's id, or "late" for all who are), where to ``lead`` ({page, params}, or null to stop), or the ``end``."""
        self._access.require_operator(request, data)
        room = self._room
        if isinstance(data, dict) and "lead" in data:
            room.lead(*_page_of(data["lead"]))
            return {"leads": room.teachers_page.seq > 0}
        if sent.member(data, "renew") is True:
            self._renew()
        if sent.member(data, "teacher") is True:
            self._renew_teacher()
        if isinstance(runs := sent.member(data, "runs"), bool):
            self._store.note(runs=ON if runs else OFF)
            room.students_start_runs = runs
        if isinstance(names := sent.member(data, "names"), bool):
            self._allow_names(names)
        if isinstance(run := sent.member(data, "talk"), str):
            self._let_ask(run)
        if sent.member(data, "places") is not None:
            self._set_places(whole_number(data, "places", 0))
        if who := text(data, "strike", 40):
            self._strike([key for key in room.students.came if who == key or (who == "late" and room.students.is_late(key))])
        if sent.member(data, "end") is True:
            self.end()
        return self.class_link(data, request)

    def _renew(self) -> None:
        """Make another class link. After the end of a class this begins a new class; what the teacher allows stays the same."""
        room, token = self._room, new_token()
        allowed = {"runs": ON if room.students_start_runs else OFF, "names": ON if room.names_allowed else OFF}

        def begin() -> None:
            self._store.note(link=token, **allowed, places=str(room.students.places))
            self._store.begin_again()
            room.admit(token)

        room.students.begin_again(begin)
        self._keep_teacher(self._access.operator_token)
        self._rounds.tell()  # so that pages see who is not in the class any more

    def _set_places(self, places: int) -> None:
        if not 1 <= places <= MOST_PLACES:
            raise NotPossible(_("A class has 1 to {most_places} places.").format(most_places=MOST_PLACES))
        self._store.note(places=str(places))
        self._room.students.make_room(places)
        self._rounds.tell()

    def _strike(self, people: list[str]) -> None:
        """Remove these students from the class, with all their answers."""
        self._rounds.strike(people)
        for person in people:
            self._room.call(person, "")
        self._room.students.strike(people)
        self._rounds.tell()

    def _renew_teacher(self) -> None:
        """Give the teacher another token; the old one stops working at once."""
        token = new_teachers_token()
        self._keep_teacher(token)
        self._room.admit_teacher(token)

    def _allow_names(self, allowed: bool) -> None:
        """Turn names on or off. When names are turned off, those that were typed are removed."""
        self._store.note(names=ON if allowed else OFF)
        self._room.names_allowed = allowed
        if allowed:
            return
        self._room.know({})
        self._store.remove_names()
        self._workspace.forget_students(names=True)

    def _let_ask(self, run: str) -> None:
        """Students may ask the policies of this run, or nobody's any more."""
        if run and run not in {known["id"] for known in self._talk_runs()}:
            raise NotPossible(_("This run has no checkpoint that could answer."))
        self._store.note(talk=run)
        self._room.talks_to = run
        if run:
            self._line.warm()
        else:
            self._line.stop()

    @callable_by(Role.OPERATOR)
    def _ready(self, data: Any, request: gr.Request) -> Json:
        """The questions of experiments, what can be drawn, the runs that can answer, and the rounds there were; ``what``: "lessons" for the
        questions of lessons instead."""
        self._access.require_operator(request, data)
        if sent.member(data, "what") == "lessons":  # the first reading of all lessons takes seconds
            return {"lessons": ready.of_lessons()}
        rounds = [without_people(round_) for round_ in self._store.rounds()]
        return {"experiments": ready.of_experiments(), "metrics": ready.metrics(), "runs": self._answering.runs(), "rounds": rounds}

    @callable_by(Role.OPERATOR)
    def _ask(self, data: Any, request: gr.Request) -> Json:
        """Begin a round with a ready question (``show`` with ``draw`` and ``seed``, or ``lesson`` and ``scene``) or an own one."""
        self._access.require_operator(request, data)
        self._require_class()
        if show := text(data, "show", 60):
            question = ready.experiment_question(show, text(data, "draw", 20), whole_number(data, "seed", 0))
        elif lesson := text(data, "lesson", 60):
            question = ready.lesson_question(lesson, text(data, "scene", 60), self._compute)
        else:
            question = _own_question(data)
        run = text(data, "run", 100)
        if run:
            self._workspace.status(run)  # raises StoreError when there is no such run
        self._rounds.ask(question, run)
        return {"round": self._rounds.present.id, "lesson": question.lesson, "scene": question.scene}

    def _require_class(self) -> None:
        if self._room.ended:
            raise NotPossible(_("The class has ended. Begin a new class first."))

    @callable_by(Role.OPERATOR)
    def _steer(self, data: Any, request: gr.Request) -> Json:
        """``op`` says what becomes of a round: ``close``, ``open`` (again), ``show``, ``reveal``, ``over``, and ``again`` for one that was
        put away; ``look`` at its run, ``start`` the runs of its experiment, let a ``run`` answer it; its ``answers`` with names, its
        ``file``, or ``delete``."""
        self._access.require_operator(request, data)
        op, round_id = text(data, "op", 20), text(data, "round", 40)
        moves: dict[str, Any] = {"close": "closed", "open": "open", "show": "shown", "reveal": "revealed", "over": "over"}
        if op in moves:
            self._rounds.move(round_id, moves[op])
            return {} if op != "reveal" else self._rounds.look()
        if op == "again":
            self._require_class()
            self._rounds.show_again(round_id)
            return self._rounds.look()
        if op == "look":
            return self._rounds.look()
        if op == "start":
            question = self._rounds.present.question
            request_data = {**data, "show": question.experiment, "seed": question.seed}
            return self.breaking.break_start(request_data, request) | self._rounds.look()
        if op == "run":
            self._rounds.set_run(round_id, self._workspace.status(text(data, "run", 100)).run_id)
            return self._rounds.look()
        if op == "delete":
            self._rounds.delete(round_id)
            return {}
        return self._of_answers(op, *self._rounds.answers(round_id), table=sent.member(data, "table") is True)

    def _of_answers(self, op: str, round_: Any, answers: list[Any], *, table: bool) -> Json:
        if op == "answers":
            options = round_.question.options
            choices = [options[given.answer] if isinstance(given.answer, int) else "" for given in answers]
            rows = zip(answers, choices, strict=True)
            return {"answers": [{"name": given.name, "said": choice, "changes": given.changes} for given, choice in rows]}
        if op == "file":
            table_rows, ending = rows_of(round_, answers), "csv" if table else "jsonl"
            return {"name": f"round-{round_.id}.{ending}", "text": as_table(table_rows, cell) if table else as_lines(table_rows)}
        raise NotPossible(_("There is no such thing to do with a round."))


def _places_of(noted: str) -> int:
    """How many places a class had. The usual number when the text is no valid one."""
    return int(noted) if noted.isascii() and noted.isdigit() and len(noted) < 5 and 1 <= int(noted) <= MOST_PLACES else PLACES


def _own_question(data: Any) -> RoundQuestion:
    """A question that the teacher has written. Raises NotPossible with what is wrong."""
    question, options, draw = text(data, "text", 1000).strip(), sent.member(data, "options"), text(data, "draw", 20)
    if draw:
        field = ready.field_of(draw)
        field |= {end: whole_number(data, end, field[end]) for end in ("first", "last")} | {
            end: number(data, end, field[end]) for end in ("low", "high")
        }
        return ready.as_question(question, **field)
    if not isinstance(options, list) or len(options) > 20 or not all(isinstance(option, str) for option in options):
        raise NotPossible(_("The options must be a list of texts."))
    right = sent.member(data, "right")
    return ready.as_question(question, options=tuple(option.strip() for option in options), right=right if type(right) is int else None)


def _page_of(lead: Any) -> tuple[str, dict[str, str]]:
    """The page and parameters that a teacher's page sent. Raises NotPossible for what is no place."""
    if lead is None:
        return "", {}
    page, params = sent.member(lead, "page"), sent.member(lead, "params")
    known = isinstance(params, dict) and len(params) <= MOST_PARAMETERS
    if not isinstance(page, str) or page not in PAGES or not known or not all(_is_parameter(name, value) for name, value in params.items()):
        raise NotPossible(_("This is no place in the app."))
    return page, params


def _is_parameter(name: Any, value: Any) -> bool:
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and isinstance(value, str) and len(value) <= LONGEST
