"""The check of fine-tuning, a reward model or DPO before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatch
from typing import TypeGuard

from rlhf_studio.config import DPORunConfig, RewardModelRunConfig, SFTRunConfig, StageConfig, SupervisedConfig
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.fitting import Known
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.checks.examples import ExampleFacts, ExamplesCheck, ExampleTokens, examples_facts, length_problems
from rlhf_studio.inputs.checks.policy import adapter_problems, check_reference, stop_note, stop_problems
from rlhf_studio.inputs.ends import turn_end
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.disk import disk_problems
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.inputs.estimate.supervised.disk import training_disk_bytes
from rlhf_studio.inputs.estimate.supervised.memory import estimate_training_memory
from rlhf_studio.inputs.estimate.supervised.savings import cheapest_change
from rlhf_studio.inputs.estimate.supervised.sizes import planned_steps
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.preflight.known import of_model
from rlhf_studio.inputs.preflight.look import Look, model_problem
from rlhf_studio.inputs.preflight.report import Preflight
from rlhf_studio.inputs.trained_text import text_form
from rlhf_studio.language import _

WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
"""Names of the files that hold a model's weights."""


def is_supervised(config: StageConfig) -> TypeGuard[SupervisedConfig]:
    """Whether a configuration is of a stage that learns from given examples."""
    return isinstance(config, SFTRunConfig | RewardModelRunConfig | DPORunConfig)


def inspect_supervised(config: SupervisedConfig, look: Look, examples_facts: ExamplesCheck = examples_facts) -> Preflight:
    """Check model, examples, machine and disk. ``examples_facts`` can be replaced in tests."""
    problems: list[Problem] = list(look.machine(config))
    facts: ModelFacts | None = None
    try:
        facts = look.learner_of(config)
    except ModelError as error:
        problems.append(model_problem(error))
    reference = check_reference(config, facts, look.hub, problems) if isinstance(config, DPORunConfig) else None
    examples = examples_facts(config, facts)
    problems.extend(examples.problems)
    if facts is not None:
        problems.extend(_model_problems(config, facts))
        problems.extend(length_problems(config, facts, examples.tokens))
    steps = planned_steps(config, examples.count)
    download = sum(model.download_bytes for model in (facts, reference) if model is not None)
    disk = training_disk_bytes(config, facts, steps, examples.tokens, look.on_disk)
    problems.extend(disk_problems(disk, download, look.workspace, look.free_bytes))
    named = isinstance(config, DPORunConfig) and bool(config.model.reference)
    models = RunModels(facts, (), reference) if facts is not None and (reference is not None or not named) else None
    memory, change = _memory(config, models, examples, look) if models else (None, None)
    return Preflight(
        problems=problems,
        notes=[*examples.notes, *_notes(config, facts, examples, steps, look.device(config.engine).kind)],
        policy=facts,
        download_bytes=download,
        disk_bytes=disk,
        memory_estimate=memory,
        change=change,
        models=models,
        examples=examples,
        steps=steps,
        known=_known(of_model(config, facts, look.device(config.engine).kind), examples, steps),
    )


def _known(of_model: Known, examples: ExampleFacts, steps: int | None) -> Known:
    chat = None if examples.plain else of_model.chat
    return replace(of_model, chat=chat, examples=examples.count, held_out=examples.held_out, steps=steps)


def _model_problems(config: SupervisedConfig, facts: ModelFacts) -> Iterator[Problem]:
    yield from adapter_problems(config.model, config.lora, facts)
    if not isinstance(config, RewardModelRunConfig):
        yield from stop_problems(config.generation, facts, chat=config.data.chat_template)
    if isinstance(config, SFTRunConfig) and config.model.fresh and config.model.quantization != "none":
        yield Problem("model.quantization", _("weights that are drawn anew must all be trained, which quantized ones cannot be; use none"))
    if isinstance(config, RewardModelRunConfig) and config.reward_model.append_eos and facts.has_end is False:
        yield Problem("reward_model.append_eos", _("the tokenizer has no end token to append; switch this off"))


def _memory(config: SupervisedConfig, models: RunModels, examples: ExampleFacts, look: Look) -> tuple[MemoryEstimate, MemorySaving | None]:
    """The memory that the run needs, and the cheapest change that makes it fit."""
    device = look.device(config.engine)

    def estimate(other: SupervisedConfig) -> MemoryEstimate:
        return estimate_training_memory(other, models, device, _as_cut(examples.tokens, other), examples.count)

    now = estimate(config)
    return now, cheapest_change(config, now, estimate)


def _as_cut(tokens: ExampleTokens | None, config: SupervisedConfig) -> ExampleTokens | None:
    """The lengths under another limit."""
    most = config.data.max_tokens
    if tokens is None or tokens.longest <= most:
        return tokens
    return ExampleTokens(tuple(min(length, most) for length in tokens.texts), min(tokens.counted, most), tokens.complete)


def _thrown_away(config: SupervisedConfig, facts: ModelFacts | None) -> Iterator[str]:
    """The note on a trained model of which only the shape is taken. The bundled one is named for its shape: recipes draw it anew."""
    if not isinstance(config, SFTRunConfig) or not config.model.fresh or config.model.policy in BUNDLED:
        return
    files = facts.tokenizer_files if facts is not None else None
    if files is not None and any(fnmatch(name, kind) for name in files.sizes for kind in WEIGHTS):
        model = config.model.policy
        yield _("The weights of {model} are not used: model.fresh draws new ones; set it to false to train {model} further.").format(
            model=model
        )


def _already_closed(config: SupervisedConfig, facts: ModelFacts | None) -> Iterator[str]:
    """The note on an end token that is to be appended to chats which the template ends with it."""
    if not isinstance(config, RewardModelRunConfig) or not (config.reward_model.append_eos and config.data.chat_template) or facts is None:
        return
    try:
        chat = find_template(facts.tokenizer_files)
    except ChatError:  # the check of the examples says what is wrong with it
        return
    closing = turn_end(chat) if chat is not None else ""
    if closing and text_form(chat, system_text=config.data.system_text).end.endswith(closing):
        yield _("reward_model.append_eos changes nothing here: the chat template ends each text with {closing} already.").format(
            closing=closing
        )


def _notes(config: SupervisedConfig, facts: ModelFacts | None, examples: ExampleFacts, steps: int | None, device: str) -> Iterator[str]:
    yield from _thrown_away(config, facts)
    yield from _already_closed(config, facts)
    if facts is not None and facts.base:
        yield _("{policy} is a LoRA adapter: it is merged into its base, {base}, before the run starts.").format(
            policy=config.model.policy, base=facts.base
        )
    if isinstance(config, DPORunConfig) and config.lora.enabled and not config.lora.off_is_start and not config.model.reference:
        yield _("With these LoRA settings the reference is a frozen copy of the starting model, which takes its memory once more.")
    if facts is not None and not isinstance(config, RewardModelRunConfig):
        ends = stop_note(config.generation, facts, chat=config.data.chat_template)
        yield from [ends] if ends else []
    if facts is not None and facts.has_end is None and not isinstance(config, RewardModelRunConfig):
        yield _("The tokenizer's files name no end token: unless its class has one of its own, the model does not learn where to stop.")
    if facts is not None and facts.attention_dropout and device == "cpu" and isinstance(config, SFTRunConfig):
        yield (
            _(
                "config.json of {policy} sets a dropout of {attention_dropout:g} in attention, which is on while "
                "this stage trains: on a CPU attention then takes many times as long, and more memory. With 0 in "
                "config.json it trains without."
            ).format(policy=config.model.policy, attention_dropout=facts.attention_dropout)
        )
    if examples.count is not None and examples.count < config.training.batch_size:
        yield _("{count:,} examples for a batch of {batch_size:,}: every step sees all of them.").format(
            count=examples.count, batch_size=config.training.batch_size
        )
    if steps is not None and steps < config.training.eval_every and examples.held_out:
        every = config.training.eval_every
        yield _(
            "{steps:,} steps, and a measurement every {every:,}: held-out examples are measured before and after training only."
        ).format(steps=steps, every=every)
