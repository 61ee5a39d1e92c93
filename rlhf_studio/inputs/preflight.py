"""Everything that can be known to be wrong before a run starts: the app and the command line ask here, in seconds and without torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from rlhf_studio.config import DataConfig, KeywordReward, RegexReward, RewardModelReward, RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.bundled import resolve
from rlhf_studio.inputs.model_files import Hub, ModelError
from rlhf_studio.inputs.models import ModelFacts, check_causal_lm, check_reward_model
from rlhf_studio.inputs.prompts import PromptsError, count_tokens, read_prompts

PROMPTS_MEASURED = 2_000
BYTES_PER_RECORDED_TOKEN = 240  # 13 float32 quantities, two top-5 tables, and the token's text
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        problems: the run may start when there are none.
        notes: one sentence each about what is unusual but works.
        policy: facts about the model, or None when it is the problem.
        prompts: how many prompts there are, or None when they are the problem.
        download_bytes, disk_bytes: what the run fetches and writes at most.
        memory_bytes: weights, gradients and optimizer of all models in float32; None when a size is unknown.
    """

    problems: list[Problem]
    notes: list[str] = field(default_factory=list)
    policy: ModelFacts | None = None
    prompts: int | None = None
    download_bytes: int = 0
    disk_bytes: int = 0
    memory_bytes: int | None = None


def check_run(config: RunConfig, workspace: Path) -> list[Problem]:
    """What keeps this run from starting, one entry per setting; empty when it may start."""
    return inspect_run(config, workspace).problems


def inspect_run(
    config: RunConfig,
    workspace: Path,
    *,
    hub: Hub | None = None,
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> Report:
    """Check models, data, rewards and disk. ``hub`` and ``free_bytes`` can be replaced in tests."""
    problems: list[Problem] = []
    notes: list[str] = []
    policy: ModelFacts | None = None
    try:
        policy = check_causal_lm(config.model.policy, config.model.revision, hub)
    except ModelError as error:
        problems.append(Problem("model.revision" if error.setting == "revision" else "model.policy", str(error)))
    rewards = _check_rewards(config, hub, problems)
    prompts: list[str] = []
    try:
        prompts = _prompts(config.data)
    except PromptsError as error:
        problems.append(Problem(error.field, error.message))
    if policy is not None:
        problems.extend(_policy_problems(config, policy))
        problems.extend(_position_problems(config, policy, prompts))
    notes.extend(_notes(config, policy, len(prompts)))
    models = [policy, *rewards] if policy is not None else rewards
    download_bytes = sum(facts.download_bytes for facts in models)
    disk_bytes = _disk_bytes(config, policy)
    problems.extend(_disk_problems(disk_bytes, download_bytes, workspace, free_bytes))
    memory = _memory_bytes(config, policy, rewards)
    return Report(problems, notes, policy, len(prompts) or None, download_bytes, disk_bytes, memory)


def _prompts(data: DataConfig) -> list[str]:
    """As :func:`read_prompts`, but a file that has not changed is read once: the form asks at every change of any setting."""
    try:
        stat = os.stat(resolve(data.prompts))
    except (OSError, ValueError):
        return read_prompts(data)  # says what is wrong
    return _read_once(data, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _read_once(data: DataConfig, modified: int, size: int) -> list[str]:
    return read_prompts(data)


# --- rewards ---------------------------------------------------------------------------------------------------------------


def _check_rewards(config: RunConfig, hub: Hub | None, problems: list[Problem]) -> list[ModelFacts]:
    """Facts of the reward models that can be used; what is wrong goes to ``problems``."""
    facts = []
    seen: dict[str, int] = {}
    for index, component in enumerate(config.reward.components):
        field_name = f"reward.components.{index}"
        name = component.name or component.kind
        if name in seen:
            message = f"component {seen[name] + 1} is called {name} too; give each its own name, so that their curves can be told apart"
            problems.append(Problem(f"{field_name}.name", message))
        seen.setdefault(name, index)
        if isinstance(component, RewardModelReward):
            try:
                facts.append(check_reward_model(component.model, component.revision, component.label, hub))
            except ModelError as error:
                problems.append(Problem(f"{field_name}.{error.setting}", str(error)))
        elif isinstance(component, RegexReward):
            problems.extend(_pattern_problems(f"{field_name}.pattern", component.pattern))
        elif isinstance(component, KeywordReward) and not any(word.strip() for word in component.words.split(",")):
            problems.append(Problem(f"{field_name}.words", "there are no words between the commas; write for example: good, lovely"))
    return facts


def _pattern_problems(field_name: str, pattern: str) -> Iterator[Problem]:
    import regex

    try:
        regex.compile(pattern)
    except regex.error as error:
        yield Problem(field_name, f"is not a valid regular expression: {error}")


# --- policy ----------------------------------------------------------------------------------------------------------------


def _policy_problems(config: RunConfig, policy: ModelFacts) -> Iterator[Problem]:
    stop = config.generation.stop_token
    if stop.isdigit() and policy.vocab_size is not None and int(stop) >= policy.vocab_size:
        yield Problem("generation.stop_token", f"there is no token {stop}; the model has tokens 0 to {policy.vocab_size - 1:,}")
    targets = [target.strip() for target in config.lora.target_modules.split(",") if target.strip()]
    if not (config.lora.enabled and policy.tensors) or targets == ["auto"]:
        return
    layers = [
        name.removesuffix(".weight") for name, tensor in policy.tensors.items() if len(tensor.shape) == 2 and name.endswith(".weight")
    ]
    missing = [target for target in targets if not any(layer == target or layer.endswith("." + target) for layer in layers)]
    if missing or not targets:
        names = sorted({layer.rsplit(".", 1)[-1] for layer in layers})
        wrong = f"no layer is called {missing[0][:60]}" if missing else "no layer is named"
        yield Problem("lora.target_modules", f"{wrong}; this model has: {', '.join(names[:20])}; or write auto")


def _position_problems(config: RunConfig, policy: ModelFacts, prompts: list[str]) -> Iterator[Problem]:
    """Prompt and response together must fit into the positions that the model knows."""
    limit, response = policy.max_positions, config.generation.response_length
    if limit is None or config.data.max_prompt_tokens + response <= limit:
        return
    longest, measured = config.data.max_prompt_tokens, False
    if prompts and (counts := count_tokens(sorted(prompts, key=len)[-PROMPTS_MEASURED:], policy.tokenizer)):
        longest, measured = min(longest, max(counts)), True
    if longest + response <= limit:
        return
    source = "the longest prompt has" if measured else "prompts may have"
    if response >= limit:
        yield Problem("generation.response_length", f"the model has only {limit:,} positions, prompt included; use less than that")
    elif longest >= limit:
        message = f"{source} {longest:,} tokens, but the model has {limit:,} positions; use at most {limit - response:,}"
        yield Problem("data.max_prompt_tokens", message)
    else:
        yield Problem(
            "generation.response_length",
            f"{source} {longest:,} tokens, so prompt and response need {longest + response:,} positions, but the model has {limit:,}; "
            f"use at most {limit - longest:,}, or a longest prompt of {limit - response:,}",
        )


# --- notes -----------------------------------------------------------------------------------------------------------------


def _notes(config: RunConfig, policy: ModelFacts | None, prompts: int) -> Iterator[str]:
    batch = config.ppo.batch_size
    if policy is not None and policy.pad_equals_eos:
        yield "The tokenizer pads with its end token. That is handled: masks come from lengths, and real end tokens are kept."
    if policy is not None and policy.has_end is False and config.generation.stop_token == "eos":
        yield "The tokenizer names no end token, so unless the model does, every response runs to its full length."
    if 0 < prompts < batch:
        noun = "prompt" if prompts == 1 else "prompts"
        yield f"{prompts} {noun} for a batch of {batch}: each is used about {round(batch / prompts)} times per step."
    uses_world = config.model.policy.startswith("bundled/world") and config.data.prompts.startswith("bundled/world")
    if config.reward.gold == "world" and not uses_world:
        yield "The gold scorer knows only the review world; for other models or prompts its numbers mean little."
    if config.ppo.kl_coef == 0 and config.ppo.kl_controller == "fixed":
        yield "KL coefficient 0: nothing holds the policy near its start, so it may learn to please the reward model only."


# --- disk and memory ---------------------------------------------------------------------------------------------------------


def _disk_bytes(config: RunConfig, policy: ModelFacts | None) -> int:
    """Upper estimate of what the run writes: the kept checkpoints, one more while it is written, and the recorded tokens."""
    trained = _trained_values(config, policy) if policy is not None else None
    checkpoint = 0 if trained is None else trained * 12  # float32 weights and AdamW's two moments
    every = config.engine.checkpoint_every or config.ppo.steps
    written = -(-config.ppo.steps // every)
    kept = min(config.engine.keep_checkpoints + 1, written)
    samples = min(config.engine.record_samples, config.ppo.batch_size)
    recorded = config.ppo.steps * samples * config.generation.response_length * BYTES_PER_RECORDED_TOKEN
    return kept * checkpoint + recorded


def _trained_values(config: RunConfig, policy: ModelFacts) -> int | None:
    """Number of weights that PPO changes; with LoRA, r * (rows + columns) of every matrix, which is an upper estimate."""
    if not config.lora.enabled:
        return policy.parameters
    if not policy.tensors:
        return None
    return sum(config.lora.r * sum(tensor.shape) for tensor in policy.tensors.values() if len(tensor.shape) == 2)


def _disk_problems(disk: int, download: int, workspace: Path, free_bytes: Callable[[Path], int]) -> Iterator[Problem]:
    folder = Path(os.path.abspath(workspace))
    while not folder.exists():
        folder = folder.parent
    try:
        free = free_bytes(folder)
    except OSError as error:
        yield Problem("", f"the workspace {workspace} cannot be used: {error.strerror or error}")
        return
    needed = disk + download
    if needed > free:
        parts = f"about {_size(disk)} of checkpoints and records" + (f" and {_size(download)} of downloads" if download else "")
        yield Problem("engine.keep_checkpoints", f"{parts} do not fit: {_size(free)} are free at {folder}; keep fewer, or free some space")


def _memory_bytes(config: RunConfig, policy: ModelFacts | None, rewards: list[ModelFacts]) -> int | None:
    """Weights in float32, and gradients and AdamW's two moments of what is trained; activations come on top."""
    if policy is None or policy.parameters is None or any(reward.parameters is None for reward in rewards):
        return None
    reference = 0 if config.lora.enabled else policy.parameters
    frozen = policy.parameters + reference + sum(reward.parameters or 0 for reward in rewards)
    return 4 * frozen + 12 * (_trained_values(config, policy) or 0)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, MEGABYTE) / 1e6:.0f} MB"
