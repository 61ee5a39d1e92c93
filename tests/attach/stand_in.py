"""A trainer with the inner methods of TRL's GRPOTrainer, their names and shapes, on a model of a few hundred weights.

It samples B responses for ``steps_per_generation`` micro-batches, shuffles them, and takes ``num_iterations`` passes, as TRL 1.16 does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from rlhf_studio.runs import paths
from rlhf_studio.runs.reader import RunReader

EOS, PAD, VOCABULARY = 1, 0, 12


class Letters:
    """A tokenizer of single letters: what a recording asks of one."""

    eos_token_id = EOS

    def save_pretrained(self, folder: str) -> None:
        """Nothing to save."""

    def decode(self, ids: list[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False) -> str:
        return "".join("" if skip_special_tokens and token < 2 else "_."[token] if token < 2 else chr(95 + token) for token in ids)


class Prompts(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"prompt": [2 + row % 8, 3]}


def only_run(workspace: Path) -> RunReader:
    (folder,) = (workspace / paths.RUNS).iterdir()
    return RunReader(folder)


def tiny_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=8, n_layer=1, n_head=1, bos_token_id=EOS, eos_token_id=EOS)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return GPT2LMHeadModel(config)


@dataclass
class GRPOConfig(TrainingArguments):
    steps_per_generation: int = 2
    num_generations: int = 2
    beta: float = 0.1
    epsilon: float = 0.2


def arguments(folder: Path, steps: int = 3, gradient_accumulation_steps: int = 2, **more: Any) -> TrainingArguments:
    return GRPOConfig(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=4, gradient_accumulation_steps=gradient_accumulation_steps,
        logging_steps=1, save_strategy="no", report_to=[], remove_unused_columns=False, use_cpu=True, disable_tqdm=True,
        learning_rate=0.05, **more,
    )  # fmt: skip


class GRPOTrainer(Trainer):
    """Keeps in ``seen`` what it computed, for a comparison with what was recorded."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, data_collator=list, **kwargs)
        self.processing_class = Letters()
        self.reward_func_names, self.reward_weights = ["length", "letters"], torch.tensor([1.0, 0.5])
        self.num_iterations, self._step, self._buffered = 1, 0, list[dict[str, Tensor]]()
        self.generation_config = SimpleNamespace(eos_token_id=[EOS])
        self.seen: list[dict[str, Any]] = []

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        output = super().training_step(model, inputs, num_items_in_batch)
        self._step += 1
        return output

    def _prepare_inputs(self, inputs: Any) -> Any:
        if self._step % (2 * self.num_iterations) == 0:
            batch = self._generate_and_score_completions([*inputs, *inputs])
            order = torch.randperm(8)
            batch = {name: value[order] if value.ndim else value for name, value in batch.items()}
            self._buffered = [{name: value[4 * i : 4 * i + 4] if value.ndim else value for name, value in batch.items()} for i in range(2)]
        return self._buffered[self._step % 2]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Tensor]:
        prompts = torch.tensor([row["prompt"] for row in inputs])
        lengths = torch.randint(1, 5, (8,))
        ids = torch.randint(2, VOCABULARY, (8, 4))
        mask = (torch.arange(4) < lengths[:, None]).long()
        ids[torch.arange(8), lengths - 1] = torch.where(lengths < 4, EOS, ids[torch.arange(8), lengths - 1])
        ids = ids * mask
        listed = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
        texts = [Letters().decode(row.tolist()) for row in prompts]
        rewards = self._calculate_rewards(inputs, texts, [Letters().decode(row) for row in listed], listed)
        total = (rewards * self.reward_weights).nansum(dim=1)
        with torch.no_grad():
            reference = self._get_per_token_logps_and_entropies(self.model, torch.cat([prompts, ids], 1), None, 4)[0] - 0.25
        advantages = total - total.mean()
        self.seen.append(
            {"prompts": prompts.tolist(), "ids": listed, "rewards": rewards, "advantages": advantages, "reference": reference, "passes": []}
        )
        return {
            "prompt_ids": prompts, "prompt_mask": torch.ones_like(prompts), "completion_ids": ids, "completion_mask": mask,
            "advantages": advantages, "ref_per_token_logps": reference, "num_items_in_batch": mask.sum(),
        }  # fmt: skip

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rows = [[float(len(ids)), float(sum(ids)) if len(ids) > 1 else torch.nan] for ids in completion_ids_list]
        return torch.tensor(rows)

    def _get_per_token_logps_and_entropies(self, model: Any, input_ids: Tensor, attention_mask: Any, logits_to_keep: int) -> Any:
        logits = model(input_ids=input_ids).logits[:, -logits_to_keep - 1 : -1].log_softmax(-1)
        logprobs = logits.gather(-1, input_ids[:, -logits_to_keep:, None])[..., 0]
        return logprobs, -(logits.exp() * logits).sum(-1), None

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Tensor:
        return self._compute_loss(model, inputs)

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        text = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        logprobs, _, _ = self._get_per_token_logps_and_entropies(model, text, None, 4)
        self.seen[-1]["passes"].append((text, logprobs.detach().clone()))
        weight = inputs["completion_mask"] / inputs["completion_mask"].sum()
        return -((logprobs - logprobs.detach()).exp() * inputs["advantages"][:, None] * weight).sum()


def trainer(folder: Path, steps: int = 3, **more: Any) -> GRPOTrainer:
    torch.manual_seed(1)
    return GRPOTrainer(model=tiny_model(), args=arguments(folder, steps, **more), train_dataset=Prompts())


def weights(model: torch.nn.Module) -> bytes:
    """All weights of a model, bit by bit."""
    return b"".join(value.numpy().tobytes() for value in model.state_dict().values())
