"""Evaluation as a :class:`~rlhf_studio.engine.stages.stage_run.StageRun`: one batch of prompts, answered by all policies, is one step.

What a step does follows from the settings and its number alone, so a run that was killed goes on with the same answers, bit for bit.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import EvaluationRunConfig, Permissions, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.prompts import batch_of
from rlhf_studio.engine.recording.costs import Costs
from rlhf_studio.engine.rewards.episodes import cut_share, worst_reading
from rlhf_studio.engine.rewards.scorer import Episodes, Scorer, build_scorer
from rlhf_studio.engine.stages.evaluating import saved
from rlhf_studio.engine.stages.evaluating.answering import Row, kl_from_reference, read, read_texts, sample, settings_of
from rlhf_studio.engine.stages.evaluating.completions import answers_in
from rlhf_studio.engine.stages.evaluating.loading import Loaded, Policies
from rlhf_studio.engine.stages.evaluating.prompts import EvaluationPrompts, learned_from, read_as, read_evaluation_prompts, text_tokens
from rlhf_studio.engine.stages.evaluating.prompts import read_texts as read_held_out_texts
from rlhf_studio.engine.stages.stage_run import Beginning, StageRun
from rlhf_studio.engine.types import OnProgress, PromptBatch
from rlhf_studio.inputs.checks.evaluation import JUDGE, judge_settings
from rlhf_studio.inputs.checks.policy import sampling_warning
from rlhf_studio.inputs.checks.rewards import refuse_without_permission
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.prompts.prepare import Prepared
from rlhf_studio.language import S_
from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.evaluation.policies import PolicySource, sources_of
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StepRecord


class EvaluationStage(StageRun):
    """An evaluation run in memory."""

    def __init__(
        self, config: EvaluationRunConfig, sources: list[PolicySource], policies: Policies, prompts: EvaluationPrompts, judge: Scorer | None
    ):
        self._config, self._sources, self._policies, self._prompts, self._judge = config, sources, policies, prompts, judge
        self.compute = policies.compute
        self._step, self._elapsed, self._episodes = 0, 0.0, 0
        self._texts: list[str] = []
        self._given: dict[str, list[list[str]]] = {}
        self._read_as: dict[int, Prepared] = {}
        self._readings: list[Tensor | None] = []  # of this step's answers: how much of each text reward and judge read

    @classmethod
    def build(
        cls, config: EvaluationRunConfig, compute: Compute, report: OnProgress, permissions: Permissions
    ) -> tuple[EvaluationStage, list[EventRecord]]:
        """Load everything that the configuration names. Returns the stage, and events for people.

        Raises :class:`ConfigError` or :class:`PromptsError` for anything that cannot be loaded or does not fit together.
        """
        if compute.ranks.size > 1:
            raise ConfigError([Problem("engine.processes", "an evaluation runs in one process; use 1")])
        settings = config.evaluation
        sources = sources_of(config)
        as_ppo = ppo_settings(config)
        scorer = build_scorer(config.reward, compute, report, permissions)
        judge = build_judge(settings.judge, compute, report, permissions)
        own = (settings.reference, settings.reference_revision)
        reference = own if settings.reference else (config.model.policy, config.model.revision)
        policies = Policies(as_ppo, reference, compute, scorer, report)
        prompts = read_evaluation_prompts(config, as_ppo, policies.reference.tokenizer, report, learned_from(sources))
        stage = cls(config, sources, policies, prompts, judge)
        stage._texts = read_held_out_texts(config, report)
        stage._given = {source.name: answers_in(source, prompts, settings.samples) for source in sources if source.kind == "completions"}
        policies.load_all([source for source in sources if source.kind == "model"], prompts.longest)
        events = [EventRecord("info", "health", note) for note in [*policies.reference.notes, *prompts.notes]]
        if warning := sampling_warning(config.generation):
            events.append(EventRecord("warning", "sampling", warning))
        return stage, events

    @staticmethod
    def refuse(config: EvaluationRunConfig, permissions: Permissions) -> None:
        """Raise :class:`ConfigError` for rewards outside the program that nobody has allowed, before anything is loaded."""
        refuse_without_permission(config.reward.components, permissions)
        if config.evaluation.judge:
            refuse_without_permission(judge_settings(config.evaluation.judge).components, permissions)

    # --- what a run asks ---------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> EvaluationRunConfig:
        """The settings."""
        return self._config

    @property
    def step_number(self) -> int:
        """The newest step that is done."""
        return self._step

    @property
    def total_steps(self) -> int:
        """How many batches the prompts make."""
        return math.ceil(len(self._prompts) / self._config.evaluation.batch_size)

    def begin(self, report: OnProgress) -> Beginning:
        """An event that names the policies and says where each comes from."""
        data = {source.name: {key: value for key, value in vars(source).items() if key != "name"} for source in self._sources}
        names = ", ".join(source.name for source in self._sources[:5]) + (" \u2026" if len(self._sources) > 5 else "")
        refers = self._config.evaluation.reference or self._config.model.policy
        who = S_("1 policy") if len(self._sources) == 1 else S_(f"{len(self._sources)} policies")
        count = len(self._prompts)
        who_answers = S_(f"1 prompt for {who}: {names}.") if count == 1 else S_(f"{count:,} prompts for {who}: {names}.")
        text = f"{who_answers} KL and perplexity refer to {refers}."
        return Beginning(events=[EventRecord("info", "policies", text, data)])

    def save(self, run_dir: Path, state: Any | None = None) -> Path | None:
        """Write a checkpoint: the step and the settings. Raises OSError."""
        return saved.write(run_dir, self._step, self._config)

    def go_on_from(self, run_dir: Path, step: int | None) -> list[str]:
        """Go on after ``step``. Raises :class:`CheckpointError` where settings, policies or prompts differ from the recorded ones."""
        if step:
            saved.check(run_dir, step, self._config, self._prompts.texts(), [source.name for source in self._sources])
        self._step = step or 0
        self._elapsed = float(dict(RunReader(run_dir).metrics_since(self._step - 1, 1)).get(self._step, {}).get("time/elapsed") or 0.0)
        self._episodes = min(self._step * self._config.evaluation.batch_size, len(self._prompts)) * self._per_prompt
        return []

    # --- a step ------------------------------------------------------------------------------------------------------------------

    @property
    def _per_prompt(self) -> int:
        return len(self._sources) * self._config.evaluation.samples

    def step(self) -> StepRecord:
        """All policies answer the next batch of prompts. Raises RewardError and NonFiniteError; then the step does not count."""
        size, costs = self._config.evaluation.batch_size, Costs(self.compute)
        indices = list(range(self._step * size, min((self._step + 1) * size, len(self._prompts))))
        answers: list[Answer] = []
        metrics: dict[str, float] = {}
        self._readings = []
        for source in self._sources:
            own = self._answers(source, indices, len(answers), costs)
            answers += own
            metrics |= _means(source.name, own)
            if source.kind == "model" and self._texts:
                with costs("reference"):
                    metrics |= self._text(source)
        readings = [reading for reading in self._readings if reading is not None]
        metrics["tokens/reward_cut"] = cut_share(torch.cat(readings) if readings else None)
        self._step += 1
        self._elapsed += costs.total
        self._episodes += len(answers)
        metrics |= costs.metrics(self._elapsed, self._episodes, None)
        metrics["speed/episodes_per_second"] = len(answers) / costs.total
        metrics["speed/tokens_per_second"] = sum(answer.length for answer in answers) / costs.total
        return StepRecord(self._step, metrics, list(answers))

    def _answers(self, source: PolicySource, indices: list[int], first: int, costs: Costs) -> list[Answer]:
        samples = self._config.evaluation.samples
        if source.kind == "completions":
            return self._given_answers(source, indices, first, costs)
        loaded = self._policies.get(source)
        models = loaded.models
        prompts = self._prompts_for(loaded, source.name, indices).repeat(samples)
        with costs("rollout"):
            sampled = sample(models, prompts, self._seed)
        with costs("reference"):
            if loaded.reads_alike:
                kl = kl_from_reference(models, sampled, greedy=self._config.evaluation.greedy).tolist()
                with models.reference.active() as reference:
                    rows = read(reference, sampled.tokens, models.forward_pass, sampled.stopped)
            else:
                kl, rows = [math.nan] * len(sampled.texts), self._read_by_reference(indices, sampled.texts)
        with costs("score"):
            episodes = self._episodes_of(prompts, sampled.texts, sampled.stopped, sampled.tokens.lengths.tolist())
            return self._records(source, indices, first, episodes, rows, kl, list(sampled.stopped))

    def _given_answers(self, source: PolicySource, indices: list[int], first: int, costs: Costs) -> list[Answer]:
        samples = self._config.evaluation.samples
        texts = [text for index in indices for text in self._given[source.name][index]]
        with costs("reference"):
            rows = self._read_by_reference(indices, texts)
        with costs("score"):
            prompts = self._as_read_by_reference(indices).repeat(samples)
            episodes = self._episodes_of(prompts, texts, [True] * len(texts), [length for _, length in rows])
            return self._records(source, indices, first, episodes, rows, [math.nan] * len(texts), [None] * len(texts))

    @property
    def _seed(self) -> int:
        """The seed of this step, the same for all policies."""
        return (self._config.evaluation.seed * 1_000_003 + self._step) % 2**63

    def _prompts_for(self, loaded: Loaded, policy: str, indices: list[int]) -> PromptBatch:
        """The prompts as a policy's own tokenizer reads them."""
        tokenizer, reference = loaded.models.tokenizer, self._policies.reference.tokenizer
        alike = tokenizer.get_vocab() == reference.get_vocab() and tokenizer.chat_template == reference.chat_template
        if alike:
            return self._as_read_by_reference(indices)
        if id(tokenizer) not in self._read_as:
            self._read_as[id(tokenizer)] = read_as(self._prompts, self._config.data, tokenizer, self._config.engine.seed, policy)
        return batch_of(self._read_as[id(tokenizer)], indices, loaded.models.pad_id)

    def _as_read_by_reference(self, indices: list[int]) -> PromptBatch:
        return batch_of(self._prompts.prepared, [self._prompts.row_numbers[index] for index in indices], 0)

    def _read_by_reference(self, indices: list[int], texts: list[str]) -> list[Row]:
        """Log-probabilities under the reference, of answers of which only the text is known."""
        prepared, samples = self._prompts.prepared, self._config.evaluation.samples
        prompts = [prepared.ids[self._prompts.row_numbers[index]] for index in indices for _ in range(samples)]
        return read_texts(self._policies.reader, prompts, texts)

    def _episodes_of(self, prompts: PromptBatch, texts: list[str], stopped: list[bool], lengths: list[int]) -> Episodes:
        return Episodes(prompts.texts, texts, stopped, lengths, prompts.references, prompts.chats)

    def _records(
        self,
        source: PolicySource,
        indices: list[int],
        first: int,
        episodes: Episodes,
        rows: list[Row],
        kl: list[float],
        stopped: list[bool | None],
    ) -> list[Answer]:
        samples, scorer = self._config.evaluation.samples, self._policies.scorer
        scored = scorer.read(episodes)
        judged = None if self._judge is None else self._judge.read(episodes)
        self._readings.append(worst_reading([scored.reading, None if judged is None else judged.reading]))
        parts, members = ({name: scores.tolist() for name, scores in by_name.items()} for by_name in (scored.weighted, scored.members))
        gold = scorer.gold(episodes)
        judge = None if judged is None else judged.sum.tolist()
        texts = self._prompts.texts()
        return [
            Answer(
                sample=first + row,
                prompt=texts[indices[row // samples]],
                response=response,
                score=sum(part[row] for part in parts.values()) if parts else math.nan,
                parts={name: part[row] for name, part in parts.items()},
                gold=None if gold is None else float(gold[row]),
                kl=kl[row],
                length=episodes.lengths[row],
                stopped=stopped[row],
                tokens=None,
                policy=source.name,
                place=indices[row // samples],
                draw=row % samples,
                judge=math.nan if judge is None else judge[row],
                ref_logprob=rows[row][0],
                ref_length=rows[row][1],
                members={name: [scores[row] for scores in models] for name, models in members.items()},
            )
            for row, response in enumerate(episodes.responses)
        ]

    def _text(self, source: PolicySource) -> dict[str, float]:
        """The log-probability of this step's share of the held-out text under a policy, and the number of its tokens."""
        loaded = self._policies.get(source)
        models, share = loaded.models, self._texts[self._step :: self.total_steps]
        tokens = text_tokens(share, models.tokenizer, loaded.longest, self.compute.device)
        rows = read(models.policy, tokens, models.forward_pass) if tokens is not None else []
        logprob, count = sum(value for value, _ in rows), sum(length for _, length in rows)
        return {f"evaluation/text_logprob/{source.name}": logprob, f"evaluation/text_tokens/{source.name}": float(count)}


def _means(policy: str, answers: list[Answer]) -> dict[str, float]:
    """The step's means of one policy, for its curves."""
    golds = [answer.gold for answer in answers if answer.gold is not None]
    columns = {name: [value for answer in answers if math.isfinite(value := getattr(answer, name))] for name in ("score", "kl", "judge")}
    columns |= {"gold": golds, "length": [float(answer.length) for answer in answers]}
    return {f"evaluation/{name}/{policy}": sum(values) / len(values) for name, values in columns.items() if values}


def ppo_settings(config: EvaluationRunConfig) -> RunConfig:
    """The settings of a PPO run with the same model, data, reward, sampling and device, which the engine's functions take."""
    generation = settings_of(config.generation, greedy=config.evaluation.greedy)
    as_ppo = RunConfig.model_validate(
        {
            "model": config.model.model_dump(),
            "data": config.data.model_dump(),
            "generation": generation.model_dump(),
            "engine": config.engine.model_dump(),
        }
    )
    return as_ppo.model_copy(update={"reward": config.reward})  # which may have no component


def build_judge(name: str, compute: Compute, report: OnProgress, permissions: Permissions) -> Scorer | None:
    """The second opinion, which no policy learned from. Raises :class:`ConfigError` naming ``evaluation.judge``."""
    if not name:
        return None
    try:
        return build_scorer(judge_settings(name), compute, report, permissions)
    except ModelError as error:
        raise ConfigError([Problem(JUDGE, str(error))]) from error
    except ConfigError as error:
        raise ConfigError([Problem(JUDGE, problem.message) for problem in error.problems]) from error
