"""Minibatches in a new order for each pass, and the log-probabilities that the policy gives now."""

from __future__ import annotations

import torch

from rlhf_studio.engine.loop.update import shuffled_minibatches
from rlhf_studio.lessons.kit import Numbers, Scene, Slider, Word, ledger, options
from rlhf_studio.lessons.kit.pictures import Picture
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import GAP, NEEDS, SAMPLE, STEP, label, line_of, rows_of, shown_columns, table

NUMBER = 9
PASSES = 4


def shuffled(run: LessonRun, step: float, sample: float, passing: float) -> Numbers:
    """The minibatch that a response is in, in one pass of a step, and its new log-probabilities in the last one."""
    line, ppo = line_of(run, step, sample), run.config.ppo
    generator = torch.Generator().manual_seed(run.config.engine.seed + 1)  # as the trainer seeds it
    for _ in range(int(step)):
        orders = list(shuffled_minibatches(ppo.batch_size, ppo.ppo_epochs, ppo.mini_batch_size, generator))
    of_pass = [rows for epoch, rows in orders if epoch == int(passing) - 1]
    index = next(index for index, rows in enumerate(of_pass) if line.row in rows.tolist())
    rows = of_pass[index]
    at = rows.tolist().index(line.row)
    change = [a - b for a, b in zip(line.all(line.of.new_logprobs), line.all(line.of.logprobs), strict=True)]
    made = len(orders)
    return {
        "columns": line.tokens,
        "rows": rows_of(line, logprobs=line.of.logprobs, new_logprobs=line.of.new_logprobs),
        "order": rows.tolist(),
        "order_label": label("rows", rows),
        "first": index == 0,
        "place": index + 1,
        "place_in_it": at + 1,
        "size": len(rows),
        "parts": len(of_pass),
        "passes": ppo.ppo_epochs,
        "number": line.row,
        "each_once": sorted(row for part in of_pass for row in part.tolist()) == list(range(ppo.batch_size)),
        "made": made,
        "largest": max(change, key=abs),
        "way": Word("up" if sum(change) > 0 else "down"),
        **options(made, (ppo.ppo_epochs, made * ppo.mini_batch_size), int(sample), digits=0),
    }


def draw_order(n: Numbers) -> Picture:
    """The numbers of the responses in the minibatch, the first and the last ones."""
    indices = shown_columns(len(n["order"]))
    cells = [None if index is None else str(n["order"][index]) for index in indices]
    columns = [GAP if index is None else f"[{index}]" for index in indices]
    return ledger(columns, {n["order_label"]: cells}, digits=0)


SCENES = (
    Scene(
        "line",
        shuffled,
        controls=(STEP, SAMPLE, Slider("passing", 1, PASSES, 1, start=1)),
        needs=NEEDS,
        pictures={"order": draw_order, "tensors": table},
    ),
)
