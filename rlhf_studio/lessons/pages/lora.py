"""LoRA: how many numbers learn, what they add to a matrix, what alpha does, and why the first policy is the base."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from rlhf_studio.config import PPOConfig
from rlhf_studio.engine.loop.update import make_optimizer
from rlhf_studio.engine.models.adapters import POLICY
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.merging import merged_for_good
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory.lasting import learning_parts
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Series, Slider, Word, bars, heat, ledger, line
from rlhf_studio.lessons.kit.options import options
from rlhf_studio.lessons.small_models import (
    ARCHITECTURES,
    ATTENTION,
    WIDTH,
    WORDS,
    adapted_layers,
    all_parameters,
    factors,
    layers_of,
    move,
    response_logits,
    sentence,
    tiny_adapted,
    tiny_model,
)
from rlhf_studio.ppo.kl import full_kl
from rlhf_studio.ppo.logprobs import log_distribution, token_logprobs
from rlhf_studio.ppo.losses import policy_loss

NUMBER = 5

MODELS = Choice("model", list(ARCHITECTURES), start="gpt2")
TARGETS = Choice("targets", ["attention", "all_linear"], start="attention")
RANK = Slider("rank", 4, 32, 4, start=16)
MOVED = Slider("moved", 0, 1, 0.1, start=0)
TEXT = sentence([WORDS.index("the"), WORDS.index("film"), WORDS.index("is")], [WORDS.index("superb"), WORDS.index(".")])
MEBIBYTE = 1 << 20


# --- how many numbers learn ----------------------------------------------------------------------------------------------------


def count(model: str, targets: str, rank: int) -> Numbers:
    """The numbers that learn, and two wrong ways to count them."""
    config = ARCHITECTURES[model]()
    blocks, hidden = config.num_hidden_layers, config.hidden_size
    layers = adapted_layers(model, ATTENTION[model] if targets == "attention" else "auto", int(rank))
    attention = [layer for layer in layers if layer.name.rpartition(".")[2] in ATTENTION[model].split(",")]
    trained = blocks * sum(layer.values for layer in layers)
    others = trained - blocks * sum(layer.values for layer in attention)
    square = int(rank) * (hidden + hidden)
    return {
        "layers": layers,
        "blocks": blocks,
        "hidden": hidden,
        "inputs": attention[0].inputs,
        "outputs": attention[0].outputs,
        "per_block": trained // blocks,
        "trained": trained,
        "all": all_parameters(model),
        "share": trained / all_parameters(model),
        "three_squares": others + 3 * blocks * square,
        "one_square": others + blocks * square,
        "reading": Word("fused" if len(attention) == 1 else "apart"),
        "made_by": ATTENTION[model].replace(",", ", "),
    }


def draw_counts(n: Numbers) -> Picture:
    items = [
        Bar(Word("counted"), [n["trained"] / 1000], mark="chosen"),
        Bar(Word("three_squares"), [n["three_squares"] / 1000]),
        Bar(Word("one_square"), [n["one_square"] / 1000]),
    ]
    most = max(n["trained"], n["three_squares"]) / 1000 * RANK.high / n["rank"]
    return bars(items, [Word("thousands")], label=Word("thousands"), low=0, high=most, digits=1)


def draw_layers(n: Numbers) -> Picture:
    rows: dict[str, list[int]] = {
        Word("inputs"): [layer.inputs for layer in n["layers"]],
        Word("outputs"): [layer.outputs for layer in n["layers"]],
        Word("learned"): [layer.values for layer in n["layers"]],
    }
    return ledger([layer.name for layer in n["layers"]], rows, result=Word("learned"), digits=0)


# --- what they add to a matrix --------------------------------------------------------------------------------------------------


@torch.no_grad()
def change(rank: int, alpha: float, moved: float) -> Numbers:
    """ΔW of one small matrix, by peft's own layer in the engine's adapted model."""
    (layer,) = layers_of(move(tiny_adapted(int(rank), alpha, "attn.c_proj"), moved))
    delta: Tensor = layer.get_delta_weight(POLICY)
    down, up = factors(layer)
    rank_of_delta = int(torch.linalg.matrix_rank(delta))
    return {
        "delta": delta.T.tolist(),  # GPT-2 stores its matrices transposed
        "up": up.tolist(),
        "down": down.tolist(),
        "scale": layer.scaling[POLICY],
        "found_rank": rank_of_delta,
        "rank_word": Word("zero" if rank_of_delta == 0 else "as_rank" if rank_of_delta == rank and rank < WIDTH else "full"),
        "learned": down.numel() + up.numel(),
        "whole": delta.numel(),
        "cheaper": down.numel() + up.numel() < delta.numel(),
        "largest": float(delta.abs().max()),
    }


def draw_change(n: Numbers) -> Picture:
    rows = {f"{index + 1}": row for index, row in enumerate(n["delta"])}
    return heat([f"{index + 1}" for index in range(WIDTH)], rows, label=Word("delta"), size=4, signed=True)


# --- alpha and the learning rate -------------------------------------------------------------------------------------------------

RATE, ALPHA, MOST_STEPS = 0.02, 4.0, 12


@cache
def _learned(alpha: float, rate: float) -> tuple[tuple[Tensor, ...], ...]:
    """A and B after each of the optimizer's steps: the text's tokens become likelier, by PPO's loss with an advantage of 1."""
    policy = Policy(tiny_adapted(2, alpha, "attn.c_proj"), make_value_head(WIDTH, "zero", 0))
    optimizer = make_optimizer(policy, PPOConfig(learning_rate=rate))
    (layer,) = layers_of(policy)
    changes, old = [], None
    for _ in range(MOST_STEPS + 1):
        changes.append(tuple(factor.detach().clone() for factor in factors(layer)))
        new = token_logprobs(response_logits(policy, TEXT), TEXT.response_ids)
        old = new.detach()  # a rollout of its own for each step: the ratio is 1
        optimizer.zero_grad()
        policy_loss(new, old, torch.ones_like(old), TEXT.mask, 0.2).loss_sum.backward()
        optimizer.step()
    return tuple(changes)


@torch.no_grad()
def _measured(learned: tuple[Tensor, ...], alpha: float) -> tuple[float, float]:
    """The size of ΔW, and the log-probability of the text, with these factors and this alpha."""
    model = tiny_adapted(2, alpha, "attn.c_proj")
    (layer,) = layers_of(model)
    for factor, values in zip(factors(layer), learned, strict=True):
        factor.copy_(values)
    logprobs = token_logprobs(response_logits(ResponseModel(model), TEXT), TEXT.response_ids)
    return float(layer.get_delta_weight(POLICY).norm()), float(logprobs.sum())


def doubled(steps: int) -> Numbers:
    """Alpha doubled and the learning rate doubled: now, without a further step, and from the start."""
    steps = int(steps)
    now = _learned(ALPHA, RATE)[steps]
    size, logprob = _measured(now, ALPHA)
    alpha_now, alpha_logprob = _measured(now, 2 * ALPHA)
    alpha_start, _ = _measured(_learned(2 * ALPHA, RATE)[steps], 2 * ALPHA)
    rate_start, _ = _measured(_learned(ALPHA, 2 * RATE)[steps], ALPHA)
    return {
        "size": size,
        "alpha_now": alpha_now,
        "rate_now": size,  # the rate is read by a step only, and no step was made
        "alpha_start": alpha_start,
        "rate_start": rate_start,
        "logprob": logprob,
        "logprob_before": _measured(_learned(ALPHA, RATE)[0], ALPHA)[1],
        "alpha_logprob": alpha_logprob,
        "alpha": ALPHA,
        "rate": RATE,
        "acts": Word("alpha_acts" if alpha_now != size else "neither"),
        "from_start": Word("equal" if steps < 2 else "unequal"),
    }


def draw_doubled(n: Numbers) -> Picture:
    items = [Bar(Word(name), [n[name]], mark="chosen" if name == "alpha_now" else "") for name in DOUBLED]
    return bars(items, [Word("size_label")], label=Word("size_label"), low=0, high=4)


DOUBLED = ("size", "alpha_now", "rate_now", "alpha_start", "rate_start")


# --- the first policy is the base ------------------------------------------------------------------------------------------------


@torch.no_grad()
def start_and_merge(moved: float, alpha: float) -> Numbers:
    """The same tokens read by the base, by the policy, with merged adapters, with adapters off, and by the unloaded model.

    In float32, as in a run: the engine merges float32 weights only, and this scene is about rounding.
    """
    base = ResponseModel(tiny_model().float())
    model = move(tiny_adapted(2, alpha), moved).float()
    policy = Policy(model, make_value_head(WIDTH, "zero", 0))
    plain, adapted = response_logits(base, TEXT), response_logits(policy, TEXT)
    with policy.merged():
        merged = response_logits(policy, TEXT)
    with model.disable_adapter():
        off = response_logits(policy, TEXT)
    kl = full_kl(log_distribution(adapted), log_distribution(plain))
    unloaded = merged_for_good(model)
    merged_apart = float((merged - adapted).abs().max())
    unloaded_apart = float((response_logits(ResponseModel(unloaded), TEXT) - adapted).abs().max())
    return {
        "apart": float((adapted - plain).abs().max()),
        "kl": float(kl.sum()),
        "adapted": adapted[0].tolist(),
        "plain": plain[0].tolist(),
        "merged_apart": merged_apart,
        "merged_same": merged_apart < 1e-5,
        "off_apart": float((off - plain).abs().max()),
        "unloaded_same": unloaded_apart < 1e-5,
        "unloaded_parameters": sum(parameter.numel() for parameter in unloaded.parameters()),
        "base_parameters": sum(parameter.numel() for parameter in base.model.parameters()),
        "is_base": bool((adapted == plain).all()),
    }


@cache
@torch.no_grad()
def _distances(alpha: float) -> tuple[float, ...]:
    """The KL between policy and base, for each value of :data:`MOVED`."""
    base = response_logits(ResponseModel(tiny_model()), TEXT)
    distances = []
    for moved in MOVED.values():
        logits = response_logits(ResponseModel(move(tiny_adapted(2, alpha), moved)), TEXT)
        distances.append(float(full_kl(log_distribution(logits), log_distribution(base)).sum()))
    return tuple(distances)


def draw_distance(n: Numbers) -> Picture:
    alphas, distances = MOVED.values(), list(_distances(n["alpha"]))
    curve = Series(Word("kl_to_base"), alphas, distances, tone="kl")
    now = Series(Word("policy"), [n["moved"]], [n["kl"]], tone="policy", dots=True)
    top = max(1.0, *distances)
    return line([curve, now], x=Word("moved_label"), y=Word("kl_to_base"), x_range=(0, 1), y_range=(0, top), at=n["moved"])


# --- what the optimizer has to hold ----------------------------------------------------------------------------------------------


def memory(model: str, targets: str, rank: int) -> Numbers:
    """Bytes of gradients and of AdamW's moments by the planner's own function, for all weights and for adapters."""
    trained, everything = count(model, targets, rank)["trained"], all_parameters(model)
    processor = Device("cpu", "CPU", None, None, bfloat16=False)
    sizes = {}
    for name, learned in (("full", everything), ("lora", trained)):
        gradients, moments = learning_parts(learned, 1, (0, 0), processor)
        sizes[f"{name}_gradients"], sizes[f"{name}_moments"] = (gradients.low or 0) / MEBIBYTE, (moments.low or 0) / MEBIBYTE
    return {
        **sizes,
        "trained": trained,
        "all": everything,
        "base": everything * 4 / MEBIBYTE,
        "times": sizes["full_moments"] / sizes["lora_moments"],
        "saved_most": Word("moments" if sizes["full_moments"] - sizes["lora_moments"] > sizes["full_gradients"] else "gradients"),
    }


def draw_memory(n: Numbers) -> Picture:
    items = [
        Bar(Word("weights"), [n["base"], n["base"] + n["trained"] * 4 / MEBIBYTE]),
        Bar(Word("gradients"), [n["full_gradients"], n["lora_gradients"]]),
        Bar(Word("moments"), [n["full_moments"], n["lora_moments"]], mark="chosen"),
    ]
    return bars(items, [Word("all_learn"), Word("lora")], label=Word("mebibytes"), low=0, high=n["full_moments"], digits=1)


def check_yourself(model: str, targets: str, rank: int, order: int) -> Numbers:
    """Which of three counts is right."""
    counts = count(model, targets, rank)
    return {**counts, **options(counts["trained"], [counts["three_squares"], counts["one_square"]], int(order), digits=0)}


SCENES = (
    Scene("count", count, controls=(MODELS, TARGETS, RANK), pictures={"counts": draw_counts, "layers": draw_layers}),
    Scene(
        "change",
        change,
        controls=(Slider("rank", 1, WIDTH, 1, start=2), Slider("alpha", 1, 16, 1, start=4), Slider("moved", 0, 1, 0.1, start=0.5)),
        pictures={"delta": draw_change},
    ),
    Scene("doubled", doubled, controls=(Slider("steps", 0, MOST_STEPS, 1, start=6),), pictures={"sizes": draw_doubled}),
    Scene("start_and_merge", start_and_merge, controls=(MOVED, Slider("alpha", 1, 8, 1, start=4)), pictures={"distance": draw_distance}),
    Scene("memory", memory, controls=(MODELS, TARGETS, RANK), pictures={"bytes": draw_memory}),
    Scene("check_yourself", check_yourself, controls=(MODELS, TARGETS, RANK, Slider("order", 0, 2, 1, start=1))),
)
