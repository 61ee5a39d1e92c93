"""In transformers: how a sequence classifier finds the last token that is no padding."""

from __future__ import annotations

import torch

from rlhf_studio.lessons.kit import Choice, Numbers, Scene, Toggle, Word
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import GAP, NEEDS, SAMPLE, STEP, label, table

NUMBER = 4
PADDING, BEFORE = 3, 5
UNUSED = 0  # the padding's id, which stands in no text


def last_non_pad_token(input_ids: torch.Tensor, pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mask, the positions, and the position that is scored: the same three operations as in transformers."""
    non_pad_mask = (input_ids != pad).to(torch.int32)
    token_indices = torch.arange(input_ids.shape[-1], dtype=torch.int32)
    return non_pad_mask, token_indices, (token_indices * non_pad_mask).argmax(-1)


def pooled(run: LessonRun, step: float, sample: float, side: str, end_is_pad: bool) -> Numbers:
    """A response with padding on one side, and the position that the classifier takes."""
    chosen = run.samples(int(step))[int(sample) - 1]
    end = int(run.tokenizer.eos_token_id)
    pad = end if end_is_pad else UNUSED
    tail, pieces = chosen.ids[-BEFORE:], [piece.strip() or "·" for piece in chosen.pieces[-BEFORE:]]
    filled, gaps = [pad] * PADDING, [GAP] * PADDING
    ids, columns = (filled + tail, gaps + pieces) if side == "left" else (tail + filled, pieces + gaps)
    input_ids = torch.tensor([ids])
    mask, positions, last = last_non_pad_token(input_ids, pad)
    expected = len(ids) - 1 - (0 if side == "left" else PADDING)
    rows = {"input_ids": input_ids[0], "non_pad_mask": mask[0], "token_indices": positions, "product": (mask * positions)[0]}
    shapes = {"input_ids": input_ids, "non_pad_mask": mask, "token_indices": positions, "product": mask * positions}
    return {
        "columns": columns,
        "rows": {label(name, shapes[name]): [str(x) for x in row.tolist()] for name, row in rows.items()},
        "at": int(last),
        "taken": columns[int(last)],
        "place": int(last),
        "is_last": int(last) == expected,
        "which": Word("its_end" if int(last) == expected else "one_before"),
    }


SCENES = (
    Scene(
        "line",
        pooled,
        controls=(STEP, SAMPLE, Choice("side", ("right", "left"), "right"), Toggle("end_is_pad")),
        needs=NEEDS,
        pictures={"tensors": table},
    ),
)
