"""Entropy: how open the policy's choice is."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check, metric_evidence
from rlhf_studio.analysis.doctor.remedies import calmer
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import at_start, levels, streak
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Entropy"

LOW_ENTROPY = 0.1  # nats per token: about the likeliest token at 98 %; Cui et al. 2025 (arXiv:2505.22617) see learning end near 0
DEAD_ENTROPY = 0.02  # the likeliest token at about 99.7 %
SHARE_OF_START = 0.2  # a model that was certain from the beginning has not collapsed
ENTROPY_STEPS = 3


@check(
    "entropy-collapse",
    FAMILY,
    title="The policy has stopped exploring",
    rule=f"entropy below {LOW_ENTROPY:g} nats per token and below {percent(SHARE_OF_START)} of the start, {ENTROPY_STEPS} steps in a row; "
    f"alarm: below {DEAD_ENTROPY:g}",
    cause="The policy has become certain of every token. All its responses are alike, so there is nothing left to "
    "compare and to learn from.",
    advice="Lower the learning rate, raise the KL coefficient, or add a small entropy bonus.",
)
def entropy_collapse(run: RunData) -> Course | None:
    entropy = run.column("policy/entropy_avg")
    # Minus the mean log-probability of the sampled tokens estimates the entropy before the first update; entropy_avg is measured after it.
    surprise = run.column("objective/entropy") / np.maximum(run.column("tokens/response_length"), 1.0)
    start = at_start(surprise) if np.isfinite(surprise).any() else at_start(entropy)
    fallen = entropy < SHARE_OF_START * start
    low = streak(fallen & (entropy < LOW_ENTROPY), ENTROPY_STEPS)
    dead = streak(fallen & (entropy < DEAD_ENTROPY), ENTROPY_STEPS)
    evidence = metric_evidence(run, "policy/entropy_avg", _("entropy {{}} nats per token; {start:.2f} at the start").format(start=start))
    return Course(levels(warning=low, alarm=dead), evidence, changes=calmer(run), length=ENTROPY_STEPS)
