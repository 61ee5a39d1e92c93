"""The last two screens of a response: where its tokens stood in the update's last pass, and which way the loss pushed them."""

from __future__ import annotations

import math

from rlhf_studio.lessons.kit import Numbers, Picture, Scene, Series, Word, Zone, plane
from rlhf_studio.lessons.parts import on_record as on
from rlhf_studio.lessons.record import RecordedRun
from rlhf_studio.lessons.what_if import RecordedStep, recompute

NEEDS = ("record",)
row_of = on.row_of


def upper(of: RecordedStep, eps: float) -> float:
    """The upper clip range: the run's own when ε is the run's own; else 0, and ε holds for both sides."""
    return of.settings.cliprange_high if eps == of.settings.cliprange else 0.0


def clipped(record: RecordedRun, step: float, sample: float, eps: float) -> Numbers:
    """The ratio and the advantage of each token in the update's last pass."""
    of, row, pieces = on.opened(record, step, sample)
    on.needs_last_pass(of, row)
    high = upper(of, eps)
    changed = on.computed_with(of, cliprange=eps, cliprange_high=high)
    ratio, advantages, silent = (row_of(x, of, row) for x in (changed.ratio, changed.whitened_advantages, changed.clipped))
    known = of.mask & of.last_pass[:, None]
    before = row_of(recompute(of).clipped, of, row)
    return {
        "pieces": pieces,
        "ratio": ratio,
        "advantages": advantages,
        "silent": [bool(is_silent) for is_silent in silent],
        "count": len(pieces),
        "quiet": int(sum(silent)),
        "quiet_before": int(sum(before)),
        "any_quiet": any(silent),
        "share": changed.clipped[known].double().mean().item(),
        "low": 1 - eps,
        "high": 1 + (high or eps),
        "dual": of.settings.dual_clip > 0,
        "widest": max(2.0, math.ceil(changed.ratio[known].max().item())),
        "tallest": max(4.0, math.ceil(changed.whitened_advantages[known].abs().max().item())),
    }


def pushed(record: RecordedRun, step: float, sample: float, eps: float, score: float) -> Numbers:
    """The loss of each token in the last pass, and which way its gradient pushes the token's log-probability."""
    of, row, pieces = on.opened(record, step, sample)
    on.needs_last_pass(of, row)
    high = upper(of, eps)
    changed, own = on.computed_with(of, row, score, cliprange=eps, cliprange_high=high), recompute(of)
    own_push = row_of(own.push, of, row)
    numbers = (changed.push, changed.policy_loss, changed.ratio, changed.whitened_advantages, changed.clipped)
    push, losses, ratio, advantages, silent = (row_of(x, of, row) for x in numbers)
    up, down = sum(number > 0 for number in push), sum(number < 0 for number in push)
    return {
        "pieces": pieces,
        "push": push,
        "before": own_push,
        "size": on.scale_of(own.push, of),
        "losses": losses,
        "ratio": ratio,
        "advantages": advantages,
        "silent": [bool(is_silent) for is_silent in silent],
        "dual": of.settings.dual_clip > 0,
        "up": up,
        "down": down,
        "still": len(push) - up - down,
        "upwards": up > down,
        "turned": sum(a * b < 0 for a, b in zip(push, own_push, strict=True)),
        "loss": sum(losses) / len(losses),
        "low": 1 - eps,
        "high": 1 + (high or eps),
        "as_recorded": (eps, score) == (of.settings.cliprange, float(of.scores[row])),
        "differs": on.differing(push, own_push),
    }


def draw_clip(n: Numbers) -> Picture:
    widest, tallest = n["widest"], n["tallest"]
    zones = [Zone(Word("silent"), (n["high"], widest), (0, tallest)), Zone(Word("silent"), (0.0, n["low"]), (-tallest, 0))]
    pushing = [at for at, quiet in enumerate(n["silent"]) if not quiet]
    quiet = [at for at, quiet in enumerate(n["silent"]) if quiet]
    points = [
        Series(Word(name), [n["ratio"][at] for at in chosen], [n["advantages"][at] for at in chosen], tone=tone, dots=True)
        for name, tone, chosen in (("pushes", "policy", pushing), ("is_silent", "coef", quiet))
    ]
    return plane(points, x=Word("ratio"), y=Word("advantage"), x_range=(0, widest), y_range=(-tallest, tallest), zones=zones)


def draw_push(n: Numbers) -> Picture:
    def mark(index: int) -> str:
        return "clipped" if n["silent"][index] else ""

    return on.coloured(n["pieces"], n["push"], "push", n["size"], before=n["before"], mark=mark)


CLIPPED = Scene(
    "clipped",
    clipped,
    controls=(on.STEP, on.RESPONSE, on.setting("eps", 0.02, 0.4, 0.02, "cliprange")),
    pictures={"plane": draw_clip},
    needs=NEEDS,
)

PUSHED = Scene(
    "pushed",
    pushed,
    controls=(on.STEP, on.RESPONSE, on.setting("eps", 0.02, 0.4, 0.02, "cliprange"), on.SCORE),
    pictures={"push": draw_push},
    needs=NEEDS,
)
