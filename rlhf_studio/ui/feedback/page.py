"""The Feedback page: the functions that it can call. ``assets/feedback/`` draws it.

Players and operators vote; viewers see how far the tasks are. The page is told of success only when the answer is on the disk. Votes are
handled by threads of their own: thirty people who vote at the same time do not delay the people who watch, and are not delayed by them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial, wraps
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.config.bundled import EXAMPLE_FEEDBACK
from rlhf_studio.language import _, shown, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import CONFIDENCES, LONGEST_NAME, Task, Turn
from rlhf_studio.runs.feedback.store import Feedback, NotPossible
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.classroom.link import address_for, only_here
from rlhf_studio.ui.feedback import sent
from rlhf_studio.ui.feedback.from_run import suggested
from rlhf_studio.ui.feedback.held import Held, works
from rlhf_studio.ui.feedback.results import agreement, results
from rlhf_studio.ui.feedback.work import TaskWork
from rlhf_studio.ui.hosts import host_name, is_loopback
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import as_json
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy
from rlhf_studio.ui.visiting.modes import Mode

VOTING_THREADS, MOST_VOTES_WAITING = 4, 400
READING_THREADS, MOST_READS_WAITING = 2, 60
MOST_TASKS = 200
MOST_EVALUATIONS = 50
MOST_SIGNED_IN = 2000
NAMES_EACH = 3  # names that one student of a class may use: the own one, with one or two mistakes in typing
Json = dict[str, Any]
_counter = itertools.count(1)


class FeedbackPage:
    """The page of one app."""

    def __init__(self, workspace: Workspace, access: Access, feedback: Feedback, insights: Insights | None = None) -> None:
        self._workspace, self._access, self._feedback = workspace, access, feedback
        self._insights = insights
        self._work, self._held = TaskWork(feedback, workspace), Held(workspace)
        self._voting = Bounded("votes", VOTING_THREADS, MOST_VOTES_WAITING)
        self._reading = Bounded("feedback", READING_THREADS, MOST_READS_WAITING)
        self._importing = Bounded("feedback-rows", 1, MOST_READS_WAITING)  # people who look do not wait while a long file is read
        self._signed_in: dict[tuple[str, str, bool], str] = {}
        self._names: dict[str, set[str]] = {}  # the names that each student of a class has used
        self._agreements: dict[str, tuple[int, float | None]] = {}  # by task: (number of votes, alpha)
        self._example_lock = threading.Lock()
        self._example_reply: Json | None = None
        self.component: gr.HTML | None = None

    def open(self, task: str) -> dict[str, Any]:
        """The update that makes the page show a task, or that of a run: return it for :attr:`component` from any handler."""
        return gr.update(value=f"{task}@{next(_counter)}")

    def build(self) -> gr.HTML:
        """The component. Its event ``feedback_train`` leads to the Train page."""
        voting = [self._answer(name, self._voting) for name in ("join", "turn", "vote", "undo", "begin_again")]
        reading = [
            self._answer(name, self._reading) for name in ("boot", "example", "results", "rating_link", "manage", "export", "train_on")
        ]
        adding = [self._answer(name, self._importing) for name in ("add_items", "from_run")]
        self.component = panel("feedback", ["feedback_train"], [*voting, *reading, *adding])
        return self.component

    def _answer(self, name: str, pool: Bounded) -> Callable[..., Any]:
        """A server function that works in a thread, and tells refusals in one sentence."""
        work = getattr(self, f"_{name}")

        @wraps(work)  # this also copies who may call it
        async def ask(data: Any, request: gr.Request) -> Response:
            try:
                reply = await pool.run(partial(work, data, request))
            except NotPossible as error:
                reply = {"problem": told(error), "retry": False}
            except (StoreError, TooBusy) as error:  # the page can send the answer again, so it is not lost
                reply = {"problem": told(error), "retry": True}
            return as_json(reply)

        ask.__name__ = name
        return ask

    def _require(self, role: Role, data: Any, request: Any) -> None:
        """Check the role again, for callers that do not come by HTTP: the door has already checked all others. Raises NotPossible."""
        if self._access.role_of(request, data) < role:
            raise NotPossible(self._access.why_not_rate() if role is Role.PLAYER else self._access.why_not(request, data))

    # --- everyone --------------------------------------------------------------------------------------------------------

    @callable_by(Role.VIEWER)
    def _boot(self, data: Any, request: Any) -> Json:
        role = self._access.role_of(request, data)
        states = {run.run_id: run for run in self._workspace.runs()}
        rows = []
        tasks = [replace(task, open=task.open and (not task.run or works(states.get(task.run)))) for task in self._feedback.tasks()]
        tasks.sort(key=lambda task: not (task.run and task.open))  # those for which a run waits come first
        for task in tasks[:MOST_TASKS]:
            row = {"id": task.id, **asdict(task.settings), "open": task.open, "run": task.run, "deadline": task.deadline}
            row["progress"] = asdict(self._feedback.progress(task.id))
            if run := states.get(task.run):
                row |= {"run_name": run.name, "run_state": run.state}
            if role >= Role.OPERATOR:
                row["alpha"] = self._alpha(task.id, row["progress"]["votes"])
            rows.append(row)
        rights = {"operator": role >= Role.OPERATOR, "rater": role >= Role.PLAYER}
        why = "" if rights["rater"] else self._access.why_not_rate()
        answered = [run for run in states.values() if run.stage == "evaluation" and run.state == "finished"]
        evaluations = [
            {"value": run.run_id, "name": run.name or run.run_id, "created_at": run.created_at} for run in answered[:MOST_EVALUATIONS]
        ]
        lists: Json = {"tasks": rows, "evaluations": evaluations if rights["operator"] else []}
        suggestion = suggested(states.values(), self._insights) if rights["operator"] else None
        lists |= {"suggested": asdict(suggestion) if suggestion else None, "example": self._workspace.recordings.knows(EXAMPLE_FEEDBACK)}
        return {**rights, "why_not": why, **lists, "confidences": CONFIDENCES, "longest_name": LONGEST_NAME}

    @callable_by(Role.VIEWER)
    def _example(self, data: Any, request: Any) -> Json:
        """A recorded task that was finished: its row as in the list, and its results. Raises StoreError where it is damaged."""
        with self._example_lock:
            if self._example_reply is None:
                recorded = Feedback(self._workspace.recordings.folder(EXAMPLE_FEEDBACK))
                (task,) = recorded.tasks()
                row = {"id": task.id, **asdict(task.settings), "progress": asdict(recorded.progress(task.id))}
                self._example_reply = {"task": row, "results": _results_of(recorded, task)}
            return {**self._example_reply, "task": shown(self._example_reply["task"], ("title", "name"))}

    def _alpha(self, task_id: str, votes: int) -> float | None:
        """Krippendorff's alpha, computed once for each number of votes."""
        known = self._agreements.get(task_id)
        if known is None or known[0] != votes:
            alpha = agreement(self._feedback.task(task_id), self._feedback.votes(task_id))["alpha"] if votes else None
            known = self._agreements[task_id] = votes, alpha
        return known[1]

    # --- players ---------------------------------------------------------------------------------------------------------

    def _annotator(self, data: Any, request: Any) -> str:
        """Who answers, by the name and the browser's key. Raises NotPossible."""
        self._require(Role.PLAYER, data, request)
        trusted = self._access.role_of(request, data) >= Role.OPERATOR
        credentials = sent.text(data, "name", 200), sent.text(data, "secret", sent.LONGEST_SECRET), trusted
        self._require_few_names(credentials[0], data, request)
        if credentials not in self._signed_in:  # a name never changes hands, so it is looked up once
            if len(self._signed_in) >= MOST_SIGNED_IN:
                self._signed_in.clear()
            self._signed_in[credentials] = self._feedback.sign_in(credentials[0], credentials[1], trusted=trusted)
        return self._signed_in[credentials]

    def _require_few_names(self, name: str, data: Any, request: Any) -> None:
        """In a class nobody may answer under several names: the cookie of the class link belongs to one student. Raises NotPossible."""
        if self._access.mode is not Mode.CLASSROOM or not self._access.plays(request, data) or self._access.is_operator(request, data):
            return
        names = self._names.setdefault(self._access.starter(request, data).key, set())
        if len(names) >= NAMES_EACH and name not in names:
            raise NotPossible(
                _("You have answered under {names_each} names. Go on with one of them: {names}.").format(
                    names_each=NAMES_EACH, names=", ".join(sorted(names))
                )
            )
        names.add(name)

    @callable_by(Role.PLAYER)
    def _join(self, data: Any, request: Any) -> Json:
        return {"name": self._annotator(data, request)}

    @callable_by(Role.PLAYER)
    def _turn(self, data: Any, request: Any) -> Json:
        return self._payload(data, self._feedback.turn(sent.task_id(data), self._annotator(data, request)))

    @callable_by(Role.PLAYER)
    def _vote(self, data: Any, request: Any) -> Json:
        return self._payload(data, self._feedback.vote(sent.task_id(data), self._annotator(data, request), sent.new_vote(data)))

    @callable_by(Role.PLAYER)
    def _undo(self, data: Any, request: Any) -> Json:
        return self._payload(data, self._feedback.undo(sent.task_id(data), self._annotator(data, request), sent.text(data, "vote", 80)))

    @callable_by(Role.PLAYER)
    def _begin_again(self, data: Any, request: Any) -> Json:
        return self._payload(data, self._feedback.begin_again(sent.task_id(data), self._annotator(data, request)))

    def _payload(self, data: Any, turn: Turn) -> Json:
        """What the page gets. Nothing to rate when the task belongs to a run that does not work any more."""
        if turn.shown is not None and not self._held.waits(self._feedback.task(sent.task_id(data))):
            turn = replace(turn, state="closed", shown=None)
        return turn_payload(turn)

    # --- operators -------------------------------------------------------------------------------------------------------

    @callable_by(Role.OPERATOR)
    def _results(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        return _results_of(self._feedback, self._feedback.task(sent.task_id(data)))

    @callable_by(Role.OPERATOR)
    def _rating_link(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        host = request.headers.get("host", "") if request is not None else ""
        address = address_for(host, alone=self._access.loopback) if is_loopback(host_name(host)) else ""  # else the page's own is right
        reply = {"token": self._access.raters.make(renew=sent.member(data, "renew") is True)}
        return reply | {"address": address, "only_here": bool(address) and only_here(address)}

    @callable_by(Role.OPERATOR)
    def _add_items(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        return self._work.add(data)

    @callable_by(Role.OPERATOR)
    def _from_run(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        return self._work.from_run(data)

    @callable_by(Role.OPERATOR)
    def _manage(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        return self._work.manage(data)

    @callable_by(Role.OPERATOR)
    def _export(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        return self._work.export(data)

    @callable_by(Role.OPERATOR)
    def _train_on(self, data: Any, request: Any) -> Json:
        self._require(Role.OPERATOR, data, request)
        return self._work.train_on(data)

    def close(self) -> None:
        """Take no more answers."""
        for pool in (self._voting, self._reading, self._importing):
            pool.close()
        self._feedback.close()


def _results_of(feedback: Feedback, task: Task) -> Json:
    known, votes = feedback.items(task.id, calibration=True), feedback.votes(task.id)
    return results(task, feedback.items(task.id), votes, known, feedback.votes(task.id, calibration=True))


def turn_payload(turn: Turn) -> Json:
    """What an annotator's page gets. Nothing in it says which response came from where."""
    turn_shown = turn.shown
    item = None
    if turn_shown is not None:
        responses = [turn_shown.item.responses[number] for number in turn_shown.order]
        item = {"id": turn_shown.item.id, "prompt": turn_shown.item.prompt, "responses": responses, "calibration": turn_shown.attempt > 0}
    return {
        "state": turn.state,
        "item": item,
        "progress": asdict(turn.progress),
        "calibration": {**asdict(turn.calibration), "failed": turn.calibration.failed},
        "expected": turn.expected and {key: turn.expected[key] for key in ("right", "why")},
        "may_undo": turn.may_undo,
    }
