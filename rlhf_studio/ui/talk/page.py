"""The Talk page: what it can ask. It is drawn by ``assets/talk/``.

Everyone may see which policies there are; asking one starts a process and loads models, so it is for operators, and for students of a
class in their line (:mod:`.students`). The page polls for the events of its own job, whose key nobody else knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.child_process.service import Busy, Service
from rlhf_studio.config.bundled import REPLAYED
from rlhf_studio.config.glossary import explained, glossary
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.language import N_, _, shown, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import jobs, sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.alike import Alike
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.live.charts import QUANTITIES
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import QuestionRefused
from rlhf_studio.ui.talk.offered import runs_with_policies
from rlhf_studio.ui.talk.sent import LONGEST_PROMPT, MOST_TOKENS, SAMPLING, request_of
from rlhf_studio.ui.talk.students import StudentTalk

COLOURS = ("kl", "rewards", "logprobs", "entropy")
WORDS = ("logprobs", "ref_logprobs", "kl", "rewards", "entropy", "values", "probability", "score", "gold")
Json = dict[str, Any]
_counter = itertools.count(1)


class TalkPage:
    """The page of one app.

    Args:
        service: answers, in a child process of the kind "talk".
        students: what those of a class may ask; None in an app that has no class.
        insights: know of runs whether they collapsed.
    """

    def __init__(
        self, workspace: Workspace, access: Access, service: Service, students: StudentTalk | None = None, insights: Insights | None = None
    ) -> None:
        self._workspace, self._access, self._service, self._students = workspace, access, service, students
        self._insights, self._alike = insights, Alike(workspace)
        self.component: gr.HTML | None = None

    def open(self, run_id: str) -> dict[str, Any]:
        """The update that makes the page show a run: return it for :attr:`component` from any handler."""
        return gr.update(value=f"{run_id}@{next(_counter)}")

    def build(self, functions: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
        """The component, with the ``functions`` of what else is on the page. Its events: ``talk_train``, which leads to the Train page."""

        @callable_by(Role.OPERATOR)
        async def news(data: Any, request: gr.Request) -> Response:
            return self.news(data, request)

        more = [*functions, *(self._students.functions() if self._students else [])]
        self.component = panel("talk", ["talk_train"], [self.boot, self.policies, self.ask, news, self.halt, *more])
        return self.component

    # --- what the page asks; the first two change nothing ------------------------------------------------------------------------

    @callable_by(Role.VIEWER)
    def boot(self, data: Any, request: gr.Request) -> Json:
        """The runs that have a checkpoint or a snapshot, newest first, and what the page needs once."""
        own = self._access.rights(request, data) | (self._students.offer(data, request) if self._students else {})
        try:
            rows = runs_with_policies(self._workspace, self._insights, self._alike)
        except StoreError as error:
            return {**own, "problem": told(error), "runs": []}
        return {**own, "runs": rows, "limits": {"prompt": LONGEST_PROMPT, "tokens": MOST_TOKENS}, "replay": REPLAYED, **_static()}

    @callable_by(Role.VIEWER)
    def policies(self, data: Any, request: gr.Request) -> Json:
        """The policies of one run, its watched prompts as examples, and its sampling settings."""
        try:
            reader = self._workspace.reader(sent.run_id(data))
            config, steps = as_sampled(reader.config()), [info.step for info in reader.policies()]
            watched = reader.watched(ends=True)
            stage = reader.status().stage
        except (StoreError, ValueError) as error:
            return {"problem": told(error)}
        return {
            "steps": steps,
            "examples": list(dict.fromkeys(answer.prompt[:LONGEST_PROMPT] for _, answer in watched))[:12],
            "settings": {name: getattr(config.generation, name) for name in SAMPLING},
            "seed": config.engine.seed,
            "chat": bool(config.data.chat_template or config.data.prompt_format),
            "gold": stage == "ppo" and config.reward.gold != "none",
        }

    @callable_by(Role.OPERATOR)
    def ask(self, data: Any, request: gr.Request) -> Json:
        """Ask one or two policies (or, without a prompt, only load them). Gives the job's ``key``, or ``error`` and ``field``."""
        if not self._access.is_operator(request, data):
            return {"error": self._access.why_not(request, data), "field": ""}
        try:
            return {"key": self._service.submit(request_of(data if isinstance(data, dict) else {}, self._workspace)).key}
        except QuestionRefused as error:
            return {"error": told(error), "field": error.field}
        except Busy as error:
            return {"error": told(error), "field": ""}

    def news(self, data: Any, request: gr.Request) -> Response:
        """As :func:`jobs.news`."""
        return jobs.news(self._service, self._access, data, request, _("This answer is no longer here. Ask again."))

    @callable_by(Role.OPERATOR)
    def halt(self, data: Any, request: gr.Request) -> Json:
        """Stop an answer."""
        jobs.cancel(self._service, self._access, data, request)
        return {}


def _quantities() -> list[Json]:
    """How the tokens can be coloured. The log-probability is coloured by how unlikely a token was: 0 is certain."""
    known = {quantity.name: asdict(quantity) for quantity in QUANTITIES}
    known["logprobs"] = {"name": "logprobs", "label": N_("Log-probability"), "scale": "sequential", "noise": 1e-4}
    return [known[name] for name in COLOURS]


def _static() -> Json:
    """What is the same for all runs."""
    terms = {name: term for name, term in glossary().items() if name in WORDS}
    return {"quantities": [shown(quantity, ("label",)) for quantity in _quantities()], "glossary": explained(terms)}
