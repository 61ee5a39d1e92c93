"""What exists before the first PPO step, and the arithmetic of batches, passes and steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.utils.data import DataLoader

from rlhf_studio.config import PPOConfig
from rlhf_studio.engine.learning_rate import learning_rate_factor
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.engine.loop.trainer import make_controller
from rlhf_studio.engine.loop.update import make_optimizer, shuffled_minibatches
from rlhf_studio.engine.models.critic import Trunk, make_value_head
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.inputs.prompts.prepare import Prepared
from rlhf_studio.lessons.kit import Bar, Box, Choice, Numbers, Picture, Scene, Series, Slider, Toggle, Word, bars, flow, heat, ledger, line
from rlhf_studio.lessons.kit.options import options
from rlhf_studio.lessons.small_models import WIDTH, tiny_adapted, tiny_model
from rlhf_studio.ppo.kl_control import AdaptiveKL
from rlhf_studio.ppo.losses import policy_loss
from rlhf_studio.ppo.objective import Minibatch, NewPass, ObjectiveSettings, ppo_objective
from rlhf_studio.ppo.rewards import shape_rewards
from rlhf_studio.trl.arguments import Arguments
from rlhf_studio.trl.draft import Draft
from rlhf_studio.trl.shared import batches
from rlhf_studio.trl.table import options as table_options

NUMBER = 7


# --- what is there ---------------------------------------------------------------------------------------------------------------


@cache
def set_up(lora: bool, critic: str, controller: str) -> Numbers:
    """The parts of a run, made by the engine around a tiny model."""
    model = tiny_adapted(2, 4.0) if lora else tiny_model().requires_grad_(True)
    trunk = Trunk(tiny_model().transformer) if critic == "separate" else None
    policy = Policy(model, make_value_head(WIDTH, "zero", 0), trunk)
    reference = Reference(policy, torch.float64)
    settings = PPOConfig.model_validate({"kl_controller": controller})
    optimizer, beta = make_optimizer(policy, settings), make_controller(settings)
    learns = [sum(weight.numel() for weight in part) for part in (policy.model_parameters(), policy.critic_parameters())]
    held = sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])
    return {
        "policy_learns": learns[0],
        "critic_learns": learns[1],
        "in_optimizer": held,
        "means": len(optimizer.state),
        "beta": beta.coef,
        "adapts": isinstance(beta, AdaptiveKL),
        "copy": reference.frozen_copy is not None,
        "trunks": 1 + (reference.frozen_copy is not None) + (trunk is not None),
        "language_models": Word({1: "one", 2: "two", 3: "three"}[1 + (reference.frozen_copy is not None) + (trunk is not None)]),
    }


def draw_set_up(n: Numbers) -> Picture:
    copy, own = n["copy"], n["critic"] == "separate"
    return flow(
        [
            Box(Word("prompts"), 0, 0, to=[Word("policy")]),
            Box(Word("policy"), 1, 0, note=f"{n['policy_learns']}", tone="policy", to=[Word("optimizer")]),
            Box(Word("value_head"), 1, 1, note=f"{n['critic_learns']}", tone="value", to=[Word("optimizer")]),
            Box(Word("reference"), 1, 2, note=Word("a_copy" if copy else "adapters_off"), tone="kl" if copy else "quiet"),
            Box(Word("optimizer"), 2, 0, note=f"{n['in_optimizer']}", tone="policy"),
            Box(Word("controller"), 2, 2, note=Word("adaptive" if n["adapts"] else "fixed"), tone="kl"),
            *([Box(Word("own_trunk"), 0, 1, tone="value", to=[Word("value_head")])] if own else []),
        ]
    )


# --- prompts without end ----------------------------------------------------------------------------------------------------------

SHOWN = 6


def endless(prompts: int, batch: int, shuffle: bool) -> Numbers:
    """The first batches of the engine's own stream, and how often each prompt was drawn."""
    names = [chr(ord("A") + number) for number in range(int(prompts))]
    prepared = Prepared(names, [[number] for number in range(int(prompts))], [1] * int(prompts), None, Counter())
    stream = PromptStream(prepared, pad_id=0, shuffle=shuffle, seed=3)
    drawn = [stream.next_batch(int(batch)).texts for _ in range(SHOWN)]
    counts = Counter(name for names_of_batch in drawn for name in names_of_batch)
    state = stream.state()
    batches_of_loader = len(DataLoader(names, batch_size=int(batch), drop_last=True))  # type: ignore[arg-type]  # any list has a length
    return {
        "names": names,
        "drawn": drawn,
        "total": SHOWN * batch,
        "fewest": min(counts[name] for name in names),
        "most": max(counts[name] for name in names),
        "finished": (SHOWN * int(batch)) // int(prompts),
        "pass": state["pass"],
        "first": " ".join(drawn[0]),
        "again": Word("again" if max(Counter(drawn[0]).values()) > 1 else "once"),
        "there": batches_of_loader,
        "hangs": batches_of_loader == 0,
    }


def draw_endless(n: Numbers) -> Picture:
    rows = {f"{number + 1}": [float(names.count(name)) for name in n["names"]] for number, names in enumerate(n["drawn"])}
    return heat(n["names"], rows, label=Word("drawn"), size=3, digits=0)


# --- one batch ------------------------------------------------------------------------------------------------------------------

LENGTH = 32  # tokens of every response here


def one_batch(batch: str, parts: str, micro: str, epochs: int) -> Numbers:
    """One PPO step's update, cut up by the engine's own function."""
    settings = PPOConfig.model_validate(
        {
            "batch_size": int(batch),
            "mini_batch_size": int(batch) // int(parts),
            "micro_batch_size": int(batch) // int(parts) // int(micro),
            "ppo_epochs": int(epochs),
        }
    )
    generator = torch.Generator().manual_seed(1)
    cut = list(shuffled_minibatches(settings.batch_size, settings.ppo_epochs, settings.mini_batch_size, generator))
    table = [[0.0] * settings.batch_size for _ in range(settings.ppo_epochs)]
    for minibatch, (epoch, rows) in enumerate(cut):
        for row in rows.tolist():
            table[epoch][row] = minibatch % int(parts) + 1
    passes = sum(len(rows.split(settings.micro_batch)) for _, rows in cut)
    return {
        "table": table,
        "mini": settings.mini_batch_size,
        "micro_size": settings.micro_batch,
        "optimizer_steps": len(cut),
        "passes": passes,
        "seen": sum(int((rows == 0).sum()) for _, rows in cut),
        "tokens": settings.mini_batch_size * LENGTH,
        "new_orders": table[0] != table[-1],
        "rule": Word("product"),
    }


def draw_cut(n: Numbers) -> Picture:
    rows = {f"{number + 1}": row[:8] for number, row in enumerate(n["table"])}
    return heat([f"{column + 1}" for column in range(8)], rows, label=Word("minibatch"), size=int(n["parts"]), digits=0)


def draw_steps(n: Numbers) -> Picture:
    items = [
        Bar(Word("optimizer_steps"), [n["optimizer_steps"]], mark="chosen"),
        Bar(Word("forward_passes"), [n["passes"]]),
        Bar(Word("one_per_batch"), [1]),
    ]
    return bars(items, [Word("count")], label=Word("count"), low=0, high=96, digits=0)


# --- a run ------------------------------------------------------------------------------------------------------------------------


def whole_run(episodes: int, batch: str, warmup: int, share: float) -> Numbers:
    """Steps from episodes, a share of the steps as a number of steps, and the learning rate over them."""
    steps = batches(episodes, int(batch))
    every = Draft(Arguments({"save_steps": share}), "1.12", 1).steps_of("save_steps", steps)
    settings = PPOConfig.model_validate({"steps": steps, "batch_size": int(batch), "mini_batch_size": int(batch)})
    factors = [learning_rate_factor(step, steps, int(warmup), settings.lr_schedule) for step in range(steps)]
    return {
        "steps": steps,
        "sampled": steps * int(batch),
        "more": steps * int(batch) - int(episodes),
        "rounding": Word("exactly" if steps * int(batch) == episodes else "more_than"),
        "every": every,
        "saves": steps // (every or steps),
        "rates": [settings.learning_rate * factor for factor in factors],
        "full": settings.learning_rate,
        "first": settings.learning_rate * factors[0],
        "last": settings.learning_rate * factors[-1],
        "half": settings.learning_rate * factors[(steps - 1) // 2],
    }


def draw_rates(n: Numbers) -> Picture:
    steps, rates = list(range(1, n["steps"] + 1)), n["rates"]
    saved_at = list(range(n["every"], n["steps"] + 1, n["every"]))
    steps_shown = range(0, len(steps), max(1, len(steps) // 100))
    curve = Series(Word("rate"), [float(steps[at]) for at in steps_shown], [1e4 * rates[at] for at in steps_shown], tone="policy")
    saved = Series(Word("saved"), [float(step) for step in saved_at], [1e4 * rates[step - 1] for step in saved_at], tone="score", dots=True)
    return line([curve, saved], x=Word("step"), y=Word("rate"), x_range=(0, n["steps"]), y_range=(0, 1e4 * n["full"]))


# --- doubled ----------------------------------------------------------------------------------------------------------------------

START = {
    "steps": 60,
    "batch_size": 64,
    "responses_per_prompt": 1,
    "mini_batch_size": 32,
    "micro_batch_size": 16,
    "ppo_epochs": 4,
    "warmup_steps": 3,
    "learning_rate": 1e-4,
    "kl_coef": 0.1,
    "kl_horizon": 10_000,
    "cliprange": 0.2,
    "vf_coef": 0.1,
    "response_length": 32,
}
QUANTITIES = ("updates", "sampled", "prompts", "tokens", "passes", "first_rate", "pull", "reach", "critic", "turn")


def measured(settings: Mapping[str, Any]) -> dict[str, float]:
    """What a run with these settings does, by the functions that do it."""
    length = int(settings["response_length"])
    ppo = PPOConfig.model_validate({name: value for name, value in settings.items() if name != "response_length"})
    cut = list(shuffled_minibatches(ppo.batch_size, ppo.ppo_epochs, ppo.mini_batch_size, torch.Generator().manual_seed(1)))
    number, mask = torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    gain = -policy_loss(math.log(3) * number, 0 * number, number, mask, ppo.cliprange).loss_sum - 1
    batch = Minibatch(mask, 0 * number, 0 * number, 0 * number, 0 * number, number)  # no advantage: what is left is the critic's part
    critic = ppo_objective(batch, NewPass(0 * number, 0 * number, number), ObjectiveSettings(vf_coef=ppo.vf_coef)).loss_sum
    controller = AdaptiveKL(ppo.kl_coef, 6.0, ppo.kl_horizon)
    controller.update(2 * 6.0, ppo.batch_size)
    return {
        "updates": float(ppo.steps * len(cut)),
        "sampled": float(ppo.steps * ppo.batch_size),
        "prompts": float(ppo.batch_size // ppo.responses_per_prompt),
        "tokens": float(ppo.mini_batch_size * length),
        "passes": float(sum(len(rows.split(ppo.micro_batch)) for _, rows in cut)),
        "first_rate": 1e6 * ppo.learning_rate * learning_rate_factor(0, ppo.steps, ppo.warmup_steps, ppo.lr_schedule),
        "pull": -float(shape_rewards(number, torch.zeros(1, dtype=torch.float64), mask, ppo.kl_coef)),
        "reach": float(gain),
        "critic": float(critic),
        "turn": 100 * (controller.coef / ppo.kl_coef - 1),
    }


@cache
def _doublings() -> dict[str, dict[str, float]]:
    """For each setting: how often each quantity doubles when the setting does; −1 where it halves."""
    before = measured(START)
    growth = {}
    for name, value in START.items():
        after = measured({**START, name: 2 * value})
        growth[name] = {key: math.log2(after[key] / before[key]) for key in QUANTITIES}
    return growth


@cache
def _length_there() -> int:
    """The default ``response_length`` of TRL 1.12, from the table that the converter uses."""
    return int(next(row.default for row in table_options("experimental") if row.name == "response_length"))


def doubled(setting: str) -> Numbers:
    """One setting twice as large, all others as they were."""
    before, after = measured(START), measured({**START, setting: 2 * START[setting]})
    table = _doublings()
    grown = after["updates"] / before["updates"]
    taken = {**START, setting: 2 * START[setting]}
    batch, length, trl_length = int(taken["batch_size"]), int(taken["response_length"]), _length_there()
    return {
        "before": before,
        "after": after,
        "table": table,
        "value": START[setting],
        "twice": 2 * START[setting],
        "changed": sum(abs(number) > 1e-9 for number in table[setting].values()),
        "updates": Word("more" if grown > 1 else "fewer" if grown < 1 else "as_many"),
        "before_updates": before["updates"],
        "after_updates": after["updates"],
        "effect": Word(f"effect_{setting}"),
        "batch": batch,
        "length": length,
        "step_tokens": batch * length,
        "trl_length": trl_length,
        "trl_tokens": batch * trl_length,
    }


def draw_table(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {name: [row[key] for key in QUANTITIES] for name, row in n["table"].items()}
    return heat([Word(key) for key in QUANTITIES], rows, label=Word("doublings"), size=1, signed=True, digits=1)


def draw_one(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word(key): [n["before"][key], n["after"][key]] for key in QUANTITIES}
    return ledger([Word("before"), Word("after")], rows)


def check_yourself(steps: int, parts: str, epochs: int, order: int) -> Numbers:
    """The optimizer steps of a whole run."""
    cut = list(shuffled_minibatches(64, int(epochs), 64 // int(parts), torch.Generator().manual_seed(1)))
    right = int(steps) * len(cut)
    return {"mini": 64 // int(parts), "per_step": len(cut), **options(right, [int(steps) * int(epochs), int(steps)], int(order), digits=0)}


BATCHES = Choice("batch", ["16", "32", "64", "128"], start="64")
PARTS = Choice("parts", ["2", "4"], start="2")

SCENES = (
    Scene(
        "set_up",
        set_up,
        controls=(
            Toggle("lora", start=True),
            Choice("critic", ["shared", "separate"], start="shared"),
            Choice("controller", ["fixed", "adaptive"], start="fixed"),
        ),
        pictures={"parts": draw_set_up},
    ),
    Scene(
        "endless",
        endless,
        controls=(Slider("prompts", 1, 10, 1, start=5), Slider("batch", 1, 12, 1, start=8), Toggle("shuffle", start=True)),
        pictures={"drawn": draw_endless},
    ),
    Scene(
        "one_batch",
        one_batch,
        controls=(BATCHES, PARTS, Choice("micro", ["2", "4"], start="2"), Slider("epochs", 1, 6, 1, start=4)),
        pictures={"cut": draw_cut, "steps": draw_steps},
    ),
    Scene(
        "whole_run",
        whole_run,
        controls=(
            Slider("episodes", 300, 8300, 100, start=3800),
            BATCHES,
            Slider("warmup", 0, 10, 1, start=0),
            Slider("share", 0.05, 0.5, 0.05, start=0.1),
        ),
        pictures={"rates": draw_rates},
    ),
    Scene(
        "doubled", doubled, controls=(Choice("setting", list(START), start="batch_size"),), pictures={"one": draw_one, "table": draw_table}
    ),
    Scene(
        "check_yourself",
        check_yourself,
        controls=(Slider("steps", 20, 100, 5, start=60), PARTS, Slider("epochs", 2, 6, 1, start=3), Slider("order", 0, 2, 1, start=1)),
    ),
)
