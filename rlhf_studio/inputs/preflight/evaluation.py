"""The check of an evaluation before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from pathlib import Path

from rlhf_studio.config import EvaluationRunConfig, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.inputs.checks.evaluation import check_judge, check_text, judge_model_count
from rlhf_studio.inputs.checks.policy import position_problems, sampling_warning, stop_problems
from rlhf_studio.inputs.checks.prompts import check_prompts
from rlhf_studio.inputs.checks.reward_texts import reward_text_notes, reward_text_problems
from rlhf_studio.inputs.checks.rewards import check_rewards
from rlhf_studio.inputs.completions import read_completions
from rlhf_studio.inputs.estimate.counts import RunModels, reward_model_count
from rlhf_studio.inputs.estimate.disk import disk_problems
from rlhf_studio.inputs.estimate.evaluation import estimate_evaluation_memory, evaluation_disk_bytes
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.preflight.look import Look, model_problem
from rlhf_studio.inputs.preflight.report import Preflight
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.language import _
from rlhf_studio.runs.evaluation.policies import FIELD, PolicySource, sources_of

REFERENCE = ("evaluation.reference", "evaluation.reference_revision")


def inspect_evaluation(config: EvaluationRunConfig, look: Look) -> Preflight:
    """Check the policies that are named, prompts, rewards, reference, machine and disk."""
    problems: list[Problem] = list(look.machine(config))
    policy = _model(config.model.policy, config.model.revision, look, problems, "model.policy", "model.revision")
    sources = _sources(config, problems)
    answering = [facts for source in sources if (facts := _answers(source, look, problems)) is not None]
    own_reference, revision = config.evaluation.reference, config.evaluation.reference_revision
    reference = _model(own_reference, revision, look, problems, *REFERENCE) if own_reference else None
    as_ppo = _as_ppo(config)
    readers = check_rewards(as_ppo, look.hub, problems, look.permissions)
    judges = check_judge(config.evaluation.judge, look.hub, problems, config.data, look.permissions)
    rewards, judge = ([reader.facts for reader in of] for of in (readers, judges))
    problems.extend(reward_text_problems(as_ppo, readers))
    check_text(config.evaluation, problems)
    prompts = check_prompts(as_ppo, policy)
    available = prompts.held_out or (prompts.count if prompts.held_out == 0 else None)  # where none is held out, all are answered
    problems.extend(prompts.problems)
    if policy is not None:
        problems.extend(stop_problems(config.generation, policy, chat=config.data.chat_template))
        problems.extend(position_problems(as_ppo, policy, prompts.longest))
    download = sum(facts.download_bytes for facts in (policy, reference, *answering, *rewards, *judge) if facts is not None)
    steps = _steps(config, available)
    disk = evaluation_disk_bytes(config, steps, len(sources))
    problems.extend(disk_problems(disk, download, look.workspace, look.free_bytes))
    scored = len(rewards) == reward_model_count(config) and len(judge) == judge_model_count(config.evaluation.judge)
    complete = policy is not None and scored and not (own_reference and reference is None)
    largest = max([policy, *answering], key=lambda model: model.parameters or 0) if policy is not None else None
    models = RunModels(largest, [*rewards, *judge], reference) if complete and largest is not None else None
    memory = estimate_evaluation_memory(config, models, look.device(config.engine), prompts.tokens) if models else None
    return Preflight(
        problems=problems,
        notes=[*prompts.notes, *prompts.risks, *reward_text_notes(as_ppo, policy, [*readers, *judges]), *_notes(config, available)],
        policy=policy,
        prompts=available,
        download_bytes=download,
        disk_bytes=disk,
        memory_estimate=memory,
        models=models,
        prompt_tokens=prompts.tokens,
        steps=steps,
        answering=len(sources) or None,
    )


def _model(name: str, revision: str, look: Look, problems: list[Problem], setting: str, at_revision: str) -> ModelFacts | None:
    """Facts of a language model; what is wrong goes to ``problems``."""
    try:
        return check_causal_lm(name, revision, look.hub)
    except ModelError as error:
        problems.append(model_problem(error, setting, at_revision))
        return None


def _sources(config: EvaluationRunConfig, problems: list[Problem]) -> list[PolicySource]:
    """Who answers, as the run itself will read the lines; what is wrong goes to ``problems``."""
    try:
        return sources_of(config)
    except ConfigError as error:
        problems.extend(error.problems)
        return []


def _answers(source: PolicySource, look: Look, problems: list[Problem]) -> ModelFacts | None:
    """Facts of a policy that is a model by itself: those in checkpoints were checked when they were written. A file is read instead."""
    if source.kind == "completions":
        try:
            read_completions(Path(source.path), FIELD)
        except PromptsError as error:
            problems.append(Problem(FIELD, error.message))
        return None
    return None if source.checkpoint else _model(source.path, source.revision, look, problems, FIELD, FIELD)


def _as_ppo(config: EvaluationRunConfig) -> RunConfig:
    """The same prompts, rewards and sampling as settings of PPO, for the checks that both have."""
    shared = {name: getattr(config, name).model_dump(mode="json") for name in ("data", "generation", "engine")}
    batch = config.evaluation.batch_size * config.evaluation.samples
    as_ppo = RunConfig.model_validate({**shared, "ppo": {"batch_size": batch, "mini_batch_size": batch}})
    return as_ppo.model_copy(update={"reward": config.reward})  # which may have no component


def _steps(config: EvaluationRunConfig, available: int | None) -> int | None:
    """How many steps there are: so many prompts are answered in each."""
    requested = config.evaluation.prompts
    count = requested if available is None else min(requested, available) if requested else available
    return ceil(count / config.evaluation.batch_size) if count else None


def _notes(config: EvaluationRunConfig, available: int | None) -> Iterator[str]:
    requested = config.evaluation.prompts
    if not config.reward.components and not config.evaluation.judge and config.reward.gold == "none":
        yield _("Nothing scores the answers: the table has KL, perplexity and lengths. Name a reward or a judge to score them too.")
    if available is not None and available < requested:
        yield _("{requested:,} prompts are asked for, and there are {available:,}: all of them are answered.").format(
            requested=requested, available=available
        )
    if not config.evaluation.greedy and (warning := sampling_warning(config.generation)):
        yield warning
