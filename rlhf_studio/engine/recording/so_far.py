"""A step's episodes before the step is done, as records: for people who go through a step phase by phase."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlhf_studio.engine.recording.records import Recorder
from rlhf_studio.engine.types import Alternatives, ForwardOutput, ReferencePass, Rollout, Scores, StepSoFar
from rlhf_studio.ppo.advantages import Advantages
from rlhf_studio.runs.records import PHASES, RolloutRecord


def rollouts_so_far(recorder: Recorder, phase: str, so_far: StepSoFar) -> list[RolloutRecord]:
    """The recorded episodes with what is known of them after ``phase``, as :class:`rlhf_studio.runs.records.Scratch` says."""
    samples = so_far.samples
    unknown = torch.full_like(samples.policy.logprobs, torch.nan)
    rollout = so_far.rollout or _filled_up(so_far, unknown)
    new_logprobs = unknown if so_far.stats is None else so_far.stats.logprobs
    done = list(PHASES)[: list(PHASES).index(phase) + 1]
    known = {quantity for name in done for quantity in PHASES[name].finds}
    if so_far.stats is None:  # also where the update was left out
        known -= set(PHASES["update"].finds)
    records = recorder.rollouts(rollout, new_logprobs[: samples.recorded])
    return [_only(known, record) for record in records]


def _filled_up(so_far: StepSoFar, unknown: torch.Tensor) -> Rollout:
    """A rollout whose unknown numbers are NaN."""
    samples, none = so_far.samples, torch.full((len(unknown),), torch.nan)
    nothing = Alternatives(
        torch.zeros((samples.recorded, unknown.shape[1], 0), dtype=torch.int64), torch.zeros((samples.recorded, unknown.shape[1], 0))
    )
    scores = so_far.scores or Scores(none, {}, none, None)
    reference = so_far.reference or ReferencePass(ForwardOutput(unknown, unknown, unknown, nothing), unknown)
    advantages = Advantages(unknown, unknown, unknown, unknown)
    return Rollout.of(samples, scores, reference, unknown, advantages, so_far.kl_coef)


def _only(known: set[str], record: RolloutRecord) -> RolloutRecord:
    assert record.tokens is not None  # the recorder keeps every token
    arrays = {name: array for name, array in record.tokens.arrays.items() if name in known}
    return replace(record, tokens=replace(record.tokens, arrays=arrays))
