"""A trial before a long run: ``Try for two minutes`` on the Train page, and what the command ``try`` says in the end.

The page starts a trial and then asks how far it is. The trial is a run of its own, archived in the list of runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.analysis.trial import Correction, judgement_of
from rlhf_studio.config import STAGES
from rlhf_studio.config.io import ConfigError, walk_fields
from rlhf_studio.language import _, ngettext, told
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.trial import LEAST_STEPS, MINUTES, note_of, put_aside, trial_settings, tried
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE, RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import problems, sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.outlook import value_text
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import member
from rlhf_studio.ui.train_page import TrainPage

Json = dict[str, Any]
DAY = 24 * 3600.0


class Trials:
    """Starts trials and says how far they are, for operators.

    Args:
        wake: tells the queue that there is a new run.
    """

    def __init__(self, train_page: TrainPage, workspace: Workspace, access: Access, wake: Callable[[], None]) -> None:
        self._train_page, self._workspace, self._access, self._wake = train_page, workspace, access, wake
        self._once = Once(lambda answer: "run" in answer)

    @callable_by(Role.OPERATOR)
    def trial(self, data: Any, request: gr.Request) -> Json:
        """``op`` is start, look, stop or delete. Gives ``state`` (working, done, failed, deleted) with ``run`` and what there is to show.

        ``start`` takes what a check of the form takes, and a ``nonce``, with which it starts one trial however often it is sent; the others
        take the ``run``. ``look`` takes ``seconds`` from now on that the long run may take, and in words ``until`` when.
        """
        if not self._access.is_operator(request, data):
            return _failed(self._access.why_not(request, data))
        try:
            if member(data, "op") == "start":
                return self._once.answer(data, lambda: self._start(data))
            run_id = sent.run_id(data)
            folder = self._workspace.own_dir(run_id)
            tried(folder)  # whoever asks may delete or stop trials alone here
            if member(data, "op") == "delete":
                self._workspace.delete(run_id)
                return {"state": "deleted", "run": run_id}
            if member(data, "op") == "stop":
                return self._stop(run_id, folder)
            return self._look(run_id, folder, data)
        except ConfigError as error:
            rows = problems.for_page(error.problems, member(data, "values"))
            return {**_failed(_("The settings must be in order first.")), "problems": rows}
        except (StoreError, ValueError) as error:
            return _failed(told(error))

    def _start(self, data: Any) -> Json:
        config, report = self._train_page.ready(data)
        own = trial_settings(config)
        name = _("Trial of {name}").format(name=config.name or config.recipe or _("a run"))[:120]
        run_id = self._workspace.submit(own, name, report.expected_peak, files=note_of(config))
        put_aside(self._workspace.own_dir(run_id))
        self._wake()
        return {"state": "working", "run": run_id, "progress": _("Waiting to start"), "minutes": MINUTES}

    def _stop(self, run_id: str, folder: Path) -> Json:
        if self._workspace.status(run_id).state == "queued":
            self._workspace.cancel(run_id)
        else:
            send_command(folder, "discard")
        return {"state": "working", "run": run_id, "progress": _("Stopping")}

    def _look(self, run_id: str, folder: Path, data: Any) -> Json:
        run = self._workspace.status(run_id)
        if run.state in (*ALIVE, "queued"):
            return {"state": "working", "run": run_id, "progress": self._progress(run, folder), "fraction": _fraction(run, folder)}
        judgement = judgement_of(folder, _seconds(member(data, "seconds")), _words(member(data, "until")))
        if judgement is None or run.state in ("failed", "interrupted"):
            return {
                **_failed(_("The trial ended without a result: {value}.").format(value=told(run.cause or run.state).rstrip(".。"))),
                "run": run_id,
            }
        return {
            "state": "done",
            "run": run_id,
            "headline": judgement.headline,
            "night": judgement.night,
            "seen": judgement.seen,
            "corrections": _rows_of(judgement.corrections),
            "together": judgement.together,
        }

    def _progress(self, run: RunStatus, folder: Path) -> str:
        if run.state == "queued":
            working = sum(other.state in ALIVE and other.origin.kind == "studio" for other in self._workspace.runs())
            before = working + (run.queue_position or 1) - 1
            if before <= 0:
                return _("Waiting to start")
            return ngettext("Waiting: {count} run comes first", "Waiting: {count} runs come first", before).format(count=before)
        if run.state == "loading":
            return told(run.phase) or _("Loading")
        least = _(", of at least {least_steps}").format(least_steps=LEAST_STEPS) if run.step < LEAST_STEPS else ""
        doing = f". {told(run.phase)}" if run.phase else ""
        return _("Step {step} of the trial{least}{doing}").format(step=run.step + 1, least=least, doing=doing)


def _rows_of(rows: list[Correction]) -> list[Json]:
    """The corrections for a page: with the setting's title, and the values as they are and as they read."""
    titles = {name: field.title or name for kind in STAGES.values() for name, field in walk_fields(kind)}
    return [
        {**asdict(row), "title": _(titles.get(row.setting, row.setting)), "reads": [value_text(row.old), value_text(row.new)]}
        for row in rows
    ]


def _fraction(run: RunStatus, folder: Path) -> float | None:
    """Share of the trial that is over: of its time, or of its least steps where they take longer; None until the first is done."""
    if run.state == "loading" or run.step == 0:
        return run.fraction
    _names, columns = RunReader(folder).columns(["time/elapsed"])
    return min(run.step / LEAST_STEPS, float(columns["time/elapsed"][-1]) / (60 * MINUTES), 1.0)


def _failed(error: str) -> Json:
    return {"state": "failed", "error": error}


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= 7 * DAY:
        raise ValueError(_("The time until which the run may go on should be within seven days."))
    return float(value)


def _words(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 40:
        raise ValueError(_("The time should be named in a few words."))
    return value
