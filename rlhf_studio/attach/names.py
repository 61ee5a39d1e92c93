"""Metrics of other trainers by our names. What has no counterpart of the same meaning keeps its own name behind ``trainer/``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlhf_studio.config import Stage
from rlhf_studio.config.metrics.table import METRICS

OURS = {metric.name for metric in METRICS}
_ALWAYS = {"grad_norm": "optim/grad_norm", "learning_rate": "lr", "epoch": "train/epoch"}
_PAIRS = ("chosen", "rejected")
NAMES: dict[Stage, dict[str, str]] = {
    # Scores, lengths and log-probabilities come from the responses themselves.
    "ppo": {"loss": "loss/policy_avg", "entropy": "policy/entropy_avg", "clip_ratio/region_mean": "policy/clipfrac_avg"},
    "sft": {"loss": "sft/loss", "eval_loss": "sft/eval_loss"},
    "reward_model": {
        "loss": "reward_model/loss",
        "accuracy": "reward_model/accuracy",
        "margin": "reward_model/margin",
        "eval_loss": "reward_model/eval_loss",
        "eval_accuracy": "reward_model/eval_accuracy",
        "eval_margin": "reward_model/eval_margin",
    },
    "dpo": {
        "loss": "dpo/loss",
        "rewards/accuracies": "dpo/accuracy",
        "rewards/margins": "dpo/margin",
        **{f"rewards/{name}": f"dpo/{name}_reward" for name in _PAIRS},
        **{f"logps/{name}": f"dpo/{name}_logprob" for name in _PAIRS},
        "eval_loss": "dpo/eval_loss",
        "eval_rewards/accuracies": "dpo/eval_accuracy",
        "eval_rewards/margins": "dpo/eval_margin",
    },
}
_LAST = re.compile(r"(^|[/_])(lr|epoch|episode|num_tokens|tokens_seen)$")
_ENDS = re.compile(r"(?:^|[/_])(min|max)(?:_[^/]*)?$")  # before that may stand the name of a reward function, such as max_words
_OF_THE_PROGRAM = ("train_runtime", "train_loss", "train_samples_per_second", "train_steps_per_second", "total_flos")


def metrics_of_log(stage: Stage, logs: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one call of ``log`` by our names. Empty for the summary at the end of a training."""
    if any(name in logs for name in _OF_THE_PROGRAM):
        return {}
    known, metrics = {**_ALWAYS, **NAMES.get(stage, {})}, dict[str, float]()
    for name, value in logs.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue  # a text or a table among the numbers
        metrics[known.get(name, name if name in OURS else f"trainer/{name}")] = number
    for loss, perplexity in (("sft/loss", "sft/perplexity"), ("sft/eval_loss", "sft/eval_perplexity")):
        if loss in metrics and metrics[loss] < 50:
            metrics[perplexity] = math.exp(metrics[loss])
    return metrics


def over_logs(logs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The numbers of a step that several logs tell of: the last of what counts on, the least and the greatest of minima and maxima, and
    means of all else.
    """
    names = dict.fromkeys(name for log in logs for name in log)
    return {name: _over_logs(name, [log[name] for log in logs if name in log]) for name in names}


def _over_logs(name: str, values: Sequence[float]) -> float:
    if _LAST.search(name):
        return values[-1]
    end = _ENDS.search(name)
    return float((np.mean if end is None else np.min if end[1] == "min" else np.max)(values))
