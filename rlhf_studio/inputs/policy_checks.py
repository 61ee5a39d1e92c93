"""Whether policy, LoRA settings and lengths fit together."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.models import ModelFacts
from rlhf_studio.inputs.prompts import count_tokens

PROMPTS_MEASURED = 2_000


def policy_problems(config: RunConfig, policy: ModelFacts) -> Iterator[Problem]:
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


def position_problems(config: RunConfig, policy: ModelFacts, prompts: list[str]) -> Iterator[Problem]:
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
