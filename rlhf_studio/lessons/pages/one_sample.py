"""One recorded response under the microscope: eight screens from its tokens to the push on each of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from rlhf_studio.lessons.kit import Choice, Numbers, Picture, Scene, Series, Slider, Toggle, Token, Word, Zone, line, plane, tokens
from rlhf_studio.lessons.kit.by_hand import advantages as advantages_by_hand
from rlhf_studio.lessons.kit.by_hand import all_close, close, kl_estimate
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.what_if import Recorded, Settings, WhatIf, recompute
from rlhf_studio.ppo.diagnostics import explained_variance

NUMBER = 16

STEPS, RESPONSES = 36, 64
STEP, SAMPLE = Slider("step", 1, STEPS, 1, start=12), Slider("sample", 1, RESPONSES, 1, start=3)
NEEDS = ("run",)


def row_of(x: Any, of: Recorded, row: int) -> list[float]:
    """The numbers of one response's tokens."""
    found: list[float] = x[row][of.mask[row]].double().tolist()
    return found


def opened(run: LessonRun, step: float, sample: float) -> tuple[Recorded, int, list[str]]:
    """The step, the row of the response, and its tokens' texts."""
    row = int(sample) - 1
    return run.recorded(int(step)), row, [piece.strip() or "·" for piece in run.samples(int(step))[row].pieces]


def coloured(
    pieces: list[str], values: list[float], label: str, size: float, *, marks: list[bool] | None = None, digits: int = 2
) -> Picture:
    marked = marks or [False] * len(pieces)
    items = [Token(piece, value, "clipped" if mark else "") for piece, value, mark in zip(pieces, values, marked, strict=True)]
    return tokens(items, label=Word(label), size=size, digits=digits)


# --- what was written, and what the reference thinks of it -----------------------------------------------------------------------


def written(run: LessonRun, step: float, sample: float) -> Numbers:
    """The response as it was sampled."""
    of, row, pieces = opened(run, step, sample)
    one, logprobs = run.samples(int(step))[row], row_of(of.logprobs, of, row)
    least = min(range(len(pieces)), key=lambda at: logprobs[at])
    return {
        "prompt": one.prompt,
        "pieces": pieces,
        "logprobs": logprobs,
        "count": len(pieces),
        "score": one.score,
        "gold": one.gold,
        "rarest": pieces[least],
        "rarest_chance": math.exp(logprobs[least]),
        "total": sum(logprobs),
        "stopped": one.stopped,
    }


def compared(run: LessonRun, step: float, sample: float, estimator: str) -> Numbers:
    """Beside the reference, by an estimator of the KL."""
    of, row, pieces = opened(run, step, sample)
    found = recompute(of, replace(of.settings, kl_estimator=estimator))
    kl, old, ref = row_of(found.kl, of, row), row_of(of.logprobs, of, row), row_of(of.ref_logprobs, of, row)
    largest = max(range(len(kl)), key=lambda at: abs(old[at] - ref[at]))
    return {
        "pieces": pieces,
        "kl": kl,
        "differences": [a - b for a, b in zip(old, ref, strict=True)],
        "total": sum(kl),
        "moved": pieces[largest],
        "times": math.exp(abs(old[largest] - ref[largest])),
        "which_way": Word("likelier" if old[largest] >= ref[largest] else "rarer"),
        "negative": sum(kl) < 0,
    }


# --- from the score to advantages ------------------------------------------------------------------------------------------------


def asked(of: Recorded, **changes: Any) -> tuple[Settings, WhatIf]:
    chosen = replace(of.settings, **changes)
    return chosen, recompute(of, chosen)


def rewarded(run: LessonRun, step: float, sample: float, beta: float) -> Numbers:
    """Rewards by token with another price of KL."""
    of, row, pieces = opened(run, step, sample)
    _, found = asked(of, kl_coef=beta)
    rewards, kl = row_of(found.rewards, of, row), row_of(found.kl, of, row)
    return {
        "pieces": pieces,
        "rewards": rewards,
        "kl": kl,
        "score": float(of.scores[row]),
        "price": beta * sum(kl),
        "total": sum(rewards),
        "own": of.settings.kl_coef,
        "better": sum(rewards) > float(of.scores[row]),
    }


def valued(run: LessonRun, step: float, sample: float) -> Numbers:
    """What the critic expected along the way."""
    of, row, pieces = opened(run, step, sample)
    values, found = row_of(of.values, of, row), recompute(of)
    explained = explained_variance(of.values, found.returns, of.mask).item()
    steepest = max(range(1, len(values)), key=lambda at: abs(values[at] - values[at - 1])) if len(values) > 1 else 0
    return {
        "pieces": pieces,
        "values": values,
        "first": values[0],
        "last": values[-1],
        "score": float(of.scores[row]),
        "turn": pieces[steepest - 1] if steepest else pieces[0],
        "turned": values[steepest] - values[steepest - 1] if steepest else 0.0,
        "hopeful": values[-1] > values[0],
        "explained": explained,
        "all_values": of.values[of.mask].tolist(),
        "all_returns": found.returns[of.mask].tolist(),
    }


def explained_by_hand(n: Numbers) -> float:
    middle = sum(n["all_returns"]) / len(n["all_returns"])
    wrong = sum((value - one) ** 2 for value, one in zip(n["all_values"], n["all_returns"], strict=True))
    of_mean = sum((one - middle) ** 2 for one in n["all_returns"])
    return float(1 - wrong / of_mean)


def credited(run: LessonRun, step: float, sample: float, gamma: float, lam: float) -> Numbers:
    """Advantages with another γ and λ, beside those that the run learned from."""
    of, row, pieces = opened(run, step, sample)
    _, found = asked(of, gamma=gamma, lam=lam)
    now, before = row_of(found.advantages, of, row), row_of(recompute(of).advantages, of, row)
    best = max(range(len(now)), key=lambda at: now[at])
    return {
        "pieces": pieces,
        "now": now,
        "before": before,
        "rewards": row_of(found.rewards, of, row),
        "values": row_of(of.values, of, row),
        "favourite": pieces[best],
        "most": now[best],
        "turned": sum(a * b < 0 for a, b in zip(now, before, strict=True)),
        "as_recorded": (gamma, lam) == (of.settings.gamma, of.settings.lam),
    }


# --- the batch, the clip and the push ------------------------------------------------------------------------------------------------


def whitened(run: LessonRun, step: float, sample: float, whitening: bool) -> Numbers:
    """The advantages that the loss used, over the whole batch."""
    of, row, pieces = opened(run, step, sample)
    _, found = asked(of, whiten_advantages=whitening)
    plain, used = row_of(found.advantages, of, row), row_of(found.whitened_advantages, of, row)
    batch = found.advantages[of.mask].tolist()
    mean = sum(batch) / len(batch)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in batch) / (len(batch) - 1))
    return {
        "pieces": pieces,
        "plain": plain,
        "used": used,
        "mean": mean,
        "deviation": deviation,
        "tokens": len(batch),
        "turned": sum(a > 0 > b for a, b in zip(plain, used, strict=True)),
        "any_turned": any(a > 0 > b for a, b in zip(plain, used, strict=True)),
    }


def clipped(run: LessonRun, step: float, sample: float, eps: float) -> Numbers:
    """Where each token stood when the update went through it for the last time."""
    of, row, pieces = opened(run, step, sample)
    _, found = asked(of, cliprange=eps, cliprange_high=0.0)
    ratio, advantages, silent = (row_of(x, of, row) for x in (found.ratio, found.whitened_advantages, found.clipped))
    losses = row_of(found.policy_loss, of, row)
    push = [0.0 if quiet else a * r for quiet, a, r in zip(silent, advantages, ratio, strict=True)]
    return {
        "pieces": pieces,
        "ratio": ratio,
        "advantages": advantages,
        "silent": [bool(one) for one in silent],
        "losses": losses,
        "push": push,
        "count": len(pieces),
        "quiet": int(sum(silent)),
        "any_quiet": any(silent),
        "share": found.clipped[of.mask].double().mean().item(),
        "low": 1 - eps,
        "high": 1 + eps,
        "loss": sum(losses) / len(losses),
    }


def clipped_by_hand(n: Numbers) -> bool:
    for ratio, advantage, quiet, loss in zip(n["ratio"], n["advantages"], n["silent"], n["losses"], strict=True):
        plain, limited = -advantage * ratio, -advantage * min(max(ratio, n["low"]), n["high"])
        if quiet != (limited > plain) or not close(loss, max(plain, limited), 1e-6):
            return False
    return True


def draw_values(n: Numbers) -> Picture:
    places = [float(at) for at in range(1, len(n["values"]) + 1)]
    curve = Series(Word("value"), places, n["values"], tone="value")
    levels: dict[str, float] = {Word("score"): n["score"]}
    return line([curve], x=Word("token_number"), y=Word("value"), x_range=(1, 32), y_range=(-2.5, 3), levels=levels)


def draw_clip(n: Numbers) -> Picture:
    zones = [Zone(Word("silent"), (n["high"], 2.0), (0, 4)), Zone(Word("silent"), (0.0, n["low"]), (-4, 0))]
    pushing = [at for at, quiet in enumerate(n["silent"]) if not quiet]
    quiet = [at for at, quiet in enumerate(n["silent"]) if quiet]
    points = [
        Series(Word(name), [n["ratio"][at] for at in chosen], [n["advantages"][at] for at in chosen], tone=tone, dots=True)
        for name, tone, chosen in (("pushes", "policy", pushing), ("is_silent", "coef", quiet))
    ]
    return plane(points, x=Word("ratio"), y=Word("advantage"), x_range=(0, 2), y_range=(-4, 4), zones=zones)


SCENES = (
    Scene(
        "written",
        written,
        controls=(STEP, SAMPLE),
        pictures={"tokens": lambda n: coloured(n["pieces"], n["logprobs"], "logprob", 6)},
        claims={"a probability is at most one": lambda n: max(n["logprobs"]) <= 1e-6 and n["count"] == len(n["pieces"])},
        needs=NEEDS,
    ),
    Scene(
        "compared",
        compared,
        controls=(STEP, SAMPLE, Choice("estimator", ("k1", "k2", "k3", "abs"), start="k1")),
        pictures={"tokens": lambda n: coloured(n["pieces"], n["kl"], "kl", 2)},
        claims={
            "the estimate of each token, by hand": lambda n: all_close(
                n["kl"], [kl_estimate(d, n["estimator"]) for d in n["differences"]], 1e-6
            ),
        },
        needs=NEEDS,
    ),
    Scene(
        "rewarded",
        rewarded,
        controls=(STEP, SAMPLE, Slider("beta", 0, 0.3, 0.01, start=0.08)),
        pictures={"tokens": lambda n: coloured(n["pieces"], n["rewards"], "reward", 2, digits=3)},
        claims={
            "the rewards are the score less the price": lambda n: close(n["total"], n["score"] - n["price"], 1e-6),
            "only the last token gets the score": lambda n: all_close(
                n["rewards"], [*(-n["beta"] * one for one in n["kl"][:-1]), n["score"] - n["beta"] * n["kl"][-1]], 1e-6
            ),
        },
        needs=NEEDS,
    ),
    Scene(
        "valued",
        valued,
        controls=(STEP, SAMPLE),
        pictures={"values": draw_values},
        claims={"explained variance by hand": lambda n: close(n["explained"], explained_by_hand(n), 1e-6)},
        needs=NEEDS,
    ),
    Scene(
        "credited",
        credited,
        controls=(STEP, SAMPLE, Slider("gamma", 0.8, 1, 0.01, start=1), Slider("lam", 0, 1, 0.05, start=0.95)),
        pictures={
            "now": lambda n: coloured(n["pieces"], n["now"], "advantage_now", 2),
            "before": lambda n: coloured(n["pieces"], n["before"], "advantage_recorded", 2),
        },
        claims={
            "GAE by hand": lambda n: all_close(n["now"], advantages_by_hand(n["rewards"], n["values"], n["gamma"], n["lam"]), 1e-6),
            "the run's own settings give what it learned from": lambda n: not n["as_recorded"] or all_close(n["now"], n["before"], 1e-9),
        },
        needs=NEEDS,
    ),
    Scene(
        "whitened",
        whitened,
        controls=(STEP, SAMPLE, Toggle("whitening", start=True)),
        pictures={"used": lambda n: coloured(n["pieces"], n["used"], "advantage_used", 2)},
        claims={
            "less the mean, over the deviation": lambda n: all_close(
                n["used"], [(one - n["mean"]) / n["deviation"] if n["whitening"] else one for one in n["plain"]], 1e-5
            )
        },
        needs=NEEDS,
    ),
    Scene(
        "clipped",
        clipped,
        controls=(STEP, SAMPLE, Slider("eps", 0.02, 0.4, 0.02, start=0.2)),
        pictures={
            "plane": draw_clip,
            "push": lambda n: coloured(n["pieces"], n["push"], "push", 2, marks=n["silent"]),
        },
        claims={"the larger of two losses, by hand": clipped_by_hand},
        needs=NEEDS,
    ),
)
