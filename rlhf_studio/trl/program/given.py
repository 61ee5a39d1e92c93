"""What a classic program gives to ``step``: checked, and as the engine reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.types import PromptBatch, TokenBatch

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True)
class GivenStep:
    """A step's queries, responses and scores, on one device.

    Attributes:
        prompts, tokens: of the B queries and responses.
        scores: (B,) float32 on the CPU.
        learned: (B, T) bool, response tokens that are learned from; None: all of them.
    """

    prompts: PromptBatch
    tokens: TokenBatch
    scores: Tensor
    learned: Tensor | None


@dataclass(frozen=True)
class Limits:
    """What a model can read: token ids below ``vocabulary``, and texts of up to ``positions`` tokens (0: of any length)."""

    vocabulary: int
    positions: int

    @classmethod
    def of(cls, model: Any) -> Limits:
        """Those of a model of transformers."""
        return cls(model.get_input_embeddings().weight.shape[0], int(getattr(model.config, "max_position_embeddings", 0) or 0))


def check_step(queries: Any, responses: Any, scores: Any, masks: Any, size: int, limits: Limits) -> None:
    """Raise ValueError, in one sentence, for what a step cannot be made of: ``size`` queries and responses, one score each."""
    lists = {"queries": queries, "responses": responses, "scores": scores} | ({} if masks is None else {"response_masks": masks})
    for name, values in lists.items():
        if not isinstance(values, list | tuple):
            raise ValueError(f"step: {name} must be a list of tensors, not a {type(values).__name__}{_as_list(values)}")
        if len(values) != size:
            raise ValueError(f"step: there are {len(values)} {name}, but batch_size in PPOConfig is {size}")
    for name in ("queries", "responses"):
        for row, ids in enumerate(lists[name]):
            _check_ids(f"{name}[{row}]", ids, limits.vocabulary)
    for row, (query, response) in enumerate(zip(queries, responses, strict=True)):
        if limits.positions and len(query) + len(response) > limits.positions:
            whole = f"{len(query)} + {len(response)} tokens"
            raise ValueError(f"step: query and response {row} have {whole}, and the model reads {limits.positions} at most")
    for row, score in enumerate(scores):
        _check_score(row, score)
    for row, mask in enumerate(masks or ()):
        if not isinstance(mask, Tensor) or mask.shape != responses[row].shape:
            raise ValueError(f"step: response_masks[{row}] must have one number for each of the {len(responses[row])} response tokens")
        if not bool(mask.bool().any()):
            raise ValueError(f"step: response_masks[{row}] leaves no token to learn from")


def given_step(
    queries: Sequence[Tensor],
    responses: Sequence[Tensor],
    scores: Sequence[Tensor],
    masks: Sequence[Tensor] | None,
    tokenizer: Any,
    pad: int,
) -> GivenStep:
    """The step as the engine reads it, on the CPU; the arguments have passed :func:`check_step`."""
    ids, mask = pad_left([query.tolist() for query in queries], pad)
    texts = tokenizer.batch_decode([query.tolist() for query in queries], skip_special_tokens=True)
    width = max(len(response) for response in responses)
    response_ids = torch.full((len(responses), width), pad, dtype=torch.int64)
    response_mask, learned = torch.zeros_like(response_ids, dtype=torch.bool), torch.zeros_like(response_ids, dtype=torch.bool)
    for row, response in enumerate(responses):
        response_ids[row, : len(response)] = response.cpu()
        response_mask[row, : len(response)] = True
        learned[row, : len(response)] = True if masks is None else masks[row].cpu().bool()
    raw = torch.stack([torch.as_tensor(score).detach().float().cpu().reshape(()) for score in scores])
    tokens = TokenBatch(ids, mask, response_ids, response_mask)
    return GivenStep(PromptBatch(ids, mask, texts), tokens, raw, None if masks is None else learned)


def check_query(name: str, query: Any) -> None:
    """Raise ValueError, in one sentence, for a query that cannot be answered."""
    if not isinstance(query, Tensor):
        raise ValueError(f"{name} is a {type(query).__name__}; give token ids as a tensor of one dimension")
    if query.dim() != 1:
        raise ValueError(f"{name} has the shape {tuple(query.shape)}; give one dimension, or a list of such tensors{_unpad(query)}")
    if not len(query):
        raise ValueError(f"{name} has no token; begin it with the tokenizer's bos_token_id")


def _check_ids(name: str, ids: Any, vocabulary: int) -> None:
    if not isinstance(ids, Tensor):
        raise ValueError(f"step: {name} is a {type(ids).__name__}; give token ids as a tensor of one dimension")
    if ids.dim() != 1:
        raise ValueError(f"step: {name} has the shape {tuple(ids.shape)}; give one dimension{_unpad(ids)}")
    if not len(ids):
        what = "it cannot be scored or learned from" if name.startswith("responses") else "begin it with the tokenizer's bos_token_id"
        raise ValueError(f"step: {name} has no token; {what}")
    if ids.dtype not in WHOLE:
        raise ValueError(f"step: {name} holds {str(ids.dtype).removeprefix('torch.')} numbers; token ids are whole (torch.long)")
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise ValueError(f"step: {name} holds {wrong}, which is no token of the model: its ids are 0 to {vocabulary - 1}")


def _check_score(row: int, score: Any) -> None:
    if not isinstance(score, Tensor):
        raise ValueError(f"step: scores[{row}] is a {type(score).__name__}; give each score as a tensor: torch.tensor({_number_in(score)})")
    if score.numel() != 1:
        raise ValueError(f"step: scores[{row}] has {score.numel()} numbers; a response has one score")
    if not bool(torch.isfinite(score.float()).all()):
        raise ValueError(f"step: scores[{row}] is {score.item()}, which is not finite")


def _number_in(score: Any) -> str:
    """What a person would write for the number; the output of a pipeline has it inside."""
    if isinstance(score, int | float):
        return repr(score)
    inner = score[0] if isinstance(score, list) and score else score
    return f'output{"[0]" * (inner is not score)}["score"]' if isinstance(inner, dict) and "score" in inner else "number"


def _as_list(values: Any) -> str:
    return ": write list(…)" if isinstance(values, Tensor) and values.dim() else ""


def _unpad(ids: Tensor) -> str:
    return " (squeeze(0) takes the first one away)" if ids.dim() == 2 and len(ids) == 1 else ""
