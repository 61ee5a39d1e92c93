"""Whether policy, reference, LoRA settings and lengths fit together."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.config import DPORunConfig, GenerationConfig, LoraConfig, RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.model import TrainedModelConfig
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.ends import Ends, ends_of_files
from rlhf_studio.inputs.families import BYPASSED, BYPASSING, EXPERT_LAYERS, FUSED_EXPERTS, REFUSED_WITH_LORA, SHARES_BLOCKS
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.models.lora_targets import is_target, target_names
from rlhf_studio.inputs.models.rotation import boundary_problem
from rlhf_studio.inputs.prompts.lengths import PromptTokens
from rlhf_studio.language import S_

OUTPUT_LAYERS = ("lm_head", "embed_out")
"""What families call the layer that gives the logits. A language model without a weight of such a name uses its embedding again there."""


def policy_problems(config: RunConfig, policy: ModelFacts) -> Iterator[Problem]:
    """Stop token, quantization and LoRA settings that this policy does not allow."""
    yield from stop_problems(config.generation, policy, chat=config.data.chat_template)
    yield from adapter_problems(config.model, config.lora, policy)


def stop_problems(generation: GenerationConfig, policy: ModelFacts, *, chat: bool) -> Iterator[Problem]:
    """Stop tokens that this policy does not have; ``chat``: its chat template is in use."""
    ends = _ends(policy, chat)
    if "eos" in generation.stop_tokens and not (ends.ids if ends else policy.has_end is not False):
        if policy.has_end is False:
            yield Problem("generation.stop_token", "the tokenizer has no end token; use none or a token id")
        return  # its class may have one of its own: the engine will see
    if ends is not None:
        try:
            ends.chosen(generation, policy.vocab_size)
        except ConfigError as error:
            yield from error.problems


def stop_note(generation: GenerationConfig, policy: ModelFacts, *, chat: bool) -> str | None:
    """A sentence that says where answers end; None when that is the tokenizer's end token alone, or is not known before the start."""
    ends = _ends(policy, chat)
    if ends is None or not ends.ids or next(stop_problems(generation, policy, chat=chat), None):
        return None
    stops = ends.chosen(generation, policy.vocab_size)
    return None if stops == ends.ids == (ends.of_tokenizer,) else ends.sentence(generation, stops)


def _ends(policy: ModelFacts, chat: bool) -> Ends | None:
    try:
        return ends_of_files(policy, find_template(policy.tokenizer_files) if chat else None)
    except ChatError:  # the check of the prompts says what is wrong with the template
        return ends_of_files(policy, None)


def adapter_problems(model: TrainedModelConfig, lora: LoraConfig, policy: ModelFacts) -> Iterator[Problem]:
    """Quantization and LoRA settings that this model does not allow."""
    if policy.base and model.quantization != "none":
        message = "the policy is a LoRA adapter, which cannot be merged into a quantized base; merge it into a model first, or use none"
        yield Problem("model.quantization", message)
    if lora.enabled:
        yield from _lora_problems(lora, policy)


def sampling_warning(settings: GenerationConfig) -> str | None:
    """A warning for those who sample from less than the policy's whole distribution; None when nothing is cut off."""
    cuts = [f"top-k {settings.top_k}"] if settings.top_k else []
    cuts += [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
    if not cuts:
        return None
    return S_(
        f"Sampling is cut off ({' and '.join(cuts)}), but log-probabilities are of the whole distribution: ratios and KL are not those of "
        "the policy that writes, and the KL can read negative. PPO is defined for top-k 0 and top-p 1."
    )


def _lora_problems(lora: LoraConfig, policy: ModelFacts) -> Iterator[Problem]:
    if lora.init_lora_weights == "olora" and policy.architecture == "GPT2LMHeadModel":
        yield Problem("lora.init_lora_weights", "olora does not work with GPT-2's layers; use pissa or default")
    if lora.init_lora_weights == "orthogonal" and lora.r % 2:
        yield Problem("lora.r", f"the orthogonal start needs an even rank, not {lora.r}")
    names = target_names(lora)
    yield from _start_problems(lora, policy, names)
    if policy.model_type in REFUSED_WITH_LORA:
        why = REFUSED_WITH_LORA[policy.model_type]
        yield Problem("lora.enabled", f"LoRA cannot be used with a {policy.model_type} model: {why}; train it in full")
    bypassed = [name for name in names if name in BYPASSED] if policy.model_type in BYPASSING else []
    if bypassed:
        message = S_(f"an adapter on {bypassed[0]} of a {policy.model_type} model would do nothing; leave it out, or write auto")
        yield Problem("lora.target_modules", message)
    if not policy.tensors or names == ["auto"]:
        return
    layers = [
        name.removesuffix(".weight") for name, tensor in policy.tensors.items() if len(tensor.shape) == 2 and name.endswith(".weight")
    ]
    missing = [name for name in names if not any(is_target(layer, [name]) for layer in layers)]
    is_language_model = "ForSequenceClassification" not in policy.architecture
    tied = is_language_model and not any(is_target(layer, list(OUTPUT_LAYERS)) for layer in layers)
    if tied and missing[:1] == ["lm_head"]:
        message = "lm_head is tied to the embedding in this model: the two are one weight, and an adapter would part them"
        yield Problem("lora.target_modules", f"{message}; name layers of the blocks instead, or write auto")
    elif missing or not names:
        names_of_layers = sorted({layer.rsplit(".", 1)[-1] for layer in layers})
        wrong = S_(f"no layer is called {missing[0][:60]}") if missing else S_("no layer is named")
        yield Problem("lora.target_modules", f"{wrong}; this model has: {', '.join(names_of_layers[:20])}; or write auto")


def _start_problems(lora: LoraConfig, policy: ModelFacts, names: list[str]) -> Iterator[Problem]:
    """Settings of adapters that need a matrix for each layer, in models whose layers or experts share one."""
    start, auto = lora.init_lora_weights, names == ["auto"]
    if policy.model_type in SHARES_BLOCKS and lora.changes_base and auto:
        message = S_(f"{start} changes matrices that several blocks of a {policy.model_type} model use; use default")
        yield Problem("lora.init_lora_weights", message)
    if policy.model_type not in FUSED_EXPERTS or not (auto or EXPERT_LAYERS & {name.rsplit(".", 1)[-1] for name in names}):
        return
    why = S_(f"does not work with the experts of a {policy.model_type} model, which lie in one tensor")
    layers = S_("or name layers outside of them in lora.target_modules, such as q_proj, v_proj")
    if start in ("orthogonal", "pissa", "olora"):
        yield Problem("lora.init_lora_weights", f"{start} {why}; use default or gaussian, {layers}")
    if lora.dropout:
        yield Problem("lora.dropout", f"dropout {why}; use 0, {layers}")
    if lora.use_dora:
        yield Problem("lora.use_dora", f"DoRA {why}; turn it off, {layers}")


def check_reference(
    config: RunConfig | DPORunConfig, policy: ModelFacts | None, hub: Hub | None, problems: list[Problem]
) -> ModelFacts | None:
    """Facts of the model that ``model.reference`` names; what is wrong goes to ``problems``. None when it is empty or unusable."""
    if not config.model.reference:
        return None
    try:
        facts = check_causal_lm(config.model.reference, config.model.reference_revision, hub)
    except ModelError as error:
        problems.append(Problem("model.reference_revision" if error.setting == "revision" else "model.reference", str(error)))
        return None
    if policy is not None and None not in (policy.vocab_size, facts.vocab_size) and policy.vocab_size != facts.vocab_size:
        message = S_(
            f"{config.model.reference} knows {facts.vocab_size:,} tokens and the policy {policy.vocab_size:,}; they must be the same"
        )
        problems.append(Problem("model.reference", message))
    return facts


def rotation_problems(config: RunConfig, policy: ModelFacts, prompts: PromptTokens | None) -> Iterator[Problem]:
    """Texts that lie on both sides of the length at which the frequencies of the model's rotary positions change.

    Only the prompts that were counted are checked here. The run checks all of them when it starts, before it trains anything.
    """
    if prompts is None:
        return
    counted = (prompts.shortest, prompts.longest[0])
    if problem := boundary_problem(config.model.policy, policy.rotation_boundary, counted, config.generation.response_length):
        yield Problem("data.max_prompt_tokens", problem)


def position_problems(config: RunConfig, policy: ModelFacts, longest_prompt: int | None) -> Iterator[Problem]:
    """Prompt and response together must fit into the positions that the model knows. ``longest_prompt`` in tokens, None when unknown."""
    limit, response = policy.max_positions, config.generation.response_length
    if limit is None or config.data.max_prompt_tokens + response <= limit:
        return
    measured = longest_prompt is not None
    longest = config.data.max_prompt_tokens if longest_prompt is None else min(config.data.max_prompt_tokens, longest_prompt)
    if longest + response <= limit:
        return
    if policy.attends_to == limit:
        message = S_(
            f"in texts of more than {limit:,} tokens this model attends only to those that it picks, and the picks change with the "
            f"rows beside it; {'' if measured else 'up to '}{longest:,} tokens of prompt leave {max(limit - longest, 0):,} for the response"
        )
        yield Problem("generation.response_length", message)
        return
    source = S_("the longest prompt has") if measured else S_("prompts may have")
    if response >= limit:
        yield Problem("generation.response_length", f"the model has only {limit:,} positions, prompt included; use less than that")
    elif longest >= limit:
        message = S_(f"{source} {longest:,} tokens, but the model has {limit:,} positions; use at most {limit - response:,}")
        yield Problem("data.max_prompt_tokens", message)
    else:
        yield Problem(
            "generation.response_length",
            f"{source} {longest:,} tokens, so prompt and response need {longest + response:,} positions, but the model has {limit:,}; "
            f"use at most {limit - longest:,}, or a longest prompt of {limit - response:,}",
        )
