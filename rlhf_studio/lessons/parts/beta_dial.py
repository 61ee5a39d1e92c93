"""What a price of KL chooses, found without training: the best policy weighs the reference's reviews. And who sets it: an open loop."""

from __future__ import annotations

import math

import torch

from rlhf_studio.lessons.endings import Endings, endings
from rlhf_studio.lessons.kit import Numbers, Picture, Scene, Series, Slider, Toggle, Word, line
from rlhf_studio.lessons.run import LessonRun
from rlhf_studio.ppo.kl import full_kl
from rlhf_studio.ppo.kl_control import MAX_ERROR, AdaptiveKL

# --- the dial ------------------------------------------------------------------------------------------------------------------

PROMPT, SEED = "The photography of this Korean costume drama", 1
FEWEST = 30
"""Below so many effective samples a mean over the reviews says little."""
BETAS = [round(0.02 * index, 2) for index in range(1, 51)]
FEW, MOST = 64, 256


def reviews(run: LessonRun) -> Endings:
    """Reviews that the reference writes to one prompt. The first call takes about a second."""
    return endings(run, 0, PROMPT, (), MOST, SEED)


def at_price(scores: torch.Tensor, gold: torch.Tensor, beta: float) -> dict[str, float]:
    """Means over N reviews under the best policy for this price: it gives each review its reference probability times exp(score / β)."""
    log_weights = (scores / beta).log_softmax(dim=0)
    weights = log_weights.exp()
    equal = torch.full_like(log_weights, -math.log(len(scores)))
    return {
        "proxy": float((weights * scores).sum()),
        "gold": float((weights * gold).sum()),
        "kl": float(full_kl(log_weights[None, None], equal[None, None])),
        "effective": float(1 / weights.square().sum()),
        "share": float(weights.max()),
    }


def beta_dial(run: LessonRun, beta: float, count: int) -> Numbers:
    """The best policy for a price β, by weighing the first ``count`` reviews that the reference has written."""
    texts = reviews(run)
    scores, gold = texts.scores[: int(count)], texts.gold[: int(count)]
    curve = [at_price(scores, gold, each) for each in BETAS]
    now = at_price(scores, gold, beta)
    own = run.config.ppo.kl_coef
    best = int(scores.argmax())
    return {
        **now,
        "scores": scores.tolist(),
        "golds": gold.tolist(),
        "curve": curve,
        "plain_proxy": float(scores.mean()),
        "plain_gold": float(gold.mean()),
        "review": PROMPT + texts.responses[best].removesuffix(run.tokenizer.eos_token),
        "most": math.log(count),
        "best": float(scores.max()),
        "own": own,
        "own_effective": at_price(scores, gold, own)["effective"],
        "run_score": run.curve("objective/scores")[-1],
        "fewest": FEWEST,
        "few": now["effective"] < FEWEST,
    }


def draw_dial(n: Numbers) -> Picture:
    """The curves of score and gold over the price; grey where too few samples decide."""
    enough = [point["effective"] >= FEWEST for point in n["curve"]]
    curves = {name: [point[name] for point in n["curve"]] for name in ("proxy", "gold")}
    known = {name: [y if sure else None for y, sure in zip(curve, enough, strict=True)] for name, curve in curves.items()}
    before = [False, *enough[:-1]]  # the grey curve ends where the other begins
    few = {name: [None if sure else y for y, sure in zip(curve, before, strict=True)] for name, curve in curves.items()}
    series = [
        Series(Word("dial_score"), BETAS, known["proxy"], tone="score"),
        Series(Word("dial_gold"), BETAS, known["gold"], tone="gold"),
        Series(Word("too_few"), [*BETAS, BETAS[-1], *BETAS], [*few["proxy"], None, *few["gold"]], tone="quiet"),
    ]
    return line(series, x="β", y=Word("mean"), x_range=(0, 1), y_range=(-0.5, 2.2), at=n["beta"])


def draw_kl(n: Numbers) -> Picture:
    curve = Series(Word("kl_nats"), BETAS, [point["kl"] for point in n["curve"]], tone="kl")
    return line([curve], x="β", y=Word("kl_nats"), x_range=(0, 1), y_range=(0, 7), levels={Word("most_kl"): n["most"]}, at=n["beta"])


# --- who sets the price ----------------------------------------------------------------------------------------------------------

BETA = 0.2


def open_loop(run: LessonRun, target: float, horizon: float, charged: bool) -> Numbers:
    """The adaptive controller reads the KL of a run that it did not steer."""
    kl = run.curve("objective/kl", without_kl=not charged)
    controller, path = AdaptiveKL(BETA, target, horizon), []
    for each in kl:
        controller.update(each, run.config.ppo.batch_size)
        path.append(controller.coef)
    return {
        "kl": kl,
        "path": path,
        "batch": run.config.ppo.batch_size,
        "from_beta": BETA,
        "to_beta": path[-1],
        "lowest": min(path),
        "above": sum(each > target for each in kl),
        "steps": len(kl),
        "last_kl": kl[-1],
        "per_step": MAX_ERROR * run.config.ppo.batch_size / horizon,
        "moves": Word("rises" if path[-1] > BETA else "falls"),
    }


def draw_path(n: Numbers) -> Picture:
    steps = [float(step + 1) for step in range(n["steps"])]
    curve = Series(Word("open_beta"), steps, n["path"], tone="coef")
    return line([curve], x=Word("step"), y="β", x_range=(1, n["steps"]), y_range=(0, 0.5), levels={Word("began"): BETA})


def draw_recorded_kl(n: Numbers) -> Picture:
    steps = [float(step + 1) for step in range(n["steps"])]
    high = 5.0 * math.ceil(max(*n["kl"], n["target"]) / 5)
    curve = Series(Word("kl_nats"), steps, n["kl"], tone="kl")
    levels: dict[str, float] = {Word("target"): n["target"]}
    return line([curve], x=Word("step"), y=Word("kl_nats"), x_range=(1, n["steps"]), y_range=(0, high), levels=levels)


SCENES = (
    Scene(
        "beta_dial",
        beta_dial,
        controls=(Slider("beta", BETAS[0], BETAS[-1], 0.02, start=0.3), Slider("count", FEW, MOST, 64, start=MOST)),
        pictures={"dial": draw_dial, "kl": draw_kl},
        needs=("run",),
    ),
    Scene(
        "open_loop",
        open_loop,
        controls=(Slider("target", 0.5, 12, 0.5, start=3), Slider("horizon", 500, 10000, 500, start=500), Toggle("charged", start=True)),
        pictures={"recorded_kl": draw_recorded_kl, "path": draw_path},
        needs=("run",),
    ),
)
