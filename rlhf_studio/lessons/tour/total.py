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
    of, again = line.of, line.again()
    new = of.new_logprobs.clone().requires_grad_()
    values = of.values.clone().requires_grad_()
    batch = Minibatch(of.mask, of.logprobs, of.ref_logprobs, of.values, again.whitened_advantages, again.returns)
    result = ppo_objective(batch, NewPass(new, values, torch.zeros_like(new)), objective_settings(run.config.ppo, of.settings.kl_coef))
    tokens = int(of.mask.sum())
    (result.loss_sum / tokens).backward()
    assert new.grad is not None and values.grad is not None
    slopes, advantages = line.all(new.grad * tokens), line.all(again.whitened_advantages)
    ratio, silent = line.all(again.ratio), line.all(again.clipped)
    up = sum(x < 0 for x in slopes)
    return {
        "columns": line.tokens,
        "rows": rows_of(
            line,
            **{
                "whitened": again.whitened_advantages,
                "clipped": again.clipped,
                "new_logprobs.grad · tokens": new.grad * tokens,
                "new_values.grad · tokens": values.grad * tokens,
            },
        ),
        "slopes": slopes,
        "advantages": advantages,
        "ratio": ratio,
        "silent": silent,
        "loss": result.loss_sum.item() / tokens,
        "policy": float(result.sums.mean_policy_loss),
        "value": float(result.sums.mean_value_loss),
        "coefficient": run.config.ppo.vf_coef,
        "tokens": tokens,
        "up": up,
        "count": len(slopes),
        "mostly_up": up > len(slopes) / 2,
        "policy_larger": abs(float(result.sums.mean_policy_loss)) > run.config.ppo.vf_coef * float(result.sums.mean_value_loss),
    }


SCENES = (Scene("line", backward, controls=(STEP, SAMPLE), needs=NEEDS, pictures={"tensors": table}),)
