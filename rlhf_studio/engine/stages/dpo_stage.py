"""Direct preference optimisation as a run: a policy learns from the pairs themselves, beside PPO as its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlhf_studio.config import DPORunConfig
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.engine.stages.dpo import DPOObjective
from rlhf_studio.engine.stages.reward_training import pair_sums
from rlhf_studio.engine.stages.stage_run import ends_event
from rlhf_studio.engine.stages.supervised.examples import load_pairs
from rlhf_studio.engine.stages.supervised.loading import Learner, ends_in_training, load_learner
from rlhf_studio.engine.stages.supervised.stage import Measured, SupervisedStage
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers, SupervisedTrainer
from rlhf_studio.engine.stages.supervised.watching import ExampleRecorder, Watched, watch
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.examples import EncodedPair
from rlhf_studio.runs.records import EventRecord, RolloutRecord, WatchRecord


class DPOStage(SupervisedStage):
    """A run of direct preference optimisation."""

    name = "dpo"

    def __init__(self, *parts: Any, held_out: Sequence[EncodedPair], watched: Watched):
        super().__init__(*parts)
        self._held_out, self._watched = list(held_out), watched
        self._recorder = ExampleRecorder(self.tokenizer, self.compute, watched.stop_ids)

    def measure(self) -> Measured:
        """What the policy makes of the held-out pairs: how often the chosen response has the larger implicit reward, and by how much."""
        if not self._held_out:
            return Measured()
        found = self.trainer.read(self._held_out)
        chosen, rejected = torch.tensor([(pair.chosen, pair.rejected) for pair in found]).T
        sums = {name: float(number) for name, number in pair_sums(chosen, rejected, self._held_out).items()}
        told = {"dpo/eval_loss": self.trainer.objective.mean_of(self._held_out, found)}
        if count := sums["decided"]:
            told |= {"dpo/eval_accuracy": sums["right"] / count, "dpo/eval_margin": (sums["chosen"] - sums["rejected"]) / count}
        return Measured(told)

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """The chosen and the rejected response of the batch's first pairs, token by token, one behind the other."""
        pairs = [self.trainer.items[item] for item in items[: max(self.config.engine.record_samples // 2, 1)]]
        texts = [(pair.prompt + response, len(pair.prompt)) for pair in pairs for response in (pair.chosen, pair.rejected)]
        return self._recorder.record(self.model, texts)

    def answers(self) -> list[WatchRecord]:
        """The policy's answers to the watched prompts."""
        return self._watched.answer(self.model, self.tokenizer, self.compute)

    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """How the policy ordered the batch's pairs before the step; nothing for ties alone."""
        sums = dict(numbers.sums)
        if not (count := sums.pop("decided")):
            return {}
        means = {name: value / count for name, value in sums.items()}
        return {
            "dpo/accuracy": means["right"],
            "dpo/margin": means["chosen"] - means["rejected"],
            "dpo/chosen_reward": means["chosen"],
            "dpo/rejected_reward": means["rejected"],
            "dpo/chosen_logprob": means["chosen_logprob"],
            "dpo/rejected_logprob": means["rejected_logprob"],
        }


def build_dpo(config: DPORunConfig, compute: Compute, report: OnProgress) -> tuple[DPOStage, list[EventRecord]]:
    """Load policy, reference and pairs. Returns the stage, and events for people.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    learner, seed = load_learner(config, compute, report), config.engine.seed
    ends, stops = ends_in_training(config, learner)
    pairs = load_pairs(config.data, learner.tokenizer, seed, report, whole_texts=False, ties=True, end=ends.end)
    objective = _objective(config, learner, compute, report)
    skips = config.engine.non_finite == "skip"
    trainer = SupervisedTrainer(learner.model, pairs.training.items, objective, config.dpo, compute, seed, skip_non_finite=skips)
    starts = [(pair.prompt + pair.chosen, len(pair.prompt)) for pair in pairs.held_out.items or pairs.training.items]
    watched = watch(starts, config.engine, config.generation, learner.model, learner.tokenizer, stops)
    stage = DPOStage(config, compute, learner.model, learner.tokenizer, trainer, held_out=pairs.held_out.items, watched=watched)
    told = [ends_event(config.generation, ends, stops), pairs.told]
    return stage, [EventRecord("info", "health", note) for note in [*learner.notes, *pairs.notes]] + told


def _objective(config: DPORunConfig, learner: Learner, compute: Compute, report: OnProgress) -> DPOObjective:
    if not config.model.reference:
        return DPOObjective.of(learner.model, config.dpo, learner.start)
    dtype = compute.dtype if config.lora.enabled else torch.float32
    loaded = load_causal_lm(config.model.reference, config.model.reference_revision, dtype, report, "model.reference")
    reference = placed(loaded.model, compute.load_device)
    return DPOObjective(config.dpo.beta, label_smoothing=config.dpo.label_smoothing, reference=reference)
