"""The batch of a step from the run's record, and the weights that it was sampled with.

The weights are those of the newest checkpoint before the step, or the run's start, trained again up to it with the run's own settings.
Whether they are the right ones shows in the log-probabilities: those that the step recorded must come out again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.phases import advantages_of, read_given, reference_pass, sample, score
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.saving.checkpoint import go_on_from
from rlhf_studio.engine.types import PromptBatch, ReferencePass, Rollout, Samples, Scores, TokenBatch
from rlhf_studio.language import S_
from rlhf_studio.ppo.kl import kl_per_token
from rlhf_studio.ppo.masking import masked_select
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.runs.create import first_settings
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import refuse_only_read, settings_at
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepEpisodes

MOST_AGAIN = 20
"""So many steps are trained again at most: the usual distance between two checkpoints."""
SAME = {torch.float32: 1e-3, torch.bfloat16: 0.5}
"""So far, in nats, may log-probabilities be from the recorded ones: what rounding explains, as the doctor has it for the first ratio."""

Report = Callable[[str], None]


class NotTheSame(StoreError):
    """The weights that were found are not those that sampled the recorded batch."""


@dataclass(frozen=True)
class Batch:
    """A step's batch, before anything was learned from it.

    Attributes:
        samples: prompts, tokens, and what the policy (and critic) said of them when they were sampled.
        scores: what the responses earned.
        reference: the reference's log-probabilities.
        kl_coef: β of the step.
        full_kl: (B, T) the exact KL of each token where the run measures that; else None.
    """

    samples: Samples
    scores: Scores
    reference: ReferencePass
    kl_coef: float
    full_kl: Tensor | None = None

    def rollout(self, config: RunConfig) -> Rollout:
        """What an update with these settings learns from: their rewards and advantages. As :meth:`Trainer.step` puts them together."""
        ppo, samples, mask = config.ppo, self.samples, self.samples.mask
        ref_logprobs, shaped = self.reference.output.logprobs, self.scores.shaped.to(mask.device)
        exact = self.full_kl if ppo.kl_estimator == "full" else None
        kl = kl_per_token(samples.policy.logprobs, ref_logprobs, ppo.kl_estimator) if exact is None else exact
        early = None if self.scores.early is None else self.scores.early.to(mask.device)
        charged = self.kl_coef if ppo.kl_placement == "reward" else 0.0
        rewards = shape_rewards(masked_select(kl, mask), shaped, mask, charged, unit_variance=ppo.whiten_rewards, early=early)
        values = samples.policy.values if ppo.has_critic else None
        advantages = advantages_of(ppo, rewards, shaped, values, mask)
        if not ppo.has_critic:
            samples = replace(samples, policy=replace(samples.policy, values=None))
        return Rollout.of(samples, self.scores, replace(self.reference, kl=kl), rewards, advantages, self.kl_coef)


@dataclass(frozen=True)
class Found:
    """A batch with the trainer that is where the run was when it sampled it.

    Attributes:
        began: the step of the checkpoint that the weights came from; 0 is the run's start.
        off: the largest difference, in nats, between a log-probability that was recorded and that of these weights; 0 for a fresh batch.
    """

    trainer: Trainer
    batch: Batch
    began: int
    off: float


def recorded_batch(run_dir: Path, step: int, permissions: Permissions, report: Report) -> Found:
    """The batch of a step of a run, and a trainer with the weights, optimizer and settings that the run had before it learned from it.

    Raises:
        StoreError: the step is not recorded, no checkpoint is near enough, or the weights that were found are not those of the record.
        ConfigError, PromptsError: what the run was trained with cannot be loaded.
    """
    reader = RunReader(run_dir)
    refuse_only_read(reader)
    episodes, began = _episodes(reader, step), _begin_at(reader, step)
    trainer = _trainer(_settings(run_dir, began), permissions, report)
    go_on_from(run_dir, began or None, trainer)
    for number in range(began + 1, step):
        report(S_(f"Training step {number} again"))
        trainer.step()
    trainer.change_settings()
    report(S_(f"Reading the batch of step {step}"))
    given = _put_together(trainer, trainer.next_prompts(), episodes)
    off = float((given.own.policy.logprobs - given.batch.samples.policy.logprobs)[given.own.mask].abs().max())
    if off > SAME[trainer.compute.dtype]:
        raise NotTheSame(
            f"Training again from {'the start' if not began else f'the checkpoint of step {began}'} does not lead to the weights that "
            f"sampled step {step}: log-probabilities differ by up to {off:.2g}. Its settings, prompts or models have changed since, or it "
            "was trained on another kind of machine.",
            "state",
        )
    return Found(trainer, given.batch, began, off)


def fresh_batch(config: RunConfig, steps: int, permissions: Permissions, report: Report) -> Found:
    """A batch that a new run samples after so many steps. Nothing is written."""
    trainer = _trainer(config, permissions, report)
    for number in range(1, steps + 1):
        report(S_(f"Training step {number} of {steps}"))
        trainer.step()
    samples = sample(trainer.models, trainer.next_prompts(), trainer.sampling_generator)
    scores, reference = score(trainer.models, samples), reference_pass(trainer.models, samples)
    exact = reference.kl if trainer.config.ppo.kl_estimator == "full" else None
    return Found(trainer, Batch(samples, scores, reference, trainer.controller.coef, exact), 0, 0.0)


def _trainer(config: RunConfig, permissions: Permissions, report: Report) -> Trainer:
    """In one process. The watched prompts are not answered while steps are trained again: that changes nothing of them."""
    data = config.model_dump(mode="json")
    data["engine"] |= {"processes": 1, "accelerate_config": "", "watch_every": 1_000_000}
    alone = RunConfig.model_validate(data)
    return build_trainer(alone, choose_compute(alone), lambda text, fraction: report(text), permissions)[0]


def _settings(run_dir: Path, began: int) -> RunConfig:
    config = settings_at(run_dir, began) if began else RunReader(run_dir).config()
    if not began and (first := first_settings(run_dir)):
        config = parse_config(first)
    if not isinstance(config, RunConfig):
        raise StoreError(f"{run_dir.name} is no run of PPO: it samples no batch to learn from.", "state")
    return config


def _episodes(reader: RunReader, step: int) -> StepEpisodes:
    last = reader.status().step
    if not 1 <= step <= last:
        raise StoreError(f"The run {reader.run_dir.name} has no step {step}; its last one is {last}.", "absent")
    if (episodes := reader.episodes(step).get(step)) is None:
        raise StoreError(f"Step {step} of the run {reader.run_dir.name} has no record of all its responses: nothing was learned.", "absent")
    return episodes


def _begin_at(reader: RunReader, step: int) -> int:
    """The step of the newest checkpoint before ``step``; 0 for the start."""
    kept = [checkpoint.step for checkpoint in reader.checkpoints()]
    began = max((at for at in kept if at < step), default=0)
    if step - 1 - began > MOST_AGAIN:
        last = reader.status().step
        can = ", ".join(_from_to(at + 1, min(at + 1 + MOST_AGAIN, last)) for at in sorted({0, *kept}) if at < last)
        raise StoreError(
            f"The run {reader.run_dir.name} has no checkpoint within the {MOST_AGAIN} steps before step {step}. Steps that can be "
            f"compared: {can}. For others, train with engine.checkpoint_every {MOST_AGAIN} or less, and keep more "
            "(engine.keep_checkpoints).",
            "absent",
        )
    return began


def _from_to(first: int, last: int) -> str:
    return f"{first} to {last}" if last > first else str(first)


@dataclass(frozen=True)
class _Given:
    """``batch`` is what was recorded; ``own`` what the weights at hand say of the same tokens."""

    batch: Batch
    own: Samples


def _check_record(episodes: StepEpisodes, vocabulary: int, longest: int) -> None:
    """Raises StoreError for numbers that no step writes: the file was damaged, or changed by hand."""
    lengths, ids, by_token = np.asarray(episodes.lengths), np.asarray(episodes.response_ids), list(episodes.tokens.values())
    by_response = [episodes.scores, *episodes.parts.values()]
    count = int(lengths.sum(dtype=np.int64))
    sound = (
        {"logprobs", "ref_logprobs"} <= episodes.tokens.keys()
        and all(len(each) == count for each in (ids, *by_token))
        and all(len(each) == len(lengths) for each in by_response)
        and ((lengths >= 1) & (lengths <= longest)).all()
        and ((ids >= 0) & (ids < vocabulary)).all()
        and all(np.isfinite(each).all() for each in (*by_token, *by_response))
    )
    if not sound:
        raise StoreError("The record of this step's responses is damaged: it has numbers that no step writes.", "damaged")


def _put_together(trainer: Trainer, prompts: PromptBatch, episodes: StepEpisodes) -> _Given:
    models, device = trainer.models, trainer.compute.device
    lengths = torch.from_numpy(np.asarray(episodes.lengths, dtype=np.int64))
    if len(lengths) != len(prompts.texts):
        raise NotTheSame(f"the step has {len(lengths)} responses, and the settings ask for {len(prompts.texts)}", "state")
    _check_record(episodes, len(models.tokenizer), models.config.generation.response_length)
    mask = torch.arange(int(lengths.max())) < lengths[:, None]

    def by_token(flat: np.ndarray, dtype: torch.dtype = torch.float32) -> Tensor:
        empty = torch.zeros(mask.shape, dtype=dtype)
        return empty.masked_scatter(mask, torch.from_numpy(np.asarray(flat)).to(dtype)).to(device)

    ids = by_token(episodes.response_ids, torch.int64)
    tokens = TokenBatch(prompts.ids.to(device), prompts.mask.to(device), ids, mask.to(device))
    own = read_given(models, prompts, tokens)
    reference = reference_pass(models, own)
    recorded = {name: by_token(array) for name, array in episodes.tokens.items()}
    policy = replace(own.policy, logprobs=recorded["logprobs"], values=recorded.get("values"))
    seen = ReferencePass(replace(reference.output, logprobs=recorded["ref_logprobs"]), reference.kl)
    parts = {name: torch.from_numpy(np.asarray(part)) for name, part in episodes.parts.items()}
    shaped = torch.from_numpy(np.asarray(episodes.scores))
    gold = None if episodes.gold is None else torch.from_numpy(np.asarray(episodes.gold))
    raw = torch.stack(list(parts.values())).sum(dim=0) if parts else shaped
    scores = Scores(raw, parts, shaped, gold)
    if any(component.kind == "python" for component in models.config.reward.components):  # it may score steps inside a response
        scores = replace(scores, early=score(models, own).early)
    samples = replace(own, policy=policy)
    return _Given(Batch(samples, scores, seen, trainer.controller.coef, recorded.get("kl")), own)
