"""Direct preference optimisation: a policy learns from preferences without a reward model (Rafailov et al. 2023, arXiv:2305.18290).

The policy itself is the reward model: r(response) = β (log p_policy(response) - log p_reference(response)), and the loss is that of
Bradley and Terry with these rewards (equation 7).
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_studio.config import DPOConfig, DPORunConfig
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.compute.packing import enable_packing, takes_packed_rows
from rlhf_studio.engine.models.load_model import load_causal_lm
from rlhf_studio.engine.models.text_passes import text_logprobs
from rlhf_studio.engine.stages.stage_run import ends_event
from rlhf_studio.engine.stages.supervised.examples import load_pairs
from rlhf_studio.engine.stages.supervised.loading import Learner, ends_in_training, load_learner
from rlhf_studio.engine.stages.supervised.objective import Read
from rlhf_studio.engine.stages.supervised.pairs import PairObjective, PairScores, pair_means, pair_sums
from rlhf_studio.engine.stages.supervised.stage import Measured, WritingStage, health_events, trainer_of, watch
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.examples.encoded import EncodedPair
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord, RolloutRecord


@dataclass(frozen=True)
class PairRewards(PairScores):
    """What the policy makes of a pair: its scores are the implicit rewards, β times the log-ratio of policy and reference.

    Attributes:
        chosen_logprob, rejected_logprob: log-probability of each response under the policy, in nats.
    """

    chosen_logprob: float
    rejected_logprob: float


class DPOObjective(PairObjective):
    """The loss of preferring the chosen response, summed over pairs with their weights.

    With d = r_chosen - r_rejected and q, the share that is taken to be the wrong way round (``label_smoothing``; one half of a tie), the
    loss of a pair is ``-(1 - q) log sigmoid(d) - q log sigmoid(-d)``. Source of the smoothing: Mitchell 2023, conservative DPO. Margins of
    pairs are not used.

    The reference's log-probabilities of a pair are computed when it is first met, and kept.

    Args:
        reference: the frozen model; None takes the trained model with its LoRA adapters switched off.
    """

    def __init__(self, beta: float, *, label_smoothing: float = 0.0, reference: Any | None = None):
        super().__init__(label_smoothing)
        self.beta = beta
        self._reference = None if reference is None else reference.requires_grad_(False).eval()
        self._known: dict[tuple[tuple[int, ...], ...], tuple[float, float]] = {}

    @classmethod
    def of(cls, model: Any, config: DPOConfig, start: Any | None = None) -> DPOObjective:
        """The objective for training ``model`` from where it is now.

        The reference is ``start`` where that is given: the model as it was before LoRA, needed where switching the adapters off does not
        give it (biases that learn, adapters whose start has changed the base). Without, it is a copy of a model without LoRA.
        """
        reference = start if start is not None else None if isinstance(model, PeftModel) else copy.deepcopy(model)
        return cls(config.beta, label_smoothing=config.label_smoothing, reference=reference)

    def learn(self, model: Any, items: Sequence[EncodedPair]) -> tuple[Tensor, dict[str, Tensor]]:
        logprobs = pair_logprobs(model, items)
        chosen, rejected = (self.beta * ratio for ratio in self._log_ratios(logprobs, items))
        of_texts = pair_sums(*logprobs, items)
        sums = pair_sums(chosen, rejected, items) | {f"{name}_logprob": of_texts[name] for name in ("chosen", "rejected")}
        return self._loss_sum(chosen - rejected, items), sums

    def mean_of(self, items: Sequence[EncodedPair], results: Sequence[PairRewards]) -> float:
        return float(self._loss_sum(torch.tensor([rewards.margin for rewards in results]), items)) / self.count(items)

    def _loss_sum(self, margins: Tensor, items: Sequence[EncodedPair]) -> Tensor:
        weights, wrong = margins.new_tensor([item.weight for item in items]), self.wrong_way_round(items, margins)
        return (weights * (-(1 - wrong) * logsigmoid(margins) - wrong * logsigmoid(-margins))).sum()

    def read(self, model: Any, items: Sequence[EncodedPair]) -> list[PairRewards]:
        logprobs = pair_logprobs(model, items)
        ratios = [ratio.mul(self.beta).tolist() for ratio in self._log_ratios(logprobs, items)]
        return [PairRewards(*numbers) for numbers in zip(*ratios, *(part.tolist() for part in logprobs), strict=True)]

    # --- the reference -----------------------------------------------------------------------------------------------------

    def prepare(self, model: Any, items: Sequence[EncodedPair], read: Read) -> None:
        """Compute the reference's log-probabilities of the pairs that it has not met yet."""
        new = list({_key(item): item for item in items if _key(item) not in self._known}.values())
        if not new:
            return
        if self._reference is None and not isinstance(model, PeftModel):
            raise ValueError(S_("the model has no LoRA adapters to switch off, so DPO needs a reference model"))
        if self._reference is not None and takes_packed_rows(model):
            enable_packing(self._reference)

        def work(trained: Any, part: Sequence[EncodedPair]) -> list[tuple[float, float]]:
            logprobs = pair_logprobs(trained if self._reference is None else self._reference, part)
            return list(zip(*(numbers.tolist() for numbers in logprobs), strict=True))

        with model.disable_adapter() if self._reference is None else contextlib.nullcontext():
            self._known |= dict(zip(map(_key, new), read(work, new), strict=True))

    def state(self, items: Sequence[EncodedPair]) -> dict[str, Tensor]:
        """The reference's log-probabilities of each item, chosen and rejected, float32 (n, 2); NaN where they are not known yet."""
        unknown = (math.nan, math.nan)
        return {"reference": torch.tensor([self._known.get(_key(item), unknown) for item in items])}

    def restore(self, items: Sequence[EncodedPair], tensors: Mapping[str, Tensor]) -> None:
        rows = zip(items, tensors["reference"].tolist(), strict=True)
        self._known |= {_key(item): (chosen, rejected) for item, (chosen, rejected) in rows if not math.isnan(chosen)}

    def _log_ratios(self, logprobs: tuple[Tensor, Tensor], items: Sequence[EncodedPair]) -> list[Tensor]:
        """log p_policy - log p_reference, (B,) of the chosen and of the rejected responses."""
        return [part - reference for part, reference in zip(logprobs, self._of_reference(items, logprobs[0]), strict=True)]

    def _of_reference(self, items: Sequence[EncodedPair], like: Tensor) -> tuple[Tensor, Tensor]:
        chosen, rejected = zip(*(self._known[_key(item)] for item in items), strict=True)
        return like.new_tensor(chosen), like.new_tensor(rejected)


def pair_logprobs(model: Any, items: Sequence[EncodedPair]) -> tuple[Tensor, Tensor]:
    """Log-probability of each chosen and of each rejected response, (B,) float32, given its prompt. All go through in one batch."""
    responses = [item.chosen for item in items] + [item.rejected for item in items]
    prompts = [item.prompt for item in items] * 2
    texts = [prompt + response for prompt, response in zip(prompts, responses, strict=True)]
    counted = [range(max(len(prompt), 1), len(text)) for prompt, text in zip(prompts, texts, strict=True)]
    sums = text_logprobs(model, texts, counted, twins=True).sums()
    return sums[: len(items)], sums[len(items) :]


def _key(item: EncodedPair) -> tuple[tuple[int, ...], ...]:
    return item.prompt, item.chosen, item.rejected


# --- the run -----------------------------------------------------------------------------------------------------------------------


class DPOStage(WritingStage):
    """A run of direct preference optimisation."""

    name = "dpo"

    def measure(self) -> Measured:
        """What the policy makes of the held-out pairs: how often the chosen response has the larger implicit reward, and by how much."""
        if not self.held_out:
            return Measured()
        rewards = self.trainer.read(self.held_out)
        chosen, rejected = torch.tensor([(pair.chosen, pair.rejected) for pair in rewards]).T
        sums = {name: float(number) for name, number in pair_sums(chosen, rejected, self.held_out).items()}
        metrics = {"dpo/eval_loss": self.trainer.objective.mean_of(self.held_out, rewards)}
        if count := sums["decided"]:
            metrics |= {"dpo/eval_accuracy": sums["right"] / count, "dpo/eval_margin": (sums["chosen"] - sums["rejected"]) / count}
        return Measured(metrics)

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """The chosen and the rejected response of the batch's first pairs, token by token, one behind the other."""
        pairs = [self.trainer.items[item] for item in items[: max(self.config.engine.record_samples // 2, 1)]]
        texts = [(pair.prompt + response, len(pair.prompt)) for pair in pairs for response in (pair.chosen, pair.rejected)]
        return self.recorder.record(self.model, texts)

    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """How the policy ordered the batch's pairs before the step; nothing for ties alone."""
        if not (means := pair_means(numbers.sums)):
            return {}
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
    trainer = trainer_of(config, learner.model, pairs.training.items, objective, compute)
    starts = [(pair.prompt + pair.chosen, len(pair.prompt)) for pair in pairs.held_out.items or pairs.training.items]
    watched = watch(config, learner, stops, starts)
    stage = DPOStage(config, compute, learner.model, learner.tokenizer, trainer, held_out=pairs.held_out.items, watched=watched)
    return stage, [*health_events([*learner.notes, *pairs.notes]), ends_event(config.generation, ends, stops), pairs.counts]


def _objective(config: DPORunConfig, learner: Learner, compute: Compute, report: OnProgress) -> DPOObjective:
    if not config.model.reference:
        return DPOObjective.of(learner.model, config.dpo, learner.start)
    dtype = compute.dtype if config.lora.enabled else torch.float32
    loaded = load_causal_lm(config.model.reference, config.model.reference_revision, dtype, report, "model.reference")
    reference = placed(loaded.model, compute.load_device)
    return DPOObjective(config.dpo.beta, label_smoothing=config.dpo.label_smoothing, reference=reference)
