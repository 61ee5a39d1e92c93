"""Score heads of reward models: one linear layer, or a hidden layer before it; drawing, saving and loading them.

transformers' decoder classifiers have a linear layer named ``score``. A head with a hidden layer takes its place under the same name, and
its first matrix is saved as ``score.weight``: its shape (width, width) does not fit transformers' own head (outputs, width), so plain
transformers refuses to load such a model. It would otherwise draw a new head and give random scores with nothing but a warning.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu

from rlhf_studio.language import S_

HEAD_DROPOUT = "head_dropout"
"""The attribute of a head that says how much is dropped before it in training mode."""
HIDDEN_PARTS = ("weight", "bias", "output.weight", "output.bias")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "tanh": torch.tanh}


class HiddenHead(nn.Module):
    """score = w · activation(W h + b) + c for a hidden state h of ``width`` numbers; W is as wide as it is high.

    Args:
        width: d, size of the hidden states.
        activation: one of :data:`ACTIVATIONS`.
    """

    def __init__(self, width: int, activation: str = "gelu", dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"):
        super().__init__()
        self.in_features, self.activation = width, activation
        self.weight = nn.Parameter(torch.empty(width, width, dtype=dtype, device=device))
        self.bias = nn.Parameter(torch.zeros(width, dtype=dtype, device=device))
        self.output = nn.Linear(width, 1, dtype=dtype, device=device)

    def forward(self, states: Tensor) -> Tensor:
        """(…, d) hidden states to (…, 1) scores."""
        hidden = ACTIVATIONS[self.activation](nn.functional.linear(states, self.weight, self.bias))
        scores: Tensor = self.output(hidden)
        return scores


@torch.no_grad()
def draw_head(head: nn.Module, generator: torch.Generator) -> None:
    """Draw every matrix of a head from N(0, 1 / sqrt(d + 1)), d the size of its input, and zero its biases.

    Source: Ziegler et al. 2019, arXiv:1909.08593, for the linear head; a hidden layer is drawn in the same way.
    """
    for parameter in head.parameters():
        if parameter.ndim == 2:
            drawn = torch.randn(parameter.shape, generator=generator) / (parameter.shape[1] + 1) ** 0.5
            parameter.copy_(drawn)
        else:
            parameter.zero_()


def set_head_dropout(model: Any, share: float) -> None:
    """Put dropout before the head ``score`` while the model trains. It changes nothing of what is saved. 0: none.

    Raises ValueError when the model has no such head.
    """
    if share == 0:
        return
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Module):
        raise ValueError(S_(f"{type(model).__name__} has no layer named score, before which dropout could stand"))
    setattr(head, HEAD_DROPOUT, share)
    head.register_forward_pre_hook(lambda module, inputs: (dropout(inputs[0], share, module.training), *inputs[1:]))


def head_tensors(folder: Path, prefix: str = "score.") -> dict[str, Tensor]:
    """The saved tensors of the head in a model's safetensors files, by their names without ``prefix``."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            tensors |= {name.removeprefix(prefix): weights.get_tensor(name) for name in weights.keys() if name.startswith(prefix)}  # noqa: SIM118
    return tensors


def hidden_head(width: int, activation: str, tensors: dict[str, Tensor], dtype: torch.dtype, device: torch.device) -> HiddenHead:
    """The saved head. Raises ValueError when its tensors do not fit."""
    head = HiddenHead(width, activation, dtype, device)
    expected = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    saved = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != saved:
        raise ValueError(S_(f"its score head has the weights {saved}, and a hidden layer as wide as the model needs {expected}"))
    head.load_state_dict(tensors)
    return head.eval()


LOADING_LOGGER = "transformers.modeling_utils"
REPORT_TITLE = "LOAD REPORT"


class LoadReport(logging.Filter):
    """Holds back what transformers logs of weights that do not fit a model, until it is known whether they are a head of our own."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged at once."""
        if REPORT_TITLE not in record.getMessage():
            return True
        self._held.append(record)
        return False

    def tell(self) -> None:
        """Log it after all."""
        for record in self._held:
            logging.getLogger(LOADING_LOGGER).handle(record)


@contextlib.contextmanager
def report_held_back() -> Iterator[LoadReport]:
    """Inside, nothing is logged about weights that do not fit; whoever loads a model decides afterwards."""
    report, logger = LoadReport(), logging.getLogger(LOADING_LOGGER)
    logger.addFilter(report)
    try:
        yield report
    finally:
        logger.removeFilter(report)
