"""The classic PPOTrainer of TRL 0.4 to 0.11: the program draws responses and scores them, ``step`` learns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from rlhf_studio.engine.loop.build import seed_everything
from rlhf_studio.engine.loop.phases import episodes_of, read_given
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.types import Samples, Scores, TokenBatch
from rlhf_studio.trl.program.answering import answer_many, answer_one
from rlhf_studio.trl.program.base import RecordedTrainer, folder_of
from rlhf_studio.trl.program.config import ClassicPPOConfig
from rlhf_studio.trl.program.given import GivenStep, Limits, check_step, given_step
from rlhf_studio.trl.program.models import PreTrainedModelWrapper, create_reference_model
from rlhf_studio.trl.program.one_process import refuse_several_processes
from rlhf_studio.trl.program.parts import Parts, stream_of
from rlhf_studio.trl.program.settings import classic_settings, scores_of_program
from rlhf_studio.trl.program.statistics import classic_stats

KEPT_COLUMNS = {"input_ids", "attention_mask", "label", "query", "response"}
"""Columns of a dataset that ``remove_unused_columns`` leaves, as in TRL."""


class ClassicPPOTrainer(RecordedTrainer):
    """PPO in a loop of a program's own.

    Args:
        config: options of TRL 0.11.
        model: a language model with a value head; it is trained in place.
        ref_model: what the KL compares it with; None: a copy of the model, or with adapters the model without them.
        dataset, data_collator: what :attr:`dataloader` draws, ``batch_size`` rows at a time; None: the program draws by itself.
        optimizer, lr_scheduler: of torch; None: Adam at a constant ``learning_rate``.
        num_shared_layers: as :func:`create_reference_model` takes it.
        run_dir: the run's folder; None: a new one in the workspace.

    Raises ValueError for what cannot be trained here, in one sentence.

    Attributes:
        dataloader: shuffled batches of the dataset; None without one.
        accelerator, current_device: where the model is.
        run_dir: where the run is recorded.
    """

    def __init__(
        self,
        config: ClassicPPOConfig,
        model: PreTrainedModelWrapper | None = None,
        ref_model: Any = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        dataset: Any = None,
        optimizer: torch.optim.Optimizer | None = None,
        data_collator: Callable[[list[Any]], Any] | None = None,
        num_shared_layers: int | None = None,
        lr_scheduler: Any = None,
        training_data_collator: Any = None,
        *,
        run_dir: str | Path | None = None,
    ):
        refuse_several_processes()
        if not isinstance(model, PreTrainedModelWrapper):
            raise ValueError(
                f"PPOTrainer: model is a {type(model).__name__}; load it with AutoModelForCausalLMWithValueHead.from_pretrained"
            )
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise ValueError(f"PPOTrainer: tokenizer is a {type(tokenizer).__name__}; give the model's tokenizer")
        seed_everything(config.seed)
        self.config, self.model, self.tokenizer, self.dataset = config, model, tokenizer, dataset
        self.is_peft_model, self.is_encoder_decoder, self.is_distributed = model.is_peft_model, False, False
        if ref_model is None and not self.is_peft_model:
            ref_model = create_reference_model(model, num_shared_layers)
        self.ref_model = ref_model
        reference = ref_model.pretrained_model if isinstance(ref_model, PreTrainedModelWrapper) else ref_model
        parts = Parts(model.pretrained_model, tokenizer, reference, model.v_head.summary)
        self.dataloader = None if dataset is None else self.prepare_dataloader(dataset, data_collator)
        steps = config.total_ppo_epochs if self.dataloader is None else max(len(self.dataloader), 1)
        of_models = parts.settings() | {"reward": {"components": [scores_of_program()]}}
        self._build(parts, classic_settings(config, of_models, steps), [], (optimizer, lr_scheduler))
        model.v_head.to(self.current_device)
        config.world_size, config.is_peft_model, config.is_encoder_decoder = 1, self.is_peft_model, False
        config.global_batch_size, config.global_backward_batch_size = config.batch_size, config.backward_batch_size
        self._record(run_dir)
        self._checked = False

    # --- what programs look at -------------------------------------------------------------------------------------------

    @property
    def kl_ctl(self) -> KLControl:
        """The KL controller; ``value`` is β of the next step."""
        return KLControl(self.trainer.controller.coef)

    @property
    def current_step(self) -> int:
        """Steps done."""
        return self.trainer.progress.step

    def prepare_dataloader(self, dataset: Any, data_collator: Callable[[list[Any]], Any] | None = None) -> DataLoader[Any]:
        """Shuffled batches of ``batch_size`` rows. Raises ValueError where the dataset has fewer rows, or cannot be counted."""
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise ValueError(f"PPOTrainer: dataset is a {type(dataset).__name__}, whose rows have no numbers; give a datasets.Dataset")
        if self.config.remove_unused_columns and hasattr(dataset, "column_names"):
            dataset = dataset.remove_columns([name for name in dataset.column_names if name not in KEPT_COLUMNS])
        if len(dataset) < self.config.batch_size:
            raise ValueError(f"PPOTrainer: the dataset has {len(dataset)} rows, fewer than one batch (batch_size {self.config.batch_size})")
        return DataLoader(dataset, batch_size=self.config.batch_size, collate_fn=data_collator, shuffle=True, drop_last=True)

    # --- the loop --------------------------------------------------------------------------------------------------------

    def generate(
        self,
        query_tensor: Tensor | list[Tensor],
        length_sampler: Callable[[], int] | None = None,
        batch_size: int = 4,
        return_prompt: bool = True,
        generate_ref_response: bool = False,
        **generation_kwargs: Any,
    ) -> Any:
        """Answers to one query (P,), as (1, L), or to a list of them, as a list of (L,) tensors.

        ``generation_kwargs`` are those of transformers' ``generate``; for a list also ``pad_to_multiple_of`` and ``remove_padding``. With
        ``generate_ref_response`` the reference answers too, and both are returned.
        """

        def answers(model: Any) -> Any:
            with torch.no_grad(), self.trainer.compute.autocast():
                if isinstance(query_tensor, list):
                    return answer_many(model, self.tokenizer, query_tensor, length_sampler, batch_size, return_prompt, **generation_kwargs)
                return answer_one(model, query_tensor, length_sampler, return_prompt, generation_kwargs)

        response = answers(self.model.pretrained_model)
        if not generate_ref_response:
            return response
        if self.ref_model is None:
            with self.model.pretrained_model.disable_adapter():
                return response, answers(self.model.pretrained_model)
        return response, answers(getattr(self.ref_model, "pretrained_model", self.ref_model))

    def step(
        self, queries: list[Tensor], responses: list[Tensor], scores: list[Tensor], response_masks: list[Tensor] | None = None
    ) -> dict[str, Any]:
        """Learn from ``batch_size`` responses that anyone drew. Returns the step's numbers by TRL's names.

        Args:
            queries, responses: token ids, a tensor of one dimension each.
            scores: a tensor with one number for each response.
            response_masks: for each response a tensor like it: 1 where a token is learned from.

        Raises ValueError, in one sentence, for what a step cannot be made of; and :class:`ProgramStopped` when somebody stops the run.
        """
        check_step(queries, responses, scores, response_masks, self.config.batch_size, Limits.of(self.model.pretrained_model))
        models = self.trainer.models
        self.model.eval()  # a program may have called train(): dropout stays off
        given = given_step(queries, responses, scores, response_masks, self.tokenizer, models.pad_id)
        if not self._checked:
            self._check(queries, given.tokens.mask.shape[1])
        self._before_step()
        samples = self._read(given)
        record, found = self._learn((samples, self._scored(given, samples)))
        assert found.rollout is not None
        return classic_stats(found.rollout, found.stats, self.config.vf_coef, record.metrics)

    def log_stats(
        self,
        stats: Mapping[str, Any],
        batch: Mapping[str, Any],
        rewards: Sequence[Any],
        columns_to_log: Iterable[str] = ("query", "response"),
    ) -> None:
        """``step`` has recorded its numbers already, and reported them to ``log_with``; this only looks at what it is given.

        Raises ValueError where there is not one reward for each entry of a column.
        """
        absent = [name for name in columns_to_log if name not in batch]
        if absent:
            warnings.warn(
                f"log_stats: the batch has no {' and no '.join(absent)}; the run folder has every text all the same", stacklevel=2
            )
        for name in set(columns_to_log) - set(absent):
            if len(batch[name]) != len(rewards):
                raise ValueError(f"log_stats: there are {len(rewards)} rewards, but {len(batch[name])} entries in batch[{name!r}]")

    # --- keeping what was trained --------------------------------------------------------------------------------------

    def save_pretrained(self, save_directory: str | Path) -> None:
        """Write model (or adapter), value head and tokenizer; and a checkpoint into the run, for the app's other pages."""
        folder = folder_of(save_directory)
        if isinstance(self.model.pretrained_model, PeftModel):
            save_model(self.model.pretrained_model, folder, folder / "base")
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self._run.checkpoint()

    _save_pretrained = save_pretrained  # the name that some programs call

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:
        """Upload model and tokenizer to the hub."""
        self.tokenizer.push_to_hub(repo_id, **options)
        return self.model.push_to_hub(repo_id, **options)

    # --- the parts of a step -------------------------------------------------------------------------------------------

    def _check(self, queries: list[Tensor], longest: int) -> None:
        """The check of the forward passes that every run makes before it learns anything, on the program's own queries."""
        models = self.trainer.models
        generation = models.config.generation.model_copy(update={"response_length": longest})
        self.trainer.models = replace(models, config=models.config.model_copy(update={"generation": generation}))
        self.trainer.prompts = stream_of([query.tolist() for query in queries], models.pad_id, self.tokenizer)
        self._check_forward_passes()
        self._checked = True

    def _read(self, given: GivenStep) -> Samples:
        """What the policy says of the responses."""
        device, tokens = self.current_device, given.tokens
        on_device = TokenBatch(*(x.to(device) for x in (tokens.prompt_ids, tokens.prompt_mask, tokens.response_ids, tokens.mask)))
        learned = None if given.learned is None else given.learned.to(device)
        with torch.no_grad():
            return read_given(self.trainer.models, given.prompts, on_device, learned)

    def _scored(self, given: GivenStep, samples: Samples) -> Scores:
        episodes = episodes_of(samples.prompts, samples.tokens, samples.responses, samples.stopped)
        shaped = self.trainer.models.scorer.shape(given.scores, episodes)
        return replace(shaped, parts={"score": given.scores})


class KLControl:
    """β as programs read it: ``trainer.kl_ctl.value``."""

    def __init__(self, value: float):
        self.value = value
