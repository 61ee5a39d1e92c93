"""The grid of the benchmark, the fitted forms, and what counts as agreeing with the paper. Written down before any run that it judges.

Reward models of three sizes learn from three amounts of pairs, with two seeds each. The pairs are two answers of the bundled policy to one
prompt; the one with more gold is the chosen one, and equal ones are left out. Best-of-n and PPO then optimise against each.

Learning rates, steps and passes were set after pilot runs with seed 7, which are not part of the benchmark.
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
PASSES, PAIRS_AT_ONCE = 2, 16

RESPONSE = 48
"""Most tokens of an answer, for best-of-n and PPO alike."""
ANSWERS = 128
"""Answers of the policy to each of the 128 held-out prompts, of which the best of n are taken."""
NS = (1, 2, 4, 8, 16, 32, 64, 128)
GROUPS = 16
"""Prompts are kept and drawn again in so many groups of 8."""

STEPS = 40
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
DRAWS = 2000
"""Bootstrap: in each draw the groups of prompts are drawn again, the same for all cells, and of each cell the seeds."""

CLAIMS = {
    "form, best-of-n": "d(α − βd) fits best-of-n better: its error less that of the other form, mean over cells, is below 0",
    "form, PPO": "d(α − β log d) fits PPO better: its error less that of the other form, mean over cells, is below 0",
    "turn, PPO": "gold falls after its peak: gold at PPO's peak less gold at its last steps, mean over cells, is above 0",
    "turn, best-of-n": "gold falls after its peak: the best gold over n less gold at n = 128, mean over cells, is above 0.01",
    "peak's gold and size": "a tenfold larger reward model gives more gold at PPO's peak: slope above 0",
    "peak's place and size": "a tenfold larger reward model moves PPO's peak to a larger d: slope above 0",
    "peak's gold and data": "ten times the pairs give more gold at PPO's peak: slope above 0",
    "peak's place and data": "ten times the pairs move PPO's peak to a larger d: slope above 0",
    "β and size": "PPO's fitted β (its own form) falls as the reward model grows: slope below 0",
    "KL spent": "PPO spends more KL for the same gold: log of PPO's KL over best-of-n's, where each first has half of the smaller of "
    "their two highest gains, mean over cells, is above 0",
    "KL penalty": "β 0.03 gives no more gold at PPO's peak than β 0: their difference, mean over cells, is not above 0",
}
"""A claim of the paper, and the number that judges it. It agrees where the whole 95 % interval is on the paper's side, disagrees where the
whole interval is on the other, and is open else. "KL penalty" agrees where the interval reaches 0 and ends below 0.05."""
