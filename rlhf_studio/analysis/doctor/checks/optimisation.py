"""Optimisation: step sizes, gradients, and whether anything changes at all."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor import judges
from rlhf_studio.analysis.doctor.check import EVERY, TRAINING, Course, check, figure, metric_evidence
from rlhf_studio.analysis.doctor.recorded import RecordedRun, why_unstable
from rlhf_studio.analysis.doctor.remedies import bolder, calmer
from rlhf_studio.analysis.doctor.run_data import ENOUGH, NO_SPREAD, RunData
from rlhf_studio.analysis.doctor.series import levels, streak, window_mean, window_median
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.config import stability
from rlhf_studio.config.usual import optimisation
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Optimisation"

MUCH_CLIPPED, MUCH_STEPS = 0.3, 5  # the usual range ends at 0.2; with 0.3 clipping decides a third of the update
NONE_STEPS = 20

# Ratios within 0.8 to 1.2 have a variance of at most 0.04. A few rare tokens can make it large in one step of a healthy run (a LoRA run
# reached 5.3 once, with an approximate KL of 0.02), so that one step alone says nothing.
RATIO_VARIANCE, RATIO_STEPS = 0.5, 3
LARGE_MOVE = 0.1  # nats per token, twice the limit of the table of metrics: the LoRA recipe passes 0.1 in single steps
WILD_MOVE = 10.0  # a single step is enough: the old responses say nothing of such a policy

SPIKE, SPIKE_HISTORY = 10.0, 10  # times the median of the steps before; healthy gradients stay within a factor of 4
MANY_SPIKES, SPIKE_WINDOW = 3, 20

SAME_STEPS, SAME_MOVE, SAME_KL = 5, 1e-11, 1e-6  # nats; float32 rounding of a log-probability leaves about 1e-12 of squared change
# On the bundled recipes at their own rates an update moves the policy by 1e-3 nats per token, at a tenth of them by 1e-5 to 6e-5, and the
# score still rises. At a hundredth it is 1e-6 or less, no token is clipped, and 64 responses cannot show that the KL of 24 steps is not 0.
HARDLY_STEPS, HARDLY_MOVE, HARDLY_KL = 10, 1e-5, 0.02
HARDLY_CHANGE = percent(float(np.sqrt(2 * HARDLY_MOVE)), 1)  # the approximate KL is half the mean square of the log-ratio
DECAYED, DECAYED_STEPS = (
    0.01,
    0.1,
)  # share of the planned rate; share of the planned steps. A linear schedule spends 1 % there, a cosine 6 %

NO_UPDATE_STEPS = 3


@check(
    "unstable-start",
    FAMILY,
    title="The start is not stable",
    rule=stability.RULE,
    cause="The learning rate is too high for this model: the first updates already move it further than a batch can justify.",
    advice="Begin again with a lower rate; engine.restart_if_unstable does that by itself.",
    stages=TRAINING,
)
def unstable_start(run: RecordedRun) -> Course | None:
    reasons = why_unstable(run, run.config)
    unstable = np.array([bool(reason) for reason in reasons], dtype=bool)

    def evidence(since: int, last: int) -> list[Evidence]:
        metric = "objective/kl" if run.has("objective/kl") else f"{run.config.stage}/loss"
        return [
            Evidence(reasons[at].replace(f" in step {run.steps[at]}", ""), step=int(run.steps[at]), metric=metric)
            for at in dict.fromkeys([since, last])
        ]

    return Course(levels(alarm=unstable), evidence, changes=calmer(run), from_start=True)


@check(
    "clip-fraction-high",
    FAMILY,
    title="A third of the tokens is clipped",
    rule=f"clip fraction above {MUCH_CLIPPED:g}, {MUCH_STEPS} steps in a row",
    cause="Each batch moves the policy so far that clipping throws much of it away: the learning rate or the number of passes is too high.",
    advice="Lower the learning rate, make fewer passes, or set an early stop KL.",
)
def clip_fraction_high(run: RunData) -> Course | None:
    if run.config.ppo.ratio_level == "sequence":  # whole responses are clipped, and many of them: that is how GSPO is meant to work
        return None
    high = streak(run.column("policy/clipfrac_avg") > MUCH_CLIPPED, MUCH_STEPS)
    return Course(
        levels(warning=high),
        metric_evidence(run, "policy/clipfrac_avg", _("clip fraction {}")),
        changes=calmer(run),
        length=MUCH_STEPS,
    )


@check(
    "clip-fraction-zero",
    FAMILY,
    title="Clipping never acts",
    rule=f"clip fraction exactly 0, {NONE_STEPS} steps in a row, where a batch is used for more than one optimizer step",
    cause="The steps are so small that no token reaches the edge of the clip range. The run may be slower than it needs to be.",
    advice="If the score rises too slowly, raise the learning rate.",
)
def clip_fraction_zero(run: RunData) -> Course | None:
    ppo = run.config.ppo
    if ppo.ppo_epochs * (ppo.batch_size // ppo.mini_batch_size) < 2:  # the ratio is 1 by definition
        return None
    none = streak((run.column("policy/clipfrac_avg") == 0) & (run.column("lr") > 0), NONE_STEPS)
    evidence = metric_evidence(run, "policy/clipfrac_avg", _("clip fraction {}"))
    return Course(levels(note=none), evidence, changes=bolder(run), length=NONE_STEPS)


@check(
    "steps-too-large",
    FAMILY,
    title="Single updates move the policy too far",
    rule=f"ratio variance above {RATIO_VARIANCE:g} or approximate KL of an update above {LARGE_MOVE:g} nats per token, "
    f"{RATIO_STEPS} steps in "
    f"a row; in any step: an approximate KL above {WILD_MOVE:g}",
    cause="After such a step the sampled responses are no longer those of the policy that learns from them, so the update is not to be "
    "trusted.",
    advice="Lower the learning rate; an early stop KL of 0.02 ends the passes in time.",
)
def steps_too_large(run: RunData) -> Course | None:
    variance, move = run.column("val/ratio_var"), run.column("policy/approxkl_avg")
    wild = move > WILD_MOVE
    large = streak((variance > RATIO_VARIANCE) | (move > LARGE_MOVE), RATIO_STEPS)

    def evidence(since: int, last: int) -> list[Evidence]:
        text = _("ratio variance {}, approximate KL {} nats per token")
        return [
            Evidence(text.format(figure(variance[at]), figure(move[at])), step=int(run.steps[at]), metric="val/ratio_var")
            for at in dict.fromkeys([since, last])
        ]

    return Course(levels(warning=large | wild), evidence, changes=calmer(run), length=1 if wild.any() else RATIO_STEPS)


@check(
    "early-stops",
    FAMILY,
    title="Most updates end early",
    rule="the early stop KL ended the passes in at least 8 of 10 steps",
    cause="The early stop KL is small beside what a pass moves, so most of each batch's passes are never made.",
    advice="Fewer passes or a lower learning rate do the same without the waste.",
)
def early_stops(run: RunData) -> Course | None:
    stopped = {event.step for event in run.step_events if event.kind == "early_stop"}
    if not stopped:
        return None
    early = np.isin(run.steps, list(stopped)).astype(float)
    share = np.convolve(early, np.ones(10))[: len(early)]
    evidence = metric_evidence(run, "optim/steps", _("only {} optimizer steps were made"))
    fewer = max(1, run.config.ppo.ppo_epochs // 2)
    return Course(
        levels(note=share >= 8), evidence, changes={"ppo.ppo_epochs": fewer} if fewer < run.config.ppo.ppo_epochs else {}, length=10
    )


@check(
    "gradient-spikes",
    FAMILY,
    title="The gradient has spikes",
    rule=f"gradient norm above {SPIKE:g} times the median of the {SPIKE_HISTORY} steps before; warning: {MANY_SPIKES} times within "
    f"{SPIKE_WINDOW} steps, or without a gradient clip",
    cause="Single batches pull far harder than others: an outlier in the rewards, a very long response, or numbers near overflow.",
    advice="Keep the gradient clip on (1 is usual), and look at the responses or examples of that step.",
    stages=TRAINING,
)
def gradient_spikes(run: RecordedRun) -> Course | None:
    own = optimisation(run.in_force)
    if own is None:
        return None
    norm = run.column("optim/grad_norm")
    spike = norm > SPIKE * window_median(norm, SPIKE_HISTORY)
    recent = np.convolve(spike.astype(float), np.ones(SPIKE_WINDOW))[: len(spike)]
    unclipped = own[1].max_grad_norm == 0
    grave = recent >= MANY_SPIKES
    warning = grave | spike if unclipped else grave
    changes = {f"{own[0]}.max_grad_norm": 1.0} if unclipped else calmer(run)
    return Course(levels(note=spike, warning=warning), metric_evidence(run, "optim/grad_norm", _("gradient norm {}")), changes=changes)


@check(
    "not-finite",
    FAMILY,
    title="A number is not finite",
    rule="NaN or infinity in any metric, a minibatch left out for one, or a run that ended because of one; NaN is no error in the "
    "explained variance, nor in the gradient norm of a step without an optimizer step",
    cause="Something overflowed: a learning rate that is too high, a reward without bounds, or half precision.",
    advice="Go back to before that step with a lower learning rate, a gradient clip, and float32 if it was half precision.",
    stages=EVERY,
)
def not_finite(run: RecordedRun) -> Course | None:
    metrics = {step: name for step, name, value in reversed(run.non_finite) if not _has_no_value(run, step, name, value)}
    skipped = {event.step: event.text for event in run.step_events if event.kind == "skip" and "not finite" in event.text}
    bad = np.isin(run.steps, [*metrics, *skipped])
    died = run.state == "failed" and "not finite" in run.cause
    if died:
        bad[-1] = True

    def evidence(since: int, last: int) -> list[Evidence]:
        rows = [Evidence(_("{name} is not finite").format(name=name), step=step, metric=name) for step, name in sorted(metrics.items())[:3]]
        rows += [Evidence(text.rstrip("."), step=step) for step, text in sorted(skipped.items())[:3]]
        return rows + ([Evidence(run.cause.split(".")[0], step=int(run.steps[-1]))] if died else [])

    return Course(levels(alarm=bad), evidence, changes=calmer(run))


def _has_no_value(run: RecordedRun, step: int, name: str, value: float) -> bool:
    """Whether a metric is NaN because there is nothing to measure.

    Where all returns are equal, there is no variance to explain; where no optimizer step was made, there is no gradient norm.
    """
    if not np.isnan(value):
        return False
    return name == "val/explained_variance" or (name == "optim/grad_norm" and not run.column("optim/steps")[run.steps == step].any())


@check(
    "not-training",
    FAMILY,
    title="The policy does not change",
    rule=f"approximate KL of an update below {SAME_MOVE:g} and KL to the reference below {SAME_KL:g} nats, {SAME_STEPS} "
    f"steps in a row with a "
    "learning rate above 0",
    cause="Optimizer steps are made, but none reaches the policy: its weights are frozen, the learning rate is far too "
    "small, or the gradient "
    "is zero.",
    advice="Look at the gradient norm: is it 0? Then see which weights learn; if not, raise the learning rate.",
)
def not_training(run: RunData) -> Course | None:
    learns = (run.column("lr") > 0) & (run.steps > run.config.ppo.critic_warmup_steps)
    same = (run.column("policy/approxkl_avg") < SAME_MOVE) & (np.abs(run.column("objective/kl")) < SAME_KL)
    still = streak(learns & same, SAME_STEPS)
    lora = run.config.lora.enabled
    return Course(
        levels(alarm=still),
        metric_evidence(run, "policy/approxkl_avg", _("one update moved the policy by {} nats per token")),
        title=_("The adapter does not train") if lora else "",
        cause=_(
            "Optimizer steps are made, but the adapter's output stays zero: no layer has the names of the target "
            "modules, or the learning rate is that of full training, which is about ten times too small for "
            "adapters."
        )
        if lora
        else "",
        changes=bolder(run),
        length=SAME_STEPS,
        from_start=True,
    )


@check(
    "learning-rate-too-small",
    FAMILY,
    title="The learning rate is too small: the policy hardly moves",
    rule=f"approximate KL of an update below {HARDLY_MOVE:g} nats per token (its probability changes by {HARDLY_CHANGE}) and no token "
    f"clipped, {HARDLY_STEPS} steps in a row with a learning rate above 0 and scores that differ, while the mean KL to the reference is "
    f"below {HARDLY_KL:g} nats and the score has not risen by {judges.LIKELY_RISE:g} standard errors; not after `not-training`",
    cause="Each update changes the policy by next to nothing, so that so few of them come to nothing. At a usual rate an update moves it a "
    "hundred times as far.",
    advice="Raise the learning rate by factors of 3 to 10, as long as the approximate KL of an update stays below 0.01 or so.",
)
def learning_rate_too_small(run: RunData) -> Course | None:
    move = run.column("policy/approxkl_avg")
    learns = (run.column("lr") > 0) & (run.steps > run.config.ppo.critic_warmup_steps) & (run.column("objective/scores_std") > NO_SPREAD)
    still = streak(learns & (move < HARDLY_MOVE) & (run.column("policy/clipfrac_avg") == 0), HARDLY_STEPS)
    near = np.abs(window_mean(run.column("objective/kl"), max(HARDLY_STEPS, run.steps_of(ENOUGH)))) < HARDLY_KL
    risen = judges.sureness(judges.score(run))[0] > judges.LIKELY_RISE
    stands = not_training(run)
    too_small = still & near & ~risen & (stands is None or np.maximum.accumulate(stands.levels) == 0)
    evidence = metric_evidence(run, "policy/approxkl_avg", _("one update moved the policy by {} nats per token"))
    return Course(levels(warning=too_small), evidence, changes=bolder(run), length=HARDLY_STEPS, from_start=True)


@check(
    "learning-rate-gone",
    FAMILY,
    title="The learning rate is zero",
    rule=f"learning rate 0 in 2 steps in a row after the warm-up, or below {percent(DECAYED)} of the planned one for "
    f"{percent(DECAYED_STEPS)} of the planned steps (at least 3)",
    cause="The schedule has decayed away, or ends before the run does: these steps cost time and teach nothing.",
    advice="Plan fewer steps, or use the constant schedule.",
    stages=TRAINING,
)
def learning_rate_gone(run: RecordedRun) -> Course | None:
    own, rate = optimisation(run.config), run.column("lr")
    if own is None:
        return None
    section, settings = own
    after = run.steps > max(settings.warmup_steps, 1)
    planned = run.config.planned_steps or run.total_steps
    small = streak((rate < DECAYED * run.setting(f"{section}.learning_rate")) & after, max(3, int(DECAYED_STEPS * planned)))
    changes = {f"{section}.lr_schedule": "constant"} if settings.lr_schedule != "constant" else {}
    return Course(
        levels(warning=small | streak((rate == 0) & after, 2)), metric_evidence(run, "lr", _("learning rate {}")), changes=changes, length=3
    )


@check(
    "no-updates",
    FAMILY,
    title="Steps pass without an update",
    rule=f"no optimizer step, {NO_UPDATE_STEPS} steps in a row",
    cause="Every minibatch was left out: its ratio was beyond the ratio threshold, or a reward or a number failed.",
    advice="The events say why they were left out.",
)
def no_updates(run: RunData) -> Course | None:
    if not run.has("optim/steps"):
        return None
    made = run.column("optim/steps")
    # A step whose whole update was left out has no such number. Without an event that says so, the number is unknown, and not 0.
    left_out = np.isin(run.steps, [event.step for event in run.step_events if event.kind == "skip"]) & np.isnan(made)
    none = streak((made == 0) | left_out, NO_UPDATE_STEPS)

    def evidence(since: int, last: int) -> list[Evidence]:
        return [Evidence(_("no optimizer step"), step=int(run.steps[at]), metric="optim/steps") for at in dict.fromkeys([since, last])]

    return Course(levels(alarm=none), evidence, length=NO_UPDATE_STEPS)
