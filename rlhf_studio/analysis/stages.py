"""What a run of another stage than PPO came to: learning, learned, overfits, or nothing learned. The doctor's checks are PPO's alone.

Held-out examples decide where there are any: they are the same at every measurement, so a change is no chance of which examples a step
saw. Without them the loss of the training examples is compared, and nothing can be said of overfitting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlhf_studio.analysis.records import Diagnosis, Verdict, VerdictKind
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED
from rlhf_studio.runs.rows import tenth

FEWEST_STEPS = 5
LEAST_FALL = 0.02
"""A loss that fell by less than this share of its first value has not fallen."""
LEAST_RISE = 0.01
"""A held-out loss that rose by less than this share of its lowest value has not risen again."""
SHARE_LOST = 0.1
"""Nor has one that gave back less than this share of what it had gained."""
SURE_FALL = 3.0
"""Without held-out examples: so many standard errors are more than the chance of which examples a step saw."""
LONG_ENOUGH = 0.5
"""From this share of the run on it may be said that nothing was learned."""
BY_HEART = 0.15
"""An accuracy on the training pairs so much above the held-out one says that pairs are learned by heart."""


@dataclass(frozen=True)
class _Measured:
    """The metrics of a stage by which it is judged. ``eval_loss`` and ``loss`` fall as the model learns; ``shares`` are accuracies."""

    loss: str
    eval_loss: str
    share: str = ""
    eval_share: str = ""
    called: str = "loss"


_STAGES = {
    "sft": _Measured("sft/loss", "sft/eval_loss"),
    "reward_model": _Measured(
        "reward_model/loss", "reward_model/eval_loss", "reward_model/accuracy", "reward_model/eval_accuracy", "log loss"
    ),
    "dpo": _Measured("dpo/loss", "dpo/eval_loss", "dpo/accuracy", "dpo/eval_accuracy"),
}


@dataclass(frozen=True)
class _Points:
    """The finite values of a metric, and their steps."""

    steps: np.ndarray
    values: np.ndarray

    def first(self) -> float:
        return float(self.values[: tenth(len(self.values))].mean())

    def last(self) -> float:
        return float(self.values[-tenth(len(self.values)) :].mean())


def stage_diagnosis(reader: RunReader, until: int | None = None) -> Diagnosis:
    """The state of a run of another stage, up to step ``until`` or as it is now; no findings. Raises StoreError when it cannot be read."""
    with reader.snapshot():
        status, stage = reader.status(), reader.config().stage
        names = _STAGES.get(stage)
        wanted = [] if names is None else [names.loss, names.eval_loss, names.share, names.eval_share, "dpo/chosen_reward"]
        steps, columns = reader.columns([name for name in wanted if name])
    if until is not None:
        kept = steps <= until
        steps, columns = steps[kept], {name: column[kept] for name, column in columns.items()}
    last = int(steps[-1]) if len(steps) else 0
    if names is None:
        return Diagnosis(last, _evaluated(last, status.state in ENDED), [])
    points = {name: _points(steps, column) for name, column in columns.items()}
    over = status.state in ENDED and last == status.step
    late = over or (status.total_steps > 0 and last >= LONG_ENOUGH * status.total_steps)
    verdict = _judge(names, points, over, late)
    failed = [f"The run failed: {status.cause}"] if status.state == "failed" and status.cause else []
    notes = [*verdict.notes, *_notes(names, points), *failed]
    return Diagnosis(last, Verdict(verdict.kind, verdict.sentence, verdict.reason, notes, verdict.since), [])


def _points(steps: np.ndarray, column: np.ndarray) -> _Points:
    known = np.isfinite(column)
    return _Points(steps[known], column[known])


def _evaluated(steps: int, over: bool) -> Verdict:
    if not steps:
        return Verdict("too early", "No prompt is answered yet.", "An evaluation records what each batch of prompts got as answers.")
    return Verdict(
        "evaluated",
        "Evaluated: all policies have answered." if over else "The policies are answering.",
        "An evaluation trains nothing; its tables compare the policies.",
    )


def _judge(names: _Measured, points: dict[str, _Points], over: bool, late: bool) -> Verdict:
    loss, held = points[names.loss], points[names.eval_loss]
    if len(held.values) >= 2:
        return _by_held_out(names, points, over, late)
    if len(loss.values) < FEWEST_STEPS:
        there = f"there {'is' if len(loss.values) == 1 else 'are'} {len(loss.values)}"
        return Verdict("too early", "Too early to say.", f"A verdict needs {FEWEST_STEPS} steps, or two held-out measurements; {there}.")
    return _by_training(names, loss, over, late, measured=bool(len(held.values)))


def _by_held_out(names: _Measured, points: dict[str, _Points], over: bool, late: bool) -> Verdict:
    held = points[names.eval_loss]
    first, last = float(held.values[0]), float(held.values[-1])
    place = int(held.values.argmin())
    best, at = float(held.values[place]), int(held.steps[place])
    change = f"held-out {names.called} {_number(first)} → {_number(last)}{_told_more(names, points)}"
    measured = f"{len(held.values)} held-out measurements, from step {held.steps[0]} to step {held.steps[-1]}"
    need = max(LEAST_RISE * abs(best), SHARE_LOST * (first - best))
    if last - best > need and _fell_since(points[names.loss], at):
        sentence = (
            f"Overfits: the held-out {names.called} was lowest at step {at} ({_number(best)}) and has risen to {_number(last)} since, "
            "while the loss on the training examples went on falling."
        )
        reason = f"{measured}: it rose by {_number(last - best)}, and more than {_number(need)} counts."
        risen = held.steps[(held.steps > at) & (held.values - best > need)]
        note = f"The model of step {at} is the better one: use the checkpoint nearest to it, or train again with fewer passes."
        return Verdict("overfits", sentence, reason, [note], int(risen[0]))
    least = LEAST_FALL * abs(first)
    reason = f"{measured}: the {names.called} fell by {_number(first - last)}, and more than {_number(least)} counts."
    if first - last > least:
        short = np.flatnonzero(first - held.values <= least)  # the first measurement is one of them
        return _learned(over, change, reason, int(held.steps[short[-1] + 1]))
    if not late:
        return Verdict("too early", f"Too early to say: {change}.", reason)
    return Verdict("nothing learned", f"Nothing learned: {change}.", reason, [], int(held.steps[-1]))


def _by_training(names: _Measured, loss: _Points, over: bool, late: bool, measured: bool) -> Verdict:
    first, last = loss.first(), loss.last()
    count = tenth(len(loss.values))
    noise = float(np.sqrt((np.diff(loss.values) ** 2).mean() / 2 * (2 / count)))  # of the difference of two means of so many steps
    change = f"{names.called} on the training examples {_number(first)} → {_number(last)}"
    which = "step" if count == 1 else f"{count} steps"
    reason = f"Compared are the first and the last {which} of {len(loss.values)}: it fell by {_number(first - last)}"
    reason = f"{reason}, and {_number(SURE_FALL * noise)} could be the chance of which examples a step saw."
    known = "The next held-out measurement tells more." if measured else "No examples are held out, so overfitting cannot be seen."
    if first - last > max(SURE_FALL * noise, LEAST_FALL * abs(first)):
        verdict = _learned(over, change, reason, int(loss.steps[-count]))
        return Verdict(verdict.kind, verdict.sentence, verdict.reason, [known], verdict.since)
    if not late:
        return Verdict("too early", f"Too early to say: {change}.", reason, [known])
    return Verdict("nothing learned", f"Nothing learned: {change}.", reason, [known], int(loss.steps[-1]))


def _learned(over: bool, change: str, reason: str, since: int) -> Verdict:
    kind: VerdictKind = "learned" if over else "learning"
    return Verdict(kind, f"{kind.capitalize()}: {change}.", reason, [], since)


def _fell_since(loss: _Points, step: int) -> bool:
    """Whether the training loss was lower after a step than in as many steps before it: the mean of each side's nearest tenth, at least."""
    after = loss.values[loss.steps > step]
    before = loss.values[loss.steps <= step]
    count = min(len(after), len(before), max(FEWEST_STEPS, tenth(len(loss.values))))
    return bool(count and after[-count:].mean() < before[-count:].mean())


def _told_more(names: _Measured, points: dict[str, _Points]) -> str:
    """What the loss means: the perplexity of a language model, or the accuracy on pairs."""
    if not names.eval_share:
        first, last = np.exp(points[names.eval_loss].values[[0, -1]])
        return f", perplexity {_number(first)} → {_number(last)}"
    share = points[names.eval_share].values
    return f", accuracy {_percent(share[0])} → {_percent(share[-1])} of the held-out pairs" if len(share) else ""


def _notes(names: _Measured, points: dict[str, _Points]) -> list[str]:
    notes = []
    share, held = (points.get(name) for name in (names.share, names.eval_share))
    if share is not None and held is not None and len(share.values) and len(held.values):
        apart = share.last() - float(held.values[-1])
        if apart > BY_HEART:
            notes.append(
                f"The accuracy on the training pairs is {_percent(share.last())}, on held-out pairs {_percent(held.values[-1])}: "
                "pairs are being learned by heart."
            )
    chosen = points.get("dpo/chosen_reward")
    if names is _STAGES["dpo"] and chosen is not None and len(chosen.values) and chosen.last() < -1.0:
        notes.append(
            f"The chosen responses became less likely too (chosen reward {_number(chosen.last())}): DPO only asks that the rejected ones "
            "fall further. A larger β holds the policy nearer to its reference."
        )
    return notes


def _number(value: float) -> str:
    """Two decimals, three below 0.1; a plain number with a minus sign."""
    digits = 2 if abs(value) >= 0.1 or abs(value) < 0.0005 else 3
    text = f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
