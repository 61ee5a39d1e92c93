"""The requests of the reward playground, worked on in a child process (:mod:`rlhf_studio.child_process.serving`).

A request is ``{"model", "revision", "label", "append_eos", "prompt", "response", "candidates", "words", "stopped"}``. Events are
``progress`` while something is loaded, ``model`` with what was loaded, ``scored`` with the fields of :func:`.look.look`, and ``trying`` and
``words`` with those of :func:`.look.swaps`. Without a response the model is only loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell
from rlhf_studio.config import NOTHING_ALLOWED, RewardModelReward
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import lanes_for_this_cpu
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer, load_scorer
from rlhf_studio.engine.rewards.registry import BuildContext
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.jobs.playground.look import Question, facts_of, look, swaps

MESSAGES = (ComponentError,)
MOST_HELD = 2  # models


def handler(waits: Callable[[], bool]) -> Handler:
    """The last models stay loaded."""
    transformers.utils.logging.disable_progress_bar()
    return Playground().ask


class Playground:
    """Answers requests one after the other; the last models stay loaded."""

    def __init__(self) -> None:
        self._held: dict[tuple[Any, ...], RewardModelScorer] = {}

    def ask(self, request: Json, tell: Tell, is_cancelled: IsCancelled = lambda: False) -> None:
        """Send the events of one request. Raises :class:`ComponentError` for a model that cannot be used."""
        try:
            scorer = self._scorer(request, tell)
        except ConfigError as error:
            raise ComponentError("; ".join(problem.message for problem in error.problems)) from None
        tell({"event": "model", **facts_of(scorer)})
        if request.get("response") is None or is_cancelled():
            return
        question = Question(request["prompt"], request["response"], tuple(request["candidates"]), request["stopped"])
        tell({"event": "scored", **look(scorer, question)})
        if request["words"]:
            for swap in swaps(scorer, question, is_cancelled):
                tell({"event": "words" if "words" in swap else "trying", **swap})

    def _scorer(self, request: Json, tell: Tell) -> RewardModelScorer:
        settings = RewardModelReward(
            model=request["model"], revision=request["revision"], label=request["label"], append_eos=request["append_eos"]
        )
        key = (settings.model, settings.revision, settings.label, settings.append_eos, _changed(settings.model))
        held = self._held.pop(key, None)
        if held is None:
            while len(self._held) >= MOST_HELD:
                self._held.pop(next(iter(self._held)))

            def progress(text: str, fraction: float | None) -> None:
                tell({"event": "progress", "text": text, "fraction": fraction})

            held = load_scorer(settings, settings.model, BuildContext("reward", _compute(), progress, NOTHING_ALLOWED))
        self._held[key] = held
        return held


def _compute() -> Compute:
    """The GPU that the app allows, else the CPU; in full precision, so that small changes are not rounding."""
    if torch.cuda.is_available():
        return Compute(torch.device("cuda"), torch.float32)
    return Compute(torch.device("cpu"), torch.float32, lanes=lanes_for_this_cpu())


def _changed(model: str) -> int:
    """When the model's files were last changed, nanoseconds: one that was written anew is loaded anew. 0 for a hub model."""
    return max((file.stat().st_mtime_ns for file in Path(resolve(model)).glob("*") if file.is_file()), default=0)
