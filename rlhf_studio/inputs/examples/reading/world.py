"""What the models of the review world learned from, written anew from its seeds when it is read: nothing of it is shipped."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

from rlhf_studio.inputs.prompts.errors import no_column
from rlhf_studio.inputs.prompts.sources.rows import RawRow, RowSource, SourceRequest
from rlhf_studio.inputs.world.corpus import CORPUS_SEED, EVAL_SEED, PAIRS_SEED, draw_pair, draw_review

SIZES = {
    "bundled/world-reviews": 110_000,
    "bundled/world-reviews-heldout": 1_000,
    "bundled/world-pairs": 16_000,
    "bundled/world-pairs-heldout": 1_000,
}
"""Name -> rows, as many as :mod:`rlhf_studio.lessons.world_build` takes."""


def open_world(request: SourceRequest) -> RowSource:
    """The rows of a name in :data:`SIZES`. Raises :class:`PromptsError` for a column that it does not have."""
    columns = ["prompt", "chosen", "rejected"] if "pairs" in request.name else ["prompt", "completion"]
    for field, column in request.columns.items():
        if column not in columns:
            raise no_column(field, column, columns)
    return RowSource(_rows(request.name, [*request.columns.values(), *request.usual]), columns)


def _rows(name: str, columns: list[str]) -> Generator[RawRow, None, None]:
    held_out, pairs = name.endswith("-heldout"), "pairs" in name
    rng = Random(EVAL_SEED if held_out else PAIRS_SEED if pairs else CORPUS_SEED)
    for number in range(1, SIZES[name] + 1):
        if pairs:
            pair = draw_pair(rng)
            cells = {"prompt": pair.prompt, "chosen": pair.chosen, "rejected": pair.rejected}
        else:
            review = draw_review(rng)
            cells = {"prompt": review.prompt, "completion": review.response}
        yield RawRow(number, [cells.get(column) for column in columns])
