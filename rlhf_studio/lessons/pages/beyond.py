"""Beyond PPO: RLOO, GRPO and DPO, and which parts of PPO each of them leaves out."""

from __future__ import annotations

from functools import cache

import torch

from rlhf_studio.engine.stages.dpo import DPOObjective, PairRewards
from rlhf_studio.inputs.examples.encoded import EncodedPair
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Series, Slider, Word, bars, ledger, line
from rlhf_studio.lessons.kit.options import options
from rlhf_studio.lessons.parts import one_batch
from rlhf_studio.ppo.advantages import estimate_advantages, grpo_advantages, rloo_advantages
from rlhf_studio.ppo.rewards import shape_rewards

NUMBER = 16

TOKENS = ("The", "acting", "is", "superb", ".")
VALUES = (0.4, 0.5, 0.6, 1.3, 1.4)
KL = (0.05, 0.4, 0.1, 0.6, 0.2)  # nats, the first response's tokens
LENGTHS = (5, 3, 4, 2)  # tokens of the four responses
PADDING = 9.0  # what stands behind the end of a response, where it must not count
OTHERS = (1.4, 0.2, -0.4)  # scores of the other three responses to the prompt
PAIR = EncodedPair((1,), (2,), (3,))
CLEAR = 0.05  # below this, an advantage is called none
GROUPS = 400


def group_of(score: float, spread: float, beta: float) -> dict[str, list[float]]:
    """Rewards and advantages of four responses to one prompt; only the first has moved away from the reference."""
    scores = torch.tensor([score, *(spread * other for other in OTHERS)], dtype=torch.float64)
    mask = torch.arange(len(TOKENS))[None] < torch.tensor(LENGTHS)[:, None]
    kl = torch.zeros(4, len(TOKENS), dtype=torch.float64)
    kl[0] = torch.tensor(KL, dtype=torch.float64)
    rewards = torch.where(mask, shape_rewards(kl, scores, mask, beta), PADDING)
    rloo, grpo = rloo_advantages(rewards, mask, 4), grpo_advantages(scores, mask, 4)
    return {
        "scores": scores.tolist(),
        "earned": [sum(row[:length]) for row, length in zip(rewards.tolist(), LENGTHS, strict=True)],
        "rloo": rloo[:, 0].tolist(),
        "grpo": grpo[:, 0].tolist(),
        "behind": [*rloo[~mask].tolist(), *grpo[~mask].tolist()],
    }


def compared(score: float, spread: float, beta: float) -> Numbers:
    """Four responses to one prompt, each compared with the others."""
    group = group_of(score, spread, beta)
    others = sum(group["earned"][1:]) / 3
    first = group["rloo"][0]
    return {
        **group,
        "others": others,
        "own": group["earned"][0],
        "rloo_first": first,
        "grpo_first": group["grpo"][0],
        "push": Word("up" if first > CLEAR else "down" if first < -CLEAR else "hardly"),
        "total": sum(group["rloo"]),
    }


def draw_compared(n: Numbers) -> Picture:
    names = ("response_1", "response_2", "response_3", "response_4")
    items = [Bar(Word(name), [a, b]) for name, a, b in zip(names, n["rloo"], n["grpo"], strict=True)]
    return bars(items, [Word("rloo"), Word("grpo")], label=Word("advantage"), low=-4, high=4)


# --- one number for all tokens -------------------------------------------------------------------------------------------------


def per_token(score: float, lam: float, beta: float) -> Numbers:
    """The first response's advantages by token: with a critic, and compared with its group."""
    group = group_of(score, 1.0, beta)
    mask = torch.ones(1, len(TOKENS), dtype=torch.bool)
    kl, values = (torch.tensor([row], dtype=torch.float64) for row in (KL, VALUES))
    rewards = shape_rewards(kl, torch.tensor([score], dtype=torch.float64), mask, beta)
    gae = estimate_advantages(rewards, values, mask, 1.0, lam, whitening=False).advantages[0].tolist()
    rloo, grpo = ([group[name][0]] * len(TOKENS) for name in ("rloo", "grpo"))
    spread = max(gae) - min(gae)
    return {"gae": gae, "rloo": rloo, "grpo": grpo, "values": list(VALUES), "spread": spread, "tells_apart": spread > CLEAR, "one": rloo[0]}


def draw_tokens(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word("value"): n["values"], Word("gae"): n["gae"], Word("rloo"): n["rloo"], Word("grpo"): n["grpo"]}
    return ledger(TOKENS, rows)


# --- groups that agree -----------------------------------------------------------------------------------------------------------


@cache
def silent_share(right: float, size: int) -> float:
    """The share of prompts whose responses all get one score, right (1) or wrong (0): GRPO's advantages are then 0."""
    draw = torch.Generator().manual_seed(round(1000 * right) + size)
    scores = (torch.rand(GROUPS * size, generator=draw) < right).double()
    advantages = grpo_advantages(scores, torch.ones(GROUPS * size, 1, dtype=torch.bool), size).reshape(GROUPS, size)
    return float((advantages.abs().amax(dim=1) == 0).double().mean())


SHARES = [round(0.05 * index, 2) for index in range(21)]


def agreeing(right: float, size: str) -> Numbers:
    """Prompts whose responses are right with a given probability."""
    count = int(size)
    share = silent_share(right, count)
    expected = right**count + (1 - right) ** count
    curve = [chance**count + (1 - chance) ** count for chance in SHARES]
    return {"silent": share, "expected": expected, "curve": curve, "many": share > 0.5, "prompts": GROUPS, "wrong": 1 - right}


def draw_agreeing(n: Numbers) -> Picture:
    curves = [
        Series(Word("formula"), SHARES, n["curve"], tone="coef"),
        Series(Word("simulated"), [n["right"]], [n["silent"]], tone="policy", dots=True),
    ]
    return line(curves, x=Word("right_share"), y=Word("silent_groups"), x_range=(0, 1), y_range=(0, 1))


# --- DPO -------------------------------------------------------------------------------------------------------------------------


def dpo_loss(chosen: float, rejected: float, beta: float) -> float:
    """The engine's loss of one pair; the arguments are log-ratios of policy and reference in nats."""
    return DPOObjective(beta).mean_of([PAIR], [PairRewards(beta * chosen, beta * rejected, 0.0, 0.0)])


def preferred(chosen: float, rejected: float, beta: float) -> Numbers:
    """A pair of stored responses: how far each log-probability has moved from the reference."""
    loss, step = dpo_loss(chosen, rejected, beta), 1e-2
    slope = (dpo_loss(chosen + step, rejected, beta) - dpo_loss(chosen - step, rejected, beta)) / (2 * step)
    margin = beta * (chosen - rejected)
    ahead = "ahead" if margin > CLEAR * beta else "behind" if margin < -CLEAR * beta else "level"
    return {
        "loss": loss,
        "pull": -slope,
        "margin": margin,
        "ahead": Word(ahead),
        "at_start": dpo_loss(0.0, 0.0, beta),
        "both_down": dpo_loss(chosen - 2, rejected - 2, beta),
        "worse": chosen < 0,
        "curve": [dpo_loss(half_step / 2, rejected, beta) for half_step in range(-8, 9)],
    }


def draw_dpo(n: Numbers) -> Picture:
    curves = [
        Series(Word("dpo_loss"), [half_step / 2 for half_step in range(-8, 9)], n["curve"], tone="policy"),
        Series(Word("this_pair"), [n["chosen"]], [n["loss"]], tone="score", dots=True),
    ]
    return line(curves, x=Word("chosen_moved"), y=Word("loss"), x_range=(-4, 4), y_range=(0, 5))


# --- check yourself --------------------------------------------------------------------------------------------------------------


def check(first: float, second: float, third: float, place: float) -> Numbers:
    """Three responses to a prompt, RLOO without a price of KL."""
    scores = [first, second, third]
    rewards, mask = torch.tensor(scores, dtype=torch.float64)[:, None], torch.ones(3, 1, dtype=torch.bool)
    advantages = rloo_advantages(rewards, mask, 3)[:, 0].tolist()
    less_mean = first - sum(scores) / 3
    wrong = grpo_advantages(rewards[:, 0], mask, 3)[0, 0].item()
    if min(abs(wrong - less_mean), abs(wrong - advantages[0])) < CLEAR:
        wrong = -advantages[0]  # too near to another number: the sign turned instead
    shape = options(advantages[0], [less_mean, wrong], int(place))
    if abs(advantages[0]) < CLEAR:
        shape = {**dict.fromkeys(shape, 0.0), "answer": Word("all_same")}
    return {
        "advantages": advantages,
        "option_1": shape["first"],
        "option_2": shape["second"],
        "option_3": shape["third"],
        "answer": shape["answer"],
        "rest": (second + third) / 2,
        "right": advantages[0],
        "less_mean": less_mean,
    }


def draw_check(n: Numbers) -> Picture:
    items = [Bar(Word(f"response_{index + 1}"), [score]) for index, score in enumerate((n["first"], n["second"], n["third"]))]
    return bars(items, [Word("score")], label=Word("score"), low=-2, high=2, digits=1)


SCENES = (
    Scene(
        "compared",
        compared,
        controls=(Slider("score", -2, 3, 0.1, start=0.8), Slider("spread", 0, 2, 0.1, start=1), Slider("beta", 0, 0.5, 0.05, start=0.1)),
        pictures={"advantages": draw_compared},
    ),
    Scene(
        "per_token",
        per_token,
        controls=(Slider("score", -2, 3, 0.1, start=1.8), Slider("lam", 0, 1, 0.05, start=0.95), Slider("beta", 0, 0.5, 0.05, start=0.1)),
        pictures={"tokens": draw_tokens},
    ),
    Scene(
        "agreeing",
        agreeing,
        controls=(Slider("right", 0, 1, 0.05, start=0.9), Choice("size", ("2", "4", "8", "16"), start="4")),
        pictures={"silent": draw_agreeing},
    ),
    one_batch.SCENE,
    Scene(
        "preferred",
        preferred,
        controls=(
            Slider("chosen", -4, 4, 0.5, start=-1, unit="nats"),
            Slider("rejected", -4, 4, 0.5, start=-3, unit="nats"),
            Slider("beta", 0.1, 1, 0.1, start=0.5),
        ),
        pictures={"loss": draw_dpo},
    ),
    Scene(
        "check_yourself",
        check,
        controls=(
            *(Slider(name, -2, 2, 0.5, start=start) for name, start in (("first", 1.5), ("second", 0.5), ("third", -0.5))),
            Slider("place", 1, 3, 1, start=2),
        ),
        pictures={"scores": draw_check},
    ),
)
