"""What goes wrong: a judge that is pleased and a review that is bad, the price that keeps it honest, and passes that teach nothing new."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Series, Slider, Toggle, Word, bars, line
from rlhf_studio.lessons.parts import beta_dial, useless_critic
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.lessons.size import RESPONSES, STEPS
from rlhf_studio.lessons.what_if import WhatIf, recompute
from rlhf_studio.ppo.advantages import whiten
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 14

PARTED = 5
"""From this step on the policy without the penalty has the higher score and the higher KL; before, the two have hardly parted."""
SCORE, GOLD, KL = "objective/scores", "gold/score", "objective/kl"
CLIPPED, APPROX_KL = "policy/clipfrac_avg", "policy/approxkl_avg"
NOTICEABLE = 0.05


# --- the judge is pleased --------------------------------------------------------------------------------------------------------


def two_curves(run: LessonRun, step: int, charged: bool) -> Numbers:
    """Score and gold of a run, with or without the KL penalty, up to the end; and the step that each of the two would choose."""
    score, gold, kl = (run.curve(name, without_kl=not charged) for name in (SCORE, GOLD, KL))
    by_score, by_gold = (max(range(STEPS), key=values.__getitem__) for values in (score, gold))
    change = gold[step - 1] - gold[0]
    samples = run.samples(step, without_kl=not charged)
    best = max(samples, key=lambda sample: sample.score)
    return {
        "score": score[step - 1],
        "gold": gold[step - 1],
        "kl": kl[step - 1],
        "first_score": score[0],
        "first_gold": gold[0],
        "truth": Word("better" if change > NOTICEABLE else "worse" if change < -NOTICEABLE else "same"),
        "by_score": by_score + 1,
        "gold_by_score": gold[by_score],
        "by_gold": by_gold + 1,
        "gold_by_gold": gold[by_gold],
        "lost": gold[by_gold] - gold[by_score],
        "review": f"{best.prompt}{best.response}",
        "review_score": best.score,
        "review_gold": best.gold,
        "scores": score,
        "golds": gold,
        "of_samples": (fmean(sample.score for sample in samples), fmean(sample.gold for sample in samples)),
    }


def draw_score(n: Numbers) -> Picture:
    return _curves(n, ("scores",))


def draw_both(n: Numbers) -> Picture:
    return _curves(n, ("scores", "golds"))


def _curves(n: Numbers, names: tuple[str, ...]) -> Picture:
    steps = [float(step) for step in range(1, STEPS + 1)]
    tones = {"scores": "score", "golds": "gold"}
    curves = [Series(Word(name), steps, n[name], tone=tones[name]) for name in names]
    return line(curves, x=Word("step"), y=Word("mean"), x_range=(1, STEPS), y_range=(-1, 2.6), at=n["step"])


# --- the price ---------------------------------------------------------------------------------------------------------------------


class Earned(NamedTuple):
    """Means over the responses of a step: the score, β times the KL, and what is left; and the first response's tokens."""

    score: float
    paid: float
    left: float
    per_nat: float
    rewards: list[float]
    log_ratios: list[float]
    first_score: float


def earned(run: LessonRun, step: int, beta: float, *, charged: bool) -> Earned:
    """What the responses of a step earn when a nat costs ``beta``, by the engine's own functions."""
    of = run.recorded(step, without_kl=not charged)
    changed: WhatIf = recompute(of, replace(of.settings, kl_coef=beta))
    left, kl = changed.rewards.sum(dim=1), changed.kl.sum(dim=1)
    keep = of.mask[0]
    score = float(of.scores.mean())
    return Earned(
        score,
        score - float(left.mean()),
        float(left.mean()),
        float(kl.mean()),
        changed.rewards[0][keep].tolist(),
        (of.logprobs[0] - of.ref_logprobs[0])[keep].tolist(),
        float(of.scores[0]),
    )


def price(run: LessonRun, beta: float, step: int) -> Numbers:
    """Which of the two policies earns more, when both pay the same price."""
    honest, hacked = (earned(run, step, beta, charged=charged) for charged in (True, False))
    return {
        "honest": honest.left,
        "hacked": hacked.left,
        "honest_score": honest.score,
        "hacked_score": hacked.score,
        "honest_kl": honest.per_nat,
        "hacked_kl": hacked.per_nat,
        "winner": Word("held" if honest.left > hacked.left else "free"),
        "break_even": (hacked.score - honest.score) / (hacked.per_nat - honest.per_nat),
        "parts": {"held": honest, "free": hacked},
    }


def draw_price(n: Numbers) -> Picture:
    rows = [Bar(Word(name), [part.score, -part.paid, part.left]) for name, part in n["parts"].items()]
    return bars(rows, [Word("score"), Word("paid"), Word("left")], label=Word("mean_reward"), low=-4, high=3)


# --- passes ------------------------------------------------------------------------------------------------------------------------

TRUE = torch.tensor([1.0, 0.6, 0.3, 0.1, -0.1, -0.3, -0.6, -1.0], dtype=torch.float64)
WORLDS, DRAWN, RATE, PER_BATCH = 100, 12, 1.0, 4


class Learned(NamedTuple):
    """Of each pass: the exact expected score, and the share of silent responses. And the last ratios and advantages, flat."""

    truth: list[float]
    silent: list[float]
    ratios: list[float]
    advantages: list[float]


@lru_cache(maxsize=256)
def learn(passes: int, eps: float, seed: int, fresh: bool) -> Learned:
    """A policy over eight words, in a hundred worlds at once: each samples twelve words, hears noisy scores, and takes ``passes`` steps.

    With ``fresh`` it samples anew after every four.
    """
    draw = torch.Generator().manual_seed(seed)
    logits = torch.zeros(WORLDS, len(TRUE), dtype=torch.float64)
    mask = torch.ones(WORLDS, DRAWN, dtype=torch.bool)
    truth, silent = [0.0], [0.0]
    words = old = advantages = torch.zeros(0)
    for number in range(passes):
        if number == 0 or (fresh and number % PER_BATCH == 0):
            words = torch.multinomial(logits.softmax(dim=-1), DRAWN, replacement=True, generator=draw)
            heard = TRUE[words] + torch.randn(words.shape, generator=draw, dtype=torch.float64)
            old = logits.log_softmax(dim=-1).gather(1, words)
            advantages = torch.vmap(lambda row: whiten(row[None], mask[:1])[0])(heard)  # each world has its own batch
        free = logits.clone().requires_grad_()
        loss = policy_loss(free.log_softmax(dim=-1).gather(1, words), old, advantages, mask, eps)
        (slope,) = torch.autograd.grad(loss.loss_sum / DRAWN, free)
        logits = logits - RATE * slope
        truth.append(float((logits.softmax(dim=-1) * TRUE).sum(dim=-1).mean()))
        now = policy_loss(logits.log_softmax(dim=-1).gather(1, words), old, advantages, mask, eps)
        silent.append(float(now.clipped.double().mean()))
    return Learned(truth, silent, _flat(now.ratio), _flat(advantages))


def _flat(x: Tensor) -> list[float]:
    numbers: list[float] = x.flatten().tolist()
    return numbers


def more_passes(run: LessonRun, passes: int, eps: float, luck: int) -> Numbers:
    """As many passes over one batch, and divided among fresh batches."""
    same, fresh = (learn(int(passes), eps, int(luck), kind) for kind in (False, True))
    ahead = fresh.truth[-1] - same.truth[-1]
    first = same.truth[PER_BATCH]
    clipped, approx = run.curve(CLIPPED), run.curve(APPROX_KL)
    return {
        "clip_low": min(clipped),
        "clip_high": max(clipped),
        "approx_low": min(approx),
        "approx_high": max(approx),
        "run_gained": run.curve(GOLD)[-1] - run.curve(GOLD)[0],
        "first": first,
        "same": same.truth[-1],
        "fresh": fresh.truth[-1],
        "added": same.truth[-1] - first,
        "silent": same.silent[-1],
        "winner": Word("equal" if abs(ahead) < 1e-9 else "fresh" if ahead > 0 else "repeated"),
        "batches": int(passes) // PER_BATCH,
        "per_batch": PER_BATCH,
        "curves": (same.truth, fresh.truth),
        "last": same,
    }


def draw_passes(n: Numbers) -> Picture:
    same, fresh = n["curves"]
    passes = [float(number) for number in range(len(same))]
    curves = [Series(Word("same_batch"), passes, same, tone="clip"), Series(Word("fresh_batches"), passes, fresh, tone="policy")]
    return line(curves, x=Word("passes"), y=Word("true_score"), x_range=(0, 40), y_range=(-0.05, 0.9))


# --- for yourself --------------------------------------------------------------------------------------------------------------------


def check_yourself(run: LessonRun, step: int, response: int, charged: bool) -> Numbers:
    """One recorded review: is it better than a usual review of the start?"""
    sample = run.samples(step, without_kl=not charged)[int(response) - 1]
    of = run.recorded(step, without_kl=not charged)
    row = recompute(of).of_episode(int(response) - 1)
    start = run.curve(GOLD)[0]
    kl = row["kl"] or []
    return {
        "review": f"{sample.prompt}{sample.response}",
        "score": sample.score,
        "kl": sum(kl),
        "gold": sample.gold,
        "start": start,
        "better": sample.gold > start,
        "tokens": len(kl),
        "rewards": row["rewards"],
        "beta": of.settings.kl_coef,
    }


SCENES = (
    Scene(
        "two_curves",
        two_curves,
        controls=(Slider("step", 1, STEPS, 1, start=STEPS), Toggle("charged")),
        pictures={"score": draw_score, "both": draw_both},
        needs=("run",),
    ),
    Scene(
        "price",
        price,
        controls=(Slider("beta", 0, 0.1, 0.005, start=0.08), Slider("step", PARTED, STEPS, 1, start=STEPS)),
        pictures={"price": draw_price},
        needs=("run",),
    ),
    *beta_dial.SCENES,
    Scene(
        "more_passes",
        more_passes,
        needs=("run",),
        controls=(Slider("passes", 4, 40, 4, start=32), Slider("eps", 0.1, 0.9, 0.1, start=0.2), Slider("luck", 1, 20, 1, start=1)),
        pictures={"passes": draw_passes},
    ),
    useless_critic.SCENE,
    Scene(
        "check_yourself",
        check_yourself,
        controls=(Slider("step", 1, STEPS, 1, start=30), Slider("response", 1, RESPONSES, 1, start=3), Toggle("charged")),
        needs=("run",),
    ),
)
