"""The Train page's "Try it": scores a text with the form's reward settings, before any run.

The app itself never loads a model. A helper process does, started when first needed, kept for some minutes, and ended with the
app. The page starts a scoring and then asks how far it is.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from rlhf_studio.child_process.environment import child_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RunConfig
from rlhf_studio.config.stages import PROMPT_WRITING
from rlhf_studio.config_io import ConfigError, Problem, parse_ppo
from rlhf_studio.ui import problems
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.form import nested
from rlhf_studio.ui.roles import Role, callable_by

PATIENCE = 300.0  # seconds without any sign of life
IDLE = 600.0  # seconds after which an unused helper is ended
SEND_SECONDS = 30.0
MOST_BYTES = 1_000_000
LONGEST_TEXT = 50_000  # characters
Json = dict[str, Any]


@dataclass
class _Job:
    """One text being scored. ``state`` is working, done or failed; ``show`` is what the page is told."""

    number: int
    state: str = "working"
    show: Json = field(default_factory=lambda: {"progress": "Starting the helper process, which takes some seconds the first time"})
    cancelled: bool = False


class TryReward:
    """One helper process and at most one scoring at a time.

    Args:
        access: who may score; models named by the form are loaded and code may run, so only operators.
        permissions: what rewards outside the program may use.
        command: starts the helper; replaced in tests.
        keep_hub_token: whether the helper may use the Hugging Face token, as runs do.
    """

    def __init__(
        self,
        access: Access,
        permissions: Permissions = NOTHING_ALLOWED,
        command: Sequence[str] = (),
        *,
        keep_hub_token: bool = False,
    ) -> None:
        self._access, self._permissions, self._keep_hub_token = access, permissions, keep_hub_token
        self._command = list(command) or [sys.executable, "-m", "rlhf_studio", "score-server"]
        self._lock = threading.Lock()
        self._process: LineProcess | None = None
        self._job: _Job | None = None
        self._timer: threading.Timer | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    # --- what the page asks --------------------------------------------------------------------------------------------------

    def ask(self, data: Any, request: gr.Request) -> Json:
        """``op`` is start, poll or cancel. Gives ``state`` (working, done, failed) with ``progress``, ``result`` or ``error``."""
        sent = data if isinstance(data, dict) else {}
        if not self._access.is_operator(request, data):
            return {"state": "failed", "error": self._access.why_not(request, data)}
        if sent.get("op") == "start":
            return self._start(sent)
        with self._lock:
            job = self._job
            if job is None or job.number != sent.get("number"):
                return {"state": "failed", "error": "This text is no longer being scored; try again."}
            if sent.get("op") == "cancel":
                self._cancel(job)
            return self._view(job)

    def function(self) -> Callable[..., Json]:
        """For the component: Gradio marks the functions that a page may call, which methods do not allow."""

        @callable_by(Role.OPERATOR)
        def try_reward(data: Any, request: gr.Request) -> Json:
            return self.ask(data, request)

        return try_reward

    def close(self) -> None:
        """End the helper and whatever it is doing."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
            if self._job is not None and self._job.state == "working":
                self._cancel(self._job)
            thread = self._thread
        if thread is not None:
            thread.join()  # soon: a helper that is there was ended just now, and none is started any more
        with self._lock:
            self._end_helper()

    # --- one scoring ---------------------------------------------------------------------------------------------------------

    def _start(self, sent: Json) -> Json:
        try:
            message = request_of(sent)
        except ConfigError as error:
            told = problems.for_page(error.problems, sent.get("values"))
            return {"state": "failed", "error": "The settings must be in order first.", "problems": told}
        with self._lock:
            if self._closed:
                return {"state": "failed", "error": "The app is stopping."}
            if self._job is not None and self._job.state == "working":
                return {"state": "failed", "error": "Another text is being scored at the moment; try again when it is done."}
            if self._timer is not None:
                self._timer.cancel()
            job = self._job = _Job(self._job.number + 1 if self._job else 1)
            self._thread = threading.Thread(target=self._work, args=(job, message), name="try-reward", daemon=True)
            self._thread.start()
            return self._view(job)

    def _work(self, job: _Job, message: Json) -> None:
        try:
            state, show = self._talk(job, message)
        except (LineTimeout, LineEnded, LineInvalid, OSError) as error:
            state, show = "failed", {"error": _cause(error)}
            with self._lock:
                self._end_helper()
        with self._lock:
            job.state, job.show = (state, show) if not job.cancelled else ("failed", {"error": "Stopped."})
            self._timer = threading.Timer(IDLE, self._end_idle)
            self._timer.daemon = True
            if not self._closed:
                self._timer.start()

    def _talk(self, job: _Job, message: Json) -> tuple[str, Json]:
        with self._lock:
            if job.cancelled:  # before the helper was started
                return "failed", {"error": "Stopped."}
            if self._process is None:
                seen = child_environment(os.environ, keep_hub_token=self._keep_hub_token, permissions=self._permissions)
                self._process = LineProcess(self._command, environment=seen)
            process = self._process
        process.send(message, SEND_SECONDS)
        while True:
            answer = process.receive(PATIENCE, MOST_BYTES)
            if "progress" not in answer:
                break
            with self._lock:
                job.show = {"progress": str(answer["progress"]), "fraction": answer.get("fraction")}
        if isinstance(answer.get("result"), dict):
            return "done", {"result": answer["result"]}
        return "failed", {"error": str(answer.get("error"))}

    def _cancel(self, job: _Job) -> None:
        if job.state == "working":
            job.cancelled = True
            job.show = {"progress": "Stopping"}
            if self._process is not None:
                self._process.interrupt()

    def _end_idle(self) -> None:
        with self._lock:
            if self._job is None or self._job.state != "working":
                self._end_helper()

    def _end_helper(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    @staticmethod
    def _view(job: _Job) -> Json:
        return {"state": job.state, "number": job.number, **job.show}


def _cause(error: Exception) -> str:
    if isinstance(error, LineTimeout):
        return f"Nothing was heard for {PATIENCE:g} seconds, so the helper process was ended."
    if isinstance(error, OSError):
        return f"The helper process could not be started: {error.strerror or error}"
    return f"The helper process failed: {error}. What it printed is where the app was started."


def request_of(sent: Json) -> Json:
    """What the helper is asked, from what the page sent. Raises :class:`ConfigError` when the reward settings or a text cannot be used."""
    texts: dict[str, str | None] = {}
    for name in ("prompt", "response", "reference"):
        text = sent.get(name)
        if name == "reference" and text is None:
            texts[name] = None
            continue
        if not isinstance(text, str) or len(text) > LONGEST_TEXT:
            raise ConfigError([Problem("", f"the {name} must be a text of at most {LONGEST_TEXT:,} characters")])
        texts[name] = text
    return {"config": trial_config(sent.get("values")).model_dump(mode="json"), **texts, "stopped": sent.get("stopped") is not False}


def trial_config(values: Any) -> RunConfig:
    """The settings that scoring needs: the rewards, and of the data how prompts are written. Other sections take their defaults when wrong.

    Raises :class:`ConfigError`.
    """
    sent = {name: value for name, value in nested(values).items() if name in ("reward", "model", "generation", "engine", "data")}
    if isinstance(sent.get("data"), dict):
        sent["data"] = {name: value for name, value in sent["data"].items() if name in PROMPT_WRITING}
    try:
        return parse_ppo(sent)
    except ConfigError as error:
        wrong = {problem.field.split(".")[0] for problem in error.problems} - {"reward", "data"}
        return parse_ppo({name: value for name, value in sent.items() if name not in wrong})
