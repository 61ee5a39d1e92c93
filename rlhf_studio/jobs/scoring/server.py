"""The requests of the pages that score a text, worked on in a child process (:mod:`rlhf_studio.child_process.serving`).

Of the Train page's "Try it", with all rewards of a configuration: ``{"op": "rewards", "config", "prompt", "response", "reference",
"stopped"}``. The event ``result`` has what :meth:`.one_text.TextScorer.score` gives.

Of the reward playground, with one reward model: ``{"op": "model", "model", "revision", "label", "append_eos", "prompt", "response",
"candidates", "words", "stopped"}``. Events are ``model`` with what was loaded, ``scored`` with the fields of :func:`.look.look`, and
``trying`` and ``words`` with those of :func:`.look.swaps`. Without a response the model is only loaded.

Of the picker's third step, with all rewards of a configuration: ``{"op": "spread", "config", "why_not"}``. The event ``result`` has what
:func:`.spread.measure_spread` gives.

All tell ``progress`` while something is loaded, and stop there when they are cancelled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import transformers

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RewardModelReward, permissions_from_environment
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import lanes_for_this_cpu
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer, load_scorer
from rlhf_studio.engine.rewards.registry import BuildContext
from rlhf_studio.jobs.scoring.look import ProbedResponse, facts_of, look, swaps
from rlhf_studio.jobs.scoring.one_text import TextScorer, TextToScore
from rlhf_studio.jobs.scoring.spread import measure_spread
from rlhf_studio.jobs.scoring.versions import version_of_model

MESSAGES = (ComponentError, ConfigError)
MOST_HELD = 2  # models of the playground


def handler(waits: Callable[[], bool]) -> Handler:
    """The function that answers requests. Models stay loaded from one request to the next."""
    transformers.utils.logging.disable_progress_bar()
    return Scoring(permissions_from_environment(os.environ)).ask


class Cancelled(Exception):
    """The page does not want the answer any more."""


class Scoring:
    """Answers requests one after the other.

    Args:
        permissions: which code and servers outside the program the rewards of a configuration may use.
    """

    def __init__(self, permissions: Permissions) -> None:
        self._tell: Tell = lambda event: None
        self._is_cancelled: IsCancelled = lambda: False
        self._permissions = permissions
        self._texts = TextScorer(permissions, self._progress)
        self._held: dict[tuple[Any, ...], RewardModelScorer] = {}

    def ask(self, request: Json, tell: Tell, is_cancelled: IsCancelled = lambda: False) -> None:
        """Send the events of one request. Raises :class:`ComponentError` and :class:`ConfigError` for what cannot be used."""
        self._tell, self._is_cancelled = tell, is_cancelled
        try:
            {"rewards": self._rewards, "model": self._model, "spread": self._spread}[request["op"]](request)
        except Cancelled:
            return

    def _progress(self, text: str, fraction: float | None) -> None:
        if self._is_cancelled():
            raise Cancelled
        self._tell({"event": "progress", "text": text, "fraction": fraction})

    def _rewards(self, request: Json) -> None:
        text = TextToScore(request["prompt"], request["response"], request["reference"], request["stopped"])
        self._tell({"event": "result", "result": self._texts.score(parse_ppo(request["config"]), text)})

    def _spread(self, request: Json) -> None:
        result = measure_spread(parse_ppo(request["config"]), request["why_not"], self._permissions, self._progress)
        self._tell({"event": "result", "result": result})

    def _model(self, request: Json) -> None:
        try:
            scorer = self._scorer(request)
        except ConfigError as error:
            raise ComponentError("; ".join(problem.message for problem in error.problems)) from None
        self._tell({"event": "model", **facts_of(scorer)})
        if request.get("response") is None or self._is_cancelled():
            return
        probed = ProbedResponse(request["prompt"], request["response"], tuple(request["candidates"]), request["stopped"])
        self._tell({"event": "scored", **look(scorer, probed)})
        if request["words"]:
            for swap in swaps(scorer, probed, self._is_cancelled):
                self._tell({"event": "words" if "words" in swap else "trying", **swap})

    def _scorer(self, request: Json) -> RewardModelScorer:
        """The model in full precision, so that small changes are not rounding."""
        settings = RewardModelReward(
            model=request["model"], revision=request["revision"], label=request["label"], append_eos=request["append_eos"]
        )
        key = (settings.model, settings.revision, settings.label, settings.append_eos, version_of_model(settings.model))
        held = self._held.pop(key, None)
        if held is None:
            while len(self._held) >= MOST_HELD:
                self._held.pop(next(iter(self._held)))
            held = load_scorer(settings, settings.model, BuildContext("reward", _compute(), self._progress, NOTHING_ALLOWED))
        self._held[key] = held
        return held


def _compute() -> Compute:
    """The GPU that the app allows, else the CPU."""
    if torch.cuda.is_available():
        return Compute(torch.device("cuda"), torch.float32)
    return Compute(torch.device("cpu"), torch.float32, lanes=lanes_for_this_cpu())
