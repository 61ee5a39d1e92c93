"""From a model's output to the log-probability of each response token: shift, padding, position ids, and the mask."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.forward import ForwardPass
from rlhf_studio.engine.models.position_ids import PositionScheme
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.types import TokenBatch, position_ids
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Slider, Toggle, Word, bars, ledger
from rlhf_studio.ppo.logprobs import token_logprobs
from rlhf_studio.ppo.losses import policy_loss
from rlhf_studio.ppo.masking import masked_mean, masked_sum

NUMBER = 8

TEXTS = {
    "warm": ("In this spy film the acting", " is warm, and the cast is superb."),
    "dull": ("The script of this romance", " is stilted, and the cast is stiff."),
    "short": ("To my mind", " the cast is superb."),
}
PAD = 0
ROBERTA_PAD = 1
MOST_PADS = 4
EDGE = 1e-3
TEXT = Choice("text", tuple(TEXTS), start="warm")


def rows(world: Any, text: str) -> tuple[list[int], list[int]]:
    """Prompt and response as token ids."""
    prompt, response = TEXTS[text]
    first = world.ids(prompt)
    return first, world.ids(prompt + response)[len(first) :]


def pieces(world: Any, ids: list[int]) -> list[str]:
    return [piece.strip() for piece in world.pieces(ids)]


def alone(world: Any, text: str) -> list[float]:
    """The log-probabilities of a response as a run computes them: the engine's forward pass over a batch of one."""
    prompt, response = rows(world, text)
    ids, mask = pad_left([prompt], PAD)
    answer = torch.tensor([response])
    batch = TokenBatch(ids, mask, answer, torch.ones_like(answer, dtype=torch.bool))
    forward = ForwardPass(Compute(torch.device("cpu"), torch.float32), 1.0, 1)
    logprobs: list[float] = world.remember(("alone", text), lambda: forward.run(world.policy, batch, 0).logprobs[0].tolist())
    return logprobs


def one_by_one(world: Any, text: str) -> list[float]:
    """The same, by asking for one next token after the other and reading the softmax in plain Python."""
    prompt, response = rows(world, text)

    def ask() -> list[float]:
        logprobs = []
        for index, token in enumerate(response):
            ids = torch.tensor([prompt + response[:index]])
            with torch.no_grad():
                logits = world.policy.model(input_ids=ids, use_cache=False).logits[0, -1].tolist()
            high = max(logits)
            logprobs.append(logits[token] - high - math.log(math.fsum(math.exp(x - high) for x in logits)))
        return logprobs

    known: list[float] = world.remember(("one by one", text), ask)
    return known


# --- the shift by one --------------------------------------------------------------------------------------------------------


def shift(world: Any, text: str, place: float) -> Numbers:
    """The logits at one position belong to the token at the next."""
    prompt, response = rows(world, text)
    ids = torch.tensor([prompt + response])
    attention = torch.ones_like(ids)
    logits, start = world.logits(ids, attention, position_ids(attention)), len(prompt)
    right = token_logprobs(logits[:, start - 1 : -1], ids[:, start:])[0].tolist()
    wrong = token_logprobs(logits[:, start:], ids[:, start:])[0].tolist()
    at = min(int(place), len(response)) - 1
    words = pieces(world, prompt + response)
    return {
        "words": words[start:],
        "right": right,
        "wrong": wrong,
        "at": at,
        "token": words[start + at],
        "before": words[start + at - 1],
        "position": start + at,
        "of_token": right[at],
        "chance": math.exp(right[at]),
        "unshifted": wrong[at],
        "sum": math.fsum(right),
        "sum_wrong": math.fsum(wrong),
        "read_at": Word("last_of_prompt" if at == 0 else "token_before"),
        "engine": alone(world, text),
    }


def draw_shift(n: Numbers) -> Picture:
    return ledger(n["words"], {Word("shifted"): n["right"], Word("not_shifted"): n["wrong"]}, result=Word("shifted"), at=n["at"])


# --- padding and position ids ------------------------------------------------------------------------------------------------


def counted(ids: Tensor, real: Tensor) -> dict[str, Tensor]:
    """Position ids of padded rows by three ways of counting."""
    return {
        "from_mask": PositionScheme()(ids, real),
        "plain": torch.arange(ids.shape[1])[None].expand_as(ids),
        "roberta": PositionScheme(ROBERTA_PAD)(ids, real),
    }


def padded(world: Any, text: str, side: str, pads: int, positions: str, *, shifted: bool = True) -> list[float]:
    """Log-probabilities of a response in a padded row; without the shift, from the wrong logits."""
    prompt, response = rows(world, text)
    own, start = prompt + response, len(prompt) + (pads if side == "on_left" else 0)
    if side == "on_left":
        ids, real = (x[:1] for x in pad_left([own, [PAD] * (len(own) + pads)], PAD))  # a longer second row makes room for the padding
    else:
        ids, real = torch.tensor([own + [PAD] * pads]), torch.tensor([[True] * len(own) + [False] * pads])
    first = start - 1 if shifted else start
    logits = world.logits(ids, real, counted(ids, real)[positions])[:, first : first + len(response)]
    return token_logprobs(logits, torch.tensor([response]))[0].tolist()


def left_padding(world: Any, text: str, pads: float, positions: str) -> Numbers:
    """One row, with padding on the left, under three ways of counting positions."""
    prompt, response = rows(world, text)
    count, truth = int(pads), one_by_one(world, text)
    ids, real = pad_left([prompt, [PAD] * (len(prompt) + count)], PAD)
    positions_shown = counted(ids, real)[positions][0]
    padded_logprobs = padded(world, text, "on_left", count, positions)
    error = max(abs(x - y) for x, y in zip(padded_logprobs, truth, strict=True))
    return {
        "words": [*["·"] * count, *pieces(world, prompt)],
        "positions_shown": positions_shown.tolist(),
        "first_position": int(positions_shown[count]),
        "truth": truth,
        "found": padded_logprobs,
        "response_words": pieces(world, prompt + response)[len(prompt) :],
        "error": error,
        "sum": math.fsum(padded_logprobs),
        "sum_truth": math.fsum(truth),
        "agrees": Word("equal" if error < EDGE else "differ"),
        "roberta_first": int(counted(ids, real)["roberta"][0, count]),
        "pad_id": ROBERTA_PAD,
    }


def draw_positions(n: Numbers) -> Picture:
    return ledger(n["words"], {Word("position"): n["positions_shown"]}, digits=0)


def draw_padded(n: Numbers) -> Picture:
    return ledger(n["response_words"], {Word("alone"): n["truth"], Word("in_this_row"): n["found"]}, result=Word("in_this_row"))


# --- what lies under the mask ------------------------------------------------------------------------------------------------

FILLS = {"zero": 0.0, "one": 1.0, "large": 50.0, "nan": math.nan}


def under_mask(world: Any, text: str, fill: str, slots: float) -> Numbers:
    """The mean of the negative log-probabilities, with something else behind the response's end."""
    own, count = one_by_one(world, text), int(slots)
    logprobs = torch.tensor([[*own, *[FILLS[fill]] * count]], dtype=torch.float64)
    mask = torch.tensor([[True] * len(own) + [False] * count])
    right = float(masked_mean(-logprobs, mask))
    total = float(masked_sum(-logprobs, mask))
    product = float((-logprobs * mask).sum() / mask.sum())
    plain = float((-logprobs).mean())
    _, response = rows(world, text)
    broken = math.isnan(product)
    return {
        "words": [*pieces(world, rows(world, text)[0] + response)[-len(response) :], *["·"] * count],
        "cells": [None if math.isnan(x) else x for x in logprobs[0].tolist()],
        "mask_row": [Word("yes") if x else Word("no") for x in mask[0].tolist()],
        "right": right,
        "total": total,
        "real": int(mask.sum()),
        "all": mask.numel(),
        "product": None if broken else product,
        "product_text": Word("not_a_number") if broken else f"{product:.3f}",
        "plain": None if math.isnan(plain) else plain,
        "plain_text": Word("not_a_number") if math.isnan(plain) else f"{plain:.3f}",
        "product_is": Word("spoilt" if broken else "right"),
        "marker": float((-torch.where(mask, logprobs, 1.0)).mean()),
        "own": own,
    }


def draw_under_mask(n: Numbers) -> Picture:
    return ledger(n["words"], {Word("logprob"): n["cells"], Word("is_real"): n["mask_row"]})


def draw_means(n: Numbers) -> Picture:
    items = [
        Bar(Word("masked_mean"), [n["right"]], mark="chosen"),
        Bar(Word("by_product"), [n["product"]]),
        Bar(Word("over_all"), [n["plain"]]),
    ]
    return bars(items, [Word("mean")], label=Word("mean"), low=-1, high=2)


# --- which tokens learn ------------------------------------------------------------------------------------------------------

WIDTH = 2


def which_tokens(world: Any, text: str, count_prompt: bool, count_padding: bool, advantage: float) -> Numbers:
    """The gradient at each slot of a row: left padding, prompt, response, right padding."""
    prompt, response = rows(world, text)
    kinds = ["pad"] * WIDTH + ["prompt"] * len(prompt) + ["response"] * len(response) + ["pad"]
    real = [kind == "response" or (kind == "prompt" and count_prompt) or (kind == "pad" and count_padding) for kind in kinds]
    mask = torch.tensor([real])
    old = torch.full((1, len(kinds)), -1.0, dtype=torch.float64)
    new = old.clone().requires_grad_()
    loss = policy_loss(new, old, torch.full_like(old, advantage), mask, 0.2)
    (loss.loss_sum / mask.sum()).backward()
    push = [0.0] * len(kinds) if new.grad is None else (-new.grad[0]).tolist()
    by_kind = {name: math.fsum(abs(x) for x, kind in zip(push, kinds, strict=True) if kind == name) for name in set(kinds)}
    total = math.fsum(by_kind.values())
    foreign = total - by_kind["response"]
    words = ["·"] * WIDTH + pieces(world, prompt + response) + ["·"]
    return {
        "words": words,
        "push": push,
        "count": int(mask.sum()),
        "written": len(response),
        "foreign": foreign / total if total else 0.0,
        "each": abs(push[WIDTH + len(prompt)]),
        "who_learns": Word("only_response" if not (count_prompt or count_padding) else "others_too"),
        "advantage_here": advantage,
        "real": real,
    }


def draw_which(n: Numbers) -> Picture:
    items = [Bar(word, [push]) for word, push in zip(n["words"], n["push"], strict=True)]
    return bars(items, [Word("push")], label=Word("push"), low=-0.3, high=0.3, digits=3)


# --- check yourself ----------------------------------------------------------------------------------------------------------


def check_yourself(world: Any, side: str, pads: float, with_positions: bool, shifted: bool) -> Numbers:
    """Do the log-probabilities come out right?"""
    truth = one_by_one(world, "warm")
    positions = "from_mask" if with_positions else "plain"
    logprobs = padded(world, "warm", side, int(pads), positions, shifted=shifted)
    error = max(abs(x - y) for x, y in zip(logprobs, truth, strict=True))
    return {
        "words": pieces(world, rows(world, "warm")[0] + rows(world, "warm")[1])[-len(truth) :],
        "truth": truth,
        "found": logprobs,
        "error": error,
        "verdict": Word("right" if error < EDGE else "wrong"),
        "side_said": Word(side),
        "positions_said": Word(positions),
        "place_said": Word("token_before" if shifted else "own_place"),
    }


def draw_check(n: Numbers) -> Picture:
    return ledger(n["words"], {Word("alone"): n["truth"], Word("in_this_row"): n["found"]}, result=Word("in_this_row"))


SCENES = (
    Scene("shift", shift, needs=("world",), controls=(TEXT, Slider("place", 1, 8, 1, start=1)), pictures={"row": draw_shift}),
    Scene(
        "left_padding",
        left_padding,
        needs=("world",),
        controls=(
            Choice("text", tuple(TEXTS), start="short"),
            Slider("pads", 0, MOST_PADS, 1, start=3),
            Choice("positions", ("from_mask", "plain", "roberta"), start="plain"),
        ),
        pictures={"positions": draw_positions, "row": draw_padded},
    ),
    Scene(
        "under_mask",
        under_mask,
        needs=("world",),
        controls=(TEXT, Choice("fill", tuple(FILLS), start="nan"), Slider("slots", 1, 3, 1, start=3)),
        pictures={"row": draw_under_mask, "means": draw_means},
    ),
    Scene(
        "which_tokens",
        which_tokens,
        needs=("world",),
        controls=(TEXT, Toggle("count_prompt", start=True), Toggle("count_padding"), Slider("advantage", -2, 2, 0.5, start=1)),
        pictures={"pushes": draw_which},
    ),
    Scene(
        "check_yourself",
        check_yourself,
        needs=("world",),
        controls=(
            Choice("side", ("on_left", "on_right"), start="on_right"),
            Slider("pads", 0, MOST_PADS, 1, start=2),
            Toggle("with_positions"),
            Toggle("shifted", start=True),
        ),
        pictures={"row": draw_check},
    ),
)
