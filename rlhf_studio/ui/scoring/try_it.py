"""The Train page's "Try it": scores a text with the form's reward settings, before any run.

The page starts a scoring and then asks how far it is.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from rlhf_studio.child_process.service import Busy, Job, Service
from rlhf_studio.config.io import ConfigError
from rlhf_studio.language import _, told
from rlhf_studio.ui import problems
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.scoring.sent import rewards_request, spread_request

Json = dict[str, Any]


class TryReward:
    """At most one scoring at a time.

    Args:
        access: who may score; models named by the form are loaded and code may run, so only operators.
        service: scores, in a child process of the kind "score".
    """

    def __init__(self, access: Access, service: Service) -> None:
        self._access, self._service = access, service
        self._newest: Job | None = None

    @callable_by(Role.OPERATOR)
    def try_reward(self, data: Any, request: gr.Request) -> Json:
        """``op`` is start, poll or cancel; ``spread`` asks for the scale and spread over many texts.

        Gives ``state`` (working, done, failed) with ``progress``, ``result`` or ``error``.
        """
        question = data if isinstance(data, dict) else {}
        if not self._access.is_operator(request, data):
            return {"state": "failed", "error": self._access.why_not(request, data)}
        if question.get("op") == "start":
            return self._start(question)
        job = self._service.find(question.get("key"))
        if job is None:
            return {"state": "failed", "error": _("This text is no longer being scored; try again.")}
        if question.get("op") == "cancel":
            self._service.cancel(job)
        return _view(job)

    def _start(self, question: Json) -> Json:
        try:
            message = spread_request(question) if question.get("spread") is True else rewards_request(question)
        except ConfigError as error:
            wrong = problems.for_page(error.problems, question.get("values"))
            return {"state": "failed", "error": _("The settings must be in order first."), "problems": wrong}
        if self._newest is not None and self._newest.state != "done":
            return {"state": "failed", "error": _("Another text is being scored at the moment; try again when it is done.")}
        try:
            self._newest = self._service.submit(message)
            return _view(self._newest)
        except Busy as error:
            return {"state": "failed", "error": told(error)}


def _view(job: Job) -> Json:
    """What the page is told of a scoring."""
    if job.state != "done":
        newest = job.last("progress") or {"text": _("Starting the process that scores, which takes some seconds the first time")}
        progress = _("Stopping") if job.cancelled else told(newest["text"])
        return {"state": "working", "key": job.key, "progress": progress, "fraction": newest.get("fraction")}
    if result := job.last("result"):
        return {"state": "done", "key": job.key, "result": result["result"]}
    failed = job.last("failed")
    return {"state": "failed", "key": job.key, "error": _("Stopped.") if failed is None else told(failed["error"])}
