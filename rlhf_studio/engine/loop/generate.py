"""Generating responses: in batches and lanes, with LoRA merged; and the responses as texts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.gathering import concat_parts
from rlhf_studio.engine.compute.lanes import LEAST_ROWS
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.sampling.decode import Sampled, sample_responses
from rlhf_studio.engine.types import ForwardOutput, PromptBatch, TokenBatch
from rlhf_studio.language import S_

LOOK_EVERY = 8  # tokens between two looks at which responses have ended; on a GPU each look waits until all work is done


def generate(
    models: Models,
    prompts: PromptBatch,
    settings: GenerationConfig,
    generator: torch.Generator,
    recorded: int = 0,
    part: slice = slice(None),
    limits: Tensor | None = None,
) -> tuple[TokenBatch, ForwardOutput]:
    """Sample one response for each prompt of ``part`` on the models' device.

    Random numbers are drawn for all prompts, so that an episode is the same whichever rank samples it, and however many at a time.

    Args:
        recorded: how many of the first episodes of ``part`` also get, for each token, the likeliest tokens there.
        limits: (B,) most tokens of each response; None draws them when a shortest limit is set.
    """
    device, count = models.compute.device, len(prompts.texts)
    if limits is None and settings.response_length_min:
        drawn = torch.rand(count, generator=generator, device=device)
        span = settings.response_length - settings.response_length_min + 1
        limits = settings.response_length_min + (drawn * span).long().clamp(max=span - 1)
    uniforms = torch.rand((count, settings.response_length), generator=generator, device=device, dtype=torch.float64)
    least = models.traced_step.rows_per_lane if models.traced_step else LEAST_ROWS

    def in_one_lane(rows: slice) -> Sampled:
        with models.compute.autocast():
            return sample_responses(
                models.policy,
                prompts.ids[rows].to(device),
                prompts.mask[rows].to(device),
                settings,
                uniforms=uniforms[rows],
                stop_ids=models.stop_ids,
                pad_id=models.pad_id,
                limits=None if limits is None else limits[rows],
                top_rows=max(min(first + recorded, rows.stop) - rows.start, 0),
                ranks=models.compute.ranks,
                later_step=later_step,
                look_every=LOOK_EVERY if device.type == "cuda" else 1,
                after_token=lambda drawn: models.compute.pulse(doing(drawn)),
            )

    def doing(drawn: int) -> str:
        whole = S_(f"Sampling: {drawn}/{longest} tokens")
        return S_(f"Sampling: part {part_of_batch}, {drawn}/{longest} tokens") if part_of_batch else whole

    first, stop, _ = part.indices(count)
    lanes, batches = models.compute.lanes, []
    longest = settings.response_length if limits is None else int(limits.max())
    with models.policy.merged():
        later_step = models.traced_step.ready(settings, lanes) if models.traced_step else None
        parts = _cut(slice(first, stop), settings.batch_size or stop - first)
        for number, together in enumerate(parts, 1):
            part_of_batch = f"{number}/{len(parts)}" if len(parts) > 1 else ""
            rows = together.stop - together.start
            batches += lanes.map(in_one_lane, _cut(together, lanes.rows_per_part(rows, rows, least)))
        if later_step:
            later_step.rest()
    return concat_parts(batches, models.pad_id)


def _cut(rows: slice, size: int) -> list[slice]:
    """The rows in parts of at most ``size``."""
    return [slice(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]


def decode_responses(models: Models, tokens: TokenBatch) -> list[str]:
    """:func:`response_texts` with the tokenizer of a run's models."""
    return response_texts(models.tokenizer, tokens)


def response_texts(tokenizer: PreTrainedTokenizerBase, tokens: TokenBatch) -> list[str]:
    """The response texts, without special tokens.

    Each is decoded together with its prompt, and the prompt's text is cut off. So a leading space stays: many tokenizers drop the
    space of a text's first token.
    """
    prompts = rows_of(tokens.prompt_ids, tokens.prompt_mask)
    responses = rows_of(tokens.response_ids, tokens.mask)
    before = _decode(tokenizer, prompts)
    texts = _decode(tokenizer, [prompt + response for prompt, response in zip(prompts, responses, strict=True)])
    return [
        # Decoding the response alone is for the rare tokenizer that decodes the prompt differently when a response follows it.
        text[len(prompt) :] if text.startswith(prompt) else _decode(tokenizer, [ids])[0]
        for text, prompt, ids in zip(texts, before, responses, strict=True)
    ]


def rows_of(values: Tensor, mask: Tensor) -> list[list[Any]]:
    """For each row of ``values`` (B, T), the entries where ``mask`` (B, T) is True."""
    return [row[keep].tolist() for row, keep in zip(values.cpu(), mask.cpu(), strict=True)]


def _decode(tokenizer: PreTrainedTokenizerBase, rows: list[list[int]]) -> list[str]:
    return tokenizer.batch_decode(rows, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def ends_with_stop(tokens: TokenBatch, stop_ids: tuple[int, ...]) -> Tensor:
    """(B,) bool on the CPU: whether the last sampled token is a stop token. Without a stop token every response counts as ended."""
    if not stop_ids:
        return torch.ones(len(tokens), dtype=torch.bool)
    last = tokens.response_ids.gather(1, tokens.lengths[:, None] - 1).squeeze(1)
    return torch.isin(last, torch.tensor(stop_ids, device=last.device)).cpu()
