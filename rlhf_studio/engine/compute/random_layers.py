"""Layers that draw random numbers while a model trains: whether there are any."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

WORDS = ("drop", "jitter")
"""Parts of the names under which layers, and configurations, keep how much is changed at random in training mode."""
_FROM_CONFIG = re.compile(rf"self\.config\.(\w*(?:{'|'.join(WORDS)})\w*)")


def draws_random_numbers(modules: Iterable[nn.Module]) -> bool:
    """Whether one of these layers draws random numbers in training mode: dropout, or noise in a router."""
    return any(_shares(module) for module in modules)


def _shares(module: nn.Module) -> list[float]:
    """How much a layer changes at random: as a dropout layer, by its own numbers, or by those of the configuration that it reads."""
    own = {"p": module.p} if isinstance(module, _DropoutNd) else {}
    own |= {name: value for name, value in vars(module).items() if any(word in name for word in WORDS)}
    kind: Any = type(module)
    own |= {name: getattr(module.config, name, 0) for name in _read_from_config(kind)}
    return [value for value in own.values() if isinstance(value, float) and value > 0]


@cache
def _read_from_config(kind: type[nn.Module]) -> tuple[str, ...]:
    """Names of such numbers that a kind of layer reads from its configuration in every forward pass, as Falcon's do."""
    try:
        return tuple(set(_FROM_CONFIG.findall(inspect.getsource(kind.forward))))
    except (OSError, TypeError):  # no source: a layer of torch itself
        return ()
