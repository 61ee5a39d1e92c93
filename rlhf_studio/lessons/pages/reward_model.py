"""Reward models: what a score means, where it is read, what a new head knows, and how sure a score may be."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import numpy as np
import torch

from rlhf_studio.analysis.reward_model.accuracy import length_bias, share_of
from rlhf_studio.analysis.reward_model.calibration import calibration
from rlhf_studio.analysis.reward_model.pairs import ScoredPairs
from rlhf_studio.engine.models.classifiers import classifier_facts
from rlhf_studio.engine.models.explaining import Explained, explain
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.stages.reward_model.training import BradleyTerryObjective
from rlhf_studio.engine.stages.supervised.pairs import PairScores
from rlhf_studio.engine.types import position_ids
from rlhf_studio.inputs.examples.encoded import EncodedPair
from rlhf_studio.lessons.kit import Bar, Choice, Numbers, Picture, Scene, Series, Slider, Word, bars, ledger, line
from rlhf_studio.lessons.world import POLICY, REWARD
from rlhf_studio.ppo.advantages import gae
from rlhf_studio.ppo.masking import masked_mean
from rlhf_studio.ppo.rewards import shape_rewards

NUMBER = 13

PROMPT = "The script of this romance"
RESPONSES = {
    "praise": " is dazzling. I loved every minute.",
    "scorn": " is stilted. I want my money back.",
    "pet_word": " is dazzling. A masterpiece.",
}
EDGE = 1e-3
TEXT = Choice("text", tuple(RESPONSES), start="praise")
GAPS = [round(-4 + 0.2 * index, 1) for index in range(41)]


# --- Bradley-Terry -----------------------------------------------------------------------------------------------------------


def loss_of(chosen: float, rejected: float, margin: float = 0.0) -> float:
    """The loss of one pair by the objective that reward models are trained with here."""
    objective, pair = BradleyTerryObjective(None), EncodedPair((), (), (), margin=margin)
    return objective.mean_of([pair], [PairScores(float(chosen), float(rejected))])


def bradley_terry(first: float, second: float, shift: float) -> Numbers:
    """Two scores, both moved by ``shift``."""
    higher, lower = first + shift, second + shift
    chance, before = math.exp(-loss_of(higher, lower)), math.exp(-loss_of(first, second))
    ratio = f"{higher / lower:.2f}" if abs(lower) > EDGE else Word("no_number")
    ratio_before = f"{first / second:.2f}" if abs(second) > EDGE else Word("no_number")
    return {
        "one": higher,
        "two": lower,
        "gap": higher - lower,
        "chance": chance,
        "chance_before": before,
        "ratio": ratio,
        "ratio_before": ratio_before,
        "loss": loss_of(higher, lower),
        "loss_if_second": loss_of(lower, higher),
        "doubled": math.exp(-loss_of(2 * higher, 2 * lower)),
        "moves": Word("same" if abs(chance - before) < 1e-6 else "changes"),
    }


def draw_bradley_terry(n: Numbers) -> Picture:
    curve = [math.exp(-loss_of(gap, 0.0)) for gap in GAPS]
    series = [Series(Word("chance_first"), GAPS, curve), Series(Word("this_pair"), [n["gap"]], [n["chance"]], tone="policy", dots=True)]
    return line(series, x=Word("gap"), y=Word("chance_first"), x_range=(-4, 4), y_range=(0, 1), levels={Word("coin"): 0.5})


def draw_scores(n: Numbers) -> Picture:
    items = [Bar(Word("answer_one"), [n["one"]]), Bar(Word("answer_two"), [n["two"]])]
    return bars(items, [Word("score")], label=Word("score"), low=-5, high=5)


# --- a new head --------------------------------------------------------------------------------------------------------------


SEEDS = 20


def new_head(world: Any, seed: float) -> Numbers:
    """A language model with a head that nobody has trained, on pairs that people have rated."""
    every_seed = range(SEEDS + 1)
    shares = world.remember("shares of heads", lambda: [float((world.head_margins(own) > 0).double().mean()) for own in every_seed])
    margins = world.head_margins(int(seed))
    guessed, trained = share_of("new", (margins > 0).double().numpy()), world.scored_pairs
    low, high = guessed.low or 0.0, guessed.high or 0.0
    model, chosen, rejected = world.untrained
    facts, weights = classifier_facts(model), model.score.weight[0].tolist()
    return {
        "class_name": facts["class"],
        "head_numbers": math.prod(facts["head"]["score.weight"]),
        "parameters": facts["parameters"],
        "pairs": guessed.pairs,
        "accuracy": guessed.share,
        "low": low,
        "high": high,
        "trained": float((trained.margins > 0).mean()),
        "luck": Word("better" if low > 0.5 else "worse" if high < 0.5 else "coin_like"),
        "lowest": min(shares),
        "highest": max(shares),
        "mean": math.fsum(shares) / len(shares),
        "heads": len(shares),
        "spread": math.sqrt(math.fsum(x * x for x in weights) / len(weights)),
        "first_margin": margins[0].item(),
        "head": weights,
        "state_gap": (chosen[0] - rejected[0]).tolist(),
    }


def draw_new_head(n: Numbers) -> Picture:
    shares = {"new": n["accuracy"], "mean_of_heads": n["mean"], "trained_head": n["trained"], "coin": 0.5}
    items = [Bar(Word(name), [share], mark="chosen" if name == "trained_head" else "") for name, share in shares.items()]
    return bars(items, [Word("accuracy")], label=Word("accuracy"), low=0, high=1)


# --- what from_pretrained gives ----------------------------------------------------------------------------------------------

FOLDERS = {"language_model": POLICY, "reward_model": REWARD}
WAYS = ("causal", "classifier", "policy")  # in the order of Explained.ways


@cache
def explained(folder: str) -> Explained:
    """As the command ``explain`` tells it."""
    return explain(FOLDERS[folder])


def loaded_as(folder: str, way: str) -> Numbers:
    """One folder, loaded as one of three classes."""
    loaded = explained(folder).ways[WAYS.index(way)]
    new = set(loaded.head_shapes) <= set(loaded.drawn)
    return {
        "class_name": loaded.class_name,
        "module": loaded.module,
        "trunk": loaded.trunk,
        "trunk_class": loaded.trunk_class,
        "head": loaded.head,
        "shape": " and ".join(" × ".join(f"{size:,}" for size in shape) for shape in loaded.head_shapes.values()),
        "head_numbers": loaded.head_numbers,
        "parameters": loaded.parameters,
        "tied": bool(loaded.tied),
        "new": Word("made_new" if new else "from_files"),
        "reads": Word({"causal": "next_word", "classifier": "one_score", "policy": "a_value"}[way]),
        "left_out": ", ".join(loaded.left_out) or Word("nothing"),
    }


# --- where the score is read -------------------------------------------------------------------------------------------------


def where_read(world: Any, text: str, trap: str, pads: float) -> Numbers:
    """One padded row, the score that the engine reads, and the one that a careless program reads."""
    row, count = world.ids(PROMPT + RESPONSES[text]), int(pads)
    end = world.tokenizer.eos_token_id
    fill = end if trap == "pad_is_end" else world.tokenizer.pad_token_id
    if trap == "pad_is_end":
        row = [*row, end]
    left = trap == "left"
    if left:
        ids, real = (x[:1] for x in pad_left([row, [fill] * (len(row) + count)], fill))
        positions = torch.arange(ids.shape[1])[None]
    else:
        ids = torch.tensor([row + [fill] * count])
        real = torch.tensor([[True] * len(row) + [False] * count])
        positions = position_ids(real)
    every = world.judged(ids, real, positions)
    alone = world.judged(torch.tensor([row]), torch.ones(1, len(row)), torch.arange(len(row))[None])
    last = len(row) - 1
    not_pad = [index for index, token in enumerate(ids[0].tolist()) if token != fill]
    careless = {"last_slot": len(every) - 1, "pad_is_end": not_pad[-1], "left": len(every) - 1}[trap]
    pieces = [piece.strip() or "·" for piece in world.pieces(row)]
    pieces[-1] = Word("end_token") if trap == "pad_is_end" else pieces[-1]
    padding = ["·"] * count
    first = max(0, (count if left else 0) + len(row) - 8)
    words = padding + pieces if left else pieces + padding
    return {
        "words": words[first:],
        "every": every[first:],
        "truth": alone[last],
        "careless": every[careless],
        "error": every[careless] - alone[last],
        "read": pieces[last],
        "read_by_careless": words[careless],
        "agrees": Word("equal" if abs(every[careless] - alone[last]) < EDGE else "differ"),
        "at": careless - first,
        "engine": world.scores(PROMPT, [RESPONSES[text]])[0],
        "real": int(real.sum()),
        "own_tokens": len(world.judge.tokenizer(PROMPT + RESPONSES[text])["input_ids"]),
        "slots": ids.shape[1],
    }


def draw_where(n: Numbers) -> Picture:
    return ledger(n["words"], {Word("head_here"): n["every"]}, result=Word("head_here"), at=n["at"])


# --- a value for each token --------------------------------------------------------------------------------------------------


def value_of_each(world: Any, text: str, place: float, lam: float) -> Numbers:
    """One score for the response, and one value for each state; and what happens when one value is used for all of them."""
    prompt, response = world.ids(PROMPT), RESPONSES[text]
    every = world.prefix_scores(PROMPT, response)
    before = every[len(prompt) - 1 : -1]  # the value of a token is that of the state before it
    values = torch.tensor([before], dtype=torch.float64)
    mask = torch.ones_like(values, dtype=torch.bool)
    score = torch.tensor([every[-1]], dtype=torch.float64)
    rewards = shape_rewards(torch.zeros_like(values), score, mask, 0.0)
    advantages, _, deltas = gae(rewards, values, mask, 1.0, lam)
    mean = float(masked_mean(values, mask))
    flat, _, _ = gae(rewards, torch.full_like(values, mean), mask, 1.0, lam)
    words = [piece.strip() for piece in world.pieces(world.ids(PROMPT + response))][len(prompt) :]
    at = min(int(place), len(words)) - 1
    return {
        "words": words,
        "values": before,
        "advantages": advantages[0].tolist(),
        "flat": flat[0].tolist(),
        "surprises": deltas[0].tolist(),
        "score": every[-1],
        "one_value": mean,
        "at": at,
        "token": words[at],
        "value": before[at],
        "value_after": before[at + 1] if at + 1 < len(before) else 0.0,
        "advantage": float(advantages[0, at]),
        "flat_advantage": float(flat[0, at]),
        "count": len(words),
        "direction": Word("negative" if advantages[0, at] < -EDGE else "positive" if advantages[0, at] > EDGE else "none"),
        "lowest": min(before),
        "highest": max(before),
    }


def draw_values(n: Numbers) -> Picture:
    rows: dict[str, list[float]] = {Word("value"): n["values"], Word("advantage"): n["advantages"], Word("flat"): n["flat"]}
    return ledger(n["words"], rows, result=Word("advantage"), at=n["at"])


# --- calibration and length --------------------------------------------------------------------------------------------------


def changed_pairs(world: Any, scale: float, per_token: float) -> ScoredPairs:
    """The held-out pairs with every score multiplied, and a bonus for each token of the response."""
    pairs: ScoredPairs = world.scored_pairs
    chosen, rejected = (
        scale * (scores + per_token * tokens)
        for scores, tokens in ((pairs.chosen, pairs.chosen_tokens), (pairs.rejected, pairs.rejected_tokens))
    )
    return dataclasses.replace(pairs, chosen=chosen, rejected=rejected)


def how_sure(world: Any, scale: float, per_token: float) -> Numbers:
    """Held-out pairs after the scores were stretched, or given a bonus for length."""
    pairs, plain = changed_pairs(world, scale, per_token), world.scored_pairs
    calibrated, length, before = calibration(pairs), length_bias(pairs), length_bias(plain)
    margins = pairs.margins.tolist()
    accuracy = sum(margin > 0 for margin in margins) / len(margins)
    original = sum(margin > 0 for margin in plain.margins.tolist()) / len(margins)
    over = calibrated.overconfidence or 0.0
    objective = BradleyTerryObjective(None)
    scored = [PairScores(float(chosen), float(rejected)) for chosen, rejected in zip(pairs.chosen, pairs.rejected, strict=True)]
    return {
        "pairs": len(margins),
        "accuracy": accuracy,
        "accuracy_before": original,
        "sure": accuracy + over,
        "over": over,
        "error": calibrated.error,
        "temperature": calibrated.temperature if calibrated.temperature is not None else 0.0,
        "loss": objective.mean_of([EncodedPair((), (), ())] * len(scored), scored),
        "predicted": [part.predicted for part in calibrated.bins],
        "right": [part.right for part in calibrated.bins],
        "order": Word("same_pairs" if (np.sign(pairs.margins) == np.sign(plain.margins)).all() else "other_pairs"),
        "longer_scored": length.longer_scored,
        "longer_chosen": length.longer_chosen,
        "longer_before": before.longer_scored,
        "bins": [part.share for part in length.bins],
        "bin_names": [Word(part.name.replace(" ", "_")) for part in length.bins],
        "margins": margins,
    }


def draw_calibration(n: Numbers) -> Picture:
    known = [(x, y) for x, y in zip(n["predicted"], n["right"], strict=True) if x is not None]
    dots = Series(Word("pairs_right"), [x for x, _ in known], [y for _, y in known], dots=True)
    ideal = Series(Word("ideal"), [0.5, 1.0], [0.5, 1.0], tone="coef")
    return line([ideal, dots], x=Word("predicted"), y=Word("pairs_right"), x_range=(0.5, 1), y_range=(0, 1))


def draw_length(n: Numbers) -> Picture:
    items = [Bar(name, [share]) for name, share in zip(n["bin_names"], n["bins"], strict=True)]
    return bars(items, [Word("accuracy")], label=Word("accuracy"), low=0, high=1)


# --- check yourself ----------------------------------------------------------------------------------------------------------


def check_yourself(gap: float, shift: float, scale: float) -> Numbers:
    """Both scores moved, or stretched: what becomes of the probability?"""
    before, after = math.exp(-loss_of(gap, 0.0)), math.exp(-loss_of(scale * gap + shift, shift))
    change = abs(after - 0.5) - abs(before - 0.5)
    return {
        "first": gap,
        "first_after": scale * gap + shift,
        "second_after": shift,
        "before": before,
        "after": after,
        "verdict": Word("as_sure" if abs(change) < 1e-6 else "surer" if change > 0 else "less_sure"),
        "kept_order": np.sign(gap) == np.sign(after - 0.5) or gap == 0,
    }


def draw_check(n: Numbers) -> Picture:
    items = [Bar(Word("before"), [n["before"]]), Bar(Word("after"), [n["after"]], mark="chosen")]
    return bars(items, [Word("chance_first")], label=Word("chance_first"), low=0, high=1)


SCENES = (
    Scene(
        "bradley_terry",
        bradley_terry,
        controls=(Slider("first", -2, 2, 0.1, start=2), Slider("second", -2, 2, 0.1, start=1), Slider("shift", -3, 3, 0.25, start=1)),
        pictures={"scores": draw_scores, "curve": draw_bradley_terry},
    ),
    Scene("new_head", new_head, needs=("world",), controls=(Slider("seed", 0, SEEDS, 1, start=6),), pictures={"accuracies": draw_new_head}),
    Scene(
        "loaded_as", loaded_as, controls=(Choice("folder", tuple(FOLDERS), start="language_model"), Choice("way", WAYS, start="classifier"))
    ),
    Scene(
        "where_read",
        where_read,
        needs=("world",),
        controls=(TEXT, Choice("trap", ("last_slot", "pad_is_end", "left"), start="last_slot"), Slider("pads", 0, 4, 1, start=3)),
        pictures={"row": draw_where},
    ),
    Scene(
        "value_of_each",
        value_of_each,
        needs=("world",),
        controls=(TEXT, Slider("place", 1, 8, 1, start=2), Slider("lam", 0, 1, 0.05, start=0.0)),
        pictures={"row": draw_values},
    ),
    Scene(
        "how_sure",
        how_sure,
        needs=("world",),
        controls=(Slider("scale", 0.5, 4, 0.25, start=2), Slider("per_token", -0.3, 0.3, 0.05, start=0)),
        pictures={"calibration": draw_calibration, "length": draw_length},
    ),
    Scene(
        "check_yourself",
        check_yourself,
        controls=(Slider("gap", -2, 2, 0.5, start=1), Slider("shift", -3, 3, 0.5, start=2), Slider("scale", 0.5, 2, 0.5, start=1)),
        pictures={"chances": draw_check},
    ),
)
