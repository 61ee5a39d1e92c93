"""The PPO update: several passes over one rollout in shuffled minibatches, exactly one optimizer step per minibatch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.fused import consume_logits
from rlhf_studio.engine.compute.lanes import balanced_parts
from rlhf_studio.engine.distributed.sharding import clip_gradients, gradient_norm, is_sharded
from rlhf_studio.engine.loop.last_logprobs import LastLogprobs
from rlhf_studio.engine.models.policy import Policy, to_padded
from rlhf_studio.engine.types import NonFiniteError, Rollout, TokenBatch, UpdateStats
from rlhf_studio.ppo.losses import entropy_bonus, kl_loss, policy_loss, value_loss
from rlhf_studio.ppo.masking import masked_select, masked_sum

Gradients = list[Tensor | None]
"""One for each trained parameter; None where there is none."""


Note = Callable[[Tensor, Tensor], None]
"""Takes the rows of a part and their log-probabilities."""


@dataclass(frozen=True)
class _Minibatch:
    """What its parts have in common; ``tokens`` is the minibatch's whole count of response tokens."""

    rollout: Rollout
    tokens: int
    kl_coef: float
    warming_up: bool
    note: Note | None


@dataclass(frozen=True)
class _MinibatchStats:
    """Sums over the response tokens of one minibatch, its token count, and the first episode with a bad number (-1: none)."""

    policy: float
    value: float
    clipped: float
    value_clipped: float
    entropy: float
    kl: float
    squared_change: float
    ratio: float
    squared_ratio: float
    largest_log_ratio: float
    tokens: int
    broken: int


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
    """AdamW with one group for the language model and one for the critic. PPO's epsilon is 1e-5, not torch's 1e-8."""
    critic_rate = settings.critic_learning_rate or settings.learning_rate
    groups = [{"params": policy.model_parameters(), "full_lr": settings.learning_rate}]
    # A critic's trunk may be split over processes, its head never is: torch's fused step takes either kind, not both together.
    for kind in (True, False):
        if chosen := [parameter for parameter in policy.critic_parameters() if is_sharded(parameter) is kind]:
            groups.append({"params": chosen, "full_lr": critic_rate})
    return torch.optim.AdamW(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, weight_decay=settings.weight_decay, fused=True)


class Updater:
    """Applies PPO updates to the policy; holds the optimizer."""

    def __init__(self, policy: Policy, config: RunConfig, compute: Compute):
        self.optimizer = make_optimizer(policy, config.ppo)
        self._policy, self._config, self._compute = policy, config, compute
        self._micro_batch_size = config.ppo.micro_batch
        self._parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def update(self, rollout: Rollout, step: int, kl_coef: float, generator: torch.Generator) -> UpdateStats:
        """Run the passes over ``rollout``; ``step`` counts from 0, ``generator`` shuffles.

        Raises :class:`NonFiniteError` before a step that a loss or gradient would spoil, unless such steps are to be skipped.
        """
        settings = self._config.ppo
        factor = learning_rate_factor(step, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor
        seen: list[_MinibatchStats] = []
        norms: list[float] = []
        problems: list[str] = []
        stopped_early = False
        last = LastLogprobs(rollout, self._compute.ranks)
        for number, index in enumerate(self._minibatches(len(rollout.tokens), generator), 1):
            note = functools.partial(last.note, number)
            stats = self._accumulate(rollout, index, kl_coef, warming_up=step < settings.critic_warmup_steps, note=note)
            seen.append(stats)
            if settings.target_kl and 0.5 * stats.squared_change / stats.tokens > 1.5 * settings.target_kl:
                stopped_early = True
                break
            norm = gradient_norm(self._gradients(), self._compute.ranks)
            if problem := self._problem(stats, norm, rollout):
                if self._config.engine.non_finite == "stop" and "not finite" in problem:
                    raise NonFiniteError(problem)
                problems.append(problem)
                continue
            self._step(norm)
            norms.append(float(norm))
        self.optimizer.zero_grad(set_to_none=True)  # the next rollout has better use for the memory
        return _summary(seen, norms, stopped_early, problems, last.together())

    def _minibatches(self, episodes: int, generator: torch.Generator) -> list[Tensor]:
        """Row numbers of every minibatch of every pass; a fresh permutation each pass."""
        orders = [torch.randperm(episodes, generator=generator) for _ in range(self._config.ppo.ppo_epochs)]
        return [part.to(self._compute.device) for order in orders for part in order.split(self._config.ppo.mini_batch_size)]

    def _accumulate(
        self, rollout: Rollout, index: Tensor, kl_coef: float, *, warming_up: bool, note: Note | None = None
    ) -> _MinibatchStats:
        """Gradients of one minibatch, summed over its micro-batches and divided by the whole minibatch's token count."""
        self.optimizer.zero_grad(set_to_none=True)
        tokens = int(rollout.tokens.mask[index].sum())
        ranks = self._compute.ranks
        task = _Minibatch(rollout, tokens, kl_coef, warming_up, note)
        parts = self._in_lanes(task, self._micro_batches(rollout.tokens, index[ranks.rows(len(index))]))
        *sums, largest, broken = zip(*parts, strict=True)
        first_broken = next((int(episode) for episode in broken if episode >= 0), -1)
        ranks.all_reduce([gradient for gradient in self._gradients() if not is_sharded(gradient)])  # split ones were added up on the way
        return _MinibatchStats(
            *ranks.all_reduce_sum([sum(column) for column in sums]),
            largest_log_ratio=ranks.all_reduce_max(max(largest)),
            tokens=tokens,
            broken=int(ranks.all_reduce_max(first_broken)),
        )

    def _in_lanes(self, task: _Minibatch, parts: list[Tensor]) -> list[list[float]]:
        """Each part's numbers. Lanes add up their gradients apart, and then in order: the sum never depends on their pace."""
        lanes = self._compute.lanes
        if lanes.count == 1 or len(parts) == 1:
            return [self._micro_batch(task, rows) for rows in parts]

        def lane(hand: list[Tensor]) -> tuple[list[list[float]], Gradients]:
            gradients: Gradients = [None] * len(self._parameters)
            return [self._micro_batch(task, rows, gradients) for rows in hand], gradients

        numbers, gradients = zip(*lanes.map(lane, balanced_parts(parts, lanes.count)), strict=True)
        for parameter, *shares in zip(self._parameters, *gradients, strict=True):
            for share in shares:
                if share is not None:
                    parameter.grad = share if parameter.grad is None else parameter.grad.add_(share)
        return [row for rows in numbers for row in rows]

    def _micro_batches(self, tokens: TokenBatch, index: Tensor) -> list[Tensor]:
        """The episodes in parts of a micro-batch, divided among the lanes."""
        size, lengths = self._compute.lanes.rows_per_part(len(index), self._micro_batch_size), tokens.whole_lengths[index]
        index = index[lengths.argsort(stable=True)]
        if not self._policy.packs:  # a part is as wide as its longest episode: similar ones together
            return list(index.split(size))
        return [index.new_tensor(rows) for rows in balanced_parts(index.tolist(), math.ceil(len(index) / size))]

    def _micro_batch(self, task: _Minibatch, rows: Tensor, gradients: Gradients | None = None) -> list[float]:
        """Adds this part's gradients, to the parameters' own or to a lane's ``gradients``.

        Returns the sums of :class:`_MinibatchStats`, the largest change and the broken episode.
        """
        settings, rollout, batch = self._config.ppo, task.rollout, task.rollout.tokens.rows(rows)
        mask, width = batch.mask, batch.mask.shape[1]
        old, advantages, returns, values, reference = (
            x[rows, :width] for x in (rollout.logprobs, rollout.whitened_advantages, rollout.returns, rollout.values, rollout.ref_logprobs)
        )
        with self._compute.autocast():
            logits, values_flat = self._policy.logits_and_values(batch, detach_trunk=task.warming_up)
        chosen = consume_logits(logits, batch.response_ids[mask], self._config.generation.temperature)
        new, entropy, new_values = (to_padded(x, mask) for x in (*chosen, values_flat))
        surrogate = policy_loss(new, old, advantages, mask, settings.cliprange, settings.cliprange_high or None, settings.dual_clip or None)
        critic = value_loss(new_values, values, returns, mask, settings.cliprange_value or None)
        loss, kl = settings.vf_coef * critic.loss_sum, torch.zeros((), device=mask.device)
        if not task.warming_up:
            loss = loss + surrogate.loss_sum
            if settings.entropy_coef:
                loss = loss - settings.entropy_coef * entropy_bonus(entropy, mask)
            if settings.kl_placement == "loss":
                kl = kl_loss(new, reference, mask, settings.kl_estimator)
                loss = loss + task.kl_coef * kl
        self._backward(loss / task.tokens, gradients)
        if task.note:
            task.note(rows, new)
        with torch.no_grad():
            change, ratio = masked_select(new - old, mask), masked_select(surrogate.ratio, mask)
            finite = (torch.isfinite(new) & torch.isfinite(new_values) & torch.isfinite(ratio)) | ~mask
            broken = torch.where(finite.all(), -1, rows[finite.all(dim=1).to(torch.int8).argmin()])
            sums = (
                surrogate.loss_sum,
                critic.loss_sum,
                (surrogate.clipped & mask).sum(),
                (critic.clipped & mask).sum(),
                masked_sum(entropy, mask),
                kl,
                change.square().sum(),
                ratio.sum(),
                ratio.square().sum(),
                change.abs().max(),
                broken,
            )
            return torch.stack([number.double() for number in sums]).tolist()  # one wait for the device, not eleven

    def _backward(self, loss: Tensor, gradients: Gradients | None) -> None:
        if gradients is None:
            loss.backward()
            return
        for place, new in enumerate(torch.autograd.grad(loss, self._parameters, allow_unused=True)):
            so_far = gradients[place]
            gradients[place] = new if so_far is None else so_far if new is None else so_far.add_(new)

    def _problem(self, stats: _MinibatchStats, norm: Tensor, rollout: Rollout) -> str:
        """Why this minibatch must not be applied; empty when it may."""
        quantities = {"policy loss": stats.policy, "value loss": stats.value, "entropy": stats.entropy, "KL in the loss": stats.kl}
        where = f" in episode {stats.broken}, prompt {rollout.prompts[stats.broken]!r}" if stats.broken >= 0 else ""
        for name, value in quantities.items():
            if not math.isfinite(value):
                return f"the {name} is not finite ({value}){where}"
        threshold = self._config.ppo.ratio_threshold
        mean_ratio = stats.ratio / stats.tokens
        if threshold and mean_ratio > threshold:
            return f"the mean ratio {mean_ratio:.3g} exceeds the threshold {threshold:g}, so the minibatch was skipped"
        return "" if torch.isfinite(norm) else f"the gradient norm is not finite ({float(norm)})"

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _step(self, norm: Tensor) -> None:
        if limit := self._config.ppo.max_grad_norm:
            clip_gradients(self._gradients(), limit, norm)
        self.optimizer.step()


def _summary(seen: list[_MinibatchStats], norms: list[float], early: bool, problems: list[str], logprobs: Tensor) -> UpdateStats:
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
        skipped=len(problems),
        stopped_early=early,
        logprobs=logprobs,
        problems=problems,
    )
