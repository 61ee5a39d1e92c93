"""The later PPOTrainer of TRL 0.12 to 1.12: four models go in, ``train`` does the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_model
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback

from rlhf_studio.engine.loop.build import seed_everything
from rlhf_studio.engine.loop.generate import decode_responses, generate
from rlhf_studio.engine.models.adapters import REFERENCE, save_model
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.types import StepSoFar
from rlhf_studio.ppo.masking import masked_select
from rlhf_studio.runs.records import StepRecord, WatchRecord
from rlhf_studio.trl.program.base import ProgramStopped, RecordedTrainer, folder_of
from rlhf_studio.trl.program.batches import LoaderPrompts, prompts_of
from rlhf_studio.trl.program.config import LaterPPOConfig
from rlhf_studio.trl.program.one_process import refuse_several_processes
from rlhf_studio.trl.program.parts import Parts
from rlhf_studio.trl.program.settings import later_settings, name_of
from rlhf_studio.trl.program.token_reward import TokenReward, head_of
from rlhf_studio.visible import say

REWARD = "reward model"
LOGGED = (
    *("objective/kl", "objective/entropy", "objective/non_score_reward", "objective/rlhf_reward", "objective/scores"),
    *("policy/approxkl_avg", "policy/clipfrac_avg", "policy/entropy_avg", "loss/policy_avg", "loss/value_avg"),
    *("val/clipfrac_avg", "val/ratio", "val/ratio_var", "val/num_eos_tokens", "lr"),
)
"""What TRL logs for each batch; the names are the same here."""
EVAL_SCORE = "eval/scores"
GREEDY = 0.01  # the temperature of generate_completions in TRL
SHOWN = 5  # rows of its table


class LaterPPOTrainer(RecordedTrainer):
    """PPO with a reward model and a value model.

    Args:
        args: options of TRL 1.12.
        processing_class: the policy's tokenizer.
        model: the policy, a causal language model; it is trained in place.
        ref_model: what the KL compares it with; None: a copy, or with adapters the model without them.
        reward_model, value_model: sequence classifiers with one label; the value model is trained in place.
        train_dataset: rows with ``input_ids``, the prompts.
        eval_dataset: prompts for :meth:`generate_completions`.
        data_collator: makes a batch of rows; None: pads them.
        optimizers: an optimizer and a schedule of torch, or None for each.
        callbacks: told of steps as in transformers' Trainer; should_training_stop and should_save are obeyed.
        peft_config: adds adapters to the policy.
        run_dir: the run's folder; None: a new one in the workspace.

    Raises ValueError for what cannot be trained here, in one sentence.
    """

    def __init__(
        self,
        args: LaterPPOConfig,
        processing_class: PreTrainedTokenizerBase,
        model: Any,
        ref_model: Any,
        reward_model: Any,
        train_dataset: Any,
        value_model: Any,
        data_collator: Callable[[list[Any]], Any] | None = None,
        eval_dataset: Any = None,
        optimizers: tuple[Any, Any] = (None, None),
        callbacks: Sequence[TrainerCallback] | None = None,
        peft_config: PeftConfig | None = None,
        *,
        run_dir: str | Path | None = None,
    ):
        refuse_several_processes()
        _check_models(processing_class, model, ref_model, reward_model, value_model)
        seed_everything(args.seed)
        self.args, self.processing_class = args, processing_class
        self.policy_model = _with_adapters(model, peft_config)
        _check_adapters(args, self.policy_model)
        self.is_peft_model = isinstance(self.policy_model, PeftModel)
        self.ref_model, self.reward_model, self.value_model = ref_model, reward_model, value_model
        self.model = SimpleNamespace(policy=self.policy_model, value_model=value_model, config=self.policy_model.config)
        self.train_dataset, self.train_dataset_len, self.eval_dataset = train_dataset, _count(train_dataset, args), eval_dataset
        self.data_collator = data_collator or DataCollatorWithPadding(processing_class)
        _fill_in(args, self.train_dataset_len)
        self.stop_token_id = processing_class.eos_token_id if args.stop_token == "eos" else args.stop_token_id
        parts = Parts(self.policy_model, processing_class, ref_model, head_of(value_model, "value_model"), value_model.base_model)
        self._reward = TokenReward(reward_model, int(processing_class.pad_token_id), args.local_rollout_forward_batch_size)
        settings = later_settings(args, parts.settings() | _reward(reward_model), args.num_total_batches or 1)
        self._build(parts, settings, [Component(REWARD, 1.0, self._reward)], optimizers)
        self._reward.work_on(self.trainer.compute)
        self.dataloader = self._loader()
        self.trainer.prompts = LoaderPrompts(self.dataloader, processing_class, self.trainer.models.pad_id)
        self._measures: StepRecord | None = None  # of the step that is just being measured
        self._record(run_dir)
        self._run.listener = self._reward.after_phase
        self.state, self.control = TrainerState(max_steps=args.num_total_batches or 0), TrainerControl()
        self.callback_handler = CallbackHandler(
            [DefaultFlowCallback, *(callbacks or ())], self.policy_model, processing_class, self.optimizer, None
        )

    def _loader(self) -> DataLoader[Any]:
        return DataLoader(
            self.train_dataset,
            batch_size=self.args.batch_size,
            shuffle=True,
            collate_fn=self.data_collator,
            drop_last=True,
            generator=torch.Generator().manual_seed(self.args.seed),
        )

    def add_callback(self, callback: TrainerCallback) -> None:
        """As in transformers' Trainer."""
        self.callback_handler.add_callback(callback)

    def train(self) -> None:
        """All batches, each recorded when it is done. Returns early when somebody stops the run on its page, or a callback does.

        Raises ValueError when they are done already.
        """
        args, total = self.args, self.args.num_total_batches or 1
        if self.state.global_step >= total:
            raise ValueError(f"train: all {total} batches are done; build a new PPOTrainer")
        self._check_forward_passes()
        self.state.num_train_epochs = (args.total_episodes or 0) / self.train_dataset_len  # type: ignore[assignment]  # as in TRL
        self.control = self.callback_handler.on_train_begin(args, self.state, self.control)
        every = self._settings.config.engine.checkpoint_every
        samples_every = max(1, total // args.num_sample_generations) if args.num_sample_generations > 0 else 0
        try:
            while self.state.global_step < total and not self.control.should_training_stop:
                self._before_step()
                asks = samples_every and self.state.global_step % samples_every == 0 and self.eval_dataset is not None
                self._after_step(*(self._learn(None, self._measured) if asks else self._learn()))
                if (every and self.state.global_step % every == 0) or self.control.should_save:
                    self._run.checkpoint()
                    self.control = self.callback_handler.on_save(args, self.state, self.control)
            self._run.checkpoint()
        except ProgramStopped as stop:
            say(str(stop))
        self.control = self.callback_handler.on_train_end(args, self.state, self.control)

    def _after_step(self, record: StepRecord, found: StepSoFar) -> None:
        args, state, rollout = self.args, self.state, found.rollout
        assert rollout is not None
        state.global_step = record.step
        episode = record.step * (args.batch_size or 1)
        state.epoch = episode / self.train_dataset_len
        logs: dict[str, Any] = {"eps": int(episode / max(record.metrics["time/elapsed"], 1e-9))}
        logs |= {name: record.metrics[name] for name in LOGGED if name in record.metrics} | {"episode": episode, "epoch": state.epoch}
        logs["objective/kl"] = float(masked_select(rollout.kl, rollout.mask).sum(dim=1).mean())  # as kl_estimator measures it
        state.log_history.append({**logs, "step": record.step})
        self.control = self.callback_handler.on_log(args, state, self.control, logs)
        self.control = self.callback_handler.on_step_end(args, state, self.control)

    def _measured(self, record: StepRecord) -> StepRecord:
        """A step's record with the answers to ``eval_dataset`` and their mean score."""
        self.state.global_step, self._measures = record.step, record
        try:
            self.generate_completions(sampling=True)
            return self._measures
        finally:
            self._measures = None

    @torch.no_grad()
    def generate_completions(self, sampling: bool = False) -> None:
        """Answer the prompts of ``eval_dataset`` at temperature 0.01, score the answers, show the first five, and record them all.

        ``sampling``: only one batch of them. Does nothing without an ``eval_dataset``.
        """
        if self.eval_dataset is None:
            return
        models = self.trainer.models
        models = replace(models, traced_step=None)
        settings = models.config.generation.model_copy(update={"temperature": GREEDY})
        generator = torch.Generator(device=models.compute.device).manual_seed(self.args.seed)
        answers: list[WatchRecord] = []
        loader = DataLoader(self.eval_dataset, batch_size=self.args.per_device_eval_batch_size, collate_fn=self.data_collator)
        for batch in loader:
            prompts = prompts_of(batch, self.processing_class, models.pad_id)
            tokens, _ = generate(models, prompts, settings, generator)
            rows = zip(prompts.texts, decode_responses(models, tokens), self._reward.scores(tokens).tolist(), strict=True)
            answers += [WatchRecord(len(answers) + number, *row, None) for number, row in enumerate(rows)]
            if sampling:
                break
        for answer in answers[:SHOWN]:
            say(f"query: {answer.prompt}\nmodel response: {answer.response}\nscore: {answer.score:.4g}\n")
        if self._measures is None:
            self._run.watched(self.state.global_step, answers)
        elif answers:
            mean = sum(answer.score for answer in answers) / len(answers)
            self._measures = replace(self._measures, metrics={**self._measures.metrics, EVAL_SCORE: mean}, watched=answers)

    def save_model(self, output_dir: str | Path | None = None, _internal_call: bool = False) -> None:
        """Write the policy (or its adapter) and the tokenizer, to ``args.output_dir`` where no folder is given."""
        folder = folder_of(output_dir or self.args.output_dir or "trainer_output")
        save_model(self.policy_model, folder, folder / "base")
        self.processing_class.save_pretrained(folder)

    def push_to_hub(self, commit_message: str = "End of training", **options: Any) -> Any:
        """Upload policy and tokenizer to the hub, as ``hub_model_id`` or under the name of ``output_dir``."""
        args = self.args
        repository = args.hub_model_id or Path(args.output_dir or "trainer_output").resolve().name
        where: dict[str, Any] = {"commit_message": commit_message, "token": args.hub_token, "private": args.hub_private_repo}
        self.processing_class.push_to_hub(repository, **where)
        return self.policy_model.push_to_hub(repository, **where)


def _check_models(tokenizer: Any, model: Any, reference: Any, reward: Any, value: Any) -> None:
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise ValueError(f"PPOTrainer: processing_class is a {type(tokenizer).__name__}; give the policy's tokenizer")
    if tokenizer.pad_token_id is None:
        way = "write tokenizer.add_special_tokens({'pad_token': '[PAD]'})"
        raise ValueError(f"PPOTrainer: the tokenizer has no pad token; {way}")
    if reference is model:
        raise ValueError("PPOTrainer: model and ref_model are one object, so the KL would always be 0; give a copy, or None for one")
    if value is None or reward is None:
        raise ValueError(f"PPOTrainer: {'value_model' if value is None else 'reward_model'} is missing; it is a sequence classifier")
    if value is reward:
        raise ValueError(
            "PPOTrainer: value_model and reward_model are one object, so the scores would change while it learns; load it twice"
        )
    head_of(reward, "reward_model")


def _with_adapters(model: Any, config: PeftConfig | None) -> Any:
    if config is None:
        return model
    if not isinstance(config, PeftConfig):
        raise ValueError(f"PPOTrainer: peft_config is a {type(config).__name__}; give a peft.LoraConfig")
    if isinstance(model, PeftModel):
        raise ValueError("PPOTrainer: the model has adapters already; merge them (merge_and_unload), or leave peft_config out")
    return get_peft_model(model, config)


def _check_adapters(args: LaterPPOConfig, model: Any) -> None:
    if args.model_adapter_name not in (None, "default"):
        raise ValueError(f"PPOTrainer: model_adapter_name is {args.model_adapter_name!r}; here the adapter that learns is called default")
    if args.ref_adapter_name and (args.ref_adapter_name != REFERENCE or REFERENCE not in getattr(model, "peft_config", {})):
        way = f"load it as model.load_adapter(FOLDER, adapter_name={REFERENCE!r}) and name it so"
        raise ValueError(f"PPOTrainer: ref_adapter_name is {args.ref_adapter_name!r}; {way}")


def _count(dataset: Any, args: LaterPPOConfig) -> int:
    """How many prompts there are. Raises ValueError for none, or fewer than a batch."""
    if dataset is None or not hasattr(dataset, "__len__"):
        raise ValueError(f"PPOTrainer: train_dataset is a {type(dataset).__name__}; give a datasets.Dataset with input_ids")
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
    if len(dataset) < batch:
        whole = "per_device_train_batch_size × gradient_accumulation_steps"
        raise ValueError(f"PPOTrainer: train_dataset has {len(dataset)} rows, fewer than one batch of {batch} ({whole})")
    return len(dataset)


def _fill_in(args: LaterPPOConfig, rows: int) -> None:
    """The sizes that TRL's trainer writes into its configuration."""
    args.world_size = 1
    args.batch_size = args.local_batch_size = args.per_device_train_batch_size * args.gradient_accumulation_steps
    args.micro_batch_size = args.per_device_train_batch_size
    if args.batch_size % args.num_mini_batches:
        raise ValueError(f"PPOTrainer: num_mini_batches {args.num_mini_batches} does not divide the batch of {args.batch_size}")
    args.mini_batch_size = args.local_mini_batch_size = args.batch_size // args.num_mini_batches
    if args.total_episodes is None:
        args.total_episodes = int(args.num_train_epochs * rows)
    args.num_total_batches = max(1, -(-args.total_episodes // args.batch_size))


def _reward(model: Any) -> dict[str, dict[str, Any]]:
    component = {"kind": "reward_model", "name": REWARD, "model": name_of(model), "append_eos": True}
    return {"reward": {"components": [component]}}
