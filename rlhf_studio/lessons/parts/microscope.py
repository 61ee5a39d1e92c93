"""One optimizer step on one token, by the lesson run's policy: who gains, who pays, and what the net has learned beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Slider, Word, bars
from rlhf_studio.lessons.size import STEPS

if TYPE_CHECKING:
    from rlhf_studio.lessons.run import LessonRun

EPISODES, SHOWN, PLACES = 64, 5, 12
GAINED = {"praised": 1.0, "blamed": -1.0}
"""The advantage of the token."""


def by_the_rule(before: list[float], token: int, gain: float) -> list[float]:
    """Probabilities after a step along the rule for a table of logits.

    The step is as large as needed for the token's own probability to change by ``gain``; its size is found by halving.
    """
    logits = torch.tensor(before, dtype=torch.float64)
    p = logits.softmax(dim=0)
    rule = -p * math.copysign(1.0, gain)
    rule[token] += math.copysign(1.0, gain)

    def too_far(size: float) -> bool:
        return abs(float((logits + size * rule).softmax(dim=0)[token] - p[token])) >= abs(gain)

    low, high = 0.0, 1.0
    while high < 1e9 and not too_far(high):
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if too_far(middle) else (middle, high)
    after: list[float] = (logits + high * rule).softmax(dim=0).tolist()
    return after


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities of logits."""
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def under_microscope(run: LessonRun, step: int, sample: int, place: int, judged: str) -> Numbers:
    """What one step on one token does to the next word's probabilities, there and in another review."""
    from rlhf_studio.lessons.parts.one_update import one_update  # takes seconds to load, and the lesson's other scenes do not need it

    chosen = run.samples(step)[int(sample) - 1]
    at = min(int(place), len(chosen.ids)) - 1
    token, advantage = chosen.ids[at], GAINED[judged]
    update = one_update(run, int(step), int(sample) - 1, at, advantage)
    before, after = softmax(update.before), softmax(update.after)
    change = [b - a for a, b in zip(before, after, strict=True)]
    rule = by_the_rule(update.before, token, change[token])
    others = sorted((j for j in range(len(before)) if j != token), key=lambda j: -before[j])
    most = min(others, key=lambda j: change[j] * advantage)
    before_elsewhere, then = update.elsewhere or (0.0, 0.0)
    *names, name_of_most = run.tokenizer.batch_decode([[j] for j in [token, *others[:SHOWN], most]])
    text = run.tokenizer.decode([*chosen.prompt_ids, *chosen.ids[:at]])
    return {
        "token": names[0].strip() or names[0],
        "text": text,
        "advantage": advantage,
        "token_id": token,
        "logits": update.before,
        "slope": update.slope,
        "ratio": update.ratio,
        "chances": (before, after, rule),
        "shown": list(zip([name.strip() or name for name in names], [token, *others[:SHOWN]], strict=True)),
        "chance_before": before[token],
        "chance_after": after[token],
        "gain": change[token],
        "favourite": names[1].strip() or names[1],
        "favourite_change": 100 * change[others[0]],
        "favourite_rule": 100 * (rule[others[0]] - before[others[0]]),
        "all_others": 100 * sum(change[j] for j in others),
        "favourite_does": Word("same_way" if change[others[0]] * change[token] > 0 else "other_way"),
        "most": name_of_most.strip() or name_of_most,
        "most_change": 100 * change[most],
        "there": before_elsewhere,
        "then": then,
        "rate": run.config.ppo.learning_rate,
        "moved": update.moved,
        "elsewhere": Word("nowhere" if update.elsewhere is None else "follows" if (then - before_elsewhere) * advantage > 0 else "resists"),
    }


def draw_chances(n: Numbers) -> Picture:
    rows: list[tuple[str, list[float]]] = [(name, [100 * p[j] for p in n["chances"]]) for name, j in n["shown"]]
    items = [Bar(name, percents, mark="" if index else "chosen") for index, (name, percents) in enumerate(rows)]
    largest = max(max(percents) for _, percents in rows)
    high = next(bound for bound in (25, 50, 100, 101) if largest <= bound)  # few bounds, so that the axis seldom jumps
    return bars(items, [Word("was"), Word("became"), Word("by_rule")], label=Word("percent"), low=0, high=high, digits=1)


SCENE = Scene(
    "under_microscope",
    under_microscope,
    controls=(
        Slider("step", 2, STEPS, 2, start=10),
        Slider("sample", 1, EPISODES, 7, start=57),
        Slider("place", 1, PLACES, 1, start=3),
        Choice("judged", tuple(GAINED), start="praised"),
    ),
    pictures={"chances": draw_chances},
    needs=("run",),
)
