"""Sequence classifiers as judges of text: which token counts, and the layer that gives the score.

Padding comes from lengths, here as everywhere. A decoder classifier of transformers takes the right-most token that is not the pad token
of its configuration, so for each batch an id that does not occur in it is named as that token: a tokenizer needs no pad token, and one
whose pad token is its end token loses no real end tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from rlhf_studio.engine.padding import pad_right


def unused_id(model: Any, rows: Sequence[Sequence[int]], preferred: int | None) -> int | None:
    """An id of the model's vocabulary that is in none of the rows: ``preferred`` if it can be. None when every id is used."""
    used = {token for row in rows for token in row}
    if preferred is not None and preferred not in used:
        return preferred
    size = model.get_input_embeddings().weight.shape[0]
    return next((candidate for candidate in range(size) if candidate not in used), None)


def own_pad(tokenizer: Any) -> int | None:
    """The pad token, or None when the tokenizer has none of its own: none at all, or the end token."""
    return None if tokenizer.pad_token_id == tokenizer.eos_token_id else tokenizer.pad_token_id


def last_token_logits(model: Any, rows: Sequence[Sequence[int]], preferred: int | None) -> torch.Tensor:
    """The classifier's outputs for token rows, float32 (B, outputs), whatever they are padded with.

    Right padding: positions count from the left and need no ids of their own. Without an id to pad with, each row goes alone.
    """
    pad = unused_id(model, rows, preferred)
    if pad is None and len(rows) > 1:
        return torch.cat([last_token_logits(model, [row], None) for row in rows])
    mask = pad_right([[1] * len(row) for row in rows], 0, model.device)
    with _pad_token(model, pad):
        return model(input_ids=pad_right(rows, pad or 0, model.device), attention_mask=mask, **_no_cache(model)).logits.float()


@contextlib.contextmanager
def _pad_token(model: Any, pad: int | None) -> Iterator[None]:
    config = model.config.get_text_config()
    usual, config.pad_token_id = config.pad_token_id, pad
    try:
        yield
    finally:
        config.pad_token_id = usual


def _no_cache(model: Any) -> dict[str, bool]:
    return {"use_cache": False} if hasattr(model.config.get_text_config(), "use_cache") else {}


# --- the score head --------------------------------------------------------------------------------------------------------------


def score_head(model: Any) -> nn.Linear:
    """The linear layer behind the trunk that gives the one score. Raises ValueError when there is no such layer."""
    trunk = set(model.base_model.modules())
    found = [module for module in model.modules() if module not in trunk and isinstance(module, nn.Linear) and module.out_features == 1]
    if len(found) != 1:
        raise ValueError(f"{type(model).__name__} has no linear layer with one output behind its trunk")
    return found[0]


@torch.no_grad()
def rescale_scores(model: Any, factor: float, offset: float) -> None:
    """Change the model so that every text that scored s scores ``factor * s + offset``.

    The offset goes where transformers has a place for it, so that the saved model scores the same there: into the bias of the head
    (encoders), or into that of the LayerNorm whose output the head reads (GPT-2 and others): adding c * w / |w|^2 to it, w the head's
    weights, adds exactly c to every score. Families with neither (RMSNorm and a head without bias: Llama, Qwen) get a bias in the head,
    which :func:`load_model.load_reward_model` takes up from the saved file. Plain transformers leaves it out: its scores then lack the
    offset, the same for every text, which no comparison of two texts sees. Raises ValueError without a score head.
    """
    head = score_head(model)
    norm = None if head.bias is not None else _norm_before(model, head)
    head.weight.mul_(factor)
    if norm is not None:
        weight = head.weight[0]
        norm.bias.add_(offset * weight / weight.square().sum())
    elif head.bias is not None:
        head.bias.mul_(factor).add_(offset)
    else:
        head.bias = nn.Parameter(torch.full_like(head.weight[:, 0], offset))


def _norm_before(model: Any, head: nn.Linear) -> nn.LayerNorm | None:
    """The LayerNorm with a bias whose output the head reads as it is, found by looking at a forward pass; None when there is none."""
    outputs: dict[nn.LayerNorm, torch.Tensor] = {}
    inputs: list[torch.Tensor] = []
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm) and module.bias is not None]
    hooks = [norm.register_forward_hook(lambda module, _, output: outputs.update({module: output})) for norm in norms]
    hooks.append(head.register_forward_pre_hook(lambda _, given: inputs.append(given[0])))
    was_training = model.training
    model.eval()
    try:
        last_token_logits(model, [[0, 1]], None)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    read = inputs[0]
    return next((norm for norm, output in outputs.items() if output.shape == read.shape and torch.equal(output, read)), None)
