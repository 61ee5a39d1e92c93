"""Rewards: the score at the last token, the price of KL on each, how KL is estimated, who sets the price, and the scale of scores."""

from __future__ import annotations

import math
import statistics
from typing import Any

import torch

from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Series, Slider, Toggle, Word, bars, ledger, line, options
from rlhf_studio.lessons.parts import kl_dice
from rlhf_studio.lessons.parts.kl_dice import EDGE, SAMPLED
from rlhf_studio.ppo.advantages import whiten
from rlhf_studio.ppo.kl import full_kl, kl_per_token
from rlhf_studio.ppo.kl_control import AdaptiveKL
from rlhf_studio.ppo.logprobs import log_distribution, token_logprobs
from rlhf_studio.ppo.rewards import RunningMoments, scale_scores, shape_rewards

NUMBER = 9

ESTIMATORS = (*SAMPLED, "full")


# --- one response ------------------------------------------------------------------------------------------------------------

COLUMNS = ["The", "acting", "is", "superb", ".", "<end>", "·"]
REAL = 6
CHANGES = [0.1, -0.6, 0.05, 0.0, 0.2, 0.4, 0.0]  # of the sampled tokens' logits, from the reference to the policy
IDS = torch.tensor([[0, 3, 1, 5, 2, 4, 0]])
LIKED = 3
UNSEEN = 0.005  # a smaller number is shown as zero


def two_models(liking: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a policy and of its reference at each position. The policy likes one word more, by ``liking``."""
    ref = torch.randn(1, len(COLUMNS), 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    change = torch.tensor([CHANGES], dtype=torch.float64)
    change[0, LIKED] = liking
    return ref.scatter_add(2, IDS.unsqueeze(2), change.unsqueeze(2)), ref


def last_token(score: float, beta: float, liking: float, estimator: str) -> Numbers:
    """From a score and two models to the reward of each token. What stands behind the end is no number at all."""
    policy, ref = two_models(liking)
    logprobs, ref_logprobs = token_logprobs(policy, IDS), token_logprobs(ref, IDS)
    exact = full_kl(log_distribution(policy), log_distribution(ref))
    kl = exact if estimator == "full" else kl_per_token(logprobs, ref_logprobs, estimator)
    mask = torch.arange(len(COLUMNS)).unsqueeze(0) < REAL
    kl = kl.masked_fill(~mask, torch.nan)
    scores = torch.tensor([score], dtype=torch.float64)
    rewards = shape_rewards(kl, scores, mask, beta)[0].tolist()
    turned = shape_rewards(kl, scores, mask, -beta)[0].tolist()
    old = shape_rewards(kl_per_token(logprobs, logprobs, "k1").masked_fill(~mask, torch.nan), scores, mask, beta)[0].tolist()
    earned, price = rewards[1], score - sum(rewards)
    return {
        "policy_logits": policy[0].tolist(),
        "ref_logits": ref[0].tolist(),
        "policy": logprobs[0, :REAL].tolist(),
        "ref": ref_logprobs[0, :REAL].tolist(),
        "kl": kl[0, :REAL].tolist(),
        "rewards": rewards,
        "turned": turned,
        "old": old,
        "rarer": earned,
        "rarer_d": (logprobs - ref_logprobs)[0, 1].item(),
        "moves": Word("earns" if earned > EDGE else "pays" if earned < -EDGE else "nothing"),
        "total": sum(rewards),
        "total_turned": sum(turned),
        "turned_means": Word("no_price" if abs(price) < UNSEEN else "paid_out" if price > 0 else "taken"),
        "total_old": sum(old),
        "at_end": rewards[REAL - 1],
        "price": price,
    }


def draw_known(n: Numbers) -> Picture:
    return ledger(COLUMNS[:REAL], {Word("log_policy"): n["policy"], Word("log_ref"): n["ref"]}, at=1)


def draw_ledger(n: Numbers) -> Picture:
    gap = [None] * (len(COLUMNS) - REAL)
    rows: dict[str, list[Any]] = {Word("kl"): [*n["kl"], *gap], Word("reward"): n["rewards"]}
    return ledger(COLUMNS, rows, result=Word("reward"))


def draw_mistakes(n: Numbers) -> Picture:
    rows: dict[str, list[Any]] = {Word("reward"): n["rewards"], Word("turned"): n["turned"], Word("old"): n["old"]}
    return ledger(COLUMNS, rows, result=Word("reward"))


# --- the thermostat ----------------------------------------------------------------------------------------------------------

UPDATES = 40
BETA = 0.2
HABIT = 1.02  # the wrong controller multiplies by this, whatever the KL


def thermostat(kl: float, target: float, episodes: float, horizon: float) -> Numbers:
    """β after updates that all find the same KL: an open loop, the policy does not answer."""
    controller = AdaptiveKL(BETA, target, horizon)
    path = [BETA]
    for _ in range(UPDATES):
        controller.update(kl, int(episodes))
        path.append(controller.coef)
    utmost = AdaptiveKL(1.0, target, horizon)
    utmost.update(1000 * target, int(episodes))
    factor = path[1] / path[0]
    return {
        "path": path,
        "habit": [BETA * HABIT**update for update in range(UPDATES + 1)],
        "change": factor - 1,
        "moved": abs(factor - 1),
        "most": utmost.coef - 1,
        "off": kl / target - 1,
        "updates": UPDATES,
        "first": BETA,
        "last": path[-1],
        "moves": Word("rises" if factor > 1 + EDGE else "falls" if factor < 1 - EDGE else "stays"),
        "habit_change": HABIT - 1,
        "habit_last": BETA * HABIT**UPDATES,
    }


def draw_beta(n: Numbers) -> Picture:
    updates = list(range(UPDATES + 1))
    curves = [Series(Word("habit"), updates, n["habit"], tone="coef"), Series(Word("adaptive"), updates, n["path"], tone="kl")]
    return line(curves, x=Word("updates"), y=Word("beta"), x_range=(0, UPDATES), y_range=(0, 0.5))


# --- the scale of scores -----------------------------------------------------------------------------------------------------

EARLIER = [1.1, 2.6, 3.0, 1.7, 2.2, 0.9, 3.6, 2.4, 1.9, 2.8, 1.4, 3.1]
BATCH = [1.2, 2.8, 2.1, 3.4, 0.6]
PIECES = [["a", "fine", "film"], ["a", "slow", "dull", "long", "film"]]
PRICES = [[0.05, 0.3, 0.1, 0.0, 0.0], [0.05, 0.4, 0.6, 0.2, 0.1]]  # of KL in the two responses that are shown


def scaling(mode: str, clip: float, outlier: float, unit_variance: bool) -> Numbers:
    """Scores of a batch on the run's scale, and the token rewards of two of its responses."""
    scores = torch.tensor([*BATCH, outlier], dtype=torch.float64)
    moments = RunningMoments()
    moments.update(torch.tensor(EARLIER, dtype=torch.float64))
    moments.update(scores[:-1])
    std_before = moments.std
    moments.update(scores[-1:])
    scaled = scale_scores(scores, moments, mode, clip)
    mask = torch.tensor([[index < len(piece) for index in range(5)] for piece in PIECES])
    kl = torch.tensor(PRICES, dtype=torch.float64).masked_fill(~mask, torch.nan)
    rewards = shape_rewards(kl, scaled[:2], mask, 1.0)
    used = shape_rewards(kl, scaled[:2], mask, 1.0, unit_variance=unit_variance)
    whitened = whiten(rewards, mask)
    parts = {"plain": rewards[mask].tolist(), "used": used[mask].tolist(), "whitened": whitened[mask].tolist()}
    first = scaled[0].item()
    return {
        "raw": scores.tolist(),
        "scaled": scaled.tolist(),
        "mean": moments.mean,
        "std": moments.std,
        "std_before": std_before,
        "scale_effect": Word("undivided" if mode == "none" else "shrinks" if moments.std > std_before else "grows"),
        "before": BATCH[0],
        "after": first,
        "earns": Word("plus" if first > EDGE else "minus" if first < -EDGE else "nothing"),
        "limited": sum(math.isclose(abs(x), clip, rel_tol=1e-9) for x in scaled.tolist()) if clip else 0,
        **parts,
        **{f"mean_{name}": statistics.fmean(part) for name, part in parts.items()},
        "in_padding": whitened_there(rewards, mask)[0, -1].item(),
        "spread_used": statistics.stdev(parts["used"]),
        "divisor": statistics.stdev(parts["plain"]),
    }


def whitened_there(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, T) rewards after ``whiten_rewards`` of TRL 0.11: padding is a zero that is moved and scaled like a reward."""
    known = rewards[mask]
    filled = rewards.masked_fill(~mask, 0.0)
    return (filled - known.mean()) * torch.rsqrt(known.var() + 1e-8) + known.mean()


def draw_scores(n: Numbers) -> Picture:
    items = [Bar(Word(f"response_{index}"), [raw, scaled]) for index, (raw, scaled) in enumerate(zip(n["raw"], n["scaled"], strict=True))]
    return bars(items, [Word("raw"), Word("scaled")], label=Word("score"), low=-5, high=20)


def draw_pieces(n: Numbers) -> Picture:
    rows: dict[str, list[Any]] = {Word("plain"): n["plain"], Word("used"): n["used"], Word("whitened"): n["whitened"]}
    return ledger([token for piece in PIECES for token in piece], rows, result=Word("used"))


# --- a check -----------------------------------------------------------------------------------------------------------------

SHORT = ["It", "works", "<end>"]


def check_yourself(example: float, score: float, beta: float, estimator: str) -> Numbers:
    """A short response: what does its last token earn?"""
    generator = torch.Generator().manual_seed(int(example))
    ref = -(torch.randint(5, 30, (1, 3), generator=generator).double() / 10)
    steps = torch.randint(5, 16, (1, 3), generator=generator).double() / 10
    signs = torch.randint(0, 2, (1, 3), generator=generator).double() * 2 - 1
    logprobs = (ref + steps * signs).clamp(max=-0.01)
    kl = kl_per_token(logprobs, ref, estimator)
    rewards = shape_rewards(kl, torch.tensor([score], dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool), beta)[0].tolist()
    price = beta * kl[0, -1].item()
    off = kl_per_token(logprobs, ref, "k1").sum().item()
    return {
        "policy": logprobs[0].tolist(),
        "ref": ref[0].tolist(),
        "rewards": rewards,
        "difference": (logprobs - ref)[0, -1].item(),
        "estimate": kl[0, -1].item(),
        "earned": rewards[-1],
        "off": off,
        "bonus": off < 0,
        **options(rewards[-1], [score, score + price], int(example)),
    }


def draw_short(n: Numbers) -> Picture:
    return ledger(SHORT, {Word("log_policy"): n["policy"], Word("log_ref"): n["ref"]})


def draw_short_rewards(n: Numbers) -> Picture:
    return ledger(SHORT, {Word("reward"): n["rewards"]}, result=Word("reward"))


SCENES = (
    Scene(
        "last_token",
        last_token,
        controls=(
            Slider("score", -3, 3, 0.1, start=1.8),
            Slider("beta", 0, 1, 0.02, start=0.2),
            Slider("liking", -2, 3, 0.1, start=1.5),
            Choice("estimator", ESTIMATORS, start="k1"),
        ),
        pictures={"known": draw_known, "ledger": draw_ledger, "mistakes": draw_mistakes},
    ),
    *kl_dice.SCENES,
    Scene(
        "thermostat",
        thermostat,
        controls=(
            Slider("kl", 0, 20, 0.5, start=3, unit="nats"),
            Slider("target", 2, 12, 0.5, start=6, unit="nats"),
            Slider("episodes", 32, 256, 32, start=128),
            Slider("horizon", 4000, 20000, 1000, start=10000),
        ),
        pictures={"beta": draw_beta},
    ),
    Scene(
        "scaling",
        scaling,
        controls=(
            Choice("mode", ("none", "scale", "normalise"), start="normalise"),
            Slider("clip", 0, 3, 0.5, start=2),
            Slider("outlier", 0, 20, 0.5, start=15),
            Toggle("unit_variance", start=True),
        ),
        pictures={"scores": draw_scores, "pieces": draw_pieces},
    ),
    Scene(
        "check_yourself",
        check_yourself,
        controls=(
            Slider("example", 1, 60, 1, start=7),
            Slider("score", -2, 2, 0.1, start=1.2),
            Slider("beta", 0.2, 1, 0.1, start=0.5),
            Choice("estimator", SAMPLED, start="k1"),
        ),
        pictures={"short": draw_short, "earned": draw_short_rewards},
    ),
)
