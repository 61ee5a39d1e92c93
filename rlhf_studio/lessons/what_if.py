"""What a recorded step would have given with other settings: computed again from all of its episodes, by the engine's own functions.

The inputs are the recorded log-probabilities of policy and reference, the values and the scores. From these follow the KL of each token,
the rewards, the surprises, the advantages before and after whitening, and the returns. They are exact: with the run's own settings they
are the recorded ones.

The ratios are those of the recorded update's last pass. Other settings would have changed the update too, and so the ratios. The question
answered here is what the loss would be at the recorded ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig, RunConfig, StageConfig
from rlhf_studio.config.bundled import NEW_LOGPROBS
from rlhf_studio.engine.objective import objective_settings
from rlhf_studio.lessons.kit.scene import CannotAsk
from rlhf_studio.ppo.advantages import estimate_advantages
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.losses import policy_loss
from rlhf_studio.ppo.masking import masked_select
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord, StepEpisodes

SAME = 1e-4
"""So far may recorded and computed numbers be apart, measured by the larger of 1 and the number: beyond, the settings were others."""

OF_LAST_PASS = ("ratio", "clipped", "policy_loss", "push")


@dataclass(frozen=True)
class Settings:
    """The settings that a reader can change, named as in the configuration's section ``ppo``; 0 means none, as there."""

    kl_coef: float
    kl_estimator: str
    kl_placement: str
    gamma: float
    lam: float
    whiten_advantages: bool
    whiten_rewards: bool
    cliprange: float
    cliprange_high: float
    dual_clip: float

    @classmethod
    def of(cls, ppo: PPOConfig, kl_coef: float) -> Settings:
        """The settings of a run, with the β of a step."""
        return cls(**{field.name: getattr(ppo, field.name) for field in fields(cls)} | {"kl_coef": kl_coef})


@dataclass(frozen=True)
class RecordedStep:
    """All B episodes of a step. Numbers by token are float64 (B, T) and 0 behind the mask.

    Attributes:
        mask: (B, T) bool, True = response token.
        ids: (B, T) int64.
        logprobs, ref_logprobs, values: as they were when the responses were sampled.
        scores: (B,) what the last tokens earned.
        full_kl: the exact KL of each token, where the run has measured it; else None.
        new_logprobs: in the last pass of the update.
        last_pass: (B,) bool, for which episodes these are on record.
        settings: those of the step.
    """

    step: int
    mask: Tensor
    ids: Tensor
    logprobs: Tensor
    ref_logprobs: Tensor
    values: Tensor
    scores: Tensor
    full_kl: Tensor | None
    new_logprobs: Tensor
    last_pass: Tensor
    settings: Settings


@dataclass(frozen=True)
class WhatIf:
    """What the recorded step gives with ``settings``. Named and shaped as in the engine's rollout.

    ``ratio``, ``clipped``, ``policy_loss`` (of each token, not divided by their number) and ``push`` mean something where ``last_pass`` is
    True. The loss is the clipped one alone: a KL that the loss charges comes on top. ``push`` is minus the gradient of a token's loss by
    its new log-probability: above 0 the update makes the token likelier.
    """

    settings: Settings
    mask: Tensor
    last_pass: Tensor
    scores: Tensor
    kl: Tensor
    rewards: Tensor
    deltas: Tensor
    advantages: Tensor
    whitened_advantages: Tensor
    returns: Tensor
    ratio: Tensor
    clipped: Tensor
    policy_loss: Tensor
    push: Tensor

    def of_episode(self, row: int) -> dict[str, list[float] | None]:
        """The numbers of each token of one episode by name; None for those of the last pass where they are not on record."""
        keep, numbers = self.mask[row], dict[str, list[float] | None]()
        for name in ("kl", "rewards", "deltas", "advantages", "whitened_advantages", "returns", *OF_LAST_PASS):
            known = name not in OF_LAST_PASS or bool(self.last_pass[row])
            numbers[name] = getattr(self, name)[row][keep].double().tolist() if known else None
        return numbers


def with_critic(config: StageConfig) -> RunConfig:
    """The settings of a run whose advantages can be computed again. Raises :class:`CannotAsk` for any other."""
    if not isinstance(config, RunConfig):
        raise CannotAsk("Only a run of PPO has rewards and advantages.")
    if config.ppo.advantage != "gae":
        raise CannotAsk(f"This run has no critic (ppo.advantage: {config.ppo.advantage}): there are no values to compute with again.")
    return config


def recorded(reader: RunReader, step: int) -> RecordedStep:
    """A step of a run. Raises :class:`CannotAsk` when it cannot be computed again, and StoreError."""
    config = with_critic(reader.config())
    episodes = reader.episodes(step).get(step)
    if episodes is None:
        raise CannotAsk(f"Step {step} has no record of all its responses: whitening is over all of them, so nothing can be computed again.")
    lengths = torch.from_numpy(np.asarray(episodes.lengths, dtype=np.int64))
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    by_token = {name: _padded(array, mask) for name, array in episodes.tokens.items()}
    rollouts = _rollouts_with_tokens(reader, step)
    settings = Settings.of(config.ppo, _kl_coef(reader, step, config))
    if (tokens := next(iter(rollouts.values())).tokens if rollouts else None) is not None:
        settings = replace(settings, gamma=tokens.gamma, lam=tokens.lam, kl_coef=tokens.kl_coef)
    new, last_pass = _last_pass(by_token, episodes, rollouts, mask)
    result = RecordedStep(
        step=step,
        mask=mask,
        ids=_padded(episodes.response_ids, mask).long(),
        scores=torch.from_numpy(np.asarray(episodes.scores, dtype=np.float64)),
        full_kl=by_token.get("kl"),
        new_logprobs=new,
        last_pass=last_pass,
        settings=settings,
        **{name: by_token[name] for name in ("logprobs", "ref_logprobs", "values")},
    )
    _check(result, rollouts)
    return result


def recompute(of: RecordedStep, settings: Settings | None = None, scores: Mapping[int, float] | None = None) -> WhatIf:
    """The step with other settings, and with other scores for some of its episodes (by number).

    Raises :class:`CannotAsk` for the KL estimator ``full`` where the run has not measured it, and ValueError for settings that make no
    sense.
    """
    chosen, mask = settings or of.settings, of.mask
    earned = of.scores.clone()
    for row, score in (scores or {}).items():
        earned[row] = score
    kl = _kl(of, chosen)
    kl_coef = chosen.kl_coef if chosen.kl_placement == "reward" else 0.0
    rewards = shape_rewards(kl, earned, mask, kl_coef, unit_variance=chosen.whiten_rewards)
    estimated = estimate_advantages(rewards, of.values, mask, chosen.gamma, chosen.lam, whitening=chosen.whiten_advantages)
    assert estimated.returns is not None and estimated.deltas is not None  # there is a critic
    ratio, clipped, loss, push = _surrogate(of, estimated.whitened, chosen)
    return WhatIf(
        settings=chosen,
        mask=mask,
        last_pass=of.last_pass,
        scores=earned,
        kl=masked_select(kl, mask),
        rewards=rewards,
        deltas=estimated.deltas,
        advantages=estimated.advantages,
        whitened_advantages=estimated.whitened,
        returns=estimated.returns,
        ratio=ratio,
        clipped=clipped,
        policy_loss=loss,
        push=push,
    )


# --- what these are made of --------------------------------------------------------------------------------------------------


def _padded(flat: np.ndarray, mask: Tensor) -> Tensor:
    return torch.zeros(mask.shape, dtype=torch.float64).masked_scatter(mask, torch.from_numpy(np.asarray(flat, dtype=np.float64)))


def _rollouts_with_tokens(reader: RunReader, step: int) -> dict[int, RolloutRecord]:
    """The responses whose every token is on record, by number."""
    samples = [entry.sample for entry in reader.response_tokens(step, 2**31) if entry.ids is not None]
    return {sample: reader.rollout(step, sample) for sample in samples}


def _kl_coef(reader: RunReader, step: int, config: RunConfig) -> float:
    metrics = dict(reader.metrics_since(step - 1, 1)).get(step, {})
    coefficient = metrics.get("objective/kl_coef")
    return config.ppo.kl_coef if coefficient is None else float(coefficient)


def _last_pass(
    by_token: Mapping[str, Tensor], episodes: StepEpisodes, rollouts: Mapping[int, RolloutRecord], mask: Tensor
) -> tuple[Tensor, Tensor]:
    """(new log-probabilities (B, T), for which episodes they are known (B,))."""
    if NEW_LOGPROBS in by_token:
        return by_token[NEW_LOGPROBS], torch.ones(len(mask), dtype=torch.bool)
    new, known = by_token["logprobs"].clone(), torch.zeros(len(mask), dtype=torch.bool)
    for sample, rollout in rollouts.items():
        arrays: Mapping[str, Any] = {} if rollout.tokens is None else rollout.tokens.arrays
        if NEW_LOGPROBS in arrays and len(arrays[NEW_LOGPROBS]) == int(episodes.lengths[sample]):
            new[sample, mask[sample]] = torch.from_numpy(np.asarray(arrays[NEW_LOGPROBS], dtype=np.float64))
            known[sample] = True
    return new, known


def _kl(of: RecordedStep, settings: Settings) -> Tensor:
    if settings.kl_estimator != "full":
        return kl_per_token(of.logprobs, of.ref_logprobs, settings.kl_estimator)
    if of.full_kl is None:
        raise CannotAsk("The exact KL needs the distributions over all tokens, which this run has not kept; choose another estimator.")
    return of.full_kl


def _surrogate(of: RecordedStep, advantages: Tensor, settings: Settings) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ratio, whether clipping decided, the loss of each token, and the push on its log-probability."""
    ppo = PPOConfig.model_construct(**{name: getattr(settings, name) for name in ("cliprange", "cliprange_high", "dual_clip")})
    clipping = objective_settings(ppo, settings.kl_coef)
    limits = (clipping.cliprange, clipping.cliprange_high, clipping.dual_clip)
    new = of.new_logprobs.clone().requires_grad_()
    surrogate = policy_loss(new, of.logprobs, advantages, of.mask, *limits)
    (gradient,) = torch.autograd.grad(surrogate.loss_sum, new)
    mask = torch.ones(1, 1, dtype=torch.bool)

    def of_token(new: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
        return policy_loss(new.reshape(1, 1), old.reshape(1, 1), advantage.reshape(1, 1), mask, *limits).loss_sum

    flat = torch.vmap(of_token)(*(x[of.mask] for x in (of.new_logprobs, of.logprobs, advantages)))
    loss = torch.zeros_like(of.values).masked_scatter(of.mask, flat)
    return surrogate.ratio.detach(), surrogate.clipped & of.mask, loss, masked_select(-gradient, of.mask)


def _check(of: RecordedStep, rollouts: Mapping[int, RolloutRecord]) -> None:
    """Raises :class:`CannotAsk` when the settings do not give what was recorded, which happens where a resume has changed them."""
    if not rollouts:
        return
    again = recompute(of)
    for sample, rollout in rollouts.items():
        arrays: Mapping[str, Any] = {} if rollout.tokens is None else rollout.tokens.arrays
        for name in ("kl", "rewards", "whitened_advantages", "returns"):
            if name not in arrays:
                continue
            before = torch.from_numpy(np.asarray(arrays[name], dtype=np.float64))
            after = getattr(again, name)[sample, of.mask[sample]]
            if before.shape != after.shape or ((before - after).abs() > SAME * before.abs().clamp(min=1)).any():
                message = (
                    f"The {name.replace('_', ' ')} of step {of.step} do not follow from the run's settings, so these have changed since."
                )
                raise CannotAsk(message)
