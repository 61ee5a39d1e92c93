"""The numbers of one step of somebody's own loop, checked before anything is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlhf_studio.attach import arrays
from rlhf_studio.attach.steps import Response

PER_TOKEN = ("logprobs", "ref_logprobs", "new_logprobs", "values", "entropy")
"""Arguments of ``step`` that give a number for each token; the run folder has the same names."""


def responses_of(given: Mapping[str, Any], pad: int | None = None) -> list[Response]:
    """The responses that the arguments of :meth:`~rlhf_studio.attach.Studio.step` describe.

    ``pad``: the id of the tokenizer's pad token, where it has one.

    Raises:
        ValueError: the arguments do not fit together; the message names the argument and the row.
    """
    prompts = given["prompts"]
    count = _count(given)
    prompt_mask, mask = given["prompt_mask"], given["response_mask"]
    responses = [Response() for _ in range(count)]
    if prompts is not None:
        _give(responses, "prompt", arrays.texts(prompts, count, "prompts"))
    if given["responses"] is not None:
        _give(responses, "response", arrays.texts(given["responses"], count, "responses"))
    if given["prompt_ids"] is not None:
        _give(responses, "prompt_ids", arrays.rows_of_ids(given["prompt_ids"], prompt_mask, count, "prompt_ids", pad))
    if given["response_ids"] is not None:
        _give(responses, "response_ids", arrays.rows_of_ids(given["response_ids"], mask, count, "response_ids", pad))
    if given["response_tokens"] is not None:
        lengths = [response.length for response in responses]
        _give(responses, "response_pieces", arrays.token_texts(given["response_tokens"], lengths, "response_tokens"))
    if given["stopped"] is not None:
        _give(responses, "stopped", arrays.flags(given["stopped"], count, "stopped"))
    if given["gold"] is not None:
        gold = arrays.per_response(given["gold"], count, "gold").tolist()
        _give(responses, "gold", [None if math.isnan(value) else value for value in gold])
    lengths = [response.length for response in responses]
    for name in PER_TOKEN:
        if given[name] is not None:
            _give_array(responses, name, arrays.rows_of_numbers(given[name], mask, lengths, name))
    _give_advantages(responses, given["advantages"], mask, lengths)
    give_rewards(responses, given["rewards"], given["scores"])
    return responses


def _count(given: Mapping[str, Any]) -> int:
    """How many responses there are."""
    for name in ("responses", "response_ids", "response_tokens"):
        if given[name] is not None:
            try:
                return len(given[name])
            except TypeError as error:
                raise ValueError(f"{name} must be a list, with an entry for each response") from error
    if any(given[name] is not None for name in ("prompts", "rewards", "scores", "advantages", *PER_TOKEN)):
        raise ValueError("give the responses too: responses (texts), response_ids or response_tokens")
    return 0


def _give(responses: Sequence[Response], attribute: str, values: Sequence[Any]) -> None:
    for response, value in zip(responses, values, strict=True):
        setattr(response, attribute, value)


def _give_array(responses: Sequence[Response], name: str, rows: Sequence[np.ndarray]) -> None:
    for response, row in zip(responses, rows, strict=True):
        response.arrays[name] = row


def _give_advantages(responses: Sequence[Response], advantages: Any, mask: Any, lengths: Sequence[int | None]) -> None:
    """One number for each response, which all of its tokens share, or one for each token."""
    if advantages is None:
        return
    try:
        single = all(np.ndim(arrays.to_numpy(row)) == 0 for row in advantages)
    except (TypeError, ValueError) as error:
        raise ValueError("advantages must be one number for each response, or one for each token of each response") from error
    if single:
        own = arrays.per_response(advantages, len(responses), "advantages")
        if None in lengths:
            raise ValueError("advantages are shown at tokens: give response_ids or response_tokens too")
        rows = [np.full(length or 0, value, np.float32) for value, length in zip(own, lengths, strict=True)]
    else:
        rows = arrays.rows_of_numbers(advantages, mask, lengths, "advantages")
    _give_array(responses, "advantages", rows)
    _give_array(responses, "whitened_advantages", rows)  # what the loss used


def give_rewards(responses: Sequence[Response], rewards: Any, scores: Any = None) -> None:
    """``rewards``: one number for each response, or such by the name of each reward function. ``scores``: their sum, if it is another.

    Raises ValueError.
    """
    count = len(responses)
    if rewards is not None and not isinstance(rewards, Mapping):
        if scores is not None:
            raise ValueError("give rewards by the name of their function, or scores alone")
        rewards, scores = None, rewards
    parts = {str(name): arrays.per_response(values, count, f"rewards[{name!r}]") for name, values in (rewards or {}).items()}
    for row, response in enumerate(responses):
        response.parts = {name: float(values[row]) for name, values in parts.items() if not math.isnan(values[row])}
        response.score = sum(response.parts.values()) if response.parts else math.nan
    if scores is not None:
        _give(responses, "score", [float(value) for value in arrays.per_response(scores, count, "scores" if parts else "rewards")])


def numbers_by_name(metrics: Any) -> dict[str, float]:
    """The metrics of a step as floats. Raises ValueError for what is no mapping of names to numbers."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise ValueError("metrics must be a mapping of names to numbers, such as {'objective/kl': 0.3}")
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"metrics[{name!r}] must be a number") from error
    return numbers
