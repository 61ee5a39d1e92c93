"""What the reward playground can ask. It is drawn by ``assets/playground/``.

Everyone may see which models there are to choose from; reading a model's files, loading it and scoring are for operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.analysis.reward_model.report import reward_report
from rlhf_studio.child_process.service import Busy, Service
from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.reward_models import describe_reward_model, read_measured
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import N_, _, shown, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import jobs, sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.remembered import OfRuns
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.scoring.sent import LONGEST_TEXT, MOST_CANDIDATES, model_of, model_request
from rlhf_studio.ui.sent import QuestionRefused

BUNDLED = "bundled/world-reward"
MOST_RUNS = 40  # that are looked into
MOST_MODELS = 60
QUANTITIES = (
    {"name": "change", "label": N_("Change by this token"), "scale": "diverging", "noise": 1e-4, "centred": False},
    {"name": "prefix", "label": N_("Score so far"), "scale": "diverging", "noise": 1e-4, "centred": True},
)
"""How the tokens can be coloured."""
EXAMPLES = (
    {"prompt": "In this Danish thriller the plot", "response": " is gripping, but the score feels stale. I loved every minute."},
    {"prompt": "I saw this musical at home and", "response": " the cast never convinces. A masterpiece."},
)
"""For the bundled reward model."""
Json = dict[str, Any]


class RewardPlayground:
    """The functions of one app's playground; they can be given to several pages.

    Args:
        service: answers, in a child process of the kind "score".
    """

    def __init__(self, workspace: Workspace, access: Access, service: Service) -> None:
        self._workspace, self._access, self._service = workspace, access, service
        self._trained, self._used = OfRuns(self._trained_by), OfRuns(self._used_by)

    def functions(self) -> list[Callable[..., Any]]:
        """For the panel of a page."""

        @callable_by(Role.OPERATOR)
        async def playground_news(data: Any, request: gr.Request) -> Response:
            return self.playground_news(data, request)

        return [self.playground_boot, self.playground_model, self.playground_ask, playground_news, self.playground_halt]

    @callable_by(Role.VIEWER)
    def playground_boot(self, data: Any, request: gr.Request) -> Json:
        """Which models can be chosen, those of new runs first, and what the component needs once.

        The model of the ``run`` that the page was asked for is among them, however old that run is.
        """
        limits = {"text": LONGEST_TEXT, "candidates": MOST_CANDIDATES}
        static = {"quantities": shown(QUANTITIES, ("label",)), "examples": EXAMPLES, "limits": limits}
        why = self._access.rights(request, data)["why_not"]
        return {"why_not": why, "models": self._models(sent.member(data, "run")), **static}

    def _models(self, run_id: Any) -> list[Json]:
        """The bundled reward model, then those that runs have trained, then what else runs have used, each once.

        ``kind`` is bundled, trained or used; ``from`` says which run, and of a trained one its step; ``run`` is the id of the run that
        trained it, else empty.
        """
        models = {BUNDLED: {"name": BUNDLED, "kind": "bundled", "from": _("the review world"), "run": ""}}
        try:
            runs = self._workspace.runs()
        except StoreError:
            runs = []  # the Runs page shows this problem
        trained = [run for run in runs if run.stage == "reward_model"]
        for run in [*trained[:MOST_RUNS], *(run for run in trained[MOST_RUNS:] if run.run_id == run_id)]:
            for name, step in self._trained.of(run):
                source = _("{run}, step {step:,}").format(run=run.name or run.run_id, step=step)
                models.setdefault(name, {"name": name, "kind": "trained", "from": source, "run": run.run_id})
        for run in [run for run in runs if run.stage == "ppo"][:MOST_RUNS]:
            for name in self._used.of(run):
                models.setdefault(name, {"name": name, "kind": "used", "from": run.name or run.run_id, "run": ""})
        return list(models.values())[:MOST_MODELS]

    def _trained_by(self, run: RunStatus) -> list[tuple[str, int]]:
        """The newest reward model of a run, and its step."""
        try:
            policies = self._workspace.reader(run.run_id).policies()[-1:]  # a checkpoint or a snapshot
        except (StoreError, ValueError, OSError):
            return []  # a run that cannot be read offers no model
        return [(str(Path(info.path) / "reward_model"), info.step) for info in policies]

    def _used_by(self, run: RunStatus) -> list[str]:
        try:
            config = self._workspace.reader(run.run_id).config()
        except (StoreError, ValueError, OSError):
            return []
        rewards = config.reward.components if isinstance(config, RunConfig) else []
        return [name for component in rewards for name in component.model_names()]

    @callable_by(Role.OPERATOR)
    def playground_model(self, data: Any, request: gr.Request) -> Json:
        """What a model's files tell: ``model``, the fields of a ``RewardModelDescription``, and ``report``, those of a ``RewardReport``.

        The report is None where the model was not measured.
        """
        if not self._access.is_operator(request, data):
            return {"error": self._access.why_not(request, data)}
        try:
            name, label = model_of(data if isinstance(data, dict) else {})
            description, folder = describe_reward_model(name, label=label), Path(resolve(name))
            measured = read_measured(folder) if folder.is_dir() else None
            report = None if measured is None else reward_report(measured).as_data()
        except (QuestionRefused, ModelError, ValueError) as error:
            return {"error": told(error)}
        return {"model": asdict(description), "report": report}

    @callable_by(Role.OPERATOR)
    def playground_ask(self, data: Any, request: gr.Request) -> Json:
        """Score a text (or, without a response, only load the model). Gives the ``key`` for the news, or ``error`` and ``field``."""
        if not self._access.is_operator(request, data):
            return {"error": self._access.why_not(request, data), "field": ""}
        try:
            return {"key": self._service.submit(model_request(data if isinstance(data, dict) else {})).key}
        except QuestionRefused as error:
            return {"error": told(error), "field": error.field}
        except Busy as error:
            return {"error": told(error), "field": ""}

    def playground_news(self, data: Any, request: gr.Request) -> Response:
        """As :func:`jobs.news`."""
        return jobs.news(self._service, self._access, data, request, _("This text is no longer here. Score it again."))

    @callable_by(Role.OPERATOR)
    def playground_halt(self, data: Any, request: gr.Request) -> Json:
        """Stop a scoring."""
        jobs.cancel(self._service, self._access, data, request)
        return {}
