"""What a comparison comes to, in one sentence, with how sure that is.

Runs are compared by the mean of a metric's last tenth: the gold score where all of them have one, else the score. How far two groups of
runs may differ by chance is taken from seeds where there are any: the standard deviation among runs of one group, pooled over the groups,
gives Student's interval of 95 % for the difference of two means. With one run each, nothing is known of seeds; then only the noise from
step to step can be taken into account, and the notes say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_studio.analysis.compare.records import ComparedRun, Group, SettingRow
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.rows import tenth

SEED, GOLD, SCORE, KL = "engine.seed", "gold/score", "objective/scores", "objective/kl"
NAMES = {GOLD: "gold score", SCORE: "score"}
T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09)
"""Two-sided 95 % points of Student's t for 1 to 19 degrees of freedom."""
FEWEST_STEPS = 10
"""The noise from step to step is taken from at least so many of the last steps."""
MOST_NAMED = 3
"""So many of the differing settings are named in the sentence."""


@dataclass(frozen=True)
class Result:
    """What a group came to: means over its runs that recorded something, and the variance of the mean of ``metric``."""

    group: Group
    text: str
    runs: list[int]
    value: float
    values: list[float]
    kl: float | None
    variance: float


def judge(
    readers: Sequence[RunReader], runs: Sequence[ComparedRun], groups: Sequence[Group], rows: Sequence[SettingRow]
) -> tuple[str, list[str]]:
    """(the sentence, notes). Every run's figures are those of its last tenth."""
    metric = GOLD if all(run.last[GOLD] is not None for run in runs if run.step) else SCORE
    there = [run for run in range(len(runs)) if runs[run].last[metric] is not None]
    notes = _notes(runs, there, metric)
    if not there:
        return "None of these runs has recorded a step yet.", notes
    alone = _alone(readers, there, metric)
    results = [found for group in groups if (found := _result(group, runs, there, metric, alone)) is not None]
    results = sorted(_pooled(results), key=lambda result: -result.value)
    if len(results) == 1:
        return _one_group(results[0], runs, metric), notes
    if judged_differently(rows, metric):
        return f"These runs were scored differently, so their {NAMES[metric]}s cannot be compared; {_differ(rows, there)}.", notes
    notes += _other_way(results, runs, metric)
    if all(len(result.runs) == 1 for result in results):
        notes.append("There is one run of each setting: more seeds would show whether another draw of luck turns the order round.")
    return _sentence(results, rows, metric), notes


def judged_differently(rows: Sequence[SettingRow], metric: str) -> bool:
    """Whether the runs' values of this metric come from different judges."""
    of_gold = [row for row in rows if row.setting == "reward.gold"]
    of_reward = [row for row in rows if row.setting.startswith("reward.") and row.setting != "reward.gold"]
    return bool(of_gold if metric == GOLD else of_reward)


def _sentence(results: Sequence[Result], rows: Sequence[SettingRow], metric: str) -> str:
    best, second, last = results[0], results[1], results[-1]
    margin = _margin(best, second, results)
    sure = best.value - second.value > margin
    name, first, next_to = NAMES[metric], _number(best.value), _number(second.value)
    by = "seeds" if any(len(result.runs) > 1 for result in results) else "the noise from step to step"
    chance = f"{by} alone can make a difference of {_number(margin)}"
    kl, differ = _kl(best, second), _differ(rows, [result.runs[0] for result in results])
    if len(results) == 2:
        if sure:
            return f"{best.text} reaches a {name} of {first} against {next_to} for {second.text}{kl}; {differ}."
        return f"{best.text} and {second.text} end with about the same {name}, {first} against {next_to}: {chance}{kl}; {differ}."
    end = f"{last.text} comes last with {_number(last.value)}; {differ}."
    begin = f"Of {len(results)} settings, {best.text} reaches the highest {name}, {first}"
    if sure:
        return f"{begin}, and {second.text} is next with {next_to}{kl}; {end}"
    return f"{begin}, but {second.text} with {next_to} is too close to tell: {chance}{kl}; {end}"


def _one_group(result: Result, runs: Sequence[ComparedRun], metric: str) -> str:
    name = NAMES[metric]
    if len(result.runs) == 1:
        first = runs[result.runs[0]].first[metric]
        began = "" if first is None else f" from {_number(first)} in its first step"
        return f"One run: its {name} went{began} to {_number(result.value)} in its last tenth{_kl(result)}."
    kls = [kl for run in result.runs if (kl := runs[run].last[KL]) is not None]
    at_kl = f", at a KL of {_number(float(np.mean(kls)))} ({_number(min(kls))} to {_number(max(kls))})" if kls else ""
    return (
        f"{len(result.runs)} seeds of the same settings end with a {name} of {_number(result.value)} on average "
        f"({_number(min(result.values))} to {_number(max(result.values))}){at_kl}."
    )


def _result(group: Group, runs: Sequence[ComparedRun], there: Sequence[int], metric: str, alone: dict[int, float]) -> Result | None:
    mine = [run for run in group.runs if run in there]
    if not mine:
        return None
    values = [value for run in mine if (value := runs[run].last[metric]) is not None]
    kls = [kl for run in mine if (kl := runs[run].last[KL]) is not None]
    label = f"“{group.label}”" if len(group.runs) == 1 else f"“{group.label}” ({len(mine)} {'seeds' if len(mine) > 1 else 'seed'})"
    variance = sum(alone[run] for run in mine) / len(mine) ** 2
    return Result(group, label, mine, float(np.mean(values)), values, float(np.mean(kls)) if kls else None, variance)


def _alone(readers: Sequence[RunReader], there: Sequence[int], metric: str) -> dict[int, float]:
    """The variance of each run's last tenth by the noise from step to step: from differences of successive steps, which no trend moves."""
    found = {}
    for run in there:
        steps, columns = readers[run].columns([metric])
        values = columns[metric][~np.isnan(columns[metric])]
        taken = tenth(len(steps))
        recent = np.diff(values[-max(FEWEST_STEPS, taken) - 1 :])
        found[run] = float((recent**2).mean() / 2 / taken) if len(recent) else 0.0
    return found


def _pooled(results: list[Result]) -> list[Result]:
    """With the variance among seeds where some group has at least two; all groups are taken to scatter alike."""
    free = sum(len(result.values) - 1 for result in results)
    if not free:
        return results
    pooled = sum(float(np.var(result.values)) * len(result.values) for result in results) / free
    return [Result(r.group, r.text, r.runs, r.value, r.values, r.kl, pooled / len(r.values)) for r in results]


def _margin(one: Result, other: Result, results: Sequence[Result]) -> float:
    """Half the 95 % interval of the difference of two means."""
    free = sum(len(result.values) - 1 for result in results)
    factor = 2.0 if free == 0 or free > len(T_95) else T_95[free - 1]
    return float(factor * np.sqrt(one.variance + other.variance))


def _kl(best: Result, other: Result | None = None) -> str:
    if best.kl is None or (other is not None and other.kl is None):
        return ""
    against = "" if other is None or other.kl is None else f" against {_number(other.kl)}"
    return f", at a KL of {_number(best.kl)}{against}"


def _differ(rows: Sequence[SettingRow], order: Sequence[int]) -> str:
    """What differs; of a single setting also its values, in the order of these runs."""
    named = [row for row in rows if row.setting != SEED]
    if not named:
        return "they differ in what was changed while they ran"
    texts = [row.setting for row in named[:MOST_NAMED]]
    if len(named) == 1:
        values = list(dict.fromkeys(shown(named[0].values[run]) for run in order))
        return f"they differ in {texts[0]} ({' against '.join(values)})"
    more = len(named) - len(texts)
    return f"they differ in {', '.join(texts)} and {more} more" if more else f"they differ in {', '.join(texts[:-1])} and {texts[-1]}"


def shown(value: Any) -> str:
    """A setting's value as people read it."""
    if value is None or value == "":
        return "nothing"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """Two decimals, three below 0.1; none of an exponent."""
    digits = 2 if abs(value) >= 0.1 or abs(value) < 0.0005 else 3
    text = f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.0f}"
    return text.removeprefix("-") if float(text) == 0 else text


def _notes(runs: Sequence[ComparedRun], there: Sequence[int], metric: str) -> list[str]:
    notes = [f"“{run.label}” has recorded nothing to compare yet." for place, run in enumerate(runs) if place not in there]
    lengths = {runs[run].step for run in there}
    if len(lengths) > 1:
        notes.append(f"The runs have from {min(lengths)} to {max(lengths)} steps, and each is judged by its own last tenth.")
    going = [f"“{runs[run].label}”" for run in there if runs[run].state in ("loading", "running", "paused")]
    if going:
        notes.append(f"Not finished yet: {', '.join(going)}.")
    if metric == SCORE and any(runs[run].last[GOLD] is not None for run in there):
        notes.append("Not all of the runs have a gold score, so the score that they were trained on decides.")
    for run in runs:
        notes += [
            f"“{run.label}”: {setting} was changed to {shown(value)} at step {step}, while it ran." for step, setting, value in run.changed
        ]
    return notes


def _other_way(results: Sequence[Result], runs: Sequence[ComparedRun], metric: str) -> list[str]:
    """Where gold and score name different winners: what was trained on was won at the cost of what was wanted."""
    if metric != GOLD:
        return []
    scores = {}
    for place, result in enumerate(results):
        known = [score for run in result.runs if (score := runs[run].last[SCORE]) is not None]
        scores[place] = float(np.mean(known)) if known else -np.inf
    top = max(scores, key=lambda place: scores[place])
    if scores[top] <= scores[0]:
        return []
    return [
        f"By the score that they were trained on, {results[top].text} would be ahead, with {_number(scores[top])} against "
        f"{_number(scores[0])}; the gold score says otherwise."
    ]
