"""Examples that training never sees: from ``data.eval``, or a share of the examples themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from rlhf_studio.config import DemonstrationsConfig, PairsConfig, fitting
from rlhf_studio.inputs.examples.rows import Demonstration, Pair
from rlhf_studio.inputs.prompts.cached import state_of
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.held_out import MOST_EVAL_ROWS, name_the_same, set_aside
from rlhf_studio.inputs.prompts.messages import key_of
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.inputs.trained import resolve

Row = TypeVar("Row", Demonstration, Pair)
Config = TypeVar("Config", DemonstrationsConfig, PairsConfig)


def split_held_out(rows: Sequence[Row], data: DemonstrationsConfig | PairsConfig, seed: int) -> tuple[list[Row], list[Row]]:
    """The examples to train on, and those that are held out: ``data.eval_share`` of them at most. Both keep their order.

    Examples with the same prompt are on the same side. Which side follows from the seed and the prompt alone: other examples that come
    or go do not move it. Nothing is held out when ``data.eval`` names held-out data.
    """
    share = 0.0 if data.eval else data.eval_share
    aside = set(set_aside([_together(row) for row in rows], share, seed, most=fitting.MOST_EXAMPLES_HELD_OUT, fewest=0))
    return [row for index, row in enumerate(rows) if index not in aside], [rows[index] for index in sorted(aside)]


def held_out_settings(data: Config) -> Config | None:
    """How the examples of ``data.eval`` are read: as those for training, but for source and split. None when it names nothing."""
    if not data.eval:
        return None
    source = {"source": data.eval, "split": data.eval_split, "eval": "", "max_rows": min(data.max_rows, MOST_EVAL_ROWS)}
    other = {} if data.eval == data.source else {"subset": "", "revision": "main"}
    return data.model_copy(update={**source, **other})


def held_out_error(error: PromptsError) -> PromptsError:
    """An error in the examples of ``data.eval``, at one of its own settings: all other settings are shared with the training examples."""
    field = "data.eval_split" if error.field == "data.split" else "data.eval"
    own = error.field in ("data.source", "data.split")
    return PromptsError(field, error.message if own else f"in the held-out data: {error.message}")


def same_source(data: DemonstrationsConfig | PairsConfig) -> bool:
    """Whether ``data.eval`` names what training reads: the same file, or the same split of a folder or hub dataset."""
    same_split = data.source.startswith("bundled/") or data.split == data.eval_split
    return name_the_same(data.source, data.eval, same_split=same_split)


def same_contents(data: DemonstrationsConfig | PairsConfig) -> bool:
    """Whether ``data.eval`` is a copy of what training reads: a file, or a folder of the same split, that holds the same, byte for byte."""
    source, held_out = resolve(data.source), resolve(data.eval)
    states = [state_of(path) for path in (source, held_out)]
    if not all(states) or os.path.isfile(source) != os.path.isfile(held_out):
        return False
    if not os.path.isfile(source) and data.split != data.eval_split:
        return False
    if sorted(size for *_, size in states[0]) != sorted(size for *_, size in states[1]):
        return False
    try:
        source_hash, held_out_hash = (_hash(path, state) for path, state in zip((source, held_out), states, strict=True))
    except OSError:  # it is gone since; whoever reads it says so
        return False
    return bool(source_hash) and source_hash == held_out_hash


@lru_cache(maxsize=8)
def _hash(path: str, state: tuple[tuple[str, int, int], ...]) -> str:
    """The hash of what lies there, computed once while its ``state`` stays: a form asks at every change."""
    return hash_of(Path(path))


def _together(row: Demonstration | Pair) -> tuple[object, ...]:
    """A key that is equal for examples that must be on the same side.

    It is the prompt; without a prompt, the block of compared responses, or the example's own texts. A pair and the same pair the other way
    round have the same key.
    """
    messages = key_of(row.messages)
    if isinstance(row, Demonstration):
        return (row.prompt, messages and messages[:-1]) if row.prompt else (row.completion,)
    return (row.prompt, messages) if row.prompt else (row.block,) if row.block else tuple(sorted((row.chosen, row.rejected)))
