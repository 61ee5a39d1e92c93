"""One recorded response under the microscope: screen by screen from its tokens to the push on each of them, for any run on record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rlhf_studio.lessons.kit import FromRun, Listed, Numbers, Picture, Scene, Series, Word, ledger, line
from rlhf_studio.lessons.parts import on_record as on
from rlhf_studio.lessons.parts.last_pass import CLIPPED, PUSHED
from rlhf_studio.lessons.parts.swapped import SWAPPED
from rlhf_studio.lessons.record import RecordedRun
from rlhf_studio.lessons.what_if import recompute
from rlhf_studio.ppo.diagnostics import explained_variance

NUMBER = 17
ANY_RUN = True

NEEDS = ("record",)
row_of = on.row_of


# --- what was written, and what the reference thinks of it -----------------------------------------------------------------------


def written(record: RecordedRun, step: float, sample: float) -> Numbers:
    """The response as it was sampled."""
    of, row, pieces = on.opened(record, step, sample)
    response, logprobs = record.responses(int(step))[row], row_of(of.logprobs, of, row)
    least = min(range(len(pieces)), key=lambda at: logprobs[at])
    return {
        "prompt": Word("no_text") if response.prompt is None else on.shortened(response.prompt),
        "pieces": pieces,
        "logprobs": logprobs,
        "size": on.scale_of(of.logprobs, of),
        "count": len(pieces),
        "score": response.score,
        "gold": Word("no_gold") if response.gold is None or not math.isfinite(response.gold) else response.gold,
        "rarest": pieces[least],
        "rarest_chance": math.exp(logprobs[least]),
        "total": sum(logprobs),
        "stopped": response.stopped,
    }


def beside(record: RecordedRun, step: float, sample: float, place: float) -> Numbers:
    """Each token's log-probability under the policy and under the reference."""
    of, row, pieces = on.opened(record, step, sample)
    policy, reference = row_of(of.logprobs, of, row), row_of(of.ref_logprobs, of, row)
    differences, at = [a - b for a, b in zip(policy, reference, strict=True)], int(place) - 1
    return {
        "pieces": pieces,
        "policy": policy,
        "reference": reference,
        "differences": differences,
        "size": on.scale_of(of.logprobs - of.ref_logprobs, of),
        "token": pieces[at],
        "chance": math.exp(policy[at]),
        "chance_before": math.exp(reference[at]),
        "times": math.exp(differences[at]),
        "likelier": differences[at] > 0,
        "rose": sum(difference > 0 for difference in differences),
        "count": len(pieces),
    }


def kl(record: RecordedRun, step: float, sample: float, estimator: str) -> Numbers:
    """The KL of each token by an estimator."""
    of, row, pieces = on.opened(record, step, sample)
    changed, before = on.computed_with(of, kl_estimator=estimator), recompute(of)
    now, recorded = row_of(changed.kl, of, row), row_of(before.kl, of, row)
    return {
        "pieces": pieces,
        "kl": now,
        "before": recorded,
        "size": on.scale_of(before.kl, of),
        "differences": [a - b for a, b in zip(row_of(of.logprobs, of, row), row_of(of.ref_logprobs, of, row), strict=True)],
        "total": sum(now),
        "recorded": sum(recorded),
        "own": Word(of.settings.kl_estimator),
        "negative": sum(now) < 0,
        "as_recorded": estimator == of.settings.kl_estimator,
    }


# --- from the score to advantages ------------------------------------------------------------------------------------------------


def rewarded(record: RecordedRun, step: float, sample: float, beta: float, score: float) -> Numbers:
    """Rewards by token with another price of KL, or another score."""
    of, row, pieces = on.opened(record, step, sample)
    if of.settings.kl_placement != "reward":
        raise on.CannotAsk("This run charges the KL in its loss, not in the rewards: only the last token has a reward, the score.")
    changed, before = on.computed_with(of, row, score, kl_coef=beta), recompute(of)
    plain = on.computed_with(of, row, score, kl_coef=beta, whiten_rewards=False)
    rewards, recorded, kls = (row_of(x, of, row) for x in (changed.rewards, before.rewards, changed.kl))
    return {
        "pieces": pieces,
        "rewards": rewards,
        "recorded": recorded,
        "size": on.scale_of(before.rewards, of),
        "kl": kls,
        "divisor": (plain.rewards.abs().sum() / changed.rewards.abs().sum()).item() if bool(changed.rewards.any()) else 1.0,
        "divided": Word("divided" if of.settings.whiten_rewards else "whole"),
        "own_score": float(of.scores[row]),
        "price": beta * sum(kls),
        "total": sum(rewards),
        "own": of.settings.kl_coef,
        "better": beta * sum(kls) < 0,
        "as_recorded": beta == of.settings.kl_coef and score == float(of.scores[row]),
        "differs": on.differing(rewards, recorded, 3),
        "count": len(pieces),
    }


def valued(record: RecordedRun, step: float, sample: float) -> Numbers:
    """What the critic expected along the way."""
    of, row, pieces = on.opened(record, step, sample)
    values, computed = row_of(of.values, of, row), recompute(of)
    explained = explained_variance(of.values, computed.returns, of.mask).item()
    steps = [b - a for a, b in pairwise(values)]
    steepest = max(range(len(steps)), key=lambda at: abs(steps[at])) if steps else -1
    return {
        "pieces": pieces,
        "values": values,
        "first": values[0],
        "last": values[-1],
        "score": float(of.scores[row]),
        "turn": pieces[max(steepest, 0)],
        "turned": steps[steepest] if steps else 0.0,
        "hopeful": values[-1] > values[0],
        "explained": explained if math.isfinite(explained) else Word("unknown"),
        "all_values": of.values[of.mask].tolist(),
        "all_returns": computed.returns[of.mask].tolist(),
        "range": on.rounded_range([*of.values[of.mask].tolist(), *of.scores.tolist()]),
        "longest": max(2, of.mask.shape[1]),
    }


def credited(record: RecordedRun, step: float, sample: float, gamma: float, lam: float) -> Numbers:
    """Advantages with another γ and λ, beside those that the run learned from."""
    of, row, pieces = on.opened(record, step, sample)
    changed, own = on.computed_with(of, gamma=gamma, lam=lam), recompute(of)
    now, before = row_of(changed.advantages, of, row), row_of(own.advantages, of, row)
    best = max(range(len(now)), key=lambda at: now[at])
    return {
        "pieces": pieces,
        "now": now,
        "before": before,
        "size": on.scale_of(own.advantages, of),
        "rewards": row_of(changed.rewards, of, row),
        "values": row_of(of.values, of, row),
        "favourite": pieces[best],
        "most": now[best],
        "turned": sum(a * b < 0 for a, b in zip(now, before, strict=True)),
        "as_recorded": (gamma, lam) == (of.settings.gamma, of.settings.lam),
        "count": len(pieces),
    }


# --- the whole batch ------------------------------------------------------------------------------------------------


def whitened(record: RecordedRun, step: float, sample: float, whitening: bool, score: float) -> Numbers:
    """The advantages that the loss used, over the whole batch; another score of this response changes them all."""
    of, row, pieces = on.opened(record, step, sample)
    changed, own = on.computed_with(of, row, score, whiten_advantages=whitening), recompute(of)
    plain, used, before = (row_of(x, of, row) for x in (changed.advantages, changed.whitened_advantages, own.whitened_advantages))
    batch = changed.advantages[of.mask].tolist()
    mean = sum(batch) / len(batch)
    moved = changed.whitened_advantages.round(decimals=on.DIGITS) != own.whitened_advantages.round(decimals=on.DIGITS)
    return {
        "pieces": pieces,
        "plain": plain,
        "used": used,
        "before": before,
        "size": on.scale_of(own.whitened_advantages, of),
        "mean": mean,
        "deviation": math.sqrt(sum((advantage - mean) ** 2 for advantage in batch) / max(1, len(batch) - 1)),
        "tokens": len(batch),
        "turned": sum(a > 0 > b for a, b in zip(plain, used, strict=True)),
        "any_turned": any(a > 0 > b for a, b in zip(plain, used, strict=True)),
        "others": int(moved.sum() - moved[row].sum()),
        "as_recorded": whitening == of.settings.whiten_advantages and score == float(of.scores[row]),
        "differs": on.differing(used, before),
    }


# --- pictures ------------------------------------------------------------------------------------------------------------------------


def draw_differences(n: Numbers) -> Picture:
    def mark(index: int) -> str:
        return "chosen" if index == n["place"] - 1 else ""

    return on.coloured(n["pieces"], n["differences"], "difference", n["size"], mark=mark)


def draw_beside(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {
        Word("of_policy"): n["policy"],
        Word("of_reference"): n["reference"],
        Word("difference"): n["differences"],
    }
    return ledger(n["pieces"], rows, result=Word("difference"), at=int(n["place"]) - 1)


def draw_values(n: Numbers) -> Picture:
    positions = [float(at) for at in range(1, len(n["values"]) + 1)]
    curve = Series(Word("value"), positions, n["values"], tone="value", dots=len(positions) == 1)
    levels: dict[str, float] = {Word("score"): n["score"]}
    return line([curve], x=Word("token_number"), y=Word("value"), x_range=(1, n["longest"]), y_range=n["range"], levels=levels)


def _place(needed: Mapping[str, Any], chosen: Mapping[str, Any]) -> Listed:
    """The control of the token. It starts where policy and reference differ most."""
    of, row, pieces = on.opened(needed["record"], chosen["step"], chosen["sample"])
    most = int((of.logprobs[row] - of.ref_logprobs[row]).abs().argmax()) + 1
    return Listed("place", range(1, len(pieces) + 1), most)


SCENES = (
    Scene(
        "written",
        written,
        controls=(on.STEP, on.RESPONSE),
        pictures={"tokens": lambda n: on.coloured(n["pieces"], n["logprobs"], "logprob", n["size"])},
        needs=NEEDS,
    ),
    Scene(
        "beside",
        beside,
        controls=(on.STEP, on.RESPONSE, FromRun("place", _place)),
        pictures={"differences": draw_differences, "both": draw_beside},
        needs=NEEDS,
    ),
    Scene(
        "kl",
        kl,
        controls=(on.STEP, on.RESPONSE, on.ESTIMATOR),
        pictures={"tokens": lambda n: on.coloured(n["pieces"], n["kl"], "kl", n["size"], before=n["before"])},
        needs=NEEDS,
    ),
    Scene(
        "rewarded",
        rewarded,
        controls=(on.STEP, on.RESPONSE, on.setting("beta", 0, 0.3, 0.01, "kl_coef"), on.SCORE),
        pictures={"tokens": lambda n: on.coloured(n["pieces"], n["rewards"], "reward", n["size"], before=n["recorded"], digits=3)},
        needs=NEEDS,
    ),
    Scene("valued", valued, controls=(on.STEP, on.RESPONSE), pictures={"values": draw_values}, needs=NEEDS),
    Scene(
        "credited",
        credited,
        controls=(on.STEP, on.RESPONSE, on.setting("gamma", 0.8, 1, 0.01, "gamma"), on.setting("lam", 0, 1, 0.05, "lam")),
        pictures={"now": lambda n: on.coloured(n["pieces"], n["now"], "advantage", n["size"], before=n["before"])},
        needs=NEEDS,
    ),
    Scene(
        "whitened",
        whitened,
        controls=(on.STEP, on.RESPONSE, on.WHITENING, on.SCORE),
        pictures={"used": lambda n: on.coloured(n["pieces"], n["used"], "advantage_used", n["size"], before=n["before"])},
        needs=NEEDS,
    ),
    CLIPPED,
    PUSHED,
    SWAPPED,
)
