"""The Runs page: what there is in the workspace, and what may be done with each run.

The page itself is drawn by ``assets/runs/``; it reads through server functions that change nothing, and acts through events.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.listing import Listing
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE, RunStatus
from rlhf_studio.runs.status import may_force_stop, silence
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.form import settings_of
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.outlook import count
from rlhf_studio.ui.resume import question
from rlhf_studio.ui.sent import member
from rlhf_studio.units import format_bytes

logger = logging.getLogger(__name__)

LISTING_SECONDS = 0.7
ACTIONS = ("resume", "cancel", "force_stop", "rename", "delete")
EVENTS = ["open_run", "act", "go_train"]
Json = dict[str, Any]


def allowed_actions(run: RunStatus) -> list[str]:
    """What an operator may do with a run in its present state, the likeliest first; opening it is always possible."""
    if run.state in ALIVE:
        return [*(["force_stop"] if may_force_stop(run) else []), "rename"]
    if run.state == "queued":
        return ["cancel", "rename", "delete"]
    return [*(["resume"] if run.state in ("stopped", "failed", "interrupted") else []), "rename", "delete"]


def row_of(run: RunStatus, summary: Json) -> Json:
    """A run as the table shows it."""
    return {
        "id": run.run_id,
        "name": run.name or run.run_id,
        "recipe": run.recipe,
        "state": run.state,
        "note": run.cause or run.phase,
        "queue_position": run.queue_position,
        "step": run.step,
        "total": run.total_steps,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "alive": run.state in ALIVE,
        "silent": silence(run) is not None,
        "actions": allowed_actions(run),
        **{key: summary.get(key) for key in ("model", "score_first", "score_last", "gold_first", "gold_last", "kl_last", "elapsed")},
    }


def loss_of(reader: RunReader, name: str) -> str:
    """What deleting this run takes away, in one sentence or two."""
    steps = reader.status().last_recorded_step
    checkpoints = reader.checkpoints()
    stored = sum(file.lstat().st_size for file in reader.run_dir.rglob("*") if file.is_file() or file.is_symlink())
    parts = [f"{count(steps, 'recorded step', 'recorded steps')} with every response and token"] if steps else []
    if checkpoints:
        kept = count(len(checkpoints), "checkpoint", "checkpoints")
        parts.append(f"{kept} with the trained weights (the last at step {checkpoints[-1].step})")
    what = " and ".join(parts) if parts else "its settings and its log; it has no steps yet"
    return f"Deleting {name} removes {what}: {format_bytes(stored)}. It cannot be undone."


class RunsPage:
    """What the Runs page can ask and do. ``queue_problem`` says why queued runs do not start; empty when all is well."""

    def __init__(self, workspace: Workspace, access: Access, queue_problem: Callable[[], str] = lambda: "") -> None:
        self._workspace = workspace
        self._access = access
        self._queue_problem = queue_problem
        self._all = Listing(workspace)
        self._lock = threading.Lock()
        self._listing: tuple[float, str, list[Json]] = (float("-inf"), "", [])
        self._summaries: dict[str, tuple[tuple[int, int, str], Json]] = {}

    # --- what the page asks; nothing here changes anything --------------------------------------------------------------

    def runs(self, data: Any, request: gr.Request) -> Json:
        """The table's rows, or ``same`` when the page has them already; ``operator`` says whether this person may act."""
        operator = self._access.is_operator(request, data)
        own = {"operator": operator, "why_not": "" if operator else self._access.why_not(), "now": time.time()}
        try:
            version, rows = self._rows()
        except StoreError as error:
            return {**own, "problem": str(error)}
        return {
            **own,
            "problem": self._queue_problem(),
            "version": version,
            **({"same": True} if member(data, "version") == version else {"rows": rows}),
        }

    def loss(self, data: Any, request: gr.Request) -> Json:
        """What deleting a run would take away."""
        try:
            run_id = sent.run_id(data)
            return {"text": loss_of(self._workspace.reader(run_id), self._workspace.status(run_id).name or run_id)}
        except (StoreError, OSError):
            # it must be possible to delete a damaged run too
            return {"text": "This run cannot be read, so what is in it is not known. Deleting it cannot be undone."}

    def resume_question(self, data: Any, request: gr.Request) -> Json:
        """What to ask before a run is resumed, see :func:`rlhf_studio.ui.resume.question`."""
        return question(self._workspace, self._access, data, request)

    def settings(self, data: Any, request: gr.Request) -> Json:
        """The run's settings as the Train page's form takes them."""
        try:
            return settings_of(self._workspace.reader(sent.run_id(data)).config())
        except StoreError as error:
            return {"problem": str(error)}

    def waiting(self) -> int:
        """How many runs are alive or queued; 0 when that cannot be known, which the Runs page explains."""
        try:
            return sum(row["alive"] or row["state"] == "queued" for row in self._rows()[1])
        except StoreError:
            return 0

    def _rows(self) -> tuple[str, list[Json]]:
        """(version, rows): read at most once per :data:`LISTING_SECONDS`, however many people look."""
        with self._lock:
            read_at, version, rows = self._listing
            if time.monotonic() - read_at > LISTING_SECONDS:
                runs = self._all.runs()
                rows = [row_of(run, self._summary(run)) for run in runs]
                self._summaries = {run.run_id: self._summaries[run.run_id] for run in runs if run.run_id in self._summaries}
                version = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
                self._listing = (time.monotonic(), version, rows)
            return version, rows

    def _summary(self, run: RunStatus) -> Json:
        """The run's figures, read again only when the run has moved on."""
        seen = (run.epoch, run.seq, run.state)
        kept = self._summaries.get(run.run_id)
        if kept is None or kept[0] != seen:
            try:
                summary = self._workspace.reader(run.run_id).summary()
            except StoreError:
                summary = {}  # the row's own state and cause say what is wrong
            self._summaries[run.run_id] = kept = (seen, summary)
        return kept[1]

    # --- what the page does -----------------------------------------------------------------------------------------------

    def act(self, data: Any, request: gr.Request) -> Json:
        """Resume (``from_start``: from step 0), cancel, end by force, rename or delete a run.

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
            else:
                getattr(self._workspace, action)(run_id)
        except (StoreError, ValueError) as error:
            raise gr.Error(str(error), print_exception=False) from error
        self._listing = (float("-inf"), "", [])
        return {"done": action, "run": run_id, "at": time.time()}

    def build(self, functions: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
        """The component. Events: ``open_run`` {run}, ``act`` (what :meth:`act` takes) and ``go_train``."""
        return panel("runs", EVENTS, [self.runs, self.loss, self.settings, self.resume_question, *functions])
