"""The value function (critic)."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check, metric_evidence
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import at_start, levels, streak
from rlhf_studio.language import _

FAMILY = "Value function"

BAD_FIT_STEPS = 10  # the recipes dip below 0 for 2 steps at most
BAD_FIT_FROM = 10  # steps that a critic which starts at 0 has to find the mean of the returns
BAD_FIT = 0.0  # by the definition of explained variance: below 0, a constant would predict better
HARMFUL_FIT = -0.25  # the critic's errors add a quarter to the variance; near 0 a reward that is almost earned has little left to predict

OVERFLOW_STEPS = 3
OVERFLOW = 30.0  # times what a critic that always says the mean would lose at the start, half the scores' variance
LOST = 1e4  # the same, for values that have run away


@check(
    "critic-no-use",
    FAMILY,
    title="The critic predicts worse than a constant",
    rule=f"explained variance below {BAD_FIT:g}, {BAD_FIT_STEPS} steps in a row after the first {BAD_FIT_FROM}; "
    f"warning: below {HARMFUL_FIT:g}",
    cause="The values do not follow the returns: the critic learns too slowly for a reward that moves, or a shared trunk "
    "is pulled elsewhere. "
    "Advantages are then noisier than without any critic.",
    advice="Raise the critic's learning rate or the value coefficient, warm the critic up before the policy, or use λ closer to 1.",
)
def critic_no_use(run: RunData) -> Course | None:
    fit, late = run.column("val/explained_variance"), np.arange(len(run.steps)) >= BAD_FIT_FROM
    bad, harmful = (streak((fit < limit) & late, BAD_FIT_STEPS) for limit in (BAD_FIT, HARMFUL_FIT))
    ppo = run.in_force.ppo
    rate = min(1.0, float(f"{3 * (ppo.critic_learning_rate or ppo.learning_rate):.2g}"))
    evidence = metric_evidence(run, "val/explained_variance", _("explained variance {}"))
    return Course(levels(note=bad, warning=harmful), evidence, changes={"ppo.critic_learning_rate": rate}, length=BAD_FIT_STEPS)


@check(
    "value-loss-overflow",
    FAMILY,
    title="The value loss has run away",
    rule=f"value loss above {OVERFLOW:g} times half the variance of the scores at the start (and of its own start), "
    f"{OVERFLOW_STEPS} steps in a "
    f"row; alarm: above {LOST:,.0f} times",
    cause="The critic chases returns that grow faster than it can follow, often because the KL penalty or the score has exploded.",
    advice="Scale or clip the scores, clip the gradient, or lower the learning rates.",
)
def value_loss_overflow(run: RunData) -> Course | None:
    loss = run.column("loss/value_avg")
    usual = np.nanmax([0.5 * np.clip(at_start(run.column("objective/scores_std")), 0, 1e150) ** 2, at_start(loss), 1e-3])
    high = streak(loss > OVERFLOW * usual, OVERFLOW_STEPS)
    evidence = metric_evidence(run, "loss/value_avg", _("value loss {{}}; {loss:.3g} at the start").format(loss=at_start(loss)))
    changes = {"reward.scaling": "scale"} if run.config.reward.scaling == "none" else {}
    return Course(levels(warning=high, alarm=high & (loss > LOST * usual)), evidence, changes=changes, length=OVERFLOW_STEPS)
