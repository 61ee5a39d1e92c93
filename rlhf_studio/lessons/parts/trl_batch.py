"""One batch of TRL's: its sizes, its optimizer steps, and what its logged means divide by."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import torch
import yaml
from torch import Tensor

from rlhf_studio.engine.loop.update import shuffled_minibatches
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Slider, Word, bars
from rlhf_studio.trl.convert import convert

EPISODES, PROCESSES = 3840, 8  # of a run; of one that is spread over several processes


@cache
def converted(**options: float) -> dict[str, Any]:
    """Our settings, from the options of TRL 1.12, by the program's own converter."""
    settings: dict[str, Any] = yaml.safe_load(convert(json.dumps(options), "options.json", "1.12").yaml)
    return settings


def walk_there(per_device: int, accumulation: int, parts: int, epochs: int) -> tuple[int, Tensor]:
    """A walk through the loops of TRL 1.12 over one batch.

    Returns the optimizer steps, by accelerate's rule for when a step counts; and the tensor (passes, minibatches, accumulation) in which
    TRL keeps the ratios, as if every ratio were one.
    """
    batch, made, calls = per_device * accumulation, 0, 0
    ratios = torch.zeros(epochs, parts, accumulation)
    for epoch in range(epochs):
        for minibatch, _start in enumerate(range(0, batch, batch // parts)):
            for micro_batch, _start_of_micro in enumerate(range(0, batch // parts, per_device)):
                ratios[epoch, minibatch, micro_batch] = 1.0
                calls += 1
                made += calls % accumulation == 0
    return made, ratios


def one_batch(per_device: str, accumulation: str, parts: str, epochs: int) -> Numbers:
    """The sizes that TRL works out, the steps that it makes, and ours with the converted settings."""
    share, adding, minibatches = int(per_device), int(accumulation), int(parts)
    options = {"per_device_train_batch_size": share, "gradient_accumulation_steps": adding, "num_mini_batches": minibatches}
    ours = converted(**options, num_ppo_epochs=int(epochs), total_episodes=EPISODES)["ppo"]
    cut = list(shuffled_minibatches(ours["batch_size"], ours["ppo_epochs"], ours["mini_batch_size"], torch.Generator()))
    (made, ratios), named = walk_there(share, adding, minibatches, int(epochs)), minibatches * int(epochs)
    return {
        "batch": share * adding,
        "mini": share * adding // minibatches,
        "made": made,
        "named": named,
        "ours": len(cut),
        "our_mini": ours["mini_batch_size"],
        "our_micro": ours["micro_batch_size"] or ours["mini_batch_size"],
        "steps": ours["steps"],
        "as_named": made == named,
        "cells": ratios.numel(),
        "filled": int(ratios.count_nonzero()),
        "logged_ratio": float(ratios.mean()),
        "processes": PROCESSES,
        "batch_of_all": PROCESSES * share * adding,
        "steps_of_all": math.ceil(EPISODES / (PROCESSES * share * adding)),
    }


def draw_batch(n: Numbers) -> Picture:
    items = [Bar(Word("in_trl"), [n["made"]], mark="chosen"), Bar(Word("as_the_name_says"), [n["named"]]), Bar(Word("here"), [n["ours"]])]
    return bars(items, [Word("optimizer_steps")], label=Word("optimizer_steps"), low=0, high=32, digits=0)


SCENE = Scene(
    "one_batch",
    one_batch,
    controls=(
        Choice("per_device", ["8", "16", "32"], start="8"),
        Choice("accumulation", ["1", "2", "4"], start="2"),
        Choice("parts", ["1", "2", "4", "8"], start="2"),
        Slider("epochs", 1, 4, 1, start=4),
    ),
    pictures={"steps": draw_batch},
)
