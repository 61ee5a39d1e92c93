"""The whole loss of a minibatch, and the slope that each token gets in the backward pass."""

from __future__ import annotations

import torch

from rlhf_studio.engine.objective import objective_settings
from rlhf_studio.lessons.kit import Numbers, Scene
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.tour.line import NEEDS, SAMPLE, STEP, line_of, rows_of, table
from rlhf_studio.ppo.objective import Minibatch, NewPass, ppo_objective

NUMBER = 12


def backward(run: LessonRun, step: float, sample: float) -> Numbers:
    """The slopes of the loss along the log-probabilities of a response, the whole batch as one minibatch."""
    line = line_of(run, step, sample)
    of, found = line.of, line.again()
    new = of.new_logprobs.clone().requires_grad_()
    values = of.values.clone().requires_grad_()
    batch = Minibatch(of.mask, of.logprobs, of.ref_logprobs, of.values, found.whitened_advantages, found.returns)
    whole = ppo_objective(batch, NewPass(new, values, torch.zeros_like(new)), objective_settings(run.config.ppo, of.settings.kl_coef))
    tokens = int(of.mask.sum())
    (whole.loss_sum / tokens).backward()
    assert new.grad is not None and values.grad is not None
    slopes, advantages = line.all(new.grad * tokens), line.all(found.whitened_advantages)
    ratio, silent = line.all(found.ratio), line.all(found.clipped)
    up = sum(x < 0 for x in slopes)
    return {
        "columns": line.tokens,
        "rows": rows_of(
            line,
            **{
                "whitened": found.whitened_advantages,
                "clipped": found.clipped,
                "new_logprobs.grad · tokens": new.grad * tokens,
                "new_values.grad · tokens": values.grad * tokens,
            },
        ),
        "slopes": slopes,
        "advantages": advantages,
        "ratio": ratio,
        "silent": silent,
        "loss": whole.loss_sum.item() / tokens,
        "policy": float(whole.sums.mean_policy_loss),
        "value": float(whole.sums.mean_value_loss),
        "coefficient": run.config.ppo.vf_coef,
        "tokens": tokens,
        "up": up,
        "count": len(slopes),
        "mostly_up": up > len(slopes) / 2,
        "policy_larger": abs(float(whole.sums.mean_policy_loss)) > run.config.ppo.vf_coef * float(whole.sums.mean_value_loss),
    }


SCENES = (
    Scene(
        "line",
        backward,
        controls=(STEP, SAMPLE),
        needs=NEEDS,
        pictures={"tensors": table},
    ),
)
