"""What a program gives: prompts as strings or as a dataset's column, and scores as numbers or by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.outside.python_child import short_repr
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.read import Prompts

Reward = Callable[[list[str], list[str]], Sequence[float]]
"""Takes prompts and responses, gives one finite number for each pair."""


def prompts_from(given: Any, column: str = "prompt") -> Prompts:
    """Prompts from strings, or from the named column of a dataset or of a table.

    Raises TypeError for what holds no texts, ValueError where there is no such column or no prompt at all.
    """
    texts = list(_texts(given, column))
    if not texts:
        raise ValueError("there are no prompts")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            hint = "; give a dataset, and name its column" if isinstance(text, dict) else ""
            raise TypeError(f"prompt {number} is a {type(text).__name__}, not a string{hint}")
    return Prompts([Prompt(number, text) for number, text in enumerate(texts, 1)])


def _texts(given: Any, column: str) -> Iterable[Any]:
    if isinstance(given, str):
        raise TypeError("prompts is one string; give a list of strings")
    if isinstance(given, dict):  # a DatasetDict is one
        parts = ", ".join(map(str, list(given)[:10]))
        raise TypeError(f"prompts has the parts {parts}; give one of them, such as prompts[{next(iter(given), 'train')!r}]")
    columns = getattr(given, "column_names", None) or getattr(given, "columns", None)
    if columns is None:
        if not isinstance(given, Iterable):
            raise TypeError(f"prompts is a {type(given).__name__}; give strings, or a dataset with a column of strings")
        return given
    if column not in list(columns):
        has = ", ".join(map(str, list(columns)[:20]))
        raise ValueError(f"the dataset has no column {column!r}; it has {has}: name one with column=")
    if hasattr(given, "select_columns"):  # of a dataset, one column alone is read, also where it is streamed
        return (row[column] for row in given.select_columns([column]))
    return list(given[column])


def scores_of(given: Any, prompts: list[str], responses: list[str]) -> Tensor:
    """(B,) raw scores, from numbers or from a function of prompts and responses.

    Raises ValueError for anything but one finite number for each response.
    """
    if callable(given) and not isinstance(given, Tensor):
        try:
            raw = FunctionReward(given).scores(prompts, responses)
        except ComponentError as error:
            raise ValueError(f"the scores function failed: {error}") from error
    else:
        raw = torch.as_tensor(given, dtype=torch.float32).detach().cpu()
    if raw.shape != (len(responses),):
        raise ValueError(f"there are {len(responses)} responses, but the scores have the shape {tuple(raw.shape)}")
    if not raw.isfinite().all():
        raise ValueError(f"the score of response {int((~raw.isfinite()).nonzero()[0]) + 1} is not finite")
    return raw


class FunctionReward:
    """A Python function as a reward component."""

    def __init__(self, function: Reward):
        self._function = function

    def __call__(self, episodes: Episodes) -> Answer:
        return Answer(self.scores(episodes.prompts, episodes.responses))

    def scores(self, prompts: Sequence[str], responses: Sequence[str]) -> Tensor:
        """(B,) what the function gives. Raises :class:`ComponentError` for anything but one number for each response."""
        try:
            given: Any = self._function(list(prompts), list(responses))
        except Exception as error:  # a person's own function may raise anything
            raise ComponentError(f"it raised {type(error).__name__}: {str(error)[:500]}") from error
        if isinstance(given, str) or not hasattr(given, "__iter__"):
            raise ComponentError(f"it gave a {type(given).__name__} and not a list of numbers")
        scores = [_number(score, row) for row, score in enumerate(given)]
        if len(scores) != len(responses):
            raise ComponentError(f"gave {len(scores)} scores for {len(responses)} responses")
        return torch.tensor(scores, dtype=torch.float32)


def _number(score: Any, row: int) -> float:
    try:
        if isinstance(score, str | bytes):  # "3" would pass as a number
            raise TypeError
        return float(score)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several numbers
        raise ComponentError(f"it gave {short_repr(score)}, which is not a number", row) from None
