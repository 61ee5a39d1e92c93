"""Settings that fit a model and its data: the one rule, with its sources.

Recipes for a model of one's own start from it, and warnings measure against it.

**Learning rates.** Larger models want smaller steps. Each stage has a rate for a model of a million weights, which falls with a power of
the number of weights. Adapters (LoRA) take about ten times the rate of full training (Schulman et al. 2025, "LoRA Without Regret").
What the rates were drawn through, as (weights: rate). *Recipe*: the bundled recipe, which was chosen by trying (``benchmarks.world``).
``python -m benchmarks.rates`` tries rates around the fitted one for any model.

- PPO, full: bundled world 1 M: 2e-4 (recipe); GPT-2 124 M: 1.4e-5 (trl's sentiment example); Pythia 1 B: 3e-6 (Huang et al. 2024,
  arXiv:2403.17031).
- PPO, LoRA: bundled world 1 M: 2e-3 (recipe); SmolLM2 135 M: 3e-4 (tried by hand: 1e-3 is no better); 8 B: 4e-5 (Tinker's first example
  of reinforcement learning).
- Fine-tuning, full: SmolLM2 135 M and 360 M: 1e-3 on a million chats (alignment-handbook); 7 B: 2e-5 (Zephyr, arXiv:2310.16944). LoRA,
  1 to 8 B: 3e-4 to 1e-3 (Tinker's sweep).
- Reward models, full: bundled world: 5e-4 (recipe); 6 B: 9e-6 (Ouyang et al. 2022, arXiv:2203.02155, section C.2).
- DPO, full: bundled world: 2e-4 (recipe); SmolLM2 1e-6 and Zephyr 7 B 5e-7 on sixty thousand pairs (alignment-handbook). A few hundred
  pairs give only some dozens of steps, so the rate here lies above these.

Between these points, and for every model that is larger than 1 B, a rate is a guess: :attr:`Fitted.guess` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from rlhf_studio.config.stage import Stage

MILLION = 1_000_000
LORA_TIMES = 10.0
FRESH_TIMES = 3.0
"""Weights that begin at random take steps three times as large: the bundled world's own fine-tuning learns best with 3e-3."""
RATES: dict[Stage, tuple[float, float]] = {"ppo": (2e-4, 0.55), "sft": (1e-3, 0.4), "reward_model": (5e-4, 0.45), "dpo": (1e-4, 0.5)}
"""Of each stage the rate of full training for a million weights, and the power of the number of weights with which it falls."""
PPO_LORA = (2e-3, 0.4)
LARGEST_MEASURED = 200 * MILLION
CRITIC = 0.32
"""The value head's rate times the model's width: 2e-3 for the bundled world's 160 (recipe), 1e-4 for 3,584 (7 B). A head's output moves
by its rate times the sum of that many inputs."""
STEPS_OF_ROUND_NUMBERS = (1.0, 2.0, 3.0, 5.0, 10.0)


@dataclass(frozen=True)
class Learner:
    """What is known of the model that learns.

    Attributes:
        weights: how many it has, the frozen ones too.
        lora: whether only adapters learn.
        fresh: whether its weights begin at random.
        width: H of the residual stream; None when unknown.
    """

    weights: int
    lora: bool = False
    fresh: bool = False
    width: int | None = None

    def __str__(self) -> str:
        """``135 M weights with LoRA``."""
        return f"{in_words(self.weights)} weights{' with LoRA' if self.lora else ' that begin at random' if self.fresh else ''}"


@dataclass(frozen=True)
class Fitted:
    """A value for a setting.

    Attributes:
        why: what it follows from, as a part of a sentence, such as ``135 M weights with LoRA``.
        guess: whether nobody has measured it for a model of this kind.
    """

    value: Any
    why: str
    guess: bool = False


def learning_rate(stage: Stage, learner: Learner) -> Fitted:
    """The learning rate to begin with. Raises KeyError for a stage in which nothing learns."""
    rate, power = PPO_LORA if stage == "ppo" and learner.lora else RATES[stage]
    if learner.lora and stage != "ppo":
        rate *= LORA_TIMES
    if learner.fresh:
        rate *= FRESH_TIMES
    return Fitted(rounded(rate * (learner.weights / MILLION) ** -power), str(learner), learner.weights > LARGEST_MEASURED)


def critic_learning_rate(learner: Learner) -> Fitted | None:
    """The rate of the value head; None where the model's width is unknown."""
    if learner.width is None:
        return None
    return Fitted(rounded(CRITIC / learner.width), f"a width of {learner.width:,}", learner.weights > LARGEST_MEASURED)


def rounded(number: float) -> float:
    """The nearest of 1, 2, 3, 5 times a power of ten: nobody knows a rate better than that."""
    power = 10.0 ** floor(log10(number))
    nearest = min(STEPS_OF_ROUND_NUMBERS, key=lambda step: abs(log10(number / (step * power))))
    return float(f"{nearest * power:.0e}")


def in_words(weights: int) -> str:
    """1_050_000 -> ``1 M``, 134_515_008 -> ``135 M``, 7_600_000_000 -> ``7.6 B``."""
    if weights >= 1000 * MILLION:
        return f"{weights / (1000 * MILLION):.2g} B"
    return f"{max(weights / MILLION, 0.1):.2g} M" if weights < 10 * MILLION else f"{weights / MILLION:.0f} M"


# --- everything else ---------------------------------------------------------------------------------------------------------------

LORA_FROM = 30 * MILLION
"""Weights from which on adapters are the better start: full training keeps 16 bytes for each weight, and its rate is harder to find."""
LARGE_FOR_A_CPU = 30 * MILLION
FEWEST_HELD_OUT, MOST_SHARE, LEAST_SHARE = 64, 1 / 3, 0.05
"""A mean over 64 prompts is known to an eighth of the spread of the scores; of 200 prompts, 5 % are ten, on which nothing shows."""
WARM_UP = 0.1
"""Share of the steps, as in the alignment-handbook's recipes."""
ENOUGH_STEPS = 40
"""Below about this many steps a supervised stage hardly moves."""
FEWEST_EXAMPLES_HELD_OUT = 20
"""Of examples fewer do: every token of them counts in the held-out loss."""
MOST_PASSES = {"sft": 3, "reward_model": 2, "dpo": 2}
SUPERVISED_BATCHES = (32, 16, 8, 4)


def use_lora(weights: int) -> Fitted:
    """Whether adapters are the start."""
    return Fitted(weights >= LORA_FROM, f"{in_words(weights)} weights")


def chat_template(template: bool) -> Fitted:
    """Whether prompts are written as chats."""
    return Fitted(template, "the tokenizer has a chat template" if template else "the tokenizer has no chat template")


def held_out_share(examples: int, fewest: int = FEWEST_HELD_OUT) -> Fitted:
    """The share to hold out: at least ``fewest`` of the rows, at most a third of them."""
    share = min(MOST_SHARE, max(LEAST_SHARE, fewest / examples))
    share = ceil(share * 1000) / 1000 if share < MOST_SHARE else 0.333
    return Fitted(share, f"{round(share * examples):,} of {examples:,} rows, to see what is chance")


def warm_up(steps: int) -> Fitted:
    """The warm-up: a share of the steps."""
    count = round(WARM_UP * steps)
    return Fitted(count, f"a tenth of {steps:,} steps")


def supervised_batch(examples: int, passes: int) -> Fitted:
    """The largest usual batch that leaves enough steps."""
    size = next((size for size in SUPERVISED_BATCHES if passes * examples / size >= ENOUGH_STEPS), SUPERVISED_BATCHES[-1])
    return Fitted(size, f"{passes * ceil(examples / size):,} steps over {examples:,} examples")


def passes(stage: Stage, examples: int) -> Fitted:
    """How often the examples are read: more than once where a single pass would give too few steps."""
    most = MOST_PASSES[stage]
    count = most if examples / SUPERVISED_BATCHES[1] < 2 * ENOUGH_STEPS else 1
    return Fitted(count, f"{examples:,} examples")


def room_for(longest: int, most: int) -> Fitted:
    """Room for the longest text, in steps of 8 tokens, up to ``most``."""
    room = max(8, min(8 * ceil(longest / 8), most))
    return Fitted(room, f"the longest has {longest:,} tokens" + ("" if longest <= room else f", of which {room:,} are read"))
