"""An update by each algorithm from the same weights and optimizer state, and what it moved."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.loop.phases import sample, score
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.types import UpdateStats
from rlhf_studio.jobs.updates.algorithms import Algorithm, settings_of
from rlhf_studio.jobs.updates.batch import Batch, Report
from rlhf_studio.language import S_
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.masking import masked_select


class Fresh(NamedTuple):
    """What newly sampled responses earn, (N,) each; ``gold`` is None where there is no gold scorer."""

    reward: Tensor
    gold: Tensor | None


@dataclass(frozen=True)
class Look:
    """What a policy says of the batch, and how it answers.

    Attributes:
        logprobs: (B, T) of the batch's tokens.
        kl_reference: nats per response; the exact KL to the reference, summed over the places of the batch's tokens.
        fresh: newly sampled responses to the batch's prompts.
    """

    logprobs: Tensor
    kl_reference: float
    fresh: Fresh


@dataclass(frozen=True)
class Update:
    """What one algorithm made of the batch.

    Attributes:
        advantages: (B, T) what its loss used.
        stats: of its optimizer steps.
        after: the policy that came of it.
        kl_old: nats per response; the KL from the policy that sampled to the new one, estimated as k3 on the batch's tokens.
        moved: the length of the change of the weights, as a share of the length of the weights.
    """

    algorithm: Algorithm
    config: RunConfig
    advantages: Tensor
    stats: UpdateStats
    after: Look
    kl_old: float
    moved: float


@dataclass(frozen=True)
class Comparison:
    """The policy as it was, and what each algorithm made of it."""

    batch: Batch
    before: Look
    updates: list[Update]


class Comparer:
    """Makes updates from one and the same state of a trainer.

    Args:
        fresh: at least so many responses are sampled with each policy, always with the same random numbers.
        seed: of these.
    """

    def __init__(self, trainer: Trainer, batch: Batch, *, fresh: int, seed: int, report: Report):
        self._trainer, self._batch, self._seed, self._report = trainer, batch, seed, report
        self._rounds = -(-fresh // len(batch.samples.prompts.texts))
        self._order = trainer.shuffling_generator.get_state()

    def compare(self, algorithms: Sequence[Algorithm]) -> Comparison:
        """Each algorithm's update. The trainer is as before when this returns."""
        self._report(S_("Sampling with the policy as it was"))
        before = self._look()
        return Comparison(self._batch, before, [self._update(algorithm, before) for algorithm in algorithms])

    def _update(self, algorithm: Algorithm, before: Look) -> Update:
        trainer, policy = self._trainer, self._trainer.models.policy
        config = settings_of(algorithm, trainer.config)
        rollout = self._batch.rollout(config)
        trainer.shuffling_generator.set_state(self._order)  # the same mini-batches for all
        old = [weight.detach().clone() for weight in policy.model_parameters()]
        with _put_back(trainer):
            trainer.updater.use(config)
            self._report(S_(f"{algorithm.title}: update"))
            with contextlib.nullcontext() if algorithm.has_critic else _without_critic(policy):
                stats = trainer.updater.update(rollout, trainer.progress.step, trainer.shuffling_generator)
            self._report(S_(f"{algorithm.title}: sampling with the new policy"))
            after, moved = self._look(), _moved(policy, old)
        return Update(algorithm, config, rollout.whitened_advantages, stats, after, self._kl(before, after), moved)

    def _look(self) -> Look:
        models, tokens = self._trainer.models, self._batch.samples.tokens
        logprobs = models.forward_pass.run(models.policy, tokens, 0).logprobs
        exact = models.forward_pass.full_kl(models.policy, models.reference, tokens)
        return Look(logprobs, _per_response(exact, tokens.mask), self._sample())

    def _sample(self) -> Fresh:
        generator = torch.Generator(device=self._trainer.compute.device).manual_seed(self._seed)
        models, prompts = self._trainer.models, self._batch.samples.prompts
        drawn = [score(models, sample(models, prompts, generator)) for _ in range(self._rounds)]
        gold = [scores.gold.cpu() for scores in drawn if scores.gold is not None]
        return Fresh(torch.cat([scores.raw.cpu() for scores in drawn]), torch.cat(gold) if gold else None)

    def _kl(self, before: Look, after: Look) -> float:
        return _per_response(kl_per_token(before.logprobs, after.logprobs, "k3"), self._batch.samples.mask)


def _per_response(kl: Tensor, mask: Tensor) -> float:
    return float(masked_select(kl, mask).sum(dim=1).mean())


def _moved(policy: Policy, old: list[Tensor]) -> float:
    pairs = list(zip(policy.model_parameters(), old, strict=True))
    change, size = (sum(float(x.double().square().sum()) for x in of) for of in ([new.detach() - was for new, was in pairs], old))
    return (change / size) ** 0.5 if size else 0.0


@contextlib.contextmanager
def _without_critic(policy: Policy) -> Iterator[None]:
    """Inside, the policy has no critic: nothing is computed for it, and its weights get no gradient."""
    head, trunk = policy.value_head, policy.critic
    policy.value_head = policy.critic = None
    try:
        yield
    finally:
        policy.value_head, policy.critic = head, trunk


@contextlib.contextmanager
def _put_back(trainer: Trainer) -> Iterator[None]:
    """Afterwards weights, optimizer, settings and the scorer's moments are what they were, bit for bit."""
    updater, moments = trainer.updater, trainer.models.scorer.moments
    put_back, began, counted = updater.copy(), bool(updater.optimizer.state), moments.state_dict()
    try:
        yield
    finally:
        put_back()
        if not began:  # before the first step AdamW has no state
            updater.optimizer.state.clear()
        updater.use(trainer.config)
        moments.load_state_dict(counted)
