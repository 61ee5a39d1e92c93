"""KL and ratios."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor.check import Course, check, figure, metric_evidence, worst_token
from rlhf_studio.analysis.doctor.remedies import calmer, neutral_sampling, tighter
from rlhf_studio.analysis.doctor.run_data import ENOUGH, RunData
from rlhf_studio.analysis.doctor.series import levels, streak, window_mean
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.language import _

FAMILY = "KL and ratios"

NEGATIVE_STEPS = 5
NEGATIVE_KL = -0.1  # nats per response; the mean of k1 is never below 0 when sampling and scoring use one distribution (Schulman 2020)
NEGATIVE_SPREADS = 3.0  # standard errors from the spread of those steps, so that noise of small batches does not count
CLEARLY_NEGATIVE_KL = -1.0  # the engine's own limit for its event

FIRST_RATIO_FLOAT32 = 1e-3  # nats; the engine's own limit for its event: rounding in float32 leaves about 1e-5
FIRST_RATIO_BFLOAT16 = 0.5  # nats; bfloat16 keeps 8 bits, and the largest of many thousand tokens may be off by some tenths
FIRST_RATIO_GRAVE = 0.18  # nats; log 1.2: some tokens begin outside the usual clip range

TARGET_FACTOR, TARGET_STEPS = 2.0, 10  # the controller may change β by at most 20 % of n / horizon in a step (Ziegler 2019): give it time

FAR_KL, FAR_PER_TOKEN, FAR_STEPS = 15.0, 0.75, 3  # nats; above the usual range of the table of metrics, and of 0.2 per token in the recipes
LOST_KL, LOST_PER_TOKEN = 50.0, 2.5  # nats; 50 and 85 are the over-optimised seeds of Huang et al. 2024, with 1 to 1.6 per token


@check(
    "kl-negative",
    FAMILY,
    title="The KL is negative",
    rule=f"mean KL of {NEGATIVE_STEPS} steps, or as many as have {ENOUGH} responses, "
    f"below {NEGATIVE_KL} nats by more than {NEGATIVE_SPREADS:g} standard errors; "
    f"alarm: below {CLEARLY_NEGATIVE_KL:g}",
    cause="The responses do not come from the distribution whose probabilities are computed, so that the KL penalty turns into a bonus.",
    advice="Sample from the whole distribution: top-k 0 and top-p 1. Compare the precision of sampling and of learning.",
)
def kl_negative(run: RunData) -> Course | None:
    kl = run.column("objective/kl")
    window = max(NEGATIVE_STEPS, run.steps_of(ENOUGH))  # a single log-ratio scatters by √(2 KL): the mean of 64 cannot be -0.1 by chance
    mean = window_mean(kl, window)
    spread = np.sqrt(np.maximum(window_mean(kl**2, window) - mean**2, 0) / (window - 1))
    negative = (mean < NEGATIVE_KL) & (mean + NEGATIVE_SPREADS * spread < 0) & streak(kl < 0, NEGATIVE_STEPS)
    changes = neutral_sampling(run.config)
    names = " and ".join(f"{name.removeprefix('generation.')} {_setting(run, name):g}" for name in changes)
    values = metric_evidence(run, "objective/kl", _("KL {} nats per response"))
    cause = (
        _("Sampling is cut off by {names}, while probabilities are of the whole distribution: the KL reads too low.").format(names=names)
        if names
        else ""
    )
    return Course(
        levels(warning=negative, alarm=negative & (mean < CLEARLY_NEGATIVE_KL)),
        lambda since, last: values(since, last) + worst_token(run, int(run.steps[last]), "kl", _("KL {} nats")),
        cause=cause,
        changes=changes,
        length=window,
        from_start=True,
    )


def _setting(run: RunData, name: str) -> float:
    section, field = name.split(".")
    return float(getattr(getattr(run.config, section), field))


@check(
    "first-ratio",
    FAMILY,
    title="The first ratio is not 1",
    rule=f"largest log-ratio before an update above {FIRST_RATIO_FLOAT32:g} (float32) or {FIRST_RATIO_BFLOAT16:g} (bfloat16), 2 steps in "
    f"a row; alarm in float32: above {FIRST_RATIO_GRAVE:g}",
    cause="Before the first optimizer step the policy has not changed, so sampling and learning disagree about the same model: dropout, "
    "precision, padding, or a model that gives other numbers when texts stand together in a batch.",
    advice="Use float32, look at the model's own code, and compare with a batch of one. Until then the clipping works on wrong ratios.",
)
def first_ratio(run: RunData) -> Course | None:
    first = run.column("policy/first_log_ratio")
    half = "bfloat16" in run.device or run.config.model.dtype == "bfloat16"
    limit = FIRST_RATIO_BFLOAT16 if half else FIRST_RATIO_FLOAT32
    off = streak(first > limit, 2)
    grave = off & (first > FIRST_RATIO_GRAVE) & (not half)
    words = _("largest log-ratio {} before the first optimizer step")
    changes = {"model.dtype": "float32"} if half else {}
    evidence = metric_evidence(run, "policy/first_log_ratio", words)
    return Course(levels(warning=off, alarm=grave), evidence, changes=changes, length=2, from_start=True)


@check(
    "kl-above-target",
    FAMILY,
    title="The KL stays far above its target",
    rule=f"adaptive controller: KL above {TARGET_FACTOR:g} times the target for {TARGET_STEPS} steps in a row",
    cause="The controller raises β too slowly for the speed at which the policy moves.",
    advice="A shorter horizon reacts faster; a lower learning rate gives it time; or start with a larger KL coefficient.",
)
def kl_above_target(run: RunData) -> Course | None:
    ppo = run.config.ppo
    if ppo.kl_controller != "adaptive":
        return None
    kl, target = run.column("objective/kl"), run.setting("ppo.kl_target")
    far = streak(kl > TARGET_FACTOR * target, TARGET_STEPS)
    shortest = ppo.batch_size // 5 + 1

    def evidence(since: int, last: int) -> list[Evidence]:
        text = _("KL {} nats, target {:g}")
        return [
            Evidence(text.format(figure(kl[at]), target[at]), step=int(run.steps[at]), metric="objective/kl")
            for at in dict.fromkeys([since, last])
        ]

    return Course(
        levels(warning=far),
        evidence,
        changes={"ppo.kl_horizon": max(shortest, ppo.kl_horizon // 4)},
        length=TARGET_STEPS,
    )


@check(
    "kl-exploding",
    FAMILY,
    title="The policy has left its reference far behind",
    rule=f"KL above {FAR_KL:g} nats per response and {FAR_PER_TOKEN:g} per token, {FAR_STEPS} steps in a row; "
    f"alarm: above {LOST_KL:g} and {LOST_PER_TOKEN:g} in any step",
    cause="Nothing holds the policy near the text it came from: the KL coefficient is small beside the score, or the steps are too large. "
    "So far away the reward has never been checked against anything.",
    advice="Raise the KL coefficient or lower the learning rate, and look at the responses: are they still text?",
)
def kl_exploding(run: RunData) -> Course | None:
    kl, length = run.column("objective/kl"), np.maximum(run.column("tokens/response_length"), 1.0)
    far = streak((kl > FAR_KL) & (kl / length > FAR_PER_TOKEN), FAR_STEPS)
    lost = (kl > LOST_KL) & (kl / length > LOST_PER_TOKEN)

    def evidence(since: int, last: int) -> list[Evidence]:
        indices = [since] if since == last else [since, last]
        text = _("KL {} nats per response, {} per token")
        return [
            Evidence(text.format(figure(kl[at]), figure(kl[at] / length[at])), step=int(run.steps[at]), metric="objective/kl")
            for at in indices
        ] + worst_token(run, int(run.steps[last]), "kl", _("KL {} nats"))

    sudden = np.any(lost[:5])
    changes = calmer(run) if sudden else tighter(run)
    return Course(levels(warning=far, alarm=lost), evidence, changes=changes, length=FAR_STEPS)
