"""The faults that change code: each replaces functions of the engine, in the process of one run, for as long as a block lasts.

The engine has no option for any of this and knows nothing of it. A fault is a mistake that people have made in programs like this one,
written as a wrapper around the right function. This module loads torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rlhf_studio.engine.loop import minibatch, trainer
from rlhf_studio.engine.loop.update import Updater
from rlhf_studio.engine.models import forward
from rlhf_studio.engine.parity import check, gate
from rlhf_studio.engine.parity.tolerance import ParityError
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.stages import ppo as stage
from rlhf_studio.lessons.faults.wording import NOTICED, broken_on_purpose
from rlhf_studio.ppo import objective
from rlhf_studio.runs.lab.fault import EVENT
from rlhf_studio.runs.records import EventRecord

DROPOUT = 0.1
"""The share of hidden numbers that the fault ``dropout`` sets to 0, as GPT-2 has it."""


@dataclass(frozen=True)
class Replaced:
    """A function of the engine and what takes its place: ``owner.name`` becomes ``wrap(owner.name)``."""

    owner: Any
    name: str
    wrap: Callable[[Any], Any]


# --- the faults --------------------------------------------------------------------------------------------------------------


def without_temperature(consume_logits: Callable[..., Any]) -> Callable[..., Any]:
    """Log-probabilities (N,) of tokens that were sampled at a temperature are computed as if it were 1."""

    def wrong(logits: Tensor, ids: Tensor, temperature: float, **options: Any) -> Any:
        return consume_logits(logits, ids, 1.0, **options)

    return wrong


def with_dropout(update: Callable[..., Any]) -> Callable[..., Any]:
    """The policy learns in training mode: each pass of the update sets a tenth of the hidden numbers to 0 at random."""

    def wrong(updater: Updater, *arguments: Any, **options: Any) -> Any:
        with _dropout(updater.gradients._policy):
            return update(updater, *arguments, **options)

    return wrong


@contextlib.contextmanager
def _dropout(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in training mode, and what its blocks add to the hidden states goes through dropout."""

    def drop(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        return nn.functional.dropout(output, DROPOUT)

    hooks = [module.register_forward_hook(drop) for name, module in model.named_modules() if _adds_to_hidden(name, module)]
    if not hooks:
        raise ValueError("this model has no layer that the fault dropout knows")
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _adds_to_hidden(name: str, module: nn.Module) -> bool:
    return name.endswith("c_proj") and isinstance(module, Conv1D)


def score_behind_padding(score: Callable[..., Any]) -> Callable[..., Any]:
    """The end token pads, so nobody can see where a text ends: its score is read in the last column of the batch, behind the padding."""

    def wrong(scorer: RewardModelScorer, texts: Sequence[Any], *more: Any) -> Any:
        longest = max(len(text.ids) for text in texts)
        return score(scorer, [_padded(text, longest, scorer.tokenizer.eos_token_id) for text in texts], *more)

    return wrong


def _padded(text: Any, longest: int, end: int) -> Any:
    missing = longest - len(text.ids)
    types = None if text.types is None else text.types + text.types[-1:] * missing
    return replace(text, ids=text.ids + [end] * missing, types=types)


def without_slope(value_loss: Callable[..., Any]) -> Callable[..., Any]:
    """The value loss is computed as usual, but its gradient does not reach the critic."""

    def wrong(new_values: Tensor, *arguments: Any) -> Any:
        return value_loss(new_values.detach() + 0.0 * new_values, *arguments)

    return wrong


def score_on_first_token(shape_rewards: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The score is added to the reward of the first response token; it belongs to the last one."""

    def wrong(
        kl: Tensor, scores: Tensor, mask: Tensor, kl_coef: float, *, unit_variance: bool = False, early: Tensor | None = None
    ) -> Tensor:
        turned = [part.flip(1) for part in (kl, mask)]
        early = None if early is None else early.flip(1)
        return shape_rewards(turned[0], scores, turned[1], kl_coef, unit_variance=unit_variance, early=early).flip(1)

    return wrong


FAULTS: dict[str, tuple[Replaced, ...]] = {
    "temperature": tuple(Replaced(owner, "consume_logits", without_temperature) for owner in (forward, minibatch, check)),
    "dropout": (Replaced(Updater, "update", with_dropout),),
    "pad_is_end": tuple(Replaced(RewardModelScorer, name, score_behind_padding) for name in ("_score_packed", "_score_batch")),
    "critic": (Replaced(objective, "value_loss", without_slope),),
    "reward_token": (Replaced(trainer, "shape_rewards", score_on_first_token),),
}


# --- applying one ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def applied(fault: str) -> Iterator[None]:
    """Inside, this process has the fault, a name of :data:`FAULTS`; afterwards all functions are the original ones.

    The check before training is made as in every run. An error that it finds is not raised but recorded, so that the broken run goes on.
    The run says at every start that it is broken on purpose. Raises KeyError for an unknown name.
    """
    telling = Replaced(stage.PPOStage, "build", _telling(fault))
    checks = (
        Replaced(gate, "check_parity", _on_record),
        Replaced(gate, "check_first_rollout", _as_warning),
        Replaced(stage, "check_before_training", _loud),
    )
    before = []
    try:
        for replaced in (*FAULTS[fault], telling, *checks):
            original = vars(replaced.owner)[replaced.name]
            before.append((replaced, original))
            setattr(replaced.owner, replaced.name, replaced.wrap(original))
        yield
    finally:
        for replaced, original in reversed(before):
            setattr(replaced.owner, replaced.name, original)


def _telling(fault: str) -> Callable[[Any], Any]:
    text = broken_on_purpose(fault)

    def wrap(build: classmethod[Any, Any, Any]) -> Any:
        def telling(cls: Any, *arguments: Any) -> Any:
            built, events = build.__func__(cls, *arguments)
            return built, [EventRecord("warning", EVENT, text, {"fault": fault}), *events]

        return classmethod(telling)

    return wrap


@dataclass(frozen=True)
class _RefusedReport(check.ParityReport):
    """The report of a check that would have refused the run."""

    error: str = ""

    def sentence(self) -> str:
        return f"{NOTICED} {self.error}."


def _reason(error: ParityError) -> str:
    """What the check says, without "nothing was trained": that is not true of this run."""
    return str(error).removesuffix("; nothing was trained")


def _on_record(check_parity: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*arguments: Any) -> Any:
        try:
            return check_parity(*arguments)
        except ParityError as error:
            return _RefusedReport(largest=0.0, scale=1.0, error=_reason(error))

    return checked


def _loud(check_before_training: Callable[..., EventRecord]) -> Callable[..., EventRecord]:
    def checked(*arguments: Any) -> EventRecord:
        event = check_before_training(*arguments)
        return replace(event, level="warning") if event.text.startswith(NOTICED) else event

    return checked


def _as_warning(check_first_rollout: Callable[..., str]) -> Callable[..., str]:
    def checked(*arguments: Any, **options: Any) -> str:
        try:
            return check_first_rollout(*arguments, **options)
        except ParityError as error:
            return f"{NOTICED} {_reason(error)}."

    return checked
