"""What a classic ``step`` returns: a step's numbers by the names of TRL 0.11.

A mean of the update is the mean over its minibatches, as there. Arrays hold response tokens, where TRL's also hold the prompt's: (B, T) and
0 behind a response, or in one row those of all minibatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlhf_studio.engine.types import MinibatchStats, Rollout, UpdateStats
from rlhf_studio.ppo.masking import masked_mean, masked_select, masked_var


def classic_stats(rollout: Rollout, stats: UpdateStats | None, vf_coef: float, metrics: Mapping[str, float]) -> dict[str, Any]:
    """The numbers of one step; without ``stats``, when nothing was learned, those of the update are missing."""
    mask = rollout.mask
    kl = masked_select(rollout.kl, mask).sum(dim=1)
    queries, responses = rollout.tokens.prompt_mask.sum(dim=1).float(), rollout.tokens.lengths.float()
    numbers: dict[str, Any] = {
        "objective/kl": kl.mean(),
        "objective/kl_dist": kl,
        "objective/logprobs": masked_select(rollout.logprobs, rollout.tokens.mask),
        "objective/ref_logprobs": masked_select(rollout.ref_logprobs, rollout.tokens.mask),
        "objective/kl_coef": rollout.kl_coef,
        "objective/entropy": masked_select(-rollout.logprobs, mask).sum(dim=1).mean(),
        "ppo/mean_non_score_reward": masked_mean(-rollout.kl_coef * rollout.kl, mask),
        "ppo/mean_scores": rollout.scores.shaped.mean(),
        "ppo/std_scores": _std(rollout.scores.shaped),
        "tokens/queries_len_mean": queries.mean(),
        "tokens/queries_len_std": _std(queries),
        "tokens/queries_dist": queries,
        "tokens/responses_len_mean": responses.mean(),
        "tokens/responses_len_std": _std(responses),
        "tokens/responses_dist": responses,
    }
    if stats is not None:
        numbers |= _of_update(rollout, stats, vf_coef)
    numbers["ppo/learning_rate"] = metrics.get("lr", 0.0)
    times = {"forward_pass": "reference", "optimize_step": "update", "total": "total"}
    numbers |= {f"time/ppo/{theirs}": metrics[f"time/{ours}"] for theirs, ours in times.items() if f"time/{ours}" in metrics}
    return {name: _plain(value) for name, value in numbers.items()}


def _of_update(rollout: Rollout, stats: UpdateStats, vf_coef: float) -> dict[str, Any]:
    rows = [_of_minibatch(rollout, minibatch, vf_coef) for minibatch in stats.minibatches]
    numbers = {f"ppo/{name}": sum(float(row[name]) for row in rows) / len(rows) for name in rows[0] if rows[0][name].dim() == 0}
    numbers["ppo/val/var_explained"] = 1 - numbers["ppo/val/error"] / numbers["ppo/returns/var"]
    arrays = {f"ppo/{name}": torch.cat([row[name] for row in rows]) for name in ("policy/advantages", "policy/ratio")}
    return numbers | arrays


def _of_minibatch(rollout: Rollout, minibatch: MinibatchStats, vf_coef: float) -> dict[str, Tensor]:
    """TRL's numbers of one minibatch; scalars, and two arrays (N,) over its tokens."""
    sums, assembled = minibatch.sums, _assembled(rollout, minibatch)
    mask, old, advantages, values, returns, new, new_values = assembled
    scalars = {
        "loss/policy": sums.mean_policy_loss,
        "loss/value": sums.mean_value_loss,
        "loss/total": sums.mean_policy_loss + vf_coef * sums.mean_value_loss,
        "policy/entropy": sums.mean_entropy,
        "policy/approxkl": sums.approx_kl,
        "policy/policykl": masked_mean(old - new, mask),
        "policy/clipfrac": sums.clip_fraction,
        "policy/advantages_mean": masked_mean(advantages, mask),
        "returns/mean": masked_mean(returns, mask),
        "returns/var": _var(returns, mask),
        "val/vpred": masked_mean(new_values, mask),
        "val/error": masked_mean((new_values - returns).square(), mask),
        "val/clipfrac": sums.value_clip_fraction,
        "val/mean": masked_mean(values, mask),
        "val/var": _var(values, mask),
    }
    arrays = {"policy/advantages": advantages[mask], "policy/ratio": (new - old)[mask].exp()}
    return {name: torch.as_tensor(value) for name, value in scalars.items()} | arrays


def _assembled(rollout: Rollout, minibatch: MinibatchStats) -> tuple[Tensor, ...]:
    """Mask, old log-probabilities, advantages, values, returns, new log-probabilities and new values, each (b, T)."""
    rows = torch.cat([part for part, _, _ in minibatch.parts])
    width = rollout.mask.shape[1]
    new, new_values = (torch.cat([_widened(part[column], width) for part in minibatch.parts]) for column in (1, 2))
    values, returns = rollout.values, rollout.returns
    assert values is not None and returns is not None  # a classic program has a value head
    return rollout.mask[rows], rollout.logprobs[rows], rollout.whitened_advantages[rows], values[rows], returns[rows], new, new_values


def _widened(part: Any, width: int) -> Tensor:
    return torch.nn.functional.pad(part, (0, width - part.shape[1]))


def _var(values: Tensor, mask: Tensor) -> Tensor:
    return masked_var(values, mask) if int(mask.sum()) > 1 else torch.tensor(torch.nan)


def _std(values: Tensor) -> Tensor:
    return values.std() if len(values) > 1 else torch.zeros(())


def _plain(value: Any) -> Any:
    """A number, or an array of numpy."""
    if not isinstance(value, Tensor):
        return float(value)
    array: np.ndarray = value.detach().float().cpu().numpy()
    return float(array) if array.ndim == 0 else array
