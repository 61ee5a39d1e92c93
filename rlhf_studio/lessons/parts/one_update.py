"""One step of AdamW on one token, made by a copy of a policy of the lesson run. Loads the engine."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from rlhf_studio.engine.loop.update import make_optimizer
from rlhf_studio.engine.models.adapters import adapter_weights
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.lessons.run import LessonRun, Sample
from rlhf_studio.ppo.logprobs import token_logprobs
from rlhf_studio.ppo.losses import policy_loss


class ChosenToken(NamedTuple):
    """A token of a recorded response, by its index in the response."""

    sample: Sample
    at: int

    @property
    def token(self) -> int:
        return self.sample.ids[self.at]


class Stepped(NamedTuple):
    """What one optimizer step did.

    Attributes:
        before, after: logits (V,) that predict the chosen token.
        slope: of the loss along these logits, (V,).
        ratio: of the token before the step.
        elsewhere: probabilities of the same token in another response, before and after; None where there is no other.
        moved: the largest change of a weight.
    """

    before: list[float]
    after: list[float]
    slope: list[float]
    ratio: float
    elsewhere: tuple[float, float] | None
    moved: float


def logits_at(run: LessonRun, policy: Policy, chosen: ChosenToken) -> torch.Tensor:
    """(V,) float64 logits that predict the token."""
    sample, at = chosen
    batch = run.batch([sample.prompt_ids], [sample.ids[: at + 1]])
    logits: torch.Tensor = policy(batch)[0][-1].double()
    return logits / run.config.generation.temperature


def same_token(run: LessonRun, step: int, chosen: ChosenToken) -> ChosenToken | None:
    """The same token in another review of the step, after other words; the first one that there is."""
    before = chosen.sample.ids[chosen.at - 1] if chosen.at else -1
    for sample in run.samples(step):
        for at, token in enumerate(sample.ids):
            if token == chosen.token and sample is not chosen.sample and (sample.ids[at - 1] if at else -1) != before:
                return ChosenToken(sample, at)
    return None


@lru_cache(maxsize=4)
def copied(run: LessonRun, step: int) -> Policy:
    """A policy of its own, after ``step``, whose adapters learn: a caller that changes them restores them."""
    policy = run.policy(step)
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_(".lora_" in name)
    return policy


@lru_cache(maxsize=128)
def one_update(run: LessonRun, step: int, row: int, at: int, advantage: float) -> Stepped:
    """A copy of the policy that sampled this step makes one step of AdamW, as the run's settings say, on one token."""
    chosen = ChosenToken(run.samples(step)[row], at)
    other = same_token(run, step, chosen)
    policy = copied(run, step - 1)
    weights = list(adapter_weights(policy.model).values())
    optimizer = make_optimizer(policy, run.config.ppo)
    logits = logits_at(run, policy, chosen)
    logits.retain_grad()
    token, unit = torch.tensor([[chosen.token]]), torch.ones(1, 1, dtype=torch.float64)
    new = token_logprobs(logits[None, None], token)
    loss = policy_loss(new, new.detach(), advantage * unit, unit.bool(), run.config.ppo.cliprange)
    loss.loss_sum.backward()
    slope = torch.zeros_like(logits) if logits.grad is None else logits.grad
    with torch.no_grad():
        saved = [weight.clone() for weight in weights]
        before_elsewhere = None if other is None else float(logits_at(run, policy, other).softmax(dim=0)[chosen.token])
        optimizer.step()
        after = logits_at(run, policy, chosen)
        then = None if other is None else float(logits_at(run, policy, other).softmax(dim=0)[chosen.token])
        moved = max(float((weight - old).abs().max()) for weight, old in zip(weights, saved, strict=True))
        for weight, old in zip(weights, saved, strict=True):
            weight.copy_(old)
    optimizer.zero_grad(set_to_none=True)
    elsewhere = None if before_elsewhere is None or then is None else (before_elsewhere, then)
    return Stepped(logits.detach().tolist(), after.tolist(), slope.tolist(), loss.ratio.item(), elsewhere, moved)
