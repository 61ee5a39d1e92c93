"""Held-out prompts: those that training never draws, which show what the policy does on prompts it did not learn from.

They come from ``data.eval``, or a part of the prompts is set aside: which ones follows from the seed and from what the policy reads,
so the same prompt is never on both sides, and leaving out one prompt does not move the others.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from rlhf_studio.config import DataConfig, fitting
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import S_
from rlhf_studio.units import percent

FEWEST_PROMPTS, MOST_SET_ASIDE = fitting.FEWEST_PROMPTS, fitting.MOST_SET_ASIDE
MOST_EVAL_ROWS = 1_000
SAME_PROMPTS = S_(
    "Warning: data.eval names the prompts that are trained on, so nothing is held out; name others, or leave it empty and set "
    "data.eval_share."
)


def set_aside(
    ids: Sequence[Sequence[object]], fraction: float, seed: int, *, most: int = MOST_SET_ASIDE, fewest: int = FEWEST_PROMPTS
) -> list[int]:
    """The indices, ascending, of the prompts that training must not draw: at most ``fraction`` of them, and at most ``most``.

    Of fewer than ``fewest`` prompts, none is set aside. ``ids``: the prompts' token ids, or what else tells them apart. Prompts with the
    same ids are on the same side.
    """
    count = min(most, int(fraction * len(ids))) if len(ids) >= fewest else 0
    same: dict[bytes, list[int]] = {}
    if count:
        for index, row in enumerate(ids):
            same.setdefault(hashlib.sha256(f"{seed} {list(row)}".encode()).digest(), []).append(index)
    chosen: list[int] = []
    for key in sorted(same):
        if len(chosen) + len(same[key]) <= count:
            chosen += same[key]
    return sorted(chosen)


def eval_settings(data: DataConfig) -> DataConfig | None:
    """How the prompts of ``data.eval`` are read: as those for training are, but for source and split. None when it names nothing."""
    if not data.eval:
        return None
    source = {"prompts": data.eval, "split": data.eval_split, "eval": "", "max_prompts": min(data.max_prompts, MOST_EVAL_ROWS)}
    other = {} if data.eval == data.prompts else {"subset": "", "revision": "main"}
    return data.model_copy(update={**source, **other})


def same_source(data: DataConfig) -> bool:
    """Whether ``data.eval`` names what the training prompts come from: the same file, or the same split of a folder or hub dataset."""
    return name_the_same(data.prompts, data.eval, same_split=data.split == data.eval_split)


def name_the_same(first: str, second: str, *, same_split: bool) -> bool:
    """Whether two names lead to the same file, or to the same folder or hub dataset, of which ``same_split`` is read."""
    first, second = resolve(first), resolve(second)
    local = os.path.exists(first) and os.path.exists(second)
    if not (os.path.samefile(first, second) if local else first == second):
        return False
    return os.path.isfile(first) or same_split


def eval_error(error: PromptsError) -> PromptsError:
    """An error in the prompts of ``data.eval``, at one of its own settings: all other settings are shared with the training prompts."""
    field = "data.eval_split" if error.field == "data.split" else "data.eval"
    own = error.field in ("data.prompts", "data.split")
    return PromptsError(field, error.message if own else f"in the held-out prompts: {error.message}")


def held_out_notes(data: DataConfig, count: int | None, aside: int, evals: int | None) -> list[str]:
    """What a person should know of them, one sentence or none.

    Args:
        count: prompts in all; None when only the first are known.
        aside: how many of them are set aside.
        evals: prompts of ``data.eval``, where it names some.
    """
    if data.eval:
        many = S_("1 held-out prompt") if evals == 1 else S_(f"{evals:,} held-out prompts")
        return [S_(f"{many} from {data.eval}: the watched prompts are among them, and training draws all of its own.")]
    if not data.eval_share:
        return []
    among = S_("training never draws them, and the watched prompts are among them (data.eval_share)")
    if count is None:
        return [S_(f"Of the prompts {percent(data.eval_share)} are held out, at most {MOST_SET_ASIDE}: {among}.")]
    if aside:
        return [S_(f"{aside:,} of {count:,} prompts are held out: {among}.")]
    few = S_(f", which are fewer than {FEWEST_PROMPTS}") if count < FEWEST_PROMPTS else ""
    return [
        S_(f"None of the {count:,} prompts is held out{few}: the watched prompts are trained on too. Others can be named in data.eval.")
    ]
