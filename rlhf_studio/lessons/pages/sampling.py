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

PROMPTS = {
    "acting": "In this spy film the acting",
    "feels": "In this spy film the acting feels",
    "script": "The script of this romance is",
}
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
    kept = truncated(x, weights, settings)[0].double()
    return kept / kept.sum()


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
    one, here = log_probabilities(logits, 1.0).exp(), log_probabilities(logits, temperature).exp()
    order = logits.topk(SHOWN).indices
    powers = one.pow(1 / temperature)
    first, second = (float(logits[token]) for token in order[:2])
    entropy = token_logprobs_and_entropy(logits[None, None], order[None, :1], temperature)[1].item()
    odds_one, odds = float(one[order[0]] / one[order[1]]), float(here[order[0]] / here[order[1]])
    return {
        "sentence": PROMPTS[prompt],
        "names": names(world, order),
        "first": names(world, order)[0],
        "second": names(world, order)[1],
        "at_one": one[order].tolist(),
        "here": here[order].tolist(),
        "powers": powers[order].tolist(),
        "first_at_one": float(one[order[0]]),
        "first_here": float(here[order[0]]),
        "odds_one": odds_one,
        "odds": odds,
        "odds_become": Word("same" if abs(temperature - 1) < EDGE else "more" if temperature < 1 else "less"),
        "sum_here": float(here.sum()),
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
    kept = float(log_probabilities(logits, 1.0).exp()[chance > 0].sum())
    return {
        "sentence": PROMPTS[prompt],
        "names": names(world, order),
        "first": names(world, order)[0],
        "stored_each": log_probabilities(logits, 1.0).exp()[order].tolist(),
        "chance_each": chance[order].tolist(),
        "count": int((chance > 0).sum()),
        "all": len(logits),
        "kept": kept,
        "cut": 1 - kept,
        "stored": stored,
        "stored_share": math.exp(stored),
        "chance": float(chance[top]),
        "log_chance": math.log(float(chance[top])),
        "drawn_share": float(of_top.double().mean()),
        "gap": math.log(float(chance[top])) - stored,
        "stored_is": Word("lower" if kept < 1 - 1e-6 else "equal"),
        "drawn": sorted(set(drawn.tokens.tolist())),
        "by_hand": kept_by_hand(logits.tolist(), int(top_k), top_p),
        "scored": token_logprobs(logits[None, None], order[None, :1], 1.0).item(),
    }


def kept_by_hand(logits: list[float], top_k: int, top_p: float) -> dict[int, float]:
    """Token and probability of what top-k and top-p leave, in plain Python: for the claims, against the engine."""
    high = max(logits)
    weights = sorted(((math.exp(x - high), place) for place, x in enumerate(logits)), reverse=True)[: top_k or len(logits)]
    total, found, before = math.fsum(weight for weight, _ in weights), dict[int, float](), 0.0
    for weight, place in weights:
        if top_p < 1 and before >= top_p:
            break
        found[place] = weight / total
        before += weight / total
    left = math.fsum(found.values())
    return {place: share / left for place, share in found.items()}


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
        "by_hand": one_logit_by_hand(old.tolist(), change, int(top_k)),
    }


def one_logit_by_hand(logits: list[float], change: float, top_k: int) -> tuple[float, float]:
    """Exact KL and the mean of k1 over a truncated draw, when the largest logit has changed; for the claims.

    With Z = 1 + p (exp(change) - 1), every log-ratio is minus log Z, and that of the changed token is larger by the change.
    """
    high = max(logits)
    total = math.fsum(math.exp(x - high) for x in logits)
    z = 1 + (math.exp(change) - 1) / total
    new = math.exp(change) / (total * z)
    others = sorted((math.exp(x - high) / (total * z) for place, x in enumerate(logits) if place != logits.index(high)), reverse=True)
    if not top_k:
        return new * change - math.log(z), new * change - math.log(z)
    is_kept = sum(share > new for share in others) < top_k
    kept = (new if is_kept else 0.0) + math.fsum(others[: top_k - is_kept])
    return new * change - math.log(z), (new / kept if is_kept else 0.0) * change - math.log(z)


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
        "by_hand": hand_ratio(new.tolist(), temperature, scored),
        "exact_by_hand": one_logit_by_hand([x / temperature for x in old.tolist()], change / temperature, 0)[0],
    }


def hand_ratio(logits: list[float], temperature: float, scored: float) -> float:
    """Probability of the likeliest token at one temperature over that at another, in plain Python."""
    high = max(logits)
    sums = [math.fsum(math.exp((x - high) / t) for x in logits) for t in (temperature, scored)]
    return sums[0] / sums[1]


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
        "by_hand": one_logit_by_hand([x / temperature for x in old.tolist()], change / temperature, 3 if truncate else 0),
    }


def draw_check(n: Numbers) -> Picture:
    items = [Bar(Word("kl_right"), [n["exact"]], mark="chosen"), Bar(Word("recorded"), [n["measured"]])]
    return bars(items, [Word("kl")], label=Word("kl"), low=min(-0.5, n["measured"]), high=max(1.0, n["measured"], n["exact"]))


def close(one: float, other: float, size: float = 1e-5) -> bool:
    return abs(one - other) <= size * max(1.0, abs(other))


SCENES = (
    Scene(
        "temperature",
        temperature_scene,
        needs=("world",),
        controls=(PROMPT, Slider("temperature", 0.1, 2.0, 0.05, start=0.5)),
        pictures={"words": draw_temperature},
        claims={
            "the probabilities add up to 1": lambda n: close(n["sum_here"], 1),
            "the odds are exp(gap of the logits / temperature)": lambda n: close(n["odds"], math.exp(n["logit_gap"] / n["temperature"])),
            "powers alone add up to 1 at temperature 1 only": lambda n: (abs(n["sum_powers"] - 1) > EDGE) == (n["temperature"] != 1),
            "a lower temperature has a lower entropy": lambda n: (n["entropy"] - n["entropy_one"]) * (n["temperature"] - 1) >= 0,
        },
    ),
    Scene(
        "truncation",
        truncation,
        needs=("world",),
        controls=(PROMPT, Slider("top_k", 0, 20, 1, start=3), Slider("top_p", 0.5, 1.0, 0.05, start=1.0)),
        pictures={"words": draw_truncation},
        claims={
            "only what is kept is drawn": lambda n: set(n["drawn"]) <= set(n["by_hand"]) and n["count"] == len(n["by_hand"]),
            "the chances are those of the kept tokens alone": lambda n: close(n["chance"], max(n["by_hand"].values())),
            "the draw follows the chances": lambda n: abs(n["drawn_share"] - n["chance"]) <= 1 / DRAWS + 1e-9,
            "what is stored is the probability before truncation": lambda n: close(n["stored"], n["scored"]),
            "the gap is minus the log of the kept share": lambda n: close(n["gap"], -math.log(n["kept"])),
        },
    ),
    Scene(
        "truncated_kl",
        truncated_kl,
        needs=("world",),
        controls=(PROMPT, Slider("change", -2, 2, 0.25, start=-1), Slider("top_k", 0, MOST_KEPT, 1, start=3)),
        pictures={"curve": draw_truncated_kl},
        claims={
            "the exact KL is that of one changed logit": lambda n: close(n["exact"], n["by_hand"][0]),
            "what is measured is k1 over the kept tokens": lambda n: close(n["measured"], n["by_hand"][1]),
            "the exact KL is never negative": lambda n: n["exact"] > -1e-9,
            "without truncation what is measured is exact": lambda n: n["top_k"] > 0 or close(n["measured"], n["exact"]),
        },
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
        claims={
            "the first ratio is that of two temperatures": lambda n: close(n["ratio"], n["by_hand"]),
            "at one temperature the ratio is 1 and the KL exact": lambda n: (
                n["temperature"] != n["scored"] or (close(n["ratio"], 1) and close(n["both_wrong"], n["exact"]))
            ),
            "two temperatures give equal models a KL": lambda n: (n["mixed_equal"] > EDGE) == (n["temperature"] != n["scored"]),
            "the exact KL is that of one changed logit at this temperature": lambda n: close(n["exact"], n["exact_by_hand"]),
        },
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
        claims={
            "all tokens at one temperature measure the real KL": lambda n: (
                n["truncate"] or (n["scored_at_one"] and n["temperature"] != 1) or n["verdict"] == "right"
            ),
            "the real KL is that of one changed logit": lambda n: close(n["exact"], n["by_hand"][0]),
            "the recorded KL is k1 over the kept tokens": lambda n: (
                n["scored"] != n["temperature"] or close(n["measured"], n["by_hand"][1])
            ),
        },
    ),
)
