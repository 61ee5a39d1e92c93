"""What a comparison comes to, in one sentence and what differs in another, with how sure that is.

Runs are compared by the mean of a metric's last tenth: the gold score where all of them have one, else the score; runs of another stage
than PPO by that stage's own number, such as the loss on held-out examples. Runs of different stages have nothing in common that could say
which is better, unless all of them have a score. How far two groups of
runs may differ by chance is taken from seeds where there are any: the standard deviation among runs of one group, pooled over the groups,
gives Student's interval of 95 % for the difference of two means. With one run each, nothing is known of seeds; then only the noise from
step to step can be taken into account, and the notes say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlhf_studio.analysis.compare.records import ComparedRun, RunGroup, SettingRow
from rlhf_studio.analysis.compare.scale import GOLD, SCORE, judged_differently, not_one_scale
from rlhf_studio.analysis.compare.wording import MOST_NAMED, difference, title, value_text
from rlhf_studio.analysis.evaluation.intervals import student_t
from rlhf_studio.analysis.trend import variance_of_mean
from rlhf_studio.config import STAGE_TITLES
from rlhf_studio.config.metrics.stages import HEADLINES
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.language import ENGLISH, N_, _, language, ngettext, together
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Kind
from rlhf_studio.runs.rows import tenth
from rlhf_studio.units import decimals, number_text

KL = "objective/kl"
TITLES = {metric.name: metric.title for metric in METRICS if any(metric.name in headline.names for headline in HEADLINES.values())}
TITLES |= {GOLD: N_("gold score"), SCORE: N_("score")}
ONE_SEED = N_("There is one seed of each setting: more seeds would show whether another draw of luck turns the order round.")
FALLS = frozenset(name for headline in HEADLINES.values() if headline.falls for name in headline.names)
"""Metrics of which the lowest is the best."""
MOST_TOLD = 4
"""So many runs that cannot be ranked are told one by one."""
LEVEL = 0.05
"""Chance of a wrong statement of a comparison."""
RECENT_STEPS = 20
"""The noise from step to step is taken from at least so many of the last steps."""
STEPS_FREE = 8
"""Degrees of freedom of that noise: so many steps tell its variance and how alike neighbours are."""


@dataclass(frozen=True)
class GroupResult:
    """The result of a group: the mean over its seeds that recorded something (``values``), and the variance of that mean.

    Runs with the same seed had the same luck, so they count as one. ``alone``: by run the variance that the noise from step to step gives.
    ``digits``, ``kl_digits``: how many decimals the metric and the KL have.
    """

    group: RunGroup
    text: str
    runs: list[int]
    value: float
    values: list[float]
    kl: float | None
    variance: float
    alone: dict[int, float]
    digits: int
    kl_digits: int

    def written(self, value: float) -> str:
        """A value of the metric."""
        return number_text(value, self.digits)

    def kl_written(self, value: float) -> str:
        return number_text(value, self.kl_digits)


def judge(
    readers: Sequence[RunReader], runs: Sequence[ComparedRun], groups: Sequence[RunGroup], rows: Sequence[SettingRow]
) -> tuple[str, list[str]]:
    """(the verdict, notes). Every run's figures are those of its last tenth."""
    metric = _common_metric(runs)
    if metric is None:
        return _of_different_stages(runs), _notes(runs, range(len(runs)), "")
    there = [run for run in range(len(runs)) if runs[run].last.get(metric) is not None]
    unlike = not_one_scale([readers[run] for run in there], metric)
    notes = _notes(runs, there, metric, ranked=not unlike)
    failed = _failed_early(runs, groups, there)
    there = [run for run in there if run not in failed]
    without = _("“{label}” failed after step {step}, so its seeds' mean is without it.")
    notes += [without.format(label=runs[run].label, step=runs[run].step) for run in failed]
    if not there:
        return _("None of these runs has recorded a step yet."), notes
    results = _results(readers, runs, groups, there, metric)
    so_far = len(there) > 1 and bool(_going(runs, there))
    if len(results) == 1:
        return _so_far(readers, runs, there, metric) if so_far else _one_group(results[0], runs, metric), notes
    if judged_differently(rows, metric):
        differ = difference(rows, runs, there)
        scored = metric in (GOLD, SCORE)
        cannot = (
            _("These runs were scored differently, so their {values} cannot be compared.")
            if scored
            else _("These runs were measured on different examples, so their {values} cannot be compared.")
        )
        return together(cannot.format(values=_plural(_named(metric))), differ), notes
    if unlike:
        return together(unlike, _each_by_itself(results, runs, metric)), notes
    if so_far:
        return together(_so_far(readers, runs, there, metric), difference(rows, runs, there)), notes
    if metric == GOLD and not judged_differently(rows, SCORE) and not not_one_scale([readers[run] for run in there], SCORE):
        notes += _other_way(results, _results(readers, runs, groups, there, SCORE))
    if all(len(result.values) == 1 for result in results):
        notes.append(_(ONE_SEED))
    return _sentence(results, rows, runs, metric), notes


def _common_metric(runs: Sequence[ComparedRun]) -> str | None:
    """The metric that decides; None for runs of different stages that have none in common."""

    def known(metric: str) -> bool:
        return all(run.last.get(metric) is not None for run in runs if run.step)

    stages = {run.stage for run in runs}
    if len(stages) > 1:
        return next((metric for metric in (GOLD, SCORE) if known(metric)), None)
    (stage,) = stages
    names = HEADLINES[stage].names if stage in HEADLINES else (GOLD, SCORE)
    return next((name for name in names if known(name)), names[-1])


def _of_different_stages(runs: Sequence[ComparedRun]) -> str:
    titles = [_(STAGE_TITLES[stage]) for stage in dict.fromkeys(run.stage for run in runs)]  # type: ignore[index]  # it is one of its keys
    return _(
        "These runs are of different stages ({stages}), and no number says of all of them how good they are: compare their policies on "
        "the Evaluate page."
    ).format(stages=_all_of(titles))


def _each_by_itself(results: Sequence[GroupResult], runs: Sequence[ComparedRun], metric: str) -> str:
    """Where each run's own values of a metric began and ended, in the order of the runs."""
    ends = []
    for result in sorted(results, key=lambda result: result.runs[0]):
        first = [value for run in result.runs if (value := runs[run].first[metric]) is not None]
        told = _("{who} went from {began} to {ended}") if first else _("{who} went to {ended}")
        began = result.written(float(np.mean(first))) if first else ""
        ends.append(told.format(who=result.text, began=began, ended=result.written(result.value)))
    listed = _all_of(ends)
    if len(ends) > MOST_TOLD:
        listed = _("{some}; the table of figures has all {count}").format(some=_all_of(ends[:MOST_TOLD], last=False), count=len(ends))
    return _("Each by itself, its {name} in the first step and on average in the last tenth: {listed}.").format(
        name=_named(metric), listed=listed
    )


def _named(metric: str) -> str:
    """What a metric is called inside a sentence."""
    return _(TITLES[metric]).lower()


def _all_of(parts: Sequence[str], *, last: bool = True) -> str:
    """``a``, ``a and b``, ``a, b and c``; without ``last`` there is no "and"."""
    if language() != ENGLISH:
        return "、".join(parts)
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part) if last else ", ".join(parts)


def _plural(name: str) -> str:
    if language() != ENGLISH:
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def _going(runs: Sequence[ComparedRun], there: Sequence[int]) -> list[int]:
    """Those of these runs that are not over."""
    return [run for run in there if runs[run].state in ("loading", "running", "paused")]


def _so_far(readers: Sequence[RunReader], runs: Sequence[ComparedRun], there: Sequence[int], metric: str) -> str:
    """Where one of the runs goes on, all of them at the last step that each of them has recorded: nothing is said of their ends."""
    at: list[dict[int, float]] = []
    for run in there:
        steps, columns = readers[run].columns([metric])
        at.append({int(step): float(value) for step, value in zip(steps, columns[metric], strict=True) if math.isfinite(value)})
    common = set.intersection(*map(set, at))
    if not common:
        return _("Some of these runs are not finished, and no step has a {name} of all of them yet.").format(name=_named(metric))
    step = max(common)
    told = [
        _("{value} for {who}").format(value=number_text(values[step], _digits(runs, metric)), who=f"“{runs[run].label}”")
        for run, values in sorted(zip(there, at, strict=True), key=lambda one: one[1][step], reverse=metric not in FALLS)
    ]
    listed = _all_of(told if len(told) <= MOST_TOLD else [told[0], told[-1]])
    some = (
        _("So far, at step {step}, the {name} is {listed}.")
        if len(told) <= MOST_TOLD
        else _("So far, at step {step}, the {name} of {count} runs lies between {listed}.")
    )
    return some.format(step=step, name=_named(metric), listed=listed, count=len(told))


def _sentence(results: Sequence[GroupResult], rows: Sequence[SettingRow], runs: Sequence[ComparedRun], metric: str) -> str:
    best, second, last = results[0], results[1], results[-1]
    margin = _margin(best, second, results)
    sure = abs(best.value - second.value) > margin
    seeds = any(len(result.values) > 1 for result in results)
    chance = _("so few steps do not tell what chance can do")
    if np.isfinite(margin):
        alone = (
            _("seeds alone can make a difference of {size}")
            if seeds
            else _("the noise from step to step alone can make a difference of {size}")
        )
        chance = alone.format(size=_by_itself(margin))
    about = {
        "name": _named(metric),
        "best": best.text,
        "first": best.written(best.value),
        "second": second.text,
        "next_to": best.written(second.value),
        "kl": _kl(best, second),
        "chance": chance,
        "count": len(results),
        "last": last.text,
        "end": last.written(last.value),
    }
    differ = difference(rows, runs, [result.runs[0] for result in results])
    if len(results) == 2:
        told = (
            _("{best} reaches a {name} of {first} against {next_to} for {second}{kl}.")
            if sure
            else _("{best} and {second} end with about the same {name}, {first} against {next_to}: {chance}.")
        )
        return together(told.format(**about), differ)
    begin = (
        _("Of {count} settings, {best} reaches the lowest {name}, {first}")
        if metric in FALLS
        else _("Of {count} settings, {best} reaches the highest {name}, {first}")
    )
    told = (
        _("{begin}, and {second} is next with {next_to}{kl}; {last} comes last with {end}.")
        if sure
        else _("{begin}, but {second} with {next_to} is too close to tell: {chance}; {last} comes last with {end}.")
    )
    return together(told.format(begin=begin.format(**about), **about), differ)


def _one_group(result: GroupResult, runs: Sequence[ComparedRun], metric: str) -> str:
    name = _named(metric)
    if len(result.runs) == 1:
        first = runs[result.runs[0]].first[metric]
        told = (
            _("One run: its {name} went to {ended} in its last tenth{kl}.")
            if first is None
            else _("One run: its {name} went from {began} in its first step to {ended} in its last tenth{kl}.")
        )
        began = "" if first is None else result.written(first)
        return told.format(name=name, began=began, ended=result.written(result.value), kl=_kl(result))
    kls = [kl for run in result.runs if (kl := runs[run].last.get(KL)) is not None]
    ends = {"kl": float(np.mean(kls)), "low": min(kls), "high": max(kls)} if kls else {}
    at_kl = _(", at a KL of {kl} ({low} to {high})").format(**{end: result.kl_written(kl) for end, kl in ends.items()}) if kls else ""
    told = _("{who} end with a {name} of {mean} on average ({low} to {high}){at_kl}.").format(
        who=_same(result),
        name=name,
        mean=result.written(result.value),
        low=result.written(min(result.values)),
        high=result.written(max(result.values)),
        at_kl=at_kl,
    )
    return together(told, _by_luck(result, runs, metric))


def _by_luck(result: GroupResult, runs: Sequence[ComparedRun], metric: str) -> str:
    """Whether the seeds lie further apart than the noise from step to step explains. Each pair of seeds is looked at (Bonferroni)."""
    seeds = len(result.runs)
    if seeds < 2 or seeds != len(result.values):
        return ""
    low, *_between, high = sorted(result.runs, key=lambda run: runs[run].last[metric] or 0.0)
    apart = max(result.values) - min(result.values)
    margin = student_t(STEPS_FREE, level=1 - LEVEL / math.comb(seeds, 2)) * math.sqrt(result.alone[low] + result.alone[high])
    if not np.isfinite(margin):
        return ""
    most = _("They differ by {apart}") if seeds == 2 else _("The largest difference is {apart}")
    told = (
        _("{most}, no more than luck: the noise from step to step alone can make {margin}.")
        if apart <= margin
        else _("{most}, more than the {margin} that the noise from step to step can make: the seed matters here.")
    )
    return told.format(most=most.format(apart=_by_itself(apart)), margin=_by_itself(margin))


def _same(result: GroupResult) -> str:
    seeds = len(result.values)
    if seeds > 1:
        return _("{count} seeds of the same settings").format(count=seeds)
    return _("{count} runs of the same settings and seed").format(count=len(result.runs))


def _results(
    readers: Sequence[RunReader], runs: Sequence[ComparedRun], groups: Sequence[RunGroup], there: Sequence[int], metric: str
) -> list[GroupResult]:
    """What each group came to by this metric, the best first."""
    there = [run for run in there if runs[run].last.get(metric) is not None]
    alone = _alone(readers, there, metric)
    results = [result for group in groups if (result := _result(group, runs, there, metric, alone)) is not None]
    return sorted(_pooled(results), key=lambda result: result.value if metric in FALLS else -result.value)


def _result(group: RunGroup, runs: Sequence[ComparedRun], there: Sequence[int], metric: str, alone: dict[int, float]) -> GroupResult | None:
    mine = [run for run in group.runs if run in there]
    if not mine:
        return None
    of_seed = [[run for run in mine if runs[run].seed == seed] for seed in dict.fromkeys(runs[run].seed for run in mine)]
    values = [float(np.mean([value for run in same if (value := runs[run].last[metric]) is not None])) for same in of_seed]
    kls = [kl for run in mine if (kl := runs[run].last.get(KL)) is not None]
    seeds = ngettext("{count} seed", "{count} seeds", len(values)).format(count=len(values))
    if len(values) == 1 < len(mine):
        seeds = _("{count} runs of one seed").format(count=len(mine))
    label = f"“{group.label}”" if len(group.runs) == 1 else _("“{label}” ({seeds})").format(label=group.label, seeds=seeds)
    variance = sum(float(np.mean([alone[run] for run in same])) for same in of_seed) / len(of_seed) ** 2
    kl, digits = float(np.mean(kls)) if kls else None, (_digits(runs, metric), _digits(runs, KL))
    return GroupResult(group, label, mine, float(np.mean(values)), values, kl, variance, alone, *digits)


def _alone(readers: Sequence[RunReader], there: Sequence[int], metric: str) -> dict[int, float]:
    """The variance of each run's last tenth by the noise from step to step, which no trend moves; infinite where it is not known."""
    variances = {}
    for run in there:
        steps, columns = readers[run].columns([metric])
        values, taken = columns[metric][~np.isnan(columns[metric])], tenth(len(steps))
        variances[run] = variance_of_mean(values[-max(RECENT_STEPS, taken) :], taken)
    return variances


def _failed_early(runs: Sequence[ComparedRun], groups: Sequence[RunGroup], there: Sequence[int]) -> list[int]:
    """Runs that failed before other seeds of their group were as far: their last tenth is that of an earlier policy."""
    failed = []
    for group in groups:
        steps = {run: runs[run].step for run in group.runs if run in there}
        failed += [run for run, step in steps.items() if runs[run].state == "failed" and step < max(steps.values())]
    return failed


def _pooled(results: list[GroupResult]) -> list[GroupResult]:
    """The results with the variance among seeds, where a group has two seeds or more. All groups are assumed to scatter alike."""
    free = sum(len(result.values) - 1 for result in results)
    if not free:
        return results
    pooled = sum(float(np.var(result.values)) * len(result.values) for result in results) / free
    return [replace(result, variance=pooled / len(result.values)) for result in results]


def _margin(first: GroupResult, second: GroupResult, results: Sequence[GroupResult], comparisons: int = 1) -> float:
    """Half the 95 % interval of the difference of two means. Several ``comparisons`` are to hold together (Bonferroni)."""
    free = sum(len(result.values) - 1 for result in results)
    return student_t(free or STEPS_FREE, level=1 - LEVEL / comparisons) * math.sqrt(first.variance + second.variance)


def _kl(best: GroupResult, other: GroupResult | None = None) -> str:
    if best.kl is None or (other is not None and other.kl is None):
        return ""
    if other is None or other.kl is None:
        return _(", at a KL of {kl}").format(kl=best.kl_written(best.kl))
    return _(", at a KL of {kl} against {other}").format(kl=best.kl_written(best.kl), other=best.kl_written(other.kl))


def _digits(runs: Sequence[ComparedRun], metric: str) -> int:
    """How many decimals a metric has in everything that is said of these runs, as in the table of figures (``figures`` in
    ``assets/runs/values.js``): one number is rounded in one way.
    """
    ends = [value for run in runs for value in (run.first.get(metric), run.last.get(metric)) if value is not None]
    return decimals(max(map(abs, ends), default=0.0))


def _by_itself(value: float) -> str:
    """A difference, with as many decimals as its own size needs; next to nothing is 0.00."""
    return number_text(value, decimals(abs(value)) if abs(value) >= 0.0005 else 2)


def _notes(runs: Sequence[ComparedRun], there: Sequence[int], metric: str, *, ranked: bool = True) -> list[str]:
    missing = [run for index, run in enumerate(runs) if index not in there and not run.step]
    notes = [_("“{label}” has recorded nothing to compare yet.").format(label=run.label) for run in missing]
    unmeasured = [run for index, run in enumerate(runs) if index not in there and run not in missing]
    notes += [_("“{label}” has recorded no {name}.").format(label=run.label, name=_named(metric)) for run in unmeasured]
    lengths = {runs[run].step for run in there}
    if len(lengths) > 1:
        each = _("The runs have from {fewest} to {most} steps, and each is summed up by its own last tenth.")
        notes.append(each.format(fewest=min(lengths), most=max(lengths)))
    going = [f"“{runs[run].label}”" for run in _going(runs, there)]
    if going:
        notes.append(_("Not finished yet: {runs}.").format(runs=_all_of(going, last=False)))
    if ranked and metric == SCORE and any(runs[run].last.get(GOLD) is not None for run in there):
        notes.append(_("Not all of the runs have a gold score, so the score that they were trained on decides."))
    notes += _not_all_known(runs)
    for run in runs:
        notes += [
            _("“{label}”: {setting} was changed to {value} at step {step}, while it ran.").format(
                label=run.label, setting=title(setting), value=value_text(value), step=step
            )
            for step, setting, value in run.changed
        ]
    return notes


_SOURCES: dict[Kind, str] = {
    "log": N_("read from a log"),
    "watched": N_("trained outside this app"),
    "program": N_("made by a program that keeps its prompts and rewards"),
}


def _not_all_known(runs: Sequence[ComparedRun]) -> list[str]:
    """One sentence about the runs whose settings are not all known; empty where there is none."""
    parts = []
    for kind, source in _SOURCES.items():
        names = [f"“{run.label}”" for run in runs if run.kind == kind and not run.settings_known]
        more = [_("{count} more").format(count=len(names) - MOST_NAMED)] if len(names) > MOST_NAMED else []
        parts += [_("{runs} ({source})").format(runs=_all_of([*names[:MOST_NAMED], *more]), source=_(source))] if names else []
    told = _(
        "Not all settings are known of {runs}: such a run is not averaged with others, and a setting that is not known is shown as “–”."
    )
    return [told.format(runs=_all_of(parts))] if parts else []


def _other_way(results: Sequence[GroupResult], scored: Sequence[GroupResult]) -> list[str]:
    """A note where the score surely names another winner than gold: a policy can win the score at the cost of the true quality."""
    by_runs = {tuple(result.group.runs): result for result in scored}
    best = by_runs.get(tuple(results[0].group.runs))
    # The best score is the luckiest too, among all settings but one. Between the best two no correction is needed: luck brings them near.
    if best is None or best is scored[0] or scored[0].value - best.value <= _margin(scored[0], best, scored, len(scored) - 1):
        return []
    top = scored[0]
    gold = next(result for result in results if result.group == top.group)
    sure = results[0].value - gold.value > _margin(results[0], gold, results, len(results) - 1)
    told = (
        _(
            "By the score that they were trained on, {top} is ahead, with {first} against {second} for {best}; the gold score says "
            "otherwise."
        )
        if sure
        else _(
            "By the score that they were trained on, {top} is ahead, with {first} against {second} for {best}; the gold score does not "
            "tell the two apart."
        )
    )
    return [told.format(top=top.text, first=top.written(top.value), second=top.written(best.value), best=best.text)]
