"""``generate`` of a classic trainer: transformers' own sampling, so that every argument of it means what it meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.trl.program.given import check_query


@torch.no_grad()
def answer_one(model: Any, query: Tensor, length: Callable[[], int] | None, return_prompt: bool, options: dict[str, Any]) -> Tensor:
    """(1, L) answer to one query (P,), with the query before it unless ``return_prompt`` is off."""
    check_query("generate: query_tensor", query)
    options = options | ({} if length is None else {"max_new_tokens": length()})
    with _sampling(model):
        ids = query.to(model.device).unsqueeze(0)
        drawn = model.generate(input_ids=ids, **({"attention_mask": torch.ones_like(ids)} | options))
    answer: Tensor = drawn if return_prompt else drawn[:, len(query) :]
    return answer


@torch.no_grad()
def answer_many(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    queries: Sequence[Tensor],
    length: Callable[[], int] | None,
    batch_size: int,
    return_prompt: bool,
    *,
    pad_to_multiple_of: int | None = None,
    remove_padding: bool = True,
    **options: Any,
) -> list[Tensor]:
    """Answers (L,) of their own lengths, each cut behind its first end token, to queries (P,). ``length`` is asked once for each batch.

    Raises ValueError for a query that is no tensor of one dimension, and for a tokenizer without a pad token.
    """
    for row, query in enumerate(queries):
        check_query(f"generate: query {row}", query)
    if tokenizer.pad_token_id is None:
        raise ValueError("generate: the tokenizer has no pad token; write tokenizer.pad_token = tokenizer.eos_token")
    answers: list[Tensor] = []
    for start in range(0, len(queries), batch_size):
        together = [query.tolist() for query in queries[start : start + batch_size]]
        sampling = options | ({} if length is None else {"max_new_tokens": length()})
        padded = tokenizer.pad({"input_ids": together}, padding_side="left", pad_to_multiple_of=pad_to_multiple_of, return_tensors="pt")
        ids, mask = padded["input_ids"].to(model.device), padded["attention_mask"].to(model.device)
        with _sampling(model):
            drawn = model.generate(input_ids=ids, attention_mask=mask, **sampling)
        for row, prompt in zip(drawn, together, strict=True):
            answers.append(_own(row[ids.shape[1] - len(prompt) :], len(prompt), tokenizer.eos_token_id, return_prompt, remove_padding))
    return answers


def _own(row: Tensor, prompt: int, end: int | None, return_prompt: bool, remove_padding: bool) -> Tensor:
    answer = row if return_prompt else row[prompt:]
    ends = (answer == end).nonzero() if remove_padding and end is not None else answer.new_zeros((0, 1))
    return answer[: int(ends[0]) + 1] if len(ends) else answer


@contextmanager
def _sampling(model: Any) -> Iterator[None]:
    """Dropout is off, as it is when the answers are learned from."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
