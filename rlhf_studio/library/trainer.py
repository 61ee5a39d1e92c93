"""The trainer: one policy, prompts and a reward in memory, and the engine's own steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, Problem, parse_ppo
from rlhf_studio.engine.compute.device import choose_compute, moved
from rlhf_studio.engine.compute.fused import fuse_activations
from rlhf_studio.engine.loop.build import make_models, make_policy, make_trainer, seed_everything
from rlhf_studio.engine.loop.phases import episodes_of
from rlhf_studio.engine.loop.prompts import HeldOut, batch_of, prepare_prompts
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.models.load_model import LoadedModel
from rlhf_studio.engine.models.reference import LoadedReference
from rlhf_studio.engine.parity.gate import check_before_training
from rlhf_studio.engine.process.program_run import ProgramRun
from rlhf_studio.engine.rewards.component import Component
from rlhf_studio.engine.rewards.scorer import Scorer
from rlhf_studio.engine.types import PromptBatch, Samples, Scores
from rlhf_studio.inputs.families import family_problem
from rlhf_studio.library.given import FunctionReward, Reward, prompts_from, scores_of
from rlhf_studio.library.recording import RunEnded, begin_run, refuse_unrecordable
from rlhf_studio.trl.table import name_trl_in_errors
from rlhf_studio.visible import text_of

name_trl_in_errors()

ALREADY_GIVEN = (("model", "policy"), ("model", "reference"), ("data", "prompts"), ("data", "eval"), ("reward", "components"))
"""Settings that name what is given in memory here."""


def build_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Any,
    reward: Reward | None = None,
    *,
    column: str = "prompt",
    settings: Mapping[str, Any] | None = None,
    run_dir: str | Path | None = None,
    name: str = "",
    notify: Mapping[str, str] | None = None,
) -> PPOTrainer:
    """A PPO trainer for a causal language model.

    Before it returns, the model's forward passes are checked against each other on some of the prompts, as in every run.

    Args:
        model: any causal LM that docs/models.md lists; it is trained in place. Its reference is the model as it is now.
        prompts: what :meth:`PPOTrainer.train` draws from, and what the first check uses: strings, or a dataset with a column of them.
        column: the column of a dataset that holds the prompts.
        reward: scores responses in :meth:`PPOTrainer.train`; not needed where you call :meth:`PPOTrainer.step` with scores.
        settings: sections as in a settings file (docs/settings.md): ``{"ppo": {"steps": 20}, "lora": {"enabled": True}}``.
        run_dir: a new folder that records the run. In ``workspace/runs/NAME`` of an app, its pages show it while it trains, and Stop, Pause
            and Checkpoint on the Live page work. Without one nothing is recorded.
        name: the run's name on the pages.
        notify: names and addresses (http or https) that ``engine.notify`` may name, to be told of the run's end and alarms.

    Raises:
        ConfigError: a setting is wrong, names something that is in memory here, does not fit the model, or needs a ``run_dir``.
        TypeError: the prompts are not strings, or the reward is no function.
        ValueError: there are no prompts, or the dataset has no such column.
        StoreError: the run folder exists already, or cannot be written.
        PromptsError: the settings leave no prompt.
        ParityError: the model's numbers depend on how it is read, so it cannot be trained.
    """
    if reward is not None and not callable(reward):
        raise TypeError(f"reward is a {type(reward).__name__}; give a function of prompts and responses")
    texts = prompts_from(prompts, column)
    folder = None if run_dir is None else Path(run_dir)
    config = _config(model, settings or {}, watched=folder is not None and reward is not None)
    permissions = refuse_unrecordable(config, folder, notify or {})
    seed_everything(config.engine.seed)
    compute = choose_compute(config)
    prepared = prepare_prompts(texts, tokenizer, config, _silent)  # last of what can be wrong before the model is changed
    moved(model.requires_grad_(True), compute.dtype if config.lora.enabled else torch.float32)
    fuse_activations(model)
    loaded = LoadedModel(model.eval(), tokenizer, [], [] if model.name_or_path else ["a model in memory"])
    policy, reference = make_policy(config, compute, loaded, LoadedReference(), _silent)
    components = [] if reward is None else [Component("reward", 1.0, FunctionReward(reward))]
    models, _ = make_models(config, compute, policy, reference, Scorer(config.reward, components, compute.ranks), tokenizer)
    trainer = make_trainer(models, prepared, HeldOut([], None, []))
    checked = check_before_training(trainer)
    if folder is None:
        return PPOTrainer(trainer)
    return PPOTrainer(trainer, begin_run(trainer, folder, texts, name, permissions, checked))


class PPOTrainer:
    """Trains one policy. Build it with :func:`build_trainer`.

    Attributes:
        trainer: the engine's own trainer, with the policy, the reference and the KL controller.
    """

    def __init__(self, trainer: Trainer, run: ProgramRun | None = None):
        self.trainer, self._run = trainer, run
        if run is not None:
            run.end_with(self)
        self._failure: Exception | None = None
        self._fresh: list[Samples] = []  # of the policy as it is now

    @property
    def model(self) -> Any:
        """The language model that is trained: the one that was given, inside a ``PeftModel`` with LoRA."""
        return self.trainer.models.policy.model

    def sample(self, prompts: Iterable[str] | None = None) -> Samples:
        """One response for each prompt: ``responses`` are the texts, ``tokens`` the ids, ``policy.logprobs`` (B, T) in nats.

        ``prompts`` left out takes the next ones of those that the trainer was built with.

        Raises ValueError when there are not ``ppo.batch_size`` prompts, when the settings leave one out, and where responses are compared
        with each other (``ppo.advantage``) when a prompt does not stand ``ppo.responses_per_prompt`` times in a row.
        """
        self.trainer.change_settings()  # what ppo.schedule plans for the next step is in force when it samples
        self._fresh.append(self.trainer.sample(self.trainer.next_prompts() if prompts is None else self._batch(prompts)))
        return self._fresh[-1]

    def step(self, rollout: Samples, scores: Sequence[float] | Tensor | Reward) -> dict[str, float]:
        """Learn from the sampled responses and one score for each. Returns the metrics by name (``objective/kl`` and so on).

        ``scores`` are numbers, or a function of prompts and responses that gives them.

        Raises ValueError for scores that are not one finite number per response, for a rollout that the policy has learned from or since,
        and after the last of ``ppo.steps``, which the learning rate's schedule ends with; :class:`NonFiniteError` for a loss or gradient;
        :class:`RunEnded` when somebody has asked on the page that the run stops.
        """
        raw = scores_of(scores, rollout.prompts.texts, rollout.responses)
        self._not_after_the_end()
        if not any(rollout is fresh for fresh in self._fresh):
            raise ValueError("the policy has learned since these responses were sampled; sample again, then step")
        self._fresh.clear()
        return self._step((rollout, self._shaped(rollout, raw)))

    def train(self) -> Iterator[dict[str, float]]:
        """The remaining steps of ``ppo.steps``: each samples, scores with the reward, learns, and gives its metrics.

        When somebody asks on the page that the run stops, there are no more.

        Raises ValueError when no reward was given; :class:`RunEnded` where the recording has ended before, or a step has failed in the end.
        """
        if not self.trainer.models.scorer.components:
            raise ValueError("there is no reward: give one to build_trainer, or call sample and step with scores of your own")
        if self.trainer.finished and self._failure is not None:
            raise RunEnded(f"the last step failed ({type(self._failure).__name__}: {text_of(self._failure)}); build a new trainer")
        while not self.trainer.finished:
            self._not_ended()
            self._fresh.clear()
            try:
                yield self._step(None)
            except RunEnded:
                return

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model (or LoRA adapter) and tokenizer, as ``from_pretrained`` of transformers or peft reads them.

        Raises NotADirectoryError where ``folder`` is a file.
        """
        if Path(folder).exists() and not Path(folder).is_dir():
            raise NotADirectoryError(f"{folder} is a file; name a folder")
        save_model(self.model, Path(folder), Path(folder) / "base")
        self.trainer.models.tokenizer.save_pretrained(folder)

    def _step(self, given: tuple[Samples, Scores] | None) -> dict[str, float]:
        try:
            return self._try_step(given)
        except Exception as error:
            self._failure = error
            raise

    def _try_step(self, given: tuple[Samples, Scores] | None) -> dict[str, float]:
        if self._run is None:
            samples, scores = given or (None, None)
            return self.trainer.step(samples, scores).metrics
        self._not_ended()
        self._run.before_step()
        record, _ = self._run.step(given)
        if self.trainer.finished:
            self._run.checkpoint()
            self._run.end()
        return record.metrics

    def _not_ended(self) -> None:
        if self._run is not None and self._run.ended:
            why = f" ({self._run.failure})" if self._run.failure else ""
            raise RunEnded(f"the run in {self._run.run_dir} has ended{why}; build a new trainer")

    def _not_after_the_end(self) -> None:
        steps = self.trainer.config.ppo.steps
        if self.trainer.finished:
            raise ValueError(f"all ppo.steps = {steps} are done; build the trainer with more")

    def _shaped(self, rollout: Samples, raw: Tensor) -> Scores:
        episodes = episodes_of(rollout.prompts, rollout.tokens, rollout.responses, rollout.stopped)
        return self.trainer.models.scorer.shape(raw, episodes)

    def _batch(self, prompts: Iterable[str]) -> PromptBatch:
        config, models, read = self.trainer.config, self.trainer.models, prompts_from(prompts)
        if len(read) != config.ppo.batch_size:
            raise ValueError(f"a step takes ppo.batch_size = {config.ppo.batch_size} prompts, but there are {len(read)}")
        group = config.ppo.responses_per_prompt
        if config.ppo.in_groups and any(text != read.texts[row - row % group] for row, text in enumerate(read.texts)):
            compared = f"with ppo.advantage {config.ppo.advantage} the {group} responses to a prompt are compared with each other"
            raise ValueError(f"{compared}: give each prompt {group} times in a row (ppo.responses_per_prompt)")
        prepared = prepare_prompts(read, models.tokenizer, config, _silent)
        if len(prepared.ids) != len(read):
            raise ValueError(f"data leaves {len(read) - len(prepared.ids)} of the prompts out; change its settings, or the prompts")
        return batch_of(prepared, list(range(len(read))), models.pad_id)


def _config(model: PreTrainedModel, settings: Mapping[str, Any], *, watched: bool) -> RunConfig:
    config = parse_ppo(dict(settings) if isinstance(settings, Mapping) else settings)
    for section, setting in ALREADY_GIVEN:
        if setting in getattr(config, section).model_fields_set:
            raise ConfigError([Problem(f"{section}.{setting}", "is in memory here; leave it out of the settings")])
    if getattr(model, "peft_config", None):
        message = "has a LoRA adapter already; train on from model.merge_and_unload(), or from a folder in a run"
        raise ConfigError([Problem("model", message)])
    if problem := family_problem(model.config.model_type, type(model).__name__):
        raise ConfigError([Problem("model", f"it {problem}")])
    watching = {} if watched or "watch_prompts" in config.engine.model_fields_set else {"watch_prompts": 0}
    name = {"policy": model.name_or_path} if model.name_or_path else {}
    return config.model_copy(update={"engine": config.engine.model_copy(update=watching), "model": config.model.model_copy(update=name)})


def _silent(_text: str, _fraction: float | None) -> None:
    """Loading is quick here, and nobody follows it."""
