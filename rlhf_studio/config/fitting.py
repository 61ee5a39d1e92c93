"""Settings that fit a model and its data: the one rule, with its sources.

Recipes for a model of one's own start from it (:mod:`rlhf_studio.inputs.fitted` reads the files), and warnings measure against it.

**Learning rates.** Larger models want smaller steps: each stage has a rate for a model of a million weights, which falls with a power of
the number of weights. Adapters (LoRA) take about ten times the rate of full training (Schulman et al. 2025, "LoRA Without Regret"). The
rates were drawn through :data:`SOURCES`; ``python -m benchmarks.rates`` tries rates around the fitted one for any model.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from rlhf_studio.config.stage import Stage
from rlhf_studio.language import _
from rlhf_studio.units import short_count

MILLION = 1_000_000


@dataclass(frozen=True)
class Source:
    """A learning rate that is known to work, for a model of so many ``weights``.

    Attributes:
        unlike: why the rule does not follow it; empty where it does, within a factor of three.
    """

    stage: Stage
    weights: float
    lora: bool
    rate: float
    who: str
    unlike: str = ""


_HANDBOOK = "alignment-handbook, recipes/smollm2"
_LARGE_DATA = "a million chats in batches of 128, from a model that has never seen one"
_MANY_PAIRS = "sixty thousand pairs; a few hundred give only some dozens of steps, which must be larger"
SOURCES = (
    Source("ppo", 1.2e6, False, 2e-4, "recipe world, chosen by trying"),
    Source("ppo", 124e6, False, 1.41e-5, "trl, GPT-2 sentiment example"),
    Source("ppo", 1e9, False, 3e-6, "Huang et al. 2024, arXiv:2403.17031"),
    Source("ppo", 1.2e6, True, 2e-3, "recipe world-lora, chosen by trying"),
    Source("ppo", 135e6, True, 3e-4, "SmolLM2 and a sentiment reward, tried by hand: 1e-3 is no better"),
    Source("ppo", 8e9, True, 4e-5, "tinker-cookbook, reinforcement learning on GSM8K"),
    Source("sft", 135e6, False, 1e-3, _HANDBOOK, _LARGE_DATA),
    Source("sft", 360e6, False, 1e-3, _HANDBOOK, _LARGE_DATA),
    Source("sft", 7e9, False, 2e-5, "Tunstall et al. 2023 (Zephyr), arXiv:2310.16944"),
    Source("sft", 1e9, True, 1e-3, "tinker-cookbook, sweep on Tulu 3"),
    Source("sft", 8e9, True, 3e-4, "tinker-cookbook, sweep on Tulu 3"),
    Source("reward_model", 1.2e6, False, 5e-4, "recipe world-reward, chosen by trying"),
    Source("reward_model", 6e9, False, 9e-6, "Ouyang et al. 2022, arXiv:2203.02155, section C.2"),
    Source("dpo", 1.2e6, False, 2e-4, "recipe world-dpo, chosen by trying"),
    Source("dpo", 135e6, False, 1e-6, _HANDBOOK, _MANY_PAIRS),
    Source("dpo", 7e9, False, 5e-7, "Tunstall et al. 2023 (Zephyr), arXiv:2310.16944"),
    Source("dpo", 7e9, True, 5e-6, "alignment-handbook, recipes/zephyr-7b-beta"),
)
NEAR = 10.0
"""A rate is a guess where no source of its stage has a model within so many times as many weights."""

RATES: dict[Stage, tuple[float, float]] = {"ppo": (2e-4, 0.55), "sft": (1e-3, 0.4), "reward_model": (5e-4, 0.45), "dpo": (1e-4, 0.5)}
"""Of each stage the rate of full training for a million weights, and the power of the number of weights with which it falls."""
PPO_LORA = (2e-3, 0.4)
LORA_TIMES = 10.0
FRESH_TIMES = 3.0
"""Weights that begin at random take steps three times as large, as in the recipe world-sft."""
CRITIC = 0.32
"""The value head's rate times the model's width: 2e-3 for a width of 160 (recipe world), 1e-4 for 3,584 (recipe qlora-7b). A head's output
moves by its rate times the sum of that many inputs."""
ROUND = (1.0, 2.0, 3.0, 5.0, 10.0)
"""Nobody knows a rate better than these steps."""

LORA_FROM = 30 * MILLION
"""Weights from which on adapters are the better start: full training keeps 16 bytes for each weight, and its rate is harder to hit."""
LARGE_FOR_A_CPU = 30 * MILLION
BATCH, SMALL_BATCH = 64, 16
"""Responses in a step of PPO, and on a CPU with a large model, where a step must not take minutes."""
RESPONSE = {"large on a CPU": 24, "on a GPU": 64, "chat on a GPU": 128}
MOST_TOKENS = {"cpu": 512, "cuda": 2048}
"""Of a prompt, or of an example, by the kind of device: longer ones cost more than they teach in a first run."""
FEWEST_HELD_OUT, MOST_SHARE, LEAST_SHARE = 64, 0.333, 0.05
"""A mean over 64 prompts is known to an eighth of the spread of the scores; of 200 prompts, 5 % are ten, on which nothing shows."""
FEWEST_PROMPTS, MOST_SET_ASIDE = 100, 256
"""Of fewer prompts none is set aside, because training needs them more; and so many at most."""
FEWEST_EXAMPLES_HELD_OUT, MOST_EXAMPLES_HELD_OUT = 20, 1_000
"""Of examples fewer do: every token of them counts in the held-out loss. So many at most."""
WARM_UP = 0.1
"""Share of the steps, as in the alignment-handbook's recipes."""
ENOUGH_STEPS = 40
"""With fewer than about so many steps a supervised stage hardly moves."""
EPOCHS_OF_FEW = {"sft": 3, "reward_model": 2, "dpo": 2}
"""Passes over few examples: one pass would give too few steps."""
GENTLE = 1 / 6
"""Of the rate, where adapters learn few demonstrations: at the whole of it a model of 135 M weights learned a hundred by
heart and wrote other texts worse (docs/performance.md)."""
BATCHES = (32, 16, 8, 4)
MEASUREMENTS = 8
"""Of the held-out loss in a run."""
LOOKS = 40
"""At the answers to watched prompts, in a run that learns from examples: of a small model one takes as long as many of its steps."""


@dataclass(frozen=True)
class Learner:
    """What is known of the model that learns.

    Attributes:
        weights: how many it has, the frozen ones too.
        lora: whether only adapters learn.
        fresh: whether its weights begin at random.
    """

    weights: int
    lora: bool = False
    fresh: bool = False

    def __str__(self) -> str:
        """``135 M weights with LoRA``."""
        count = short_count(self.weights)
        if self.lora:
            return _("{count} weights with LoRA").format(count=count)
        return (_("{count} weights that begin at random") if self.fresh else _("{count} weights")).format(count=count)


@dataclass(frozen=True)
class Known:
    """What is known of a model and its data before a run, to measure settings against what fits. None, or empty: not known.

    Attributes:
        weights, width: of the model that learns.
        device: ``cpu`` or ``cuda``.
        chat: whether the model knows chats: its tokenizer has a template for them. None also where the data cannot be chats.
        examples: how many prompts or examples the run learns from.
        held_out: how many it never learns from.
        lengths: tokens of each prompt that was looked at, before any cut.
        most: tokens of a prompt that the model can read beside a response.
        steps: of the run.
    """

    weights: int | None = None
    width: int | None = None
    device: str = "cpu"
    chat: bool | None = None
    examples: int | None = None
    held_out: int | None = None
    lengths: tuple[int, ...] = ()
    most: int | None = None
    steps: int | None = None


NOTHING_KNOWN = Known()


@dataclass(frozen=True)
class Fitted:
    """A value for a setting.

    Attributes:
        why: what it follows from, as a part of a sentence, such as ``135 M weights with LoRA``.
        guess: whether it is a guess: no source is near.
    """

    value: Any
    why: str
    guess: bool = False


def learning_rate(stage: Stage, learner: Learner, examples: int | None = None) -> Fitted:
    """The learning rate to begin with; ``examples``: how many there are to learn from, where that is known. Raises KeyError for a stage in
    which nothing learns."""
    rate, power = PPO_LORA if stage == "ppo" and learner.lora else RATES[stage]
    if learner.lora and stage != "ppo":
        rate *= LORA_TIMES
    gentle = stage == "sft" and learner.lora and not learner.fresh and examples is not None and few(examples)
    if gentle:
        rate *= GENTLE
    if learner.fresh:
        rate *= FRESH_TIMES
    near = (1 / NEAR <= source.weights / learner.weights <= NEAR for source in SOURCES if source.stage == stage)
    why = _("{learner} and {examples:,} examples").format(learner=learner, examples=examples) if gentle else str(learner)
    return Fitted(rounded(rate * (learner.weights / MILLION) ** -power), why, not any(near))


def critic_learning_rate(width: int) -> Fitted:
    """The rate of the value head."""
    return Fitted(rounded(CRITIC / width), _("a width of {width:,}").format(width=width))


def rounded(number: float) -> float:
    """The nearest of :data:`ROUND` times a power of ten."""
    power = 10.0 ** floor(log10(number))
    nearest = min(ROUND, key=lambda step: abs(log10(number / (step * power))))
    return float(f"{nearest * power:.0e}")


def use_lora(weights: int) -> Fitted:
    """Whether adapters are the start."""
    return Fitted(weights >= LORA_FROM, _("{count} weights").format(count=short_count(weights)))


def chat_template(template: bool) -> Fitted:
    """Whether prompts are written as chats."""
    return Fitted(template, _("the tokenizer has a chat template") if template else _("the tokenizer has no chat template"))


def is_slow(weights: int, device: str) -> bool:
    """Whether a step of usual size takes minutes. ``device``: ``cpu`` or ``cuda``."""
    return device == "cpu" and weights >= LARGE_FOR_A_CPU


def batch_size(weights: int, device: str, unit: int) -> Fitted:
    """Responses in a step of PPO: a multiple of ``unit``, into which mini-batches and groups of responses must fit."""
    size = SMALL_BATCH if is_slow(weights, device) else BATCH
    return Fitted(
        unit * ceil(size / unit),
        (_("{weights} weights on a CPU") if device == "cpu" else _("{weights} weights on a GPU")).format(weights=short_count(weights)),
    )


def mini_batch_size(batch: int, unit: int) -> Fitted:
    """Two optimizer steps in each pass, where the batch can be halved; a multiple of ``unit``, of which micro-batches and processes take
    their shares."""
    halves = batch % (2 * unit) == 0
    return Fitted(batch // 2 if halves else batch, _("half of the batch") if halves else _("the batch, which cannot be halved"))


def response_length(weights: int, device: str, *, chat: bool) -> Fitted | None:
    """Tokens that PPO's policy may write; None where the recipe's do."""
    if is_slow(weights, device):
        return Fitted(RESPONSE["large on a CPU"], _("{weights} weights on a CPU").format(weights=short_count(weights)))
    if device == "cuda":
        return Fitted(RESPONSE["chat on a GPU" if chat else "on a GPU"], _("chats on a GPU") if chat else _("a GPU"))
    return None


def room_for(longest: int, device: str, most: int | None) -> Fitted:
    """Room for the longest text, in steps of 8 tokens; ``most``: what the model can read."""
    limit = min(MOST_TOKENS[device], most or MOST_TOKENS[device])
    room = max(8, min(8 * ceil(longest / 8), limit))
    return Fitted(
        room,
        _("the longest has {longest:,} tokens").format(longest=longest)
        + ("" if longest <= room else _(", of which {room:,} are read").format(room=room)),
    )


def held_out_share(rows: int, fewest: int, most: int) -> Fitted:
    """The share to hold out: at least ``fewest`` of the rows, at most a third of them. ``most`` are held out at most."""
    share = min(MOST_SHARE, max(LEAST_SHARE, ceil(1000 * fewest / rows) / 1000))
    return Fitted(share, _("{most:,} of {rows:,} rows, to tell a change from chance").format(most=min(most, int(share * rows)), rows=rows))


def examples_share(examples: int | None) -> Fitted:
    """The share of examples to hold out; None, or 0: nobody knows how many there are."""
    return (
        held_out_share(examples, FEWEST_EXAMPLES_HELD_OUT, MOST_EXAMPLES_HELD_OUT) if examples else Fitted(LEAST_SHARE, _("a usual share"))
    )


def warm_up(steps: int) -> Fitted:
    """The warm-up: a share of the steps."""
    return Fitted(round(WARM_UP * steps), _("a tenth of {steps:,} steps").format(steps=steps))


def few(examples: int) -> bool:
    """Whether one pass over so many examples would give too few steps."""
    return examples < 2 * ENOUGH_STEPS * BATCHES[1]


def epochs(stage: Stage, examples: int) -> Fitted:
    """How often the examples are read."""
    return Fitted(EPOCHS_OF_FEW[stage] if few(examples) else 1, _("{examples:,} examples").format(examples=examples))


def supervised_batch(examples: int, passes: int) -> Fitted:
    """The largest usual batch that leaves enough steps."""
    size = next((size for size in BATCHES if passes * examples / size >= ENOUGH_STEPS), BATCHES[-1])
    return Fitted(size, _("{passes:,} steps over {examples:,} examples").format(passes=passes * ceil(examples / size), examples=examples))


def watch_every(steps: int, usual: int) -> Fitted | None:
    """Steps between two looks at answers and examples, in stages whose steps are short; None where the ``usual`` number is enough."""
    every = steps // LOOKS
    return (
        Fitted(every, _("{steps} looks at answers in {steps_2:,} steps").format(steps=steps // every, steps_2=steps))
        if every > usual
        else None
    )


def eval_every(steps: int) -> Fitted:
    """Steps between two measurements of the held-out loss."""
    every = max(1, steps // MEASUREMENTS)
    return Fitted(every, _("{steps} measurements in {steps_2:,} steps").format(steps=steps // every, steps_2=steps))
