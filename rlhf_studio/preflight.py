"""Everything that can be found wrong before a run starts, and what the run will cost. The app and the command line ask here.

It takes seconds and no torch: only small files are read, and no weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rlhf_studio.config import NOTHING_ALLOWED, EvaluationRunConfig, Permissions, RewardModelRunConfig, RunConfig, StageConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.estimate.counts import RunModels, reward_model_count
from rlhf_studio.estimate.device import find_device
from rlhf_studio.estimate.disk import BYTES_PER_TRAINED_WEIGHT, NEW_RUN, OnDisk, disk_bytes, disk_problems
from rlhf_studio.estimate.gpus import Gpu, find_gpus
from rlhf_studio.estimate.memory.savings import Change, cheapest
from rlhf_studio.estimate.memory.total import MemoryEstimate, estimate_memory
from rlhf_studio.inputs.checks.critic import check_critic
from rlhf_studio.inputs.checks.machine import machine_problems
from rlhf_studio.inputs.checks.policy import check_reference, policy_problems, position_problems, rotation_problems
from rlhf_studio.inputs.checks.prompts import check_prompts
from rlhf_studio.inputs.checks.rewards import check_rewards
from rlhf_studio.inputs.checks.trackers import tracker_problems
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm, check_reward_model
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.places import as_seen_from
from rlhf_studio.inputs.prompts.lengths import PromptTokens


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Attributes:
        problems: the run may start when there are none.
        notes: one sentence each about what is unusual but works; risky settings are the doctor's (``analysis.doctor``).
        policy: facts about the model, or None when it is the problem.
        prompts: how many prompts there are, or None when they are the problem or only the first were looked at.
        download_bytes, disk_bytes: what the run fetches, and what it writes at most beside what is there already.
        memory_estimate: the memory that the run needs; None when a model is the problem.
        change: the cheapest change that would make it fit; None when it fits, or when no single change is enough.
        models: facts about all models; None when one is the problem.
        prompt_tokens: lengths of the prompts as the policy reads them; None when they could not be counted.
    """

    problems: list[Problem]
    notes: list[str] = field(default_factory=list)
    policy: ModelFacts | None = None
    prompts: int | None = None
    download_bytes: int = 0
    disk_bytes: int = 0
    memory_estimate: MemoryEstimate | None = None
    change: Change | None = None
    models: RunModels | None = None
    prompt_tokens: PromptTokens | None = None

    @property
    def expected_peak(self) -> tuple[int, int] | None:
        """The least and the most bytes that the metric memory/peak should show; None when the model's files do not tell."""
        return self.memory_estimate.measured_range() if self.memory_estimate else None


def check_run(
    config: StageConfig, workspace: Path, permissions: Permissions = NOTHING_ALLOWED, there: OnDisk = NEW_RUN, folder: Path | None = None
) -> list[Problem]:
    """What keeps this run from starting, one entry per setting; empty when it may start. The rest is as in :func:`inspect_run`."""
    return inspect_run(config, workspace, folder=folder, permissions=permissions, there=there).problems


def inspect_run(
    config: StageConfig,
    workspace: Path,
    *,
    folder: Path | None = None,
    hub: Hub | None = None,
    permissions: Permissions = NOTHING_ALLOWED,
    there: OnDisk = NEW_RUN,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    gpus: Callable[[], tuple[Gpu, ...] | None] = find_gpus,
) -> Preflight:
    """Check models, data, rewards, machine and disk. ``hub``, ``free_bytes`` and ``gpus`` can be replaced in tests.

    ``folder`` is the one that the run will work in, where relative paths start; without it, it is the one of this process. ``there``: what
    a run that goes on has on its disk already.
    """
    config = config if folder is None else as_seen_from(config, folder)
    found_gpus = gpus()
    if not isinstance(config, RunConfig):
        return _inspect_stage(config, workspace, None if found_gpus is None else len(found_gpus), hub, there, free_bytes)
    problems: list[Problem] = [*machine_problems(config, None if found_gpus is None else len(found_gpus)), *tracker_problems(config)]
    notes: list[str] = []
    policy: ModelFacts | None = None
    try:
        policy = check_causal_lm(config.model.policy, config.model.revision, hub)
    except ModelError as error:
        problems.append(Problem("model.revision" if error.setting == "revision" else "model.policy", str(error)))
    reference = check_reference(config, policy, hub, problems)
    critic = check_critic(config, policy, hub, problems)
    rewards = check_rewards(config, hub, problems, permissions)
    prompts = check_prompts(config, policy)
    problems.extend(prompts.problems)
    if policy is not None:
        problems.extend(policy_problems(config, policy))
        problems.extend(position_problems(config, policy, prompts.longest))
        problems.extend(rotation_problems(config, policy, prompts.tokens))
    notes.extend(prompts.notes)
    notes.extend(_notes(config, policy, prompts.count or 0))
    own_critic = critic if config.critic.start == "model" else None  # else it is a copy of a model that is downloaded anyway
    download_bytes = sum(facts.download_bytes for facts in (policy, reference, own_critic, *rewards) if facts is not None)
    disk = disk_bytes(config, policy, there)
    problems.extend(disk_problems(disk, download_bytes, workspace, free_bytes))
    complete = policy is not None and len(rewards) == reward_model_count(config) and (critic or config.critic.kind == "shared")
    run_models = RunModels(policy, rewards, reference, critic) if complete else None
    memory, change = _memory(config, run_models, prompts.tokens, found_gpus) if run_models else (None, None)
    return Preflight(problems, notes, policy, prompts.count, download_bytes, disk, memory, change, run_models, prompts.tokens)


def _inspect_stage(
    config: StageConfig, workspace: Path, gpus: int | None, hub: Hub | None, there: OnDisk, free_bytes: Callable[[Path], int]
) -> Preflight:
    """What is found wrong with the model, machine and disk of a stage other than PPO. Nothing is known of its memory beforehand, and its
    examples are read when it starts."""
    problems: list[Problem] = [*machine_problems(config, gpus), *tracker_problems(config)]
    facts: ModelFacts | None = None
    try:
        facts = _start_model(config, hub)
    except ModelError as error:
        problems.append(Problem("model.revision" if error.setting == "revision" else "model.policy", str(error)))
    weights = (facts.parameters or 0) if facts is not None else 0
    kept = max(0, config.engine.keep_checkpoints + 1 - there.checkpoints)
    disk = 0 if isinstance(config, EvaluationRunConfig) else kept * weights * BYTES_PER_TRAINED_WEIGHT
    download = facts.download_bytes if facts is not None else 0
    problems.extend(disk_problems(disk, download, workspace, free_bytes))
    return Preflight(problems, policy=facts, download_bytes=download, disk_bytes=disk)


def _start_model(config: StageConfig, hub: Hub | None) -> ModelFacts:
    """Facts of the model that a stage begins with: a language model, or for a reward model also one to train on. Raises ModelError."""
    model = config.model
    try:
        return check_causal_lm(model.policy, model.revision, hub)
    except ModelError:
        if not isinstance(config, RewardModelRunConfig):
            raise
    return check_reward_model(model.policy, model.revision, "", hub)


def _memory(
    config: RunConfig, models: RunModels, prompts: PromptTokens | None, gpus: tuple[Gpu, ...] | None
) -> tuple[MemoryEstimate, Change | None]:
    """The memory that the run needs, and the cheapest change that makes it fit."""
    device = find_device(config.engine, lambda: gpus)

    def estimate(other: RunConfig) -> MemoryEstimate:
        return estimate_memory(other, models, device, prompts)

    now = estimate(config)
    return now, cheapest(config, now, estimate)


def _notes(config: RunConfig, policy: ModelFacts | None, prompts: int) -> Iterator[str]:
    batch = config.ppo.batch_size
    if policy is not None and policy.base:
        yield f"{config.model.policy} is a LoRA adapter: it is merged into its base, {policy.base}, before the run starts."
    if config.lora.enabled and not config.lora.off_is_start and not config.model.reference:
        yield "With these LoRA settings the reference is a frozen copy of the starting model, which takes its memory once more."
    if policy is not None and policy.pad_equals_eos:
        yield "The tokenizer pads with its end token. That is handled: masks come from lengths, and real end tokens are kept."
    if policy is not None and policy.has_end is None and config.generation.stop_token == "eos":
        yield "The tokenizer's files name no end token: unless its class has one of its own, the run is refused when it loads."
    if 0 < prompts < batch:
        noun = "prompt" if prompts == 1 else "prompts"
        yield f"{prompts} {noun} for a batch of {batch}: each is used about {round(batch / prompts)} times per step."
    uses_world = config.model.policy.startswith("bundled/world") and config.data.prompts.startswith("bundled/world")
    if config.data.eval.startswith("bundled/") and not config.data.prompts.startswith("bundled/"):
        yield f"The watched prompts come from {config.data.eval}, not from your data. Empty data.eval to hold out some of yours."
    if config.reward.gold == "world" and not uses_world:
        yield "The gold scorer knows only the review world; for other models or prompts its numbers mean little."
