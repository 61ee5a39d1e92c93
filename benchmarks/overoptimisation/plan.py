"""The grid of the benchmark, the fitted forms, and what counts as agreeing with the paper. Written down before any run that it judges.

Reward models of three sizes learn from three amounts of pairs, with two seeds each. The pairs are two answers of the bundled policy to one
prompt; the one with more gold is the chosen one, and equal ones are left out. Best-of-n and PPO then optimise against each.

Learning rates, steps and passes were set after two PPO runs and eight reward models with seed 7, which are not part of the benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SEEDS = (0, 1)
AMOUNTS = (125, 500, 2000)
"""Pairs that a reward model learns from; a smaller amount is the beginning of a larger one of the same seed."""


@dataclass(frozen=True)
class Size:
    """A size of reward models. All start from a language model that learned to write reviews, the largest from the policy itself.

    Attributes:
        rate: learning rate of the reward model.
    """

    name: str
    layers: int
    width: int
    heads: int
    rate: float

    @property
    def parameters(self) -> int:
        """Without embeddings: 12 times the square of the width in each layer."""
        return 12 * self.layers * self.width**2


SIZES = (Size("small", 1, 16, 2, 5e-3), Size("medium", 2, 48, 3, 2e-3), Size("large", 3, 160, 5, 5e-4))
REVIEWS = 16_000
"""Reviews that the small and medium language models learn from."""
HELD_OUT_PAIRS = 300
CALIBRATION = 512

RESPONSE = 48
"""Most tokens of an answer, for best-of-n and PPO alike."""
ANSWERS = 128
"""Answers of the policy to each of the 128 held-out prompts, of which the best of n are taken."""
NS = (1, 2, 4, 8, 16, 32, 64, 128)
GROUPS = 16
"""Prompts are kept and drawn again in so many groups of 8."""

STEPS = 32
FRESH = 2
"""New answers to each held-out prompt, before every step and after the last."""
SETTINGS = {"ppo.ppo_epochs": 2, "ppo.learning_rate": 1e-4, "ppo.lr_schedule": "constant", "generation.response_length": RESPONSE}
"""What differs from the recipe ``world``, beside β."""
BETAS = (0.0, 0.03)
BETA_AMOUNT = 500
"""A KL coefficient above 0 is tried with this many pairs."""


@dataclass(frozen=True)
class Cell:
    """A reward model, and what optimises against it."""

    size: Size
    pairs: int
    seed: int
    method: Literal["best of n", "PPO"]
    beta: float = 0.0

    @property
    def judge(self) -> str:
        return f"{self.size.name}-{self.pairs}-{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.judge}-bon" if self.method == "best of n" else f"{self.judge}-ppo-{self.beta:g}"


def cells() -> list[Cell]:
    """All cells: the first seed whole before the second, and the KL coefficient above 0 last."""
    made = []
    for seed in SEEDS:
        for pairs in sorted(AMOUNTS, key=lambda pairs: pairs != BETA_AMOUNT):
            for size in SIZES:
                made += [Cell(size, pairs, seed, "best of n"), Cell(size, pairs, seed, "PPO")]
    return made + [Cell(size, BETA_AMOUNT, seed, "PPO", beta) for beta in BETAS if beta for seed in SEEDS for size in SIZES]


# --- what is fitted and judged -------------------------------------------------------------------------------------------------

FORMS = ("d(α − βd)", "d(α − β log d)")
"""With d = √KL and gold as gain over the starting policy: the paper's forms for best-of-n and for PPO. The first one is also α√KL − β·KL.
Both are linear in α and β, and are fitted by least squares to all n above 1, and to all of PPO's steps up to :data:`MOST_KL`."""
MOST_KL = 60.0
SMOOTH = 3
"""PPO's peak is the highest mean gold of so many steps in a row; its KL is their mean."""
DRAWS = 1000
"""Bootstrap: in each draw the groups of prompts are drawn again, the same for all cells, and of each cell the seeds."""

CLAIMS = {
    "form, best-of-n": ("below", "d(α − βd) fits best-of-n better than d(α − β log d): difference of their errors"),
    "form, PPO": ("below", "d(α − β log d) fits PPO better than d(α − βd): difference of their errors"),
    "turn, best-of-n": ("below", "best-of-n passes its peak: gold at n = 128 less gold at n = 16"),
    "turn, PPO": ("below", "PPO passes its peak: gold at the last steps less gold at the peak"),
    "size, gold": ("above", "a larger reward model has more gold at PPO's peak: slope for ten times the parameters"),
    "size, place": ("above", "a larger reward model has PPO's peak at a larger d: slope for ten times the parameters"),
    "size, β": ("below", "a larger reward model has a smaller β of PPO: slope for ten times the parameters"),
    "pairs, gold": ("above", "more pairs give more gold at PPO's peak: slope for ten times the pairs"),
    "pairs, place": ("above", "more pairs move PPO's peak to a larger d: slope for ten times the pairs"),
    "KL spent": (
        "above",
        "PPO spends more KL for the same gold: log of PPO's KL over best-of-n's at half of the smaller of their highest gains",
    ),
    "KL penalty": ("around", "a KL penalty gains no gold: PPO's peak with β = 0.03 less that with β = 0"),
}
"""What the paper says, and the number that judges it: the mean over reward models, or the slope over them by size and amount together.

"above": agrees when the whole 95 % interval is above 0, disagrees when all of it is below, and is open else. "below": the other way round.
"around": agrees when the interval holds 0 and lies within ±:data:`NEAR`, disagrees when it does not hold 0, and is open else.
"""
NEAR = 0.05
