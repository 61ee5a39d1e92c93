"""From a rollout and an update to the records that the run folder keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.engine.objective import objective_settings
from rlhf_studio.engine.rewards.episodes import cut_share
from rlhf_studio.engine.text import PieceTable, remembering_decoder, token_pieces
from rlhf_studio.engine.types import Alternatives, Rollout, UpdateStats
from rlhf_studio.language import S_
from rlhf_studio.ppo.diagnostics import explained_variance
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.losses import policy_loss
from rlhf_studio.ppo.masking import masked_mean, masked_select
from rlhf_studio.runs.records import EPISODE_TOKENS, RolloutRecord, StepEpisodes, TokenRecord


def objective_metrics(rollout: Rollout, settings: PPOConfig, *, stop_known: bool) -> dict[str, float]:
    """Metrics of the rollout: scores, KL, entropy, values. Means per episode unless the name says otherwise.

    The standard errors (``_se``) are those of :func:`standard_error`, with ``settings.responses_per_prompt`` episodes of each prompt.
    """
    mask, scores = rollout.mask, rollout.scores
    kl_sum = _per_episode(rollout.logprobs - rollout.ref_logprobs, mask)
    # From the KL itself, not from the rewards: those may have been scaled since.
    penalty = -rollout.kl_coef * _per_episode(rollout.kl, mask).cpu() if settings.kl_placement == "reward" else torch.zeros(len(mask))
    lengths = rollout.tokens.lengths.float()
    metrics = {
        "objective/scores": scores.raw.mean(),
        "objective/scores_std": scores.raw.std() if len(scores.raw) > 1 else torch.zeros(()),
        "objective/scores_se": standard_error(scores.raw, settings.responses_per_prompt),
        "objective/scores_min": scores.raw.min(),
        "objective/scores_max": scores.raw.max(),
        "objective/kl": kl_sum.mean(),
        "objective/kl_k3": _per_episode(kl_per_token(rollout.logprobs, rollout.ref_logprobs, "k3"), mask).mean(),
        "objective/entropy": _per_episode(-rollout.logprobs, mask).mean(),
        "objective/non_score_reward": penalty.mean(),
        "objective/rlhf_reward": (penalty + scores.shaped).mean(),
        "objective/kl_coef": rollout.kl_coef,
        **_critic_metrics(rollout),
        "val/num_eos_tokens": rollout.stopped.float().sum() if stop_known else 0.0,
        "tokens/response_length": lengths.mean(),
        "tokens/cut_off": (~rollout.stopped).float().mean(),
        "tokens/reward_cut": cut_share(scores.reading),
    }
    for name, part in (scores.parts | scores.members).items():
        metrics[f"reward/{name}"] = part.mean()
    if scores.gold is not None:
        metrics["gold/score"] = scores.gold.mean()
        metrics["gold/score_se"] = standard_error(scores.gold, settings.responses_per_prompt)
    return {name: float(value) for name, value in metrics.items()}


def _critic_metrics(rollout: Rollout) -> dict[str, Tensor]:
    """How well the critic's values predicted the returns; nothing without a critic."""
    values, returns, mask = rollout.values, rollout.returns, rollout.mask
    if values is None or returns is None:
        return {}
    return {
        "val/explained_variance": explained_variance(values, returns, mask),
        "val/returns_mean": masked_mean(returns, mask),
        "val/values_mean": masked_mean(values, mask),
    }


def standard_error(values: Tensor, responses_per_prompt: int) -> float:
    """The standard error of the mean of ``values``, shape (N,), with k = ``responses_per_prompt`` for each prompt, side by side.

    Responses to one prompt are not independent, prompts are: with the means m_1 ... m_n of the n = N / k prompts and their mean m it is
    √(Σ (m_i - m)² / (n (n - 1))). With k = 1 that is the standard deviation over √N. 0 for a single prompt, of which nothing is known.
    """
    means = values if responses_per_prompt == 1 else values.reshape(-1, responses_per_prompt).mean(dim=1)
    return float(means.std() / math.sqrt(len(means))) if len(means) > 1 else 0.0


def update_metrics(stats: UpdateStats, learning_rate: float, *, has_critic: bool) -> dict[str, float]:
    """Metrics of the update, means over the response tokens of its minibatches."""
    sums = stats.sums
    of_critic = {"loss/value_avg": float(sums.mean_value_loss), "val/clipfrac_avg": float(sums.value_clip_fraction)} if has_critic else {}
    return of_critic | {
        "policy/approxkl_avg": float(sums.approx_kl),
        "policy/clipfrac_avg": float(sums.clip_fraction),
        "policy/entropy_avg": float(sums.mean_entropy),
        "policy/first_log_ratio": stats.first_log_ratio,
        "loss/policy_avg": float(sums.mean_policy_loss),
        "val/ratio": float(sums.mean_ratio),
        "val/ratio_var": float(sums.ratio_variance),
        "optim/grad_norm": stats.grad_norm,
        "optim/steps": float(stats.optimizer_steps),
        "lr": learning_rate,
    }


def _per_episode(x: Tensor, mask: Tensor) -> Tensor:
    return masked_select(x, mask).sum(dim=1)


def first_non_finite(rollout: Rollout) -> str:
    """Names the first quantity of the rollout that is NaN or infinite, and its episode; empty when all is well."""
    for name in ("logprobs", "ref_logprobs", "values", "kl", "rewards", "advantages"):
        numbers = getattr(rollout, name)
        if numbers is None:
            continue
        bad = (~torch.isfinite(masked_select(numbers, rollout.tokens.mask))).any(dim=1)
        if bad.any():
            episode = int(bad.to(torch.int8).argmax())
            return S_(f"{name} is not finite in episode {episode}, prompt {rollout.prompts[episode]!r}")
    return ""


def _where_cut(reading: Tensor | None) -> np.ndarray | None:
    """What is kept of how much the rewards read: nothing where they read every text whole."""
    return None if reading is None or not cut_share(reading) else reading.int().cpu().numpy()


class Recorder:
    """Builds the records of a step: every number of the first ``rollout.recorded`` episodes, and what is kept of all of them."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, config: RunConfig):
        self._tokenizer, self._config = tokenizer, config
        self._pieces, self._decoder = PieceTable(tokenizer), remembering_decoder(tokenizer)
        self._given: set[int] = set()  # ids whose texts an earlier step has brought

    def episodes(self, rollout: Rollout, shown_ids: Sequence[np.ndarray] = ()) -> StepEpisodes:
        """All episodes; with the texts of the tokens in the responses and in ``shown_ids`` that no earlier call returned."""
        mask, scores = rollout.tokens.mask, rollout.scores
        names = EPISODE_TOKENS + (("kl",) if self._config.ppo.kl_estimator == "full" else ())
        ids = rollout.tokens.response_ids[mask].int().cpu().numpy()
        return StepEpisodes(
            lengths=rollout.tokens.lengths.int().cpu().numpy(),
            response_ids=ids,
            tokens={name: x[mask].float().cpu().numpy() for name in names if (x := getattr(rollout, name)) is not None},
            scores=scores.shaped.float().cpu().numpy(),
            gold=None if scores.gold is None else scores.gold.float().cpu().numpy(),
            parts={name: part.float().cpu().numpy() for name, part in scores.parts.items()},
            stopped=rollout.stopped.cpu().numpy(),
            reading=_where_cut(scores.reading),
            pieces=self._new_pieces(ids, *shown_ids),
        )

    def _new_pieces(self, *ids: np.ndarray) -> dict[int, str]:
        new = set(np.unique(np.concatenate([part.ravel() for part in ids])).tolist()) - self._given
        self._given |= new
        return self._pieces(new)

    def rollouts(self, rollout: Rollout, new_logprobs: Tensor) -> list[RolloutRecord]:
        """One record per recorded episode; ``new_logprobs`` (N, T) are those of the update's last pass."""
        columns = self._columns(rollout, new_logprobs)
        kl = _per_episode(rollout.logprobs - rollout.ref_logprobs, rollout.mask).tolist()
        return [self._record(rollout, columns, kl[row], row) for row in range(rollout.recorded)]

    def _columns(self, rollout: Rollout, new_logprobs: Tensor) -> dict[str, np.ndarray]:
        count = rollout.recorded
        names = ("logprobs", "ref_logprobs", "kl", "rewards", "values", "advantages", "whitened_advantages", "returns", "deltas", "entropy")
        columns = {name: x[:count] for name in names if (x := getattr(rollout, name)) is not None}
        settings = objective_settings(self._config.ppo, rollout.kl_coef)
        clipping = (settings.cliprange, settings.cliprange_high, settings.dual_clip)
        old, advantages, mask = columns["logprobs"], columns["whitened_advantages"], rollout.mask[:count]
        surrogate = policy_loss(new_logprobs, old, advantages, mask, *clipping, ratio_level=settings.ratio_level)
        columns |= {"new_logprobs": new_logprobs, "ratio": surrogate.ratio, "clipped": surrogate.clipped}
        return {name: value.float().cpu().numpy() for name, value in columns.items()}

    def _record(self, rollout: Rollout, columns: dict[str, np.ndarray], kl: float, row: int) -> RolloutRecord:
        tokens, scores = rollout.tokens, rollout.scores
        length = int(tokens.lengths[row])
        prompt_ids = tokens.prompt_ids[row][tokens.prompt_mask[row]].tolist()
        response_ids = tokens.response_ids[row, :length].tolist()
        pieces = token_pieces(self._tokenizer, prompt_ids + response_ids, self._decoder)
        return RolloutRecord(
            sample=row,
            prompt=rollout.prompts[row],
            response=rollout.responses[row],
            score=float(scores.shaped[row]),
            parts={name: float(part[row]) for name, part in scores.parts.items()},
            gold=float(scores.gold[row]) if scores.gold is not None else None,
            kl=kl,
            length=length,
            stopped=bool(rollout.stopped[row]),
            tokens=TokenRecord(
                prompt_ids=np.array(prompt_ids, dtype=np.int32),
                response_ids=np.array(response_ids, dtype=np.int32),
                prompt_pieces=pieces[: len(prompt_ids)],
                response_pieces=pieces[len(prompt_ids) :],
                arrays={name: column[row, :length] for name, column in columns.items()},
                gamma=self._config.ppo.gamma if self._config.ppo.has_critic else math.nan,
                lam=self._config.ppo.lam if self._config.ppo.has_critic else math.nan,
                kl_coef=rollout.kl_coef,
                **self._alternatives(rollout.top, rollout.ref_top, row, length),
            ),
        )

    def _alternatives(self, top: Alternatives, reference: Alternatives, row: int, length: int) -> dict[str, Any]:
        ids, ref_ids = top.ids[row, :length].numpy(), reference.ids[row, :length].numpy()
        return {
            "top_ids": ids.astype(np.int32),
            "top_logprobs": top.logprobs[row, :length].float().numpy(),
            "ref_top_ids": ref_ids.astype(np.int32),
            "ref_top_logprobs": reference.logprobs[row, :length].float().numpy(),
            "top_pieces": self._pieces(set(ids.ravel().tolist()) | set(ref_ids.ravel().tolist())),
        }
