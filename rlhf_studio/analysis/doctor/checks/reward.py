"""Reward: whether it says anything, and whether it says what was meant."""

from __future__ import annotations

import numpy as np

from rlhf_studio.analysis.doctor import judges
from rlhf_studio.analysis.doctor.check import Course, check, figure, metric_evidence
from rlhf_studio.analysis.doctor.remedies import tighter
from rlhf_studio.analysis.doctor.run_data import NO_SPREAD, RunData
from rlhf_studio.analysis.doctor.series import NOTE, WARNING, at_start, carried, levels, streak
from rlhf_studio.analysis.evaluation.intervals import student_t
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.language import N_, _
from rlhf_studio.runs.records import RolloutRecord
from rlhf_studio.units import percent

FAMILY = "Reward"

SPREAD_STEPS, SPREAD_SHARE = 5, 0.02  # share of the start's spread that is left; the recipes keep 0.15 or more

PINNED_SHARE = 0.5  # share of a step's recorded scores that stand exactly at the clip
PINNED_RESPONSES = 8

EQUAL_STEPS = 3
ZERO_ADVANTAGE, ZERO_LOSS = 1e-6, 1e-7  # rounding of float32 in advantages of size 1, and in their mean

LENGTH_POOL = 64  # responses: a correlation of 0.7 among 64 is known to about 0.07
LENGTH_CORRELATION = 0.7
LENGTH_MOVED = 0.25  # share by which the mean length moved the way that pays; the recipes move by up to 0.13

TURNED_TITLE = N_("The score followed the length for a time, then the other way round")
TURNED = N_("Longer answers earned more at some steps and less at others, so this is no sign that the reward takes length for quality.")
TURNED_ADVICE = N_("No change of the settings follows from this. Compare long and short responses of both steps.")

FALL_STEPS = 3  # a single update that goes too far makes gold dip for three or four steps, and comes back by itself
HELD_OUT_LEVEL = 0.0002  # the best of many answers is compared with each later one, so a low level; with 8 prompts it is 6.2 errors
GOLD_ROSE = 0.25  # standard deviations of single scores that the score must have gained for "the score rose"


@check(
    "reward-no-spread",
    FAMILY,
    title="All responses earn the same",
    rule=f"spread of the scores within a step below {percent(SPREAD_SHARE)} of the start's, {SPREAD_STEPS} steps in a row; a "
    f"note where the score "
    "has risen since the start; without any spread from the first step on a warning",
    cause="The reward cannot tell the responses apart any more, or never could, so the advantages are noise.",
    advice="If the score has reached its highest value, the task is done: stop here. If not, look at what the reward "
    "gives for two different "
    "answers.",
)
def reward_no_spread(run: RunData) -> Course | None:
    series = judges.score(run)
    spread = np.where(run.steps > series.changed_after, run.column("objective/scores_std"), np.nan)
    if run.batch < 2:
        return None
    start = at_start(spread)
    flat = streak(spread <= max(SPREAD_SHARE * start, NO_SPREAD), SPREAD_STEPS)
    risen = series.values > series.start + GOLD_ROSE * max(series.spread, NO_SPREAD)
    evidence = metric_evidence(run, "objective/scores_std", _("spread of the scores {{}}; {start:.3g} at the start").format(start=start))
    return Course(levels(note=flat, warning=flat & ~risen), evidence, length=SPREAD_STEPS)


@check(
    "score-pinned",
    FAMILY,
    title="Scores stand at the clip",
    rule=f"at least {percent(PINNED_SHARE)} of a step's recorded scores exactly at plus or minus the score clip",
    cause="The clip is narrower than what the reward gives, so better answers earn no more than good ones.",
    advice="Use a wider clip, or scale the scores first.",
)
def score_pinned(run: RunData) -> Course | None:
    reward = run.config.reward
    if not reward.score_clip or reward.length_penalty:
        return None

    def share(rows: list[RolloutRecord]) -> float:
        return float(np.mean([abs(abs(row.score) - reward.score_clip) < 1e-5 * max(1.0, reward.score_clip) for row in rows]))

    shares = {step: share(rows) for step, rows in run.looks if len(rows) >= PINNED_RESPONSES}
    by_step = {step: WARNING * (value >= PINNED_SHARE) for step, value in shares.items()}

    def evidence(since: int, last: int) -> list[Evidence]:
        ends = [step for step, level in by_step.items() if level][:1] + [step for step, level in by_step.items() if level][-1:]
        return [
            Evidence(
                _("{shares} of the scores at the clip of {score_clip:g}").format(
                    shares=percent(shares[step]), score_clip=reward.score_clip
                ),
                step=step,
            )
            for step in dict.fromkeys(ends)
        ]

    return Course(carried(run.steps, by_step), evidence, changes={"reward.score_clip": 0.0}, from_start=True)


@check(
    "advantages-zero",
    FAMILY,
    title="All advantages are zero",
    rule=f"policy loss 0 and all recorded advantages below {ZERO_ADVANTAGE:g}, {EQUAL_STEPS} steps in a row",
    cause="Every token earned exactly what was expected of it, by the critic or, without one, by the other responses to its prompt. So "
    "nothing becomes likelier: the reward is constant, or γ and λ leave nothing of it.",
    advice="Look at the reward of two different answers, and, with a critic, at γ, λ and the whitening.",
)
def advantages_zero(run: RunData) -> Course | None:
    still = np.abs(run.column("loss/policy_avg")) < ZERO_LOSS
    quiet = streak(still, EQUAL_STEPS)
    confirmed = np.zeros(len(run.steps), dtype=bool)
    for start in np.flatnonzero(quiet & ~np.concatenate([[False], quiet[:-1]])):  # only the first step of each quiet stretch is read
        if _zero_advantages(run, int(run.steps[start])):
            end = start + int(np.argmin(np.append(quiet[start:], False)))
            confirmed[start:end] = True
    evidence = metric_evidence(run, "loss/policy_avg", _("policy loss {}, and every recorded advantage is 0"))
    return Course(levels(alarm=confirmed), evidence, length=EQUAL_STEPS)


def _zero_advantages(run: RunData, step: int) -> bool:
    if run.reader is None:
        return False
    samples = [row.sample for row in run.reader.rollouts(step)][:4]
    tokens = [run.reader.rollout(step, sample).tokens for sample in samples]
    arrays = [record.arrays["advantages"] for record in tokens if record is not None and "advantages" in record.arrays]
    return bool(arrays) and all(np.all(np.abs(array) < ZERO_ADVANTAGE) for array in arrays)


@check(
    "length-reward",
    FAMILY,
    title="The score follows the length",
    rule=f"correlation of score and length above {LENGTH_CORRELATION:g} (or below minus that) over at least "
    f"{LENGTH_POOL} recorded responses; not where it was as often beyond that with the other sign; "
    f"warning: the length moved by {percent(LENGTH_MOVED)} the way that pays",
    cause="The reward takes length for quality, a common weakness of reward models.",
    advice="Add a length component that pulls the other way, or judge with a reward that was trained on answers of equal length.",
)
def length_reward(run: RunData) -> Course | None:
    if any(component.kind == "length" for component in run.config.reward.components) or run.config.reward.length_penalty:
        return None
    correlations = _length_correlations(run)
    length = run.column("tokens/response_length")
    start = at_start(length, 2)
    by_step, strong_so_far = {}, {1.0: 0, -1.0: 0}
    for step, value in correlations.items():
        moved = length[int(np.searchsorted(run.steps, step))] / start - 1
        sign, strong = float(np.sign(value)), abs(value) > LENGTH_CORRELATION
        if strong:
            strong_so_far[sign] += 1
        one_way = strong and strong_so_far[sign] > strong_so_far[-sign]
        by_step[step] = (WARNING if moved * sign > LENGTH_MOVED else NOTE) if one_way else 0
    signs = [float(np.sign(correlations[step])) for step, level in by_step.items() if level]
    strong_steps = [step for step, value in correlations.items() if abs(value) > LENGTH_CORRELATION]
    turned = bool(signs) and not by_step[strong_steps[-1]]  # the newest strong correlation had the other sign

    def evidence(since: int, last: int) -> list[Evidence]:
        steps = [step for step, level in by_step.items() if level and (turned or correlations[step] * signs[-1] > 0)]
        steps += [strong_steps[-1]] if turned else []
        text = _("correlation {:.2f} between score and length")
        return [
            Evidence(text.format(correlations[step]), step=step, metric="tokens/response_length")
            for step in dict.fromkeys([steps[0], steps[-1]])
        ]

    if turned:
        return Course(carried(run.steps, by_step), evidence, title=TURNED_TITLE, cause=TURNED, advice=TURNED_ADVICE)
    longer_pays = bool(signs) and signs[-1] > 0
    return Course(carried(run.steps, by_step), evidence, changes={"reward.length_penalty": 0.01} if longer_pays else {})


def _length_correlations(run: RunData) -> dict[int, float]:
    """Within steps, so that a drift of both does not count: over as many looks back as make up the pool."""
    correlations, pool = {}, []
    for step, rows in run.looks:
        pairs = np.array([(row.score, row.length) for row in rows if row.score is not None and np.isfinite(row.score)], dtype=float)
        if len(pairs) < 2:
            continue
        pool.append(pairs - pairs.mean(axis=0))
        while sum(map(len, pool[1:])) >= LENGTH_POOL:
            pool.pop(0)
        joined = np.concatenate(pool)
        spread = joined.std(axis=0)
        if len(joined) >= LENGTH_POOL and spread.min() > 1e-6:
            correlations[step] = float((joined[:, 0] * joined[:, 1]).mean() / spread.prod())
    return correlations


@check(
    "judge-falls",
    FAMILY,
    title="The score rises while the gold score falls",
    rule=f"mean gold of {judges.WINDOW} steps below its best by more than {judges.SURE_FALL:g} standard errors ({judges.MORE_SURE:g} more "
    f"for each tenfold of steps after {judges.FROM_STEPS}) and a third of what it had gained, while the score is no lower than then and "
    f"above its start by {GOLD_ROSE:g} standard deviations, {FALL_STEPS} steps in a row",
    cause="The policy found what the reward model likes, not what it stands for: it exploits the reward (Gao et al. "
    "2022, arXiv:2210.10760).",
    advice="Take the policy from before the fall, and go on from there with a stronger KL coefficient; stop when gold turns.",
)
def judge_falls(run: RunData) -> Course | None:
    gold, score = judges.gold(run), judges.score(run)
    if gold is None:
        return None
    fall = judges.fall(gold)
    now, error = score.window(judges.WINDOW)
    then = np.where(np.isfinite(now[fall.best_at]), now[fall.best_at], score.start)
    up = (now > then - 2 * error) & (now > score.start + GOLD_ROSE * score.spread)

    def evidence(since: int, last: int) -> list[Evidence]:
        at = last
        best = int(run.steps[fall.best_at[at]])
        texts = [
            (_("gold {best} at its best").format(best=figure(fall.best[at])), best, "gold/score"),
            (_("gold {now}, score {now2}").format(now=figure(fall.now[at]), now2=figure(now[at])), int(run.steps[at]), "gold/score"),
            (_("score {then} when gold was at its best").format(then=figure(then[at])), best, "objective/scores"),
        ]
        return [Evidence(text, step=step, metric=metric) for text, step, metric in texts] + _widest(run, int(run.steps[at]))

    falls = gold.carried(streak((fall.surely & up)[gold.known], FALL_STEPS)) == 1  # steps that have a gold score
    first = int(np.argmax(falls))
    length = max(judges.WINDOW, int(run.steps[first] - run.steps[fall.best_at[first]]))  # a fork goes on from where gold was best
    return Course(levels(warning=falls), evidence, changes=tighter(run), length=length)


def _widest(run: RunData, until: int) -> list[Evidence]:
    """The response of the newest look whose score is furthest above its gold."""
    looks = [(step, rows) for step, rows in run.looks if step <= until]
    rows = [row for row in looks[-1][1] if row.gold is not None and np.isfinite(row.score - row.gold)] if looks else []
    if not rows:
        return []
    worst = max(rows, key=lambda row: row.score - (row.gold or 0.0))
    return [
        Evidence(
            _("score {score:.2f} with gold {gold:.2f}").format(score=worst.score, gold=worst.gold), step=looks[-1][0], sample=worst.sample
        )
    ]


@check(
    "held-out-falls",
    FAMILY,
    title="The score rises in training and falls on the watched prompts",
    rule="mean score of the watched prompts below its best, by more than a third of the gain and by a paired t test at a level of "
    f"{HELD_OUT_LEVEL:.2%}, "
    "at two answers in a row, with 6 or more watched prompts",
    cause="The policy learns the training prompts by heart instead of the task.",
    advice="Use more prompts, fewer passes over each batch, or stop earlier.",
)
def held_out_falls(run: RunData) -> Course | None:
    scores = run.watched_scores
    if len(scores) < 4:
        return None
    steps = sorted(scores)
    table = np.stack([scores[step] for step in steps])  # (answers, prompts)
    if table.shape[1] < 6 or not np.isfinite(table).all():
        return None
    means, sure = table.mean(axis=1), student_t(table.shape[1] - 1, level=1 - 2 * HELD_OUT_LEVEL)
    by_step, before = {}, False
    for row in range(1, len(steps)):
        best = int(np.argmax(means[: row + 1]))
        drops = table[best] - table[row]
        error = max(float(drops.std(ddof=1) / np.sqrt(len(drops))), 1e-9)
        falls = drops.mean() > max(sure * error, (means[best] - means[0]) / 3) and means[best] > means[0]
        by_step[steps[row]] = WARNING * bool(falls and before)
        before = bool(falls)
    training = judges.score(run)
    up = training.values > training.start + GOLD_ROSE * training.spread

    def evidence(since: int, last: int) -> list[Evidence]:
        best = int(np.argmax(means))
        return [
            Evidence(_("watched prompts: score {means:.2f}").format(means=means[at]), step=steps[at], metric="objective/scores")
            for at in dict.fromkeys([best, len(steps) - 1])
        ]

    step_levels = carried(run.steps, by_step)
    step_levels[~up] = 0
    return Course(step_levels, evidence, changes=tighter(run))
