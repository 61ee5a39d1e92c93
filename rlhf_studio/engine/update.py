"""The PPO update: several passes over one rollout in shuffled minibatches, exactly one optimizer step per minibatch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.engine.device import Compute
from rlhf_studio.engine.policy import Policy
from rlhf_studio.engine.types import Rollout, UpdateStats
from rlhf_studio.ppo.logprobs import token_logprobs_and_entropy
from rlhf_studio.ppo.losses import entropy_bonus, kl_loss, policy_loss, value_loss
from rlhf_studio.ppo.masking import masked_select, masked_sum


class NonFiniteError(RuntimeError):
    """A loss or gradient is NaN or infinite; the message names the quantity. The step was not applied."""


@dataclass(frozen=True)
class _MinibatchStats:
    """Sums over the response tokens of one minibatch, and its token count."""

    policy: float
    value: float
    clipped: float
    value_clipped: float
    entropy: float
    squared_change: float
    ratio: float
    squared_ratio: float
    largest_log_ratio: float
    tokens: int


def learning_rate_factor(step: int, settings: PPOConfig) -> float:
    """Share of the full learning rate at ``step`` (counted from 0): linear warm-up, then the schedule over the rest."""
    if step < settings.warmup_steps:
        return (step + 1) / (settings.warmup_steps + 1)
    if settings.lr_schedule == "constant":
        return 1.0
    progress = (step - settings.warmup_steps) / max(settings.steps - settings.warmup_steps, 1)
    progress = min(max(progress, 0.0), 1.0)
    return 1.0 - progress if settings.lr_schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))


def make_optimizer(policy: Policy, settings: PPOConfig) -> torch.optim.AdamW:
    """AdamW with one group for the language model and one for the value head. PPO's epsilon is 1e-5, not torch's 1e-8."""
    critic_rate = settings.critic_learning_rate or settings.learning_rate
    groups = [
        {"params": policy.model_parameters(), "full_lr": settings.learning_rate},
        {"params": list(policy.value_head.parameters()), "full_lr": critic_rate},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, weight_decay=settings.weight_decay)


class Updater:
    """Applies PPO updates to the policy; holds the optimizer."""

    def __init__(self, policy: Policy, config: RunConfig, compute: Compute):
        self.optimizer = make_optimizer(policy, config.ppo)
        self._policy, self._config, self._compute = policy, config, compute
        self._parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def update(self, rollout: Rollout, step: int, kl_coef: float, generator: torch.Generator) -> UpdateStats:
        """Run the passes over ``rollout``; ``step`` counts from 0, ``generator`` shuffles. Raises :class:`NonFiniteError`."""
        settings = self._config.ppo
        factor = learning_rate_factor(step, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor
        seen: list[_MinibatchStats] = []
        norms: list[float] = []
        problems: list[str] = []
        skipped = 0
        for index in self._minibatches(len(rollout.tokens), generator):
            stats = self._accumulate(rollout, index, kl_coef, warming_up=step < settings.critic_warmup_steps)
            seen.append(stats)
            if settings.target_kl and 0.5 * stats.squared_change / stats.tokens > 1.5 * settings.target_kl:
                return _summary(seen, norms, skipped, True, problems)
            if problem := self._problem(stats):
                if self._config.engine.non_finite == "stop" and "not finite" in problem:
                    raise NonFiniteError(problem)
                problems.append(problem)
                skipped += 1
                continue
            norms.append(self._step())
        return _summary(seen, norms, skipped, False, problems)

    def _minibatches(self, episodes: int, generator: torch.Generator) -> list[Tensor]:
        """Row numbers of every minibatch of every pass; a fresh permutation each pass."""
        orders = [torch.randperm(episodes, generator=generator) for _ in range(self._config.ppo.ppo_epochs)]
        return [part.to(self._compute.device) for order in orders for part in order.split(self._config.ppo.mini_batch_size)]

    def _accumulate(self, rollout: Rollout, index: Tensor, kl_coef: float, *, warming_up: bool) -> _MinibatchStats:
        """Gradients of one minibatch, summed over its micro-batches and divided by the whole minibatch's token count."""
        self.optimizer.zero_grad(set_to_none=True)
        tokens = int(rollout.tokens.mask[index].sum())
        size = self._config.ppo.micro_batch_size or self._config.ppo.mini_batch_size
        parts = [self._micro_batch(rollout, rows, tokens, kl_coef, warming_up) for rows in index.split(size)]
        sums = [sum(column) for column in list(zip(*[part[:-1] for part in parts], strict=True))]
        return _MinibatchStats(*sums, largest_log_ratio=max(part[-1] for part in parts), tokens=tokens)

    def _micro_batch(self, rollout: Rollout, rows: Tensor, tokens: int, kl_coef: float, warming_up: bool) -> tuple[float, ...]:
        settings, batch = self._config.ppo, rollout.tokens.rows(rows)
        mask, width = batch.mask, batch.mask.shape[1]
        old, advantages, returns, values, reference = (
            x[rows, :width]
            for x in (rollout.logprobs, rollout.whitened_advantages, rollout.returns, rollout.values, rollout.ref_logprobs)
        )
        with self._compute.autocast():
            logits, new_values = self._policy.logits_and_values(batch, detach_trunk=warming_up)
        new, entropy = token_logprobs_and_entropy(logits.float(), batch.response_ids, self._config.generation.temperature)
        surrogate = policy_loss(
            new, old, advantages, mask, settings.cliprange, settings.cliprange_high or None, settings.dual_clip or None
        )
        critic = value_loss(new_values, values, returns, mask, settings.cliprange_value or None)
        loss = settings.vf_coef * critic.loss_sum
        if not warming_up:
            loss = loss + surrogate.loss_sum - settings.entropy_coef * entropy_bonus(entropy, mask)
            if settings.kl_placement == "loss":
                loss = loss + kl_coef * kl_loss(new, reference, mask, settings.kl_estimator)
        (loss / tokens).backward()
        change = masked_select(new.detach() - old, mask)
        ratio = masked_select(surrogate.ratio.detach(), mask)
        return (
            float(surrogate.loss_sum.detach()),
            float(critic.loss_sum.detach()),
            float((surrogate.clipped & mask).sum()),
            float((critic.clipped & mask).sum()),
            float(masked_sum(entropy.detach(), mask)),
            float(change.square().sum()),
            float(ratio.sum()),
            float(ratio.square().sum()),
            float(change.abs().max()),
        )

    def _problem(self, stats: _MinibatchStats) -> str:
        """Why this minibatch must not be applied; empty when it may."""
        for name, value in (("policy loss", stats.policy), ("value loss", stats.value), ("entropy", stats.entropy)):
            if not math.isfinite(value):
                return f"the {name} is not finite ({value})"
        threshold = self._config.ppo.ratio_threshold
        mean_ratio = stats.ratio / stats.tokens
        if threshold and mean_ratio > threshold:
            return f"the mean ratio {mean_ratio:.3g} exceeds the threshold {threshold:g}, so the minibatch was skipped"
        norm = torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        return "" if torch.isfinite(norm) else f"the gradient norm is not finite ({float(norm)})"

    def _step(self) -> float:
        limit = self._config.ppo.max_grad_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_([p for p in self._parameters if p.grad is not None], limit)
        self.optimizer.step()
        return float(norm)

    @torch.no_grad()
    def logprobs_after(self, rollout: Rollout) -> Tensor:
        """(N, T) log-probabilities of the recorded episodes under the policy as it is now."""
        index = torch.arange(rollout.recorded, device=self._compute.device)
        batch = rollout.tokens.rows(index)
        result = rollout.logprobs[index].clone()
        with self._compute.autocast():
            logits, _ = self._policy(batch)
        temperature = self._config.generation.temperature
        result[:, : batch.mask.shape[1]] = token_logprobs_and_entropy(logits.float(), batch.response_ids, temperature)[0]
        return result


def _summary(seen: list[_MinibatchStats], norms: list[float], skipped: int, early: bool, problems: list[str]) -> UpdateStats:
    tokens = sum(stats.tokens for stats in seen)

    def mean(name: str) -> float:
        return sum(getattr(stats, name) for stats in seen) / tokens

    ratio = mean("ratio")
    return UpdateStats(
        policy_loss=mean("policy"),
        value_loss=mean("value"),
        approx_kl=0.5 * mean("squared_change"),
        clip_fraction=mean("clipped"),
        value_clip_fraction=mean("value_clipped"),
        entropy=mean("entropy"),
        ratio=ratio,
        ratio_variance=max(mean("squared_ratio") - ratio**2, 0.0),
        grad_norm=sum(norms) / len(norms) if norms else math.nan,
        first_log_ratio=seen[0].largest_log_ratio,
        optimizer_steps=len(norms),
        skipped=skipped,
        stopped_early=early,
        problems=problems,
    )
