"""Temperature, top-k and top-p: what is drawn, what is stored, and what becomes of the KL when the two differ."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.compute.fused import softmax_terms
from rlhf_studio.engine.sampling.draw import draw, truncated
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Series, Slider, Toggle, Word, bars, line
from rlhf_studio.ppo.kl import full_kl, kl_per_token
from rlhf_studio.ppo.logprobs import log_distribution, token_logprobs, token_logprobs_and_entropy

NUMBER = 3

PROMPTS = {"acting": "In this spy film the acting", "feels": "In this spy film the acting feels", "script": "The script of this romance is"}
SHOWN = 7
DRAWS = 500
MOST_KEPT = 20
EDGE = 1e-3

PROMPT = Choice("prompt", tuple(PROMPTS), start="acting")


def logits_at(world: Any, prompt: str, change: float = 0.0) -> Tensor:
    """(V,) float64 logits after a prompt; the likeliest token's is raised by ``change``."""
    logits: Tensor = world.next_logits(PROMPTS[prompt]).double().clone()
    logits[logits.argmax()] += change
    return logits


def log_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """(V,) at a temperature, by the function that scores every token of a run."""
    return log_distribution(logits[None, None], temperature)[0, 0]


def chances(logits: Tensor, settings: GenerationConfig) -> Tensor:
    """(V,) how often each token is drawn, by the function with which the engine samples."""
    x = logits.float()[None] / settings.temperature
    weights, _ = softmax_terms(x)
    logits_left = truncated(x, weights, settings)[0].double()
    return logits_left / logits_left.sum()


def kl_as_measured(chance: Tensor, policy: Tensor, reference: Tensor) -> float:
    """The mean of k1 over tokens that are drawn with these chances."""
    k1 = kl_per_token(policy[None], reference[None], "k1")[0]
    return float((chance * k1).sum())


def names(world: Any, ids: Tensor) -> list[str]:
    return [world.tokenizer.decode([token]).strip() for token in ids.tolist()]


# --- temperature -------------------------------------------------------------------------------------------------------------


def temperature_scene(world: Any, prompt: str, temperature: float) -> Numbers:
    """The same logits at another temperature."""
    logits = logits_at(world, prompt)
    at_one, at_temperature = log_probabilities(logits, 1.0).exp(), log_probabilities(logits, temperature).exp()
    order = logits.topk(SHOWN).indices
    powers = at_one.pow(1 / temperature)
    first, second = (float(logits[token]) for token in order[:2])
    entropy = token_logprobs_and_entropy(logits[None, None], order[None, :1], temperature)[1].item()
    odds_one, odds = float(at_one[order[0]] / at_one[order[1]]), float(at_temperature[order[0]] / at_temperature[order[1]])
    return {
        "sentence": PROMPTS[prompt],
        "names": names(world, order),
        "first": names(world, order)[0],
        "second": names(world, order)[1],
        "at_one": at_one[order].tolist(),
        "here": at_temperature[order].tolist(),
        "powers": powers[order].tolist(),
        "first_at_one": float(at_one[order[0]]),
        "first_here": float(at_temperature[order[0]]),
        "odds_one": odds_one,
        "odds": odds,
        "odds_become": Word("same" if abs(temperature - 1) < EDGE else "more" if temperature < 1 else "less"),
        "sum_here": float(at_temperature.sum()),
        "sum_powers": float(powers.sum()),
        "entropy": entropy,
        "width": math.exp(entropy),
        "entropy_one": token_logprobs_and_entropy(logits[None, None], order[None, :1], 1.0)[1].item(),
        "logit_gap": first - second,
    }


def draw_temperature(n: Numbers) -> Picture:
    items = [Bar(name, values) for name, *values in zip(n["names"], n["at_one"], n["here"], n["powers"], strict=True)]
    series = [Word("at_one"), Word("at_this"), Word("not_normalised")]
    return bars(items, series, label=Word("probability"), low=0, high=1)


# --- top-k and top-p ---------------------------------------------------------------------------------------------------------


def truncation(world: Any, prompt: str, top_k: float, top_p: float) -> Numbers:
    """What can be drawn, how often it is, and which log-probability is stored with it."""
    settings = GenerationConfig(temperature=1.0, top_k=int(top_k), top_p=top_p)
    logits = logits_at(world, prompt)
    order = logits.topk(SHOWN).indices
    chance = chances(logits, settings)
    uniforms = (torch.arange(DRAWS, dtype=torch.float64) + 0.5) / DRAWS
    drawn = draw(logits.float().expand(DRAWS, -1), torch.zeros(DRAWS), uniforms, settings)
    top = int(order[0])
    of_top = drawn.tokens == top
    stored = float(drawn.logprobs[of_top][0])
    mass = float(log_probabilities(logits, 1.0).exp()[chance > 0].sum())
    return {
        "sentence": PROMPTS[prompt],
        "names": names(world, order),
        "first": names(world, order)[0],
        "stored_each": log_probabilities(logits, 1.0).exp()[order].tolist(),
        "chance_each": chance[order].tolist(),
        "count": int((chance > 0).sum()),
        "all": len(logits),
        "kept": mass,
        "cut": 1 - mass,
        "stored": stored,
        "stored_share": math.exp(stored),
        "chance": float(chance[top]),
        "log_chance": math.log(float(chance[top])),
        "drawn_share": float(of_top.double().mean()),
        "gap": math.log(float(chance[top])) - stored,
        "stored_is": Word("lower" if mass < 1 - 1e-6 else "equal"),
        "drawn": sorted(set(drawn.tokens.tolist())),
        "logits": logits.tolist(),
        "scored": token_logprobs(logits[None, None], order[None, :1], 1.0).item(),
    }


def draw_truncation(n: Numbers) -> Picture:
    items = [Bar(name, values) for name, *values in zip(n["names"], n["stored_each"], n["chance_each"], strict=True)]
    return bars(items, [Word("stored_probability"), Word("real_chance")], label=Word("probability"), low=0, high=1)


# --- the KL of a truncated draw ----------------------------------------------------------------------------------------------


def truncated_kl(world: Any, prompt: str, change: float, top_k: float) -> Numbers:
    """The policy is the bundled model with one logit changed; the reference is the bundled model."""
    old, new = logits_at(world, prompt), logits_at(world, prompt, change)
    reference, policy = log_probabilities(old, 1.0), log_probabilities(new, 1.0)
    each = [kl_as_measured(chances(new, GenerationConfig(top_k=k)), policy, reference) for k in range(1, MOST_KEPT + 1)]
    exact = float(full_kl(policy[None, None], reference[None, None]))
    measured = kl_as_measured(chances(new, GenerationConfig(top_k=int(top_k))), policy, reference)
    top = old.argmax()
    return {
        "word": names(world, top[None])[0],
        "before": float(reference[top].exp()),
        "after": float(policy[top].exp()),
        "each": each,
        "exact": exact,
        "measured": measured,
        "error": measured - exact,
        "sign": Word("negative" if measured < -EDGE else "positive" if measured > EDGE else "zero"),
        "logits": old.tolist(),
    }


def draw_truncated_kl(n: Numbers) -> Picture:
    curve = Series(Word("measured_kl"), [float(k) for k in range(1, MOST_KEPT + 1)], n["each"], tone="kl")
    levels: dict[str, float] = {Word("exact_kl"): n["exact"], Word("zero"): 0.0}
    low, high = min(-0.4, *n["each"]), max(0.8, *n["each"])
    at = n["top_k"] or None
    return line([curve], x=Word("kept_tokens"), y=Word("kl"), x_range=(1, MOST_KEPT), y_range=(low, high), levels=levels, at=at)


# --- one temperature for all -------------------------------------------------------------------------------------------------


def two_temperatures(world: Any, prompt: str, temperature: float, scored: float, change: float) -> Numbers:
    """Tokens are drawn at one temperature and scored at another."""
    old, new = logits_at(world, prompt), logits_at(world, prompt, change)
    chance = chances(new, GenerationConfig(temperature=temperature))
    drawn, reference_drawn = log_probabilities(new, temperature), log_probabilities(old, temperature)
    policy, reference = log_probabilities(new, scored), log_probabilities(old, scored)
    top = new.argmax()
    ratio = float((policy[top] - drawn[top]).exp())
    exact = float(full_kl(drawn[None, None], reference_drawn[None, None]))
    return {
        "word": names(world, top[None])[0],
        "ratio": ratio,
        "first_ratio": Word("one" if abs(ratio - 1) < EDGE else "not_one"),
        "exact": exact,
        "exact_at_scored": float(full_kl(policy[None, None], reference[None, None])),
        "both_wrong": kl_as_measured(chance, policy, reference),
        "mixed": kl_as_measured(chance, drawn, reference),
        "mixed_equal": float(full_kl(reference_drawn[None, None], reference[None, None])),
        "outside": float(chance[((policy - drawn).exp() - 1).abs() > 0.2].sum()),
        "logits": old.tolist(),
        "changed_logits": new.tolist(),
    }


def draw_two_temperatures(n: Numbers) -> Picture:
    items = [
        Bar(Word("kl_right"), [n["exact"]], mark="chosen"),
        Bar(Word("kl_both_wrong"), [n["both_wrong"]]),
        Bar(Word("kl_mixed"), [n["mixed"]]),
    ]
    values = [n["exact"], n["both_wrong"], n["mixed"]]
    return bars(items, [Word("kl")], label=Word("kl"), low=min(-0.5, *values), high=max(1.5, *values))


# --- check yourself ----------------------------------------------------------------------------------------------------------


def check_yourself(world: Any, temperature: float, change: float, truncate: bool, scored_at_one: bool) -> Numbers:
    """One setting after the other: is the KL that this trainer records the real one?"""
    old, new = logits_at(world, "acting"), logits_at(world, "acting", change)
    settings = GenerationConfig(temperature=temperature, top_k=3 if truncate else 0)
    scored = 1.0 if scored_at_one else temperature
    policy, reference = log_probabilities(new, scored), log_probabilities(old, scored)
    measured = kl_as_measured(chances(new, settings), policy, reference)
    exact = float(full_kl(log_probabilities(new, temperature)[None, None], log_probabilities(old, temperature)[None, None]))
    error = measured - exact
    verdict = "right" if abs(error) < EDGE else "too_high" if error > 0 else "too_low"
    return {
        "word": names(world, old.argmax()[None])[0],
        "kept": Word("three" if truncate else "all_tokens"),
        "scored": scored,
        "measured": measured,
        "exact": exact,
        "error": error,
        "verdict": Word(verdict),
        "logits": old.tolist(),
    }


def draw_check(n: Numbers) -> Picture:
    items = [Bar(Word("kl_right"), [n["exact"]], mark="chosen"), Bar(Word("recorded"), [n["measured"]])]
    return bars(items, [Word("kl")], label=Word("kl"), low=min(-0.5, n["measured"]), high=max(1.0, n["measured"], n["exact"]))


SCENES = (
    Scene(
        "temperature",
        temperature_scene,
        needs=("world",),
        controls=(PROMPT, Slider("temperature", 0.1, 2.0, 0.05, start=0.5)),
        pictures={"words": draw_temperature},
    ),
    Scene(
        "truncation",
        truncation,
        needs=("world",),
        controls=(PROMPT, Slider("top_k", 0, 20, 1, start=3), Slider("top_p", 0.5, 1.0, 0.05, start=1.0)),
        pictures={"words": draw_truncation},
    ),
    Scene(
        "truncated_kl",
        truncated_kl,
        needs=("world",),
        controls=(PROMPT, Slider("change", -2, 2, 0.25, start=-1), Slider("top_k", 0, MOST_KEPT, 1, start=3)),
        pictures={"curve": draw_truncated_kl},
    ),
    Scene(
        "two_temperatures",
        two_temperatures,
        needs=("world",),
        controls=(
            PROMPT,
            Slider("temperature", 0.3, 1.5, 0.1, start=0.7),
            Slider("scored", 0.3, 1.5, 0.1, start=1.0),
            Slider("change", -2, 2, 0.25, start=-1),
        ),
        pictures={"kls": draw_two_temperatures},
    ),
    Scene(
        "check_yourself",
        check_yourself,
        needs=("world",),
        controls=(
            Slider("temperature", 0.5, 1.5, 0.25, start=0.75),
            Slider("change", -2, 2, 0.5, start=-1),
            Toggle("truncate", start=True),
            Toggle("scored_at_one"),
        ),
        pictures={"kls": draw_check},
    ),
)
