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


class Place(NamedTuple):
    """A token of a recorded response: what stands before it, and itself."""

    sample: Sample
    at: int

    @property
    def token(self) -> int:
        return self.sample.ids[self.at]


class Stepped(NamedTuple):
    """Before and after one optimizer step: logits (V,) at the place and elsewhere, and the loss's slope along the logits at the place."""

    before: list[float]
    after: list[float]
    slope: list[float]
    ratio: float
    elsewhere: tuple[float, float] | None
    moved: float


def logits_at(run: LessonRun, policy: Policy, place: Place) -> torch.Tensor:
    """(V,) float64 logits that predict the token."""
    sample, at = place
    batch = run.batch([sample.prompt_ids], [sample.ids[: at + 1]])
    logits: torch.Tensor = policy(batch)[0][-1].double()
    return logits / run.config.generation.temperature


def same_token(run: LessonRun, step: int, place: Place) -> Place | None:
    """The same token in another review of the step, after other words; the first one that there is."""
    before = place.sample.ids[place.at - 1] if place.at else -1
    for sample in run.samples(step):
        for at, token in enumerate(sample.ids):
            if token == place.token and sample is not place.sample and (sample.ids[at - 1] if at else -1) != before:
                return Place(sample, at)
    return None


@lru_cache(maxsize=4)
def copied(run: LessonRun, step: int) -> Policy:
    """A policy of its own, after ``step``, whose adapters learn: whoever changes them puts them back."""
    policy = run.policy(step)
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_(".lora_" in name)
    return policy


@lru_cache(maxsize=128)
def one_update(run: LessonRun, step: int, row: int, at: int, advantage: float) -> Stepped:
    """A copy of the policy that sampled this step makes one step of AdamW, as the run's settings say, on one token."""
    place = Place(run.samples(step)[row], at)
    other = same_token(run, step, place)
    policy = copied(run, step - 1)
    weights = list(adapter_weights(policy.model).values())
    optimizer = make_optimizer(policy, run.config.ppo)
    logits = logits_at(run, policy, place)
    logits.retain_grad()
    token, one = torch.tensor([[place.token]]), torch.ones(1, 1, dtype=torch.float64)
    new = token_logprobs(logits[None, None], token)
    found = policy_loss(new, new.detach(), advantage * one, one.bool(), run.config.ppo.cliprange)
    found.loss_sum.backward()
    slope = torch.zeros_like(logits) if logits.grad is None else logits.grad
    with torch.no_grad():
        kept = [weight.clone() for weight in weights]
        there = None if other is None else float(logits_at(run, policy, other).softmax(dim=0)[place.token])
        optimizer.step()
        after = logits_at(run, policy, place)
        then = None if other is None else float(logits_at(run, policy, other).softmax(dim=0)[place.token])
        moved = max(float((weight - old).abs().max()) for weight, old in zip(weights, kept, strict=True))
        for weight, old in zip(weights, kept, strict=True):
            weight.copy_(old)
    optimizer.zero_grad(set_to_none=True)
    elsewhere = None if there is None or then is None else (there, then)
    return Stepped(logits.detach().tolist(), after.tolist(), slope.tolist(), found.ratio.item(), elsewhere, moved)
