"""The dialog "Take it home": what can be taken, and the export itself, which is the command line's own in a process of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.config_io import ConfigError
from rlhf_studio.export.command import clear
from rlhf_studio.export.hub import TOKEN_VARIABLES, check_name
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.exports.downloads import files_of
from rlhf_studio.ui.roles import Role, callable_by

PATIENCE = 3600.0  # seconds without any sign of life: loading a large base may take long
MOST_BYTES = 1_000_000
RECORDS = {"html": "report.html", "csv": "metrics.csv", "jsonl": "run.jsonl"}
WEIGHTS = ("adapter", "merged")
Json = dict[str, Any]


@dataclass
class _Job:
    """One export. ``state`` is working, done or failed; ``show`` is what the page is told."""

    number: int
    run: str
    what: str
    place: Path  # of the folder of exports
    state: str = "working"
    show: Json = field(default_factory=lambda: {"progress": "Starting", "fraction": None})
    cancelled: bool = False


class Exports:
    """At most one export at a time, in a child process.

    Args:
        command: what comes before ``export DIR ...``; replaced in tests.
        keep_hub_token: whether the child may use the Hugging Face token, as runs do.
    """

    def __init__(self, workspace: Workspace, access: Access, command: Sequence[str] = (), *, keep_hub_token: bool = False) -> None:
        self._workspace, self._access, self._keep_hub_token = workspace, access, keep_hub_token
        self._command = list(command) or [sys.executable, "-m", "rlhf_studio"]
        self._lock = threading.Lock()
        self._job: _Job | None = None
        self._process: LineProcess | None = None
        self._thread: threading.Thread | None = None

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
            kept = [{"step": info.step, "bytes": info.bytes} for info in reader.policies()]
            best = reader.best_policy()
            lora = getattr(reader.config(), "lora", None)  # an evaluation has none
            facts = {"checkpoints": kept, "adapter": bool(lora and lora.enabled), "best": best.step if best else None}
        except StoreError as error:
            return {**own, "problem": str(error)}
        with self._lock:
            job = self._job if self._job is not None and self._job.run == run else None
            busy = self._job is not None and self._job.state == "working" and job is None
            shown = None if job is None else {"number": job.number, "state": job.state, "what": job.what, **job.show}
        can_push = own["operator"] and self._keep_hub_token and _has_token(os.environ)
        return {**own, **facts, "files": files_of(self._workspace.exports_place(run)), "job": shown, "busy": busy, "push": can_push}

    @callable_by(Role.OPERATOR)
    def export_start(self, data: Any, request: gr.Request) -> Json:
        """Begin: ``what`` is adapter, merged, html, csv or jsonl; ``at`` a step, "best" or ""; ``push`` a name on the hub or ""."""
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        try:
            run, arguments, what = self._arguments(data)
            place = self._workspace.exports_place(run)
        except (StoreError, ConfigError) as error:
            return {"problem": str(error)}
        with self._lock:
            if self._job is not None and self._job.state == "working":
                return {"problem": "Another export is being made; wait until it is done."}
            job = self._job = _Job(self._job.number + 1 if self._job else 1, run, what, place)
            self._thread = threading.Thread(target=self._work, args=(job, arguments), name="export", daemon=True)
            self._thread.start()
        return {"number": job.number}

    @callable_by(Role.OPERATOR)
    def export_cancel(self, data: Any, request: gr.Request) -> Json:
        """End the present export; what it had begun is removed."""
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        with self._lock:
            self._cancel()
        return {}

    def close(self) -> None:
        """End what is going on, with the app."""
        with self._lock:
            self._cancel()
            thread = self._thread
        if thread is not None:
            thread.join()

    # --- one export ------------------------------------------------------------------------------------------------------------

    def _arguments(self, data: Any) -> tuple[str, list[str], str]:
        """(run, what follows the command, what is made). Raises StoreError and ConfigError for what cannot be asked."""
        run, what, name = sent.run_id(data), sent.member(data, "what"), sent.member(data, "push") or ""
        reader = self._workspace.reader(run)
        folder = self._workspace.exports_place(run) / paths.EXPORTS
        if isinstance(what, str) and what in RECORDS:
            return run, [str(reader.run_dir), f"--{what}", str(folder / RECORDS[what]), "--replace"], what
        if what not in WEIGHTS or not isinstance(name, str):
            raise StoreError("There is no such export.", "missing")
        step = _step(reader, sent.member(data, "at"))
        arguments = [str(reader.run_dir), f"--{what}", str(folder / f"{what}-step-{step}.zip"), "--at", str(step), "--replace"]
        if name:
            check_name(name)
            arguments += ["--push", name, *(["--public"] if sent.member(data, "public") is True else [])]
        return run, arguments, str(what)

    def _work(self, job: _Job, arguments: list[str]) -> None:
        state, show = "failed", {"error": "Stopped."}
        try:
            clear(job.place)
            (job.place / paths.EXPORTS).mkdir(parents=self._workspace.is_recording(job.run), exist_ok=True)
            state, show = self._talk(job, [*self._command, "export", *arguments, "--json"])
        except (LineTimeout, LineEnded, LineInvalid, OSError) as error:
            show = {"error": f"The export did not finish: {error or 'nothing was heard for an hour'}."}
        finally:
            with self._lock:
                if self._process is not None:
                    self._process.kill()
                    self._process = None
                clear(job.place)
                job.state, job.show = (state, show) if not job.cancelled else ("failed", {"error": "Stopped."})

    def _talk(self, job: _Job, command: list[str]) -> tuple[str, Json]:
        with self._lock:
            if job.cancelled:
                return "failed", {}
            seen = child_environment(os.environ, keep_hub_token=self._keep_hub_token)
            process = self._process = LineProcess(command, environment=seen)
        while True:
            answer = process.receive(PATIENCE, MOST_BYTES)
            if "progress" not in answer:
                break
            with self._lock:
                job.show = {"progress": str(answer["progress"]), "fraction": answer.get("fraction")}
        if not isinstance(answer.get("result"), dict):
            return "failed", {"error": str(answer.get("error"))}
        made = [Path(str(file["path"])).name for file in answer["result"]["files"]]
        return "done", {"files": made, "address": str(answer["result"]["address"])}

    def _cancel(self) -> None:
        if self._job is not None and self._job.state == "working":
            self._job.cancelled = True
            self._job.show = {"progress": "Stopping", "fraction": None}
            if self._process is not None:
                self._process.interrupt()


def _has_token(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name, "").strip() for name in TOKEN_VARIABLES)


def _step(reader: RunReader, at: Any) -> int:
    """The step that was chosen. Raises StoreError when it has no checkpoint, or none can be the best."""
    kept = [info.step for info in reader.policies()]
    if not kept:
        raise StoreError("This run has no checkpoint, so there are no weights to take.", "missing")
    if at == "best":
        if (best := reader.best_policy()) is None:
            raise StoreError("No checkpoint of this run was measured by a step after it; choose one by its step.", "missing")
        return best.step
    step = kept[-1] if at in (None, "") else at
    if type(step) is not int or step not in kept:
        raise StoreError("There is no checkpoint of this step any more; choose another.", "missing")
    return step
