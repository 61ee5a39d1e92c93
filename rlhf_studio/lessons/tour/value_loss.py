"""The critic's loss: its values now, compared with the returns."""

from __future__ import annotations

import torch

from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table
from rlhf_studio.ppo.losses import value_loss

NUMBER = 11


def criticised(run: LessonRun, step: float, sample: float) -> Numbers:
    """The critic's values of a response before and after the update, and the returns."""
    line = line_of(run, step, sample)
    response, mask = line.sample, line.of.mask[line.row]
    after = line.of.values.clone()
    now = run.read(int(step), run.batch([response.prompt_ids], [response.ids])).values
    assert now is not None  # the lesson run has a critic
    after[line.row, mask] = now[0].double()
    returns = line.again().returns
    row = slice(line.row, line.row + 1)
    error = torch.where(line.of.mask, after - returns, 0)
    losses = [
        value_loss(x[row], line.of.values[row], returns[row], line.of.mask[row], run.config.ppo.cliprange_value or None)
        for x in (line.of.values, after)
    ]
    old, new = (float(loss.loss_sum / loss.tokens) for loss in losses)
    targets = line.all(returns)
    return {
        "columns": line.tokens,
        "rows": rows_of(line, values=line.of.values, returns=returns, new_values=after, error=error),
        "before": old,
        "after": new,
        "errors": [a - b for a, b in zip(line.all(after), targets, strict=True)],
        "better": new < old,
        "coefficient": run.config.ppo.vf_coef,
        "clips": run.config.ppo.cliprange_value > 0,
        "range": run.config.ppo.cliprange_value,
        "count": len(targets),
    }


SCENES = (Scene("line", criticised, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
