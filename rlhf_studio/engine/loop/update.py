"""The PPO update: several passes over one rollout in shuffled minibatches, exactly one optimizer step per minibatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.sharding import clip_gradients, gradient_norm, is_sharded
from rlhf_studio.engine.learning_rate import learning_rate_factor
from rlhf_studio.engine.loop.minibatch import MinibatchGradients, MinibatchResult
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.objective import objective_settings
from rlhf_studio.engine.recording.last_logprobs import LastLogprobs
from rlhf_studio.engine.types import MinibatchStats, NonFiniteError, Rollout, UpdateStats
from rlhf_studio.language import S_
from rlhf_studio.ppo.diagnostics import UpdateSums


class Updater:
    """Applies PPO updates to the policy; holds the optimizer."""

    def __init__(self, policy: Policy, config: RunConfig, compute: Compute):
        self._config, self._compute = config, compute
        self.optimizer = make_optimizer(policy, config.ppo)
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self.gradients = MinibatchGradients(policy, parameters, compute, config.ppo.micro_batch, config.generation.temperature)

    def update(self, rollout: Rollout, step: int, generator: torch.Generator) -> UpdateStats:
        """Learn from ``rollout``; ``step`` counts from 0, ``generator`` shuffles the episodes.

        Raises :class:`NonFiniteError` before a step that a loss or gradient would spoil, unless such steps are to be skipped.
        """
        ppo = self._config.ppo
        warming_up = step < ppo.critic_warmup_steps
        longest = self._config.generation.response_length
        objective = objective_settings(ppo, rollout.kl_coef, critic_only=warming_up, longest=longest)
        self._set_learning_rate(step)
        results: list[MinibatchResult] = []
        norms: list[float] = []
        problems: list[str] = []
        last, stopped_early = LastLogprobs(rollout, self._compute.ranks), False
        in_a_pass = math.ceil(len(rollout.tokens) / ppo.mini_batch_size)
        for number, (epoch, rows) in enumerate(shuffled_minibatches(len(rollout.tokens), ppo.ppo_epochs, ppo.mini_batch_size, generator)):
            self._compute.pulse(S_(f"Update: pass {epoch + 1}/{ppo.ppo_epochs}, minibatch {number % in_a_pass + 1}/{in_a_pass}"))
            self.optimizer.zero_grad(set_to_none=True)
            rows = rows.to(self._compute.device)
            result = self.gradients.backward(rollout, rows, objective, detach_trunk=warming_up)
            last.keep((rows, logprobs) for rows, logprobs, _ in result.parts)
            results.append(result)
            if ppo.target_kl and result.sums.approx_kl > 1.5 * ppo.target_kl:
                stopped_early = True
                break
            norm = gradient_norm(self.gradients.present(), self._compute.ranks)
            if problem := self._problem(result, norm, rollout):
                if self._config.engine.non_finite == "stop" and "not finite" in problem:
                    raise NonFiniteError(problem)
                problems.append(problem)
                continue
            if ppo.max_grad_norm:
                clip_gradients(self.gradients.present(), ppo.max_grad_norm, norm)
            self.optimizer.step()
            norms.append(float(norm))
        self.optimizer.zero_grad(set_to_none=True)  # frees the gradients' memory for the next rollout
        return _stats(results, norms, problems, stopped_early, last.gathered())

    def copy(self) -> Callable[[], None]:
        """Copy what an update changes, weights and optimizer; calling what is returned puts it back, bit for bit."""
        tensors = [parameter.detach() for group in self.optimizer.param_groups for parameter in group["params"]]
        tensors += [x for entry in self.optimizer.state.values() for x in entry.values() if isinstance(x, Tensor)]
        copies = [tensor.clone() for tensor in tensors]

        def put_back() -> None:
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)

        return put_back

    def use(self, config: RunConfig) -> None:
        """Go on with the learning rate and the temperature of ``config``."""
        self._config, self.gradients.temperature = config, config.generation.temperature
        language_model, *critic = self.optimizer.param_groups
        language_model["full_lr"] = config.ppo.learning_rate
        for group in critic:
            group["full_lr"] = critic_rate(config.ppo)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the language model in the last update."""
        return float(self.optimizer.param_groups[0]["lr"])

    def _set_learning_rate(self, step: int) -> None:
        ppo = self._config.ppo
        factor = learning_rate_factor(step, ppo.steps, ppo.warmup_steps, ppo.lr_schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor

    def _problem(self, result: MinibatchResult, norm: Tensor, rollout: Rollout) -> str:
        """Why this minibatch must not be applied; empty when it can be."""
        sums, episode = result.sums, result.broken_episode
        quantities = {S_("policy loss"): sums.policy_loss, S_("value loss"): sums.value_loss, "entropy": sums.entropy}
        quantities |= {S_("KL in the loss"): sums.kl_loss}
        where = S_(f" in episode {episode}, prompt {rollout.prompts[episode]!r}") if episode >= 0 else ""
        for name, value in quantities.items():
            if not math.isfinite(value):
                return S_(f"the {name} is not finite ({value}){where}")
        threshold = self._config.ppo.ratio_threshold
        if threshold and sums.mean_ratio > threshold:
            return S_(f"the mean ratio {sums.mean_ratio:.3g} exceeds the threshold {threshold:g}, so the minibatch was skipped")
        return "" if torch.isfinite(norm) else S_(f"the gradient norm is not finite ({float(norm)})")


def shuffled_minibatches(episodes: int, epochs: int, size: int, generator: torch.Generator) -> Iterator[tuple[int, Tensor]]:
    """(epoch, row numbers (size,)) of every minibatch: each epoch goes through all episodes in a new random order."""
    orders = [torch.randperm(episodes, generator=generator) for _ in range(epochs)]
    for epoch, order in enumerate(orders):
        for rows in order.split(size):
            yield epoch, rows


def critic_rate(settings: PPOConfig) -> float:
    """The critic's highest learning rate: its own, or the policy's."""
    return settings.critic_learning_rate or settings.learning_rate


def make_optimizer(policy: Policy, settings: PPOConfig) -> torch.optim.AdamW:
    """AdamW with one group for the language model and one for the critic. PPO's epsilon is 1e-5, not torch's 1e-8."""
    groups = [{"params": policy.model_parameters(), "full_lr": settings.learning_rate}]
    # A critic's trunk may be sharded over the ranks, its head never is: torch's fused step takes either kind, not both together.
    for kind in (True, False):
        if chosen := [parameter for parameter in policy.critic_parameters() if is_sharded(parameter) is kind]:
            groups.append({"params": chosen, "full_lr": critic_rate(settings)})
    return torch.optim.AdamW(groups, lr=settings.learning_rate, eps=settings.adam_epsilon, weight_decay=settings.weight_decay, fused=True)


def _stats(results: list[MinibatchResult], norms: list[float], problems: list[str], stopped_early: bool, logprobs: Tensor) -> UpdateStats:
    return UpdateStats(
        sums=UpdateSums.total(result.sums for result in results),
        grad_norm=sum(norms) / len(norms) if norms else math.nan,
        first_log_ratio=results[0].largest_log_ratio,
        optimizer_steps=len(norms),
        stopped_early=stopped_early,
        logprobs=logprobs,
        problems=problems,
        minibatches=list[MinibatchStats](results),
    )
