"""The check of a PPO run before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.checks.critic import check_critic
from rlhf_studio.inputs.checks.policy import check_reference, policy_problems, position_problems, rotation_problems, stop_note
from rlhf_studio.inputs.checks.prompts import check_prompts
from rlhf_studio.inputs.checks.reward_texts import reward_text_notes, reward_text_problems
from rlhf_studio.inputs.checks.rewards import check_rewards
from rlhf_studio.inputs.estimate.counts import RunModels, reward_model_count
from rlhf_studio.inputs.estimate.disk import disk_bytes, disk_problems
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving, cheapest
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_memory
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.preflight.known import of_model
from rlhf_studio.inputs.preflight.look import Look, model_problem
from rlhf_studio.inputs.preflight.report import Preflight
from rlhf_studio.inputs.prompts.lengths import PromptTokens
from rlhf_studio.language import _


def inspect_ppo(config: RunConfig, look: Look) -> Preflight:
    """Check models, prompts, rewards, machine and disk."""
    problems: list[Problem] = list(look.machine(config))
    notes: list[str] = []
    policy: ModelFacts | None = None
    try:
        policy = look.learner_of(config)
    except ModelError as error:
        problems.append(model_problem(error))
    reference = check_reference(config, policy, look.hub, problems)
    critic = check_critic(config, policy, look.hub, problems)
    readers = check_rewards(config, look.hub, problems, look.permissions)
    rewards = [reader.facts for reader in readers]
    prompts = check_prompts(config, policy)
    problems.extend(prompts.problems)
    if policy is not None:
        problems.extend(policy_problems(config, policy))
        problems.extend(position_problems(config, policy, prompts.longest))
        problems.extend(rotation_problems(config, policy, prompts.tokens))
    notes.extend(prompts.notes)
    problems.extend(reward_text_problems(config, readers))
    notes.extend(reward_text_notes(config, policy, readers))
    notes.extend(ppo_notes(config, policy, prompts.count or 0))
    own_critic = critic if config.critic.start == "model" else None  # else it is a copy of a model that is downloaded anyway
    download_bytes = sum(facts.download_bytes for facts in (policy, reference, own_critic, *rewards) if facts is not None)
    disk = disk_bytes(config, policy, look.on_disk)
    problems.extend(disk_problems(disk, download_bytes, look.workspace, look.free_bytes))
    complete = policy is not None and len(rewards) == reward_model_count(config) and (critic or config.critic.kind == "shared")
    run_models = RunModels(policy, rewards, reference, critic) if complete and policy is not None else None
    memory, change = _memory(config, run_models, prompts.tokens, look) if run_models else (None, None)
    return Preflight(
        problems,
        notes,
        policy,
        prompts.count,
        download_bytes,
        disk,
        memory,
        change,
        run_models,
        prompts.tokens,
        steps=config.ppo.steps,
        known=replace(
            of_model(config, policy, look.device(config.engine).kind),
            examples=prompts.count,
            held_out=prompts.held_out,
            lengths=prompts.lengths,
            steps=config.ppo.steps,
        ),
    )


def _memory(config: RunConfig, models: RunModels, prompts: PromptTokens | None, look: Look) -> tuple[MemoryEstimate, MemorySaving | None]:
    """The memory that the run needs, and the cheapest change that makes it fit."""
    device = look.device(config.engine)

    def estimate(other: RunConfig) -> MemoryEstimate:
        return estimate_memory(other, models, device, prompts)

    now = estimate(config)
    return now, cheapest(config, now, estimate)


def ppo_notes(config: RunConfig, policy: ModelFacts | None, prompts: int) -> Iterator[str]:
    """What is unusual about a PPO run and works all the same. ``prompts``: how many there are, 0 when unknown."""
    batch = config.ppo.batch_size
    if policy is not None and policy.base:
        yield _("{policy} is a LoRA adapter: it is merged into its base, {base}, before the run starts.").format(
            policy=config.model.policy, base=policy.base
        )
    if config.lora.enabled and not config.lora.off_is_start and not config.model.reference:
        yield _("With these LoRA settings the reference is a frozen copy of the starting model, which takes its memory once more.")
    if policy is not None and policy.pad_equals_eos:
        yield _("The tokenizer pads with its end token. That is handled: masks come from lengths, and real end tokens are kept.")
    if policy is not None and (ends := stop_note(config.generation, policy, chat=config.data.chat_template)):
        yield ends
    if policy is not None and policy.has_end is None and config.generation.stop_token == "eos":
        yield _("The tokenizer's files name no end token: unless its class has one of its own, the run is refused when it loads.")
    if 0 < prompts < batch:
        noun = "prompt" if prompts == 1 else "prompts"
        yield _("{prompts} {noun} for a batch of {batch}: each is used about {batch_2:.2g} times per step.").format(
            prompts=prompts, noun=noun, batch=batch, batch_2=batch / prompts
        )
    uses_world = config.model.policy.startswith("bundled/world") and config.data.prompts.startswith("bundled/world")
    if config.data.eval.startswith("bundled/") and not config.data.prompts.startswith("bundled/"):
        yield _("The watched prompts come from {eval}, not from your data. Empty data.eval to hold out some of yours.").format(
            eval=config.data.eval
        )
    if config.reward.gold == "world" and not uses_world:
        yield _("The gold scorer knows only the review world; for other models or prompts its numbers mean little.")
