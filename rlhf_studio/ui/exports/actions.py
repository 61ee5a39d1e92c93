"""The dialog "Send or save": what can be taken, and the export itself, in a child process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from rlhf_studio.child_process.service import Busy, Job, Service
from rlhf_studio.config.io import ConfigError
from rlhf_studio.jobs.export.command import clear
from rlhf_studio.jobs.export.hub import TOKEN_VARIABLES, check_name
from rlhf_studio.language import _, language, told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.exports.downloads import files_of
from rlhf_studio.ui.roles import Role, callable_by

RECORDS = {"html": "report.html", "replay": "replay.html", "csv": "metrics.csv", "jsonl": "run.jsonl"}
WEIGHTS = ("adapter", "merged")
Json = dict[str, Any]


class Exports:
    """At most one export at a time.

    Args:
        service: makes them, in a child process of the kind "export".
        can_push: whether that process may use a Hugging Face token, and there is one.
    """

    def __init__(self, workspace: Workspace, access: Access, service: Service, *, can_push: bool = False) -> None:
        self._workspace, self._access, self._service, self._can_push = workspace, access, service, can_push
        self._lock = threading.Lock()
        self._job: tuple[Job, str, str] | None = None  # with the run, and what is made

    def functions(self) -> list[Callable[..., Json]]:
        """The server functions of a page that has the dialog."""
        return [self.export_look, self.export_start, self.export_cancel]

    # --- what the page asks -------------------------------------------------------------------------------------------------

    @callable_by(Role.VIEWER)
    def export_look(self, data: Any, request: gr.Request) -> Json:
        """What there is to take, what was made, and how far the present export is."""
        own = self._access.rights(request, data)
        try:
            run = sent.run_id(data)
            reader = self._workspace.reader(run)
            checkpoints = [{"step": info.step, "bytes": info.bytes} for info in reader.policies()]
            best = reader.best_policy()
            lora = getattr(reader.config(), "lora", None)  # an evaluation has none
            facts = {"checkpoints": checkpoints, "adapter": bool(lora and lora.enabled), "best": best.step if best else None}
        except StoreError as error:
            return {**own, "problem": told(error)}
        job, of_run, what = self._job or (None, "", "")
        busy = self._service.working and of_run != run
        present = {"key": job.key, "what": what, **_view(job)} if job is not None and of_run == run else None
        can_push = own["operator"] and self._can_push
        return {**own, **facts, "files": files_of(self._workspace.exports_parent(run)), "job": present, "busy": busy, "push": can_push}

    @callable_by(Role.OPERATOR)
    def export_start(self, data: Any, request: gr.Request) -> Json:
        """Begin: ``what`` is adapter, merged, html, replay, csv or jsonl; ``at`` a step, "best" or ""; ``push`` a name on the hub or ""."""
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        try:
            run, request_to_child = self._request(data)
            parent = self._workspace.exports_parent(run)
            with self._lock:
                if self._service.working:
                    return {"problem": _("Another export is being made; wait until it is done.")}
                clear(parent)
                (parent / paths.EXPORTS).mkdir(parents=self._workspace.is_recording(run), exist_ok=True)
                job = self._service.submit(request_to_child, after=lambda: clear(parent))  # the files of a process that was killed
                self._job = (job, run, str(request_to_child["what"]))
        except (StoreError, ConfigError, Busy) as error:
            return {"problem": told(error)}
        except OSError as error:
            return {"problem": _("The export cannot be written: {strerror}.").format(strerror=error.strerror or error)}
        return {"key": job.key}

    @callable_by(Role.OPERATOR)
    def export_cancel(self, data: Any, request: gr.Request) -> Json:
        """End the present export; what it had begun is removed."""
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        with self._lock:
            if self._job is not None:
                self._service.cancel(self._job[0])
        return {}

    def _request(self, data: Any) -> tuple[str, Json]:
        """(the run, the request to the child process). Raises StoreError and ConfigError for what cannot be exported."""
        run, what, name = sent.run_id(data), sent.member(data, "what"), sent.member(data, "push") or ""
        reader = self._workspace.reader(run)
        folder = self._workspace.exports_parent(run) / paths.EXPORTS
        request: Json = {"run_dir": str(reader.run_dir), "what": what, "language": language()}
        if isinstance(what, str) and what in RECORDS:
            return run, {**request, "target": str(folder / RECORDS[what])}
        if what not in WEIGHTS or not isinstance(name, str):
            raise StoreError(_("There is no such export."), "missing")
        step = _step(reader, sent.member(data, "at"))
        request |= {"target": str(folder / f"{what}-step-{step}.zip"), "at": str(step)}
        if name:
            check_name(name)
            request |= {"push": name, "public": sent.member(data, "public") is True}
        return run, request


def _view(job: Job) -> Json:
    """What the page gets about an export."""
    if job.state != "done":
        newest = job.last("progress") or {"text": _("Starting"), "fraction": None}
        return {"state": "working", "progress": _("Stopping") if job.cancelled else told(newest["text"]), "fraction": newest["fraction"]}
    if result := job.last("result"):
        return {"state": "done", "files": result["files"], "address": result["address"]}
    failed = job.last("failed")
    return {"state": "failed", "error": _("Stopped.") if failed is None else told(failed["error"])}


def has_token(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").strip() for name in TOKEN_VARIABLES)


def _step(reader: RunReader, at: Any) -> int:
    """The step that was chosen. Raises StoreError when it has no checkpoint, or none can be the best."""
    steps = [info.step for info in reader.policies()]
    if not steps:
        raise StoreError(_("This run has no checkpoint, so there are no weights to take."), "missing")
    if at == "best":
        if (best := reader.best_policy()) is None:
            raise StoreError(_("No checkpoint of this run was measured by a step after it; choose one by its step."), "missing")
        return best.step
    step = steps[-1] if at in (None, "") else at
    if type(step) is not int or step not in steps:
        raise StoreError(_("There is no checkpoint of this step any more; choose another."), "missing")
    return step
