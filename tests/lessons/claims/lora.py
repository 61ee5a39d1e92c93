"""What holds in the scenes of ``pages/lora.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from tests.lessons.claims import Claims

# The sum of inputs and outputs of the adapted matrices, over all blocks.
BY_HAND = {
    ("gpt2", "attention"): 12 * (768 + 2304),
    ("gpt2", "all_linear"): 12 * (768 + 2304 + 768 + 768 + 768 + 3072 + 3072 + 768),
    ("gpt2_medium", "attention"): 24 * (1024 + 3072),
    ("gpt2_medium", "all_linear"): 24 * (1024 + 3072 + 1024 + 1024 + 1024 + 4096 + 4096 + 1024),
    ("pythia_160m", "attention"): 12 * (768 + 2304),
    ("pythia_160m", "all_linear"): 12 * (768 + 2304 + 768 + 768 + 768 + 3072 + 3072 + 768),
    ("llama_1b", "attention"): 16 * (2048 + 2048 + 2 * (2048 + 512)),
    ("llama_1b", "all_linear"): 16 * (2 * (2048 + 2048) + 2 * (2048 + 512) + 3 * (2048 + 8192)),
}


def difference(first: list[list[float]], second: list[list[float]]) -> float:
    return max(abs(x - y) for one, other in zip(first, second, strict=True) for x, y in zip(one, other, strict=True))


def kl_by_hand(logits: list[list[float]], others: list[list[float]]) -> float:
    total = 0.0
    for ours, theirs in zip(logits, others, strict=True):
        p, q = ([math.exp(x) for x in row] for row in (ours, theirs))
        p, q = ([x / sum(row) for x in row] for row in (p, q))
        total += sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return total


def product(up: list[list[float]], down: list[list[float]], scale: float) -> list[list[float]]:
    """scale · up · down, number by number."""
    columns = range(len(down[0]))
    return [[scale * sum(row[k] * down[k][column] for k in range(len(down))) for column in columns] for row in up]


CLAIMS: Claims = {
    "count": {
        "an adapter has rank times inputs plus outputs": lambda n: n["trained"] == n["rank"] * BY_HAND[n["model"], n["targets"]],
        "both wrong counts are wrong": lambda n: n["trained"] not in (n["three_squares"], n["one_square"]),
        "adapters are a small share": lambda n: 0 < n["share"] < 0.06,
    },
    "change": {
        "ΔW is alpha over r times B times A": lambda n: difference(n["delta"], product(n["up"], n["down"], n["alpha"] / n["rank"])) < 1e-9,
        "its rank is r, or 0 at the start": lambda n: n["found_rank"] == (n["rank"] if n["moved"] else 0),
        "at the start ΔW is exactly 0": lambda n: n["moved"] > 0 or n["largest"] == 0,
    },
    "doubled": {
        "a doubled alpha doubles ΔW at once": lambda n: abs(n["alpha_now"] - 2 * n["size"]) < 1e-9,
        "the text has become likelier": lambda n: n["steps"] == 0 or n["logprob"] > n["logprob_before"],
        "after one step from the start both are equal": lambda n: n["steps"] > 1 or abs(n["alpha_start"] - n["rate_start"]) < 0.001,
        "later they are not": lambda n: n["steps"] < 2 or abs(n["alpha_start"] - n["rate_start"]) > 0.01,
    },
    "start_and_merge": {
        "with B at 0 the policy is the base, logit by logit": lambda n: n["is_base"] == (n["moved"] == 0),
        "merged equals unmerged": lambda n: n["merged_same"] and n["unloaded_same"],
        "with adapters off it is the base, exactly": lambda n: n["off_apart"] == 0,
        "the KL is the sum over the vocabulary": lambda n: abs(n["kl"] - kl_by_hand(n["adapted"], n["plain"])) < 1e-5,
        "the unloaded model is as large as the base": lambda n: n["unloaded_parameters"] == n["base_parameters"],
    },
    "memory": {
        "AdamW holds two numbers of four bytes for each one that learns": lambda n: (
            abs(n["full_moments"] - 8 * n["all"] / 2**20) < 1e-6 and abs(n["lora_moments"] - 8 * n["trained"] / 2**20) < 1e-6
        ),
        "gradients are half of that": lambda n: abs(2 * n["lora_gradients"] - n["lora_moments"]) < 1e-6,
    },
    "check_yourself": {"the answer is the product by hand": lambda n: n[n["answer"]] == n["rank"] * BY_HAND[n["model"], n["targets"]]},
}
