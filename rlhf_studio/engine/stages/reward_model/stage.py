"""Reward-model training as a run: a sequence classifier learns which of two responses people prefer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlhf_studio.config import RewardModelRunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.ends import model_ends
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.saving.folder import contiguous
from rlhf_studio.engine.saving.weights import restore_weights
from rlhf_studio.engine.stages.reward_model.build import BuiltRewardModel, build_reward_model
from rlhf_studio.engine.stages.reward_model.finish import finish_reward_model
from rlhf_studio.engine.stages.reward_model.measure import EVENT, PairTexts, measure
from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
from rlhf_studio.engine.stages.supervised.examples import StageExamples, load_pairs
from rlhf_studio.engine.stages.supervised.pairs import pair_means
from rlhf_studio.engine.stages.supervised.stage import Measured, SupervisedStage, health_events, trainer_of
from rlhf_studio.engine.stages.supervised.trainer import StepNumbers
from rlhf_studio.engine.text import chat_template, cut_left, text_as_read
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.examples import PreparedPairs
from rlhf_studio.inputs.trained_text import TrainedText, text_form
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord, RolloutRecord

TRAINED = "trained"  # the folder of a checkpoint with the adapters as they are trained
RAW = "raw.safetensors"  # what normalising changes, as it was before


class RewardModelStage(SupervisedStage):
    """A run of reward-model training. Each checkpoint has the model as others use it in ``reward_model/``: merged and normalised."""

    name = "reward_model"
    model_folder = "reward_model"

    def __init__(self, *parts: Any, built: BuiltRewardModel, pairs: StageExamples[PreparedPairs], in_world: bool):
        super().__init__(*parts)
        self._built, self._pairs, self._in_world = built, pairs, in_world
        self._texts, self._end = _without_end(pairs.held_out.texts, built.head.trained_on)
        self._measured: tuple[int, dict[str, Any]] | None = None  # the step of the newest measurement, and its record

    def learned(self, numbers: StepNumbers) -> dict[str, float]:
        """How the batch's pairs are ordered, before the step; nothing for ties alone."""
        if not (means := pair_means(numbers.sums)):
            return {}
        own = {"accuracy": means["right"], "margin": means["chosen"] - means["rejected"]}
        own |= {f"{which}_mean": means[which] for which in ("chosen", "rejected")}
        return {f"reward_model/{name}": value for name, value in own.items()}

    def measure(self) -> Measured:
        """Accuracy, loss, calibration and more on the held-out pairs; at the end also on texts that mean the same."""
        held_out = self._pairs.held_out.items
        if not held_out:
            return Measured()
        thorough = self.finished
        measurement = measure(self.model, held_out, texts=self._texts, encode=self._encode, gold=self._in_world, thorough=thorough)
        self._measured = self.step_number, measurement.record
        event = EventRecord("info", EVENT, "The reward model was measured on held-out pairs.", measurement.record)
        return Measured(measurement.metrics, [event])

    def _encode(self, prompt: str, response: str) -> Sequence[int]:
        """The ids of a rewritten text, encoded as the pairs are. In a chat the special tokens are part of the text."""
        text = prompt + response + self._end
        ids: list[int] = self.tokenizer(text, add_special_tokens=not self.config.data.chat_template)["input_ids"]
        end = self._built.head.trained_on.end_id if self._built.head.trained_on else None
        if end is not None and ids[-1:] != [end]:
            ids = [*ids, end]
        return cut_left(ids, self.config.data.max_tokens, self.tokenizer)  # as the pairs were cut

    def record(self, items: Sequence[int]) -> list[RolloutRecord]:
        """The batch's first pairs with their scores, the chosen response before the rejected one."""
        pairs = [self.trainer.items[item] for item in items[: max(self.config.engine.record_samples // 2, 1)]]
        records = []
        for index, (pair, scores) in enumerate(zip(pairs, self.trainer.read(pairs), strict=True)):
            for which, (response, score) in enumerate(((pair.chosen, scores.chosen), (pair.rejected, scores.rejected))):
                records.append(self._record(2 * index + which, pair.prompt, response, score))
        return records

    def _record(self, sample: int, prompt: Sequence[int], response: Sequence[int], score: float) -> RolloutRecord:
        before = text_as_read(self.tokenizer, prompt)
        return RolloutRecord(
            sample=sample,
            prompt=before,
            response=text_as_read(self.tokenizer, [*prompt, *response])[len(before) :],
            score=score,
            parts={},
            gold=None,
            kl=float("nan"),
            length=len(response),
            stopped=None,
            tokens=None,
        )

    # --- checkpoints -------------------------------------------------------------------------------------------------------

    def fill(self, folder: Path, run_dir: Path) -> None:
        """Write the model as others use it, and the weights that training goes on from."""
        rows, source = self._reference_texts()
        measured = self._measured[1] if self._measured and self._measured[0] == self.step_number else None
        if isinstance(self.model, PeftModel):
            save_model(self.model, folder / TRAINED, run_dir / "base")
            finish_reward_model(self.model, self.tokenizer, self._built.head, rows, source, folder / self.model_folder, measured)
            return
        with _unchanged(self.model) as raw:
            save_file(contiguous(raw), folder / RAW)
            finish_reward_model(self.model, self.tokenizer, self._built.head, rows, source, folder / self.model_folder, measured)

    def restore_model(self, folder: Path) -> None:
        """Copy the trained weights (before normalising) into the model, bit for bit."""
        if isinstance(self.model, PeftModel):
            restore_weights(self.model, folder / TRAINED)
            return
        restore_weights(self.model, folder / self.model_folder)
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in load_file(folder / RAW).items():
                own[name].copy_(tensor)

    def _reference_texts(self) -> tuple[list[tuple[int, ...]], str]:
        """The texts whose scores get mean 0 and variance 1, and what they are, for people."""
        assert isinstance(self.config, RewardModelRunConfig)
        most, texts = self.config.reward_model.normalise, list[tuple[int, ...]]()
        sources = {"held-out": self._pairs.held_out.items, "training": self._pairs.training.items}
        used = []
        for name, pairs in sources.items():  # few held-out texts say little of a mean and less of a deviation
            if pairs and len(texts) < most:
                used.append(name)
                texts += [pair.prompt + response for pair in pairs[: most - len(texts)] for response in (pair.chosen, pair.rejected)]
        return texts[:most], S_(f"{' and '.join(used)} examples")


def _without_end(texts: Sequence[tuple[str, str, str]], trained: TrainedText | None) -> tuple[list[PairTexts], str]:
    """The texts of pairs without the end that the template wrote behind each answer, and that end, which must not be rewritten."""
    end = "" if trained is None else trained.end
    if not all(response.endswith(end) for _, *responses in texts for response in responses):
        end = ""
    return [PairTexts(prompt, *(response.removesuffix(end) for response in responses)) for prompt, *responses in texts], end


@contextlib.contextmanager
def _unchanged(model: Any) -> Iterator[dict[str, Tensor]]:
    """Gives copies of what normalising may change (the head, and every vector). At the end the model is as before, bit for bit."""
    trunk = {id(parameter) for parameter in model.base_model.parameters()}
    raw = {name: x.detach().clone() for name, x in model.named_parameters() if x.ndim < 2 or id(x) not in trunk}
    try:
        yield raw
    finally:
        own = dict(model.named_parameters())
        with torch.no_grad():
            for name, tensor in raw.items():
                own[name].copy_(tensor)
        for name in own.keys() - raw.keys():
            if own[name].ndim < 2:  # a bias that the head got
                layer, _, last = name.rpartition(".")
                setattr(model.get_submodule(layer), last, None)


def build_reward_stage(config: RewardModelRunConfig, compute: Compute, report: OnProgress) -> tuple[RewardModelStage, list[EventRecord]]:
    """Load the model and the pairs. Returns the stage, and events for people.

    Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
    """
    built, settings, seed = build_reward_model(config, compute, report), config.reward_model, config.engine.seed
    end = model_ends(built.model, built.tokenizer, chat=config.data.chat_template).end if settings.append_eos else None
    pairs = load_pairs(config.data, built.tokenizer, seed, report, whole_texts=True, ties=True, end=end)
    chat = chat_template(built.tokenizer) if config.data.chat_template else None
    built = replace(built, head=replace(built.head, trained_on=text_form(chat, end, config.data.system_text)))
    objective = BradleyTerryObjective(
        built.model.config.get_text_config().pad_token_id, centering=settings.centering, label_smoothing=settings.label_smoothing
    )
    trainer = trainer_of(config, built.model, pairs.training.items, objective, compute)
    in_world = config.data.source.startswith("bundled/world")
    stage = RewardModelStage(config, compute, built.model, built.tokenizer, trainer, built=built, pairs=pairs, in_world=in_world)
    return stage, [*health_events([*built.notes, *pairs.notes]), pairs.counts]
