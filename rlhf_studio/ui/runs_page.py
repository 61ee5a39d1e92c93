"""The Runs page: what there is in the workspace, and what may be done with each run.

The page itself is drawn by ``assets/runs/``; it reads through server functions that change nothing, and acts through events.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from rlhf_studio.analysis.compare.runs import in_words
from rlhf_studio.analysis.ends import headline_ends
from rlhf_studio.analysis.evaluation.report import last_win_rate
from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.config.glossary import GLOSSARY
from rlhf_studio.language import LANGUAGES, N_, _, language, ngettext, told
from rlhf_studio.runs.errors import OnlyRead, StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE, RunStatus
from rlhf_studio.runs.status import CANCELLED, may_force_stop, silence
from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.alike import Alike
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.insights import Insights, Progress
from rlhf_studio.ui.lab.varying import copied, may_copy
from rlhf_studio.ui.live.page import asked_by, steer
from rlhf_studio.ui.remembered import OfRuns
from rlhf_studio.ui.resume import question, refusal
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import member
from rlhf_studio.ui.serving.shared_reading import SpokenReading
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.units import format_bytes

logger = logging.getLogger(__name__)

LISTING_SECONDS = 0.7
LEAST_COURSE = 0.01
"""Points: a smaller change of the score is drawn as a nearly flat line."""
ACTIONS = ("resume", "cancel", "force_stop", "move", "rename", "mark", "archive", "unarchive", "delete")
EVENTS = ["open_run", "act", "stop_run", "go_train"]
WIN_RATE = N_("Win rate")
_ABOUT = {recording.run_id: recording.about for recording in RECORDINGS}
Json = dict[str, Any]
NOTHING_BESIDE: Json = {"alike": "", "seed": None, "apart": [], "same": False}


def allowed_actions(run: RunStatus) -> list[str]:
    """What an operator may do with a run in its present state, the likeliest first; opening it is always possible.

    ``follow`` stands for all new runs that follow from it: suggestions, forks, variations and sweeps; ``copy`` for its settings in the
    form of Train. A recording is only read, and so is what others train, see ``Origin.only_read``.
    """
    copy = ["copy"] if may_copy(run.origin) else []
    if run.recording:
        return copy
    ours = not run.origin.only_read
    follow = [*(["follow"] if ours else []), *copy]
    marks = ["rename", "mark", "unarchive" if run.marks and run.marks.archived else "archive"]
    if run.unreadable:
        return [*marks, "delete"]
    if run.state in ALIVE:
        return [*(["force_stop"] if may_force_stop(run) else []), *follow, *marks]
    if run.state == "stopped" and run.phase == CANCELLED:  # it has never begun: there is nothing to follow from
        return ["resume", *copy, *marks, "delete"]
    if run.state == "queued":
        return ["move", "cancel", *follow, *marks, "delete"]
    more = ["go_on"] if run.stage == "ppo" else []  # the other stages end when their examples do
    own = ["resume"] if run.state in ("stopped", "failed", "interrupted") else more
    return [*(own if ours else []), *follow, *marks, "delete"]


def row_of(run: RunStatus, summary: Json, verdict: Json | None = None, beside: Json = NOTHING_BESIDE) -> Json:
    """A run as the table shows it, with what its settings say ``beside`` those of others (:class:`~rlhf_studio.ui.alike.Alike`).

    When a recording was made, and how long that took, is of no interest to anybody.
    """
    return {
        "id": run.run_id,
        "name": told(run.name) if run.recording else run.name or run.run_id,
        "recipe": run.recipe,
        "stage": run.stage,
        "state": run.state,
        "note": told(without_secrets(run.cause) or run.phase),
        "queue_position": run.queue_position,
        "step": run.step,
        "total": run.total_steps,
        "created_at": run.created_at,
        "started_at": None if run.recording else run.started_at,
        "alive": run.state in ALIVE,
        "silent": silence(run) is not None,
        "actions": allowed_actions(run),
        "unreadable": run.unreadable,
        "verdict": verdict,
        "tags": list(run.marks.tags),
        "remark": run.marks.note,
        "archived": run.marks.archived,
        "parent": run.origin.parent,
        "parent_step": run.origin.parent_step,
        "sweep": run.origin.sweep,
        "kind": run.origin.kind,
        "told": run.origin.tell(_),
        "only_read": told(run.origin.only_read),
        "may_stop": run.origin.may_stop,
        "starter": " ".join(part for part in (run.starter.role, run.starter.name) if part),
        "recording": told(_ABOUT.get(run.run_id, "")) if run.recording else "",
        **beside,
        "course": course_of(summary.get("scores") or ()),
        **{
            key: None if run.recording and key == "elapsed" else summary.get(key)
            for key in ("model", "score_first", "score_last", "gold_first", "gold_last", "kl_last", "elapsed", "headline")
        },
    }


def course_of(scores: Sequence[float]) -> list[int]:
    """How the score went, for a small picture: heights of 0 to 99 between its lowest and its highest; empty for fewer than two."""
    if len(scores) < 2:
        return []
    low = min(scores)
    span = max(max(scores) - low, LEAST_COURSE)
    return [round(99 * (score - low) / span) for score in scores]


def headline_of(reader: RunReader, stage: str) -> Json | None:
    """The number that says most of a run of another stage than PPO, at its beginning and its end; None where there is none.

    Of an evaluation the win rate of its last policy against its first one, which has no beginning.
    ``falls`` says that lower is better, ``percent`` that it is a share.
    """
    if stage == "evaluation":
        rate = last_win_rate(reader)
        return None if rate is None else {"label": WIN_RATE, "first": None, "last": rate, "falls": False, "percent": True}
    headline = None if stage == "ppo" else headline_ends(reader, stage)  # PPO's score and gold score have columns of their own
    if headline is None:
        return None
    return {
        "label": GLOSSARY[headline.metric].title,
        "first": headline.first,
        "last": headline.last,
        "falls": headline.falls,
        "percent": headline.percent,
    }


def _spoken(row: Json) -> Json:
    """A row, which is the same for everybody, in the language that is spoken now: its number and its settings."""
    headline = row["headline"]
    spoken = {**row, "apart": in_words(row["apart"])}
    return spoken if headline is None else {**spoken, "headline": {**headline, "label": _(headline["label"]).lower()}}


def loss_of(reader: RunReader, name: str) -> str:
    """What deleting this run takes away, in one sentence or two."""
    steps = reader.status().last_recorded_step
    checkpoints = reader.checkpoints()
    stored = sum(file.lstat().st_size for file in reader.run_dir.rglob("*") if file.is_file() or file.is_symlink())
    parts = []
    if steps:
        many = ngettext(
            "{count} recorded step with every response and token", "{count} recorded steps with every response and token", steps
        )
        parts.append(many.format(count=steps))
    if checkpoints:
        many = ngettext(
            "{count} checkpoint with the trained weights (the last at step {step})",
            "{count} checkpoints with the trained weights (the last at step {step})",
            len(checkpoints),
        )
        parts.append(many.format(count=len(checkpoints), step=checkpoints[-1].step))
    what = _(" and ").join(parts) or _("its settings and its log; it has no steps yet")
    deleting = _("Deleting {name} removes {what}: {size}. It cannot be undone.")
    return deleting.format(name=name, what=what, size=format_bytes(stored))


def _number_of(version: Any, boot: str) -> int:
    """The number of the last change that a page has; 0 when it has none, or has one from before the app started again."""
    first, _, number = version.partition("-") if isinstance(version, str) else ("", "", "")
    return int(number) if first == boot and number.isdecimal() and len(number) < 16 else 0


def _queue_position(to: Any) -> int:
    if type(to) is not int:
        raise ValueError("A place in the queue is a whole number.")
    return to


def _tags(tags: Any) -> list[str] | None:
    if tags is not None and not (isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)):
        raise ValueError("Tags are a list of texts.")
    return tags


def _text(note: Any) -> str | None:
    if note is not None and not isinstance(note, str):
        raise ValueError("A note is a text.")
    return note


@dataclass(frozen=True)
class Table:
    """All runs at one moment: by id, the newest row with the number of the change that made it; and who started the runs of visitors and
    students."""

    version: str
    sent: Mapping[str, tuple[int, Json]]
    starters: Mapping[str, Starter]

    def rows(self, since: int = -1) -> list[Json]:
        """The rows that have changed after a change."""
        return [row for changed, row in self.sent.values() if changed > since]


class RunsPage:
    """What the Runs page can ask and do. ``queue_problem`` says why queued runs do not start; empty when all is well. ``kept_problem`` says
    why ended runs are not copied into the bucket, for operators.

    In a read-only app and in a Space, where most people only look, the recordings stand before the runs of others that have ended,
    and are shown without being asked for. Elsewhere they stand behind all runs, and are shown without being asked for as long as there is
    no other run. One's own runs stand before all others.
    """

    def __init__(
        self,
        workspace: Workspace,
        access: Access,
        queue_problem: Callable[[], str] = lambda: "",
        insights: Insights | None = None,
        kept_problem: Callable[[], str] = lambda: "",
    ) -> None:
        self._recordings_first = access.mode in (Mode.READ_ONLY, Mode.SPACE)
        self._recordings_problem = ""
        self._workspace = workspace
        self._access = access
        self._queue_problem, self._kept_problem = queue_problem, kept_problem
        self._insights = insights
        self._table = SpokenReading(self._read, LISTING_SECONDS)
        self._boot, self._changes = secrets.token_hex(4), 0
        self._sent: dict[str, dict[str, tuple[int, Json]]] = {name: {} for name in LANGUAGES}  # of each as in Table
        self._summaries = OfRuns(self._summary)
        self._alike = Alike(workspace)

    # --- what the page asks; nothing here changes anything --------------------------------------------------------------

    @callable_by(Role.VIEWER, most_bytes=4_000)
    async def runs(self, data: Any, request: gr.Request) -> Json:
        """The table: the ``ids`` of all runs and the ``rows`` that have changed since the page's ``version``, or ``same`` when none has.

        ``operator`` says whether this person may act; ``mine``, which runs a visitor or student has started; ``recordings``,
        whether they stand ``first`` and are ``shown`` without being asked for.
        """
        own = {**self._access.rights(request, data), "now": time.time()}
        try:
            table = await self._table.get()
        except StoreError as error:
            return {**own, "problem": told(error)}
        problems = [self._queue_problem(), self._recordings_problem, self._kept_problem() if own["operator"] else ""]
        answer = {**own, "problem": " ".join(filter(None, problems)), "version": table.version}
        has = member(data, "version")
        if has == table.version:
            return {**answer, "same": True}
        since, first = _number_of(has, self._boot), self._recordings_first
        answer["recordings"] = {"first": first, "shown": first or all(row["recording"] for row in table.rows())}
        mine = self._access.starter(request, data).key if table.starters and self._access.plays(request, data) else None
        answer["mine"] = [run for run, starter in table.starters.items() if starter.key == mine]
        return {**answer, "ids": list(table.sent), "rows": [_spoken(row) for row in table.rows(since)]}

    @callable_by(Role.OPERATOR)
    def loss(self, data: Any, request: gr.Request) -> Json:
        """What deleting a run would take away."""
        try:
            run_id = sent.run_id(data)
            if self._workspace.is_recording(run_id):
                return {"problem": told(OnlyRead())}
            return {"text": loss_of(self._workspace.reader(run_id), self._workspace.status(run_id).name or run_id)}
        except (StoreError, OSError):
            # it must be possible to delete a damaged run too
            return {"text": _("This run cannot be read, so what is in it is not known. Deleting it cannot be undone.")}

    @callable_by(Role.OPERATOR)
    def resume_question(self, data: Any, request: gr.Request) -> Json:
        """What to ask before a run is resumed, see :func:`rlhf_studio.ui.resume.question`."""
        return question(self._workspace, self._access, data, request)

    @callable_by(Role.VIEWER)
    def settings(self, data: Any, request: gr.Request) -> Json:
        """The run's settings as the Train page's form takes them; a ``problem`` for a run whose settings are not all known."""
        try:
            return copied(self._workspace.reader(sent.run_id(data)))
        except StoreError as error:
            return {"problem": told(error)}

    def forget(self) -> None:
        """Runs have come or changed: the next question about the table reads it anew."""
        self._table.forget()

    def waiting(self) -> int:
        """How many runs of our own engines are alive or queued; 0 when that cannot be known, which the Runs page explains."""
        try:
            rows = self._table.get_in_thread().rows()
            return sum(row["state"] == "queued" or (row["alive"] and row["kind"] == "studio") for row in rows)
        except StoreError:
            return 0

    def _read(self) -> Table:
        runs = [*self._workspace.runs(), *self._recordings()]
        verdicts = self._known_verdicts(runs)
        beside = self._alike.of(runs)
        rows = [row_of(run, self._summaries.of(run), verdicts.get(run.run_id), beside.get(run.run_id, NOTHING_BESIDE)) for run in runs]
        return Table(self._note(rows), self._sent[language()], {run.run_id: run.starter for run in runs if run.starter.plays})

    def _recordings(self) -> list[RunStatus]:
        """The recordings that can be read. What is wrong with the others is shown on the page."""
        recordings, self._recordings_problem = self._workspace.recordings.runs()
        return recordings

    def _known_verdicts(self, runs: Sequence[RunStatus]) -> dict[str, Json]:
        if self._insights is None:
            return {}
        return self._insights.verdicts({run.run_id: Progress(run.epoch, run.step, run.state) for run in runs})

    def _note(self, rows: Sequence[Json]) -> str:
        """Number the rows that have changed; gives the version of the whole table."""
        before, number = self._sent[language()], self._changes + 1
        now = self._sent[language()] = {
            row["id"]: before[row["id"]] if row["id"] in before and before[row["id"]][1] == row else (number, row) for row in rows
        }
        if list(before) != list(now) or any(changed == number for changed, _row in now.values()):
            self._changes = number
        return f"{self._boot}-{self._changes}"

    def _summary(self, run: RunStatus) -> Json:
        """The run's figures."""
        try:
            reader = self._workspace.reader(run.run_id)
            return {**reader.summary(), "headline": headline_of(reader, run.stage)}
        except StoreError:
            return {}  # the row's own state and cause say what is wrong

    # --- what the page does -----------------------------------------------------------------------------------------------

    def act(self, data: Any, request: gr.Request) -> Json:
        """Resume (``from_start``: from step 0), cancel, end by force, move in the queue (``to``), rename, mark (``tags``,
        ``note``), archive or delete a run.

        Raises :class:`gradio.Error` for viewers and for what the store refuses.
        """
        self._access.require_operator(request, data)
        action = member(data, "action")
        if action not in ACTIONS:
            raise gr.Error("There is no such action.", print_exception=False)
        try:
            run_id = sent.run_id(data)
            if action == "rename":
                name = member(data, "name")
                self._workspace.rename(run_id, name if isinstance(name, str) else "")
            elif action == "resume":
                self._workspace.resume(run_id, from_start=member(data, "from_start") is True)
            elif action == "move":
                self._workspace.move(run_id, _queue_position(member(data, "to")))
            elif action == "mark":
                self._workspace.mark(run_id, tags=_tags(member(data, "tags")), note=_text(member(data, "note")))
            elif action in ("archive", "unarchive"):
                self._workspace.mark(run_id, archived=action == "archive")
            else:
                getattr(self._workspace, action)(run_id)
        except (StoreError, ValueError) as error:
            raise gr.Error(refusal(error), print_exception=False) from error
        self._table.forget()
        return {"done": action, "run": run_id, "at": time.time()}

    def stop(self, data: Any, request: gr.Request) -> None:
        """Stop a run with a checkpoint, or take it out of the queue: for operators, and for whoever started it.

        Raises :class:`gradio.Error` for everybody else, and for what the store refuses.
        """
        try:
            by = asked_by(self._workspace, self._access, data, request)
        except StoreError as error:
            raise gr.Error(refusal(error), print_exception=False) from error
        steer(self._workspace, "stop_run", data, by)
        self._table.forget()

    def build(self, functions: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
        """The component. Events: ``open_run`` {run}, ``act`` (what :meth:`act` takes), ``stop_run`` {run} and ``go_train``."""
        return panel("runs", EVENTS, [self.runs, self.loss, self.settings, self.resume_question, *functions])
