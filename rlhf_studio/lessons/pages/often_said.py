"""What is often said, and is not so. Each saying is refuted by numbers of a scene of another lesson, computed there and shown here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Word, bars
from rlhf_studio.lessons.kit.by_hand import close
from rlhf_studio.lessons.pages import clip, from_trl, gae, lora, policy_and_value, reward_model, rewards, sampling, what_goes_wrong

NUMBER = 17


@dataclass(frozen=True)
class Saying:
    """A saying that is not so.

    Attributes:
        name: of its scene in this lesson; the text has the saying itself.
        lesson, scene: where it is refuted.
        unit: the word that says what is compared.
        compared: from the numbers of that scene what the saying would have, and what is so.
        refuted: whether these numbers refute it.
        at: values of the scene's controls, where they are not those of its start.
        labels: the words of the two numbers.
    """

    name: str
    lesson: str
    scene: str
    unit: str
    compared: Callable[[Numbers], tuple[float, float]]
    refuted: Callable[[Numbers], bool]
    at: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, str] = ("as_said", "as_it_is")


SAYINGS = (
    Saying(
        "three_squares",
        "lora",
        "count",
        "weights",
        lambda n: (n["three_squares"], n["trained"]),
        lambda n: n["trained"] == 16 * (768 + 3 * 768) * 12 and n["trained"] not in (n["three_squares"], n["one_square"]),
    ),
    Saying(
        "alpha",
        "lora",
        "doubled",
        "size",
        lambda n: (n["rate_now"], n["alpha_now"]),
        lambda n: n["alpha_now"] > 1.5 * n["rate_now"],
    ),
    Saying(
        "powers",
        "sampling",
        "temperature",
        "sum",
        lambda n: (n["sum_powers"], n["sum_here"]),
        lambda n: abs(n["sum_powers"] - 1) > 0.1 and close(n["sum_here"], 1, 1e-6),
    ),
    Saying(
        "temperature_and_kl",
        "sampling",
        "two_temperatures",
        "nats",
        lambda n: (n["exact_at_scored"], n["exact"]),
        lambda n: abs(n["exact"] - n["exact_at_scored"]) > 0.05 and n["mixed_equal"] > 0.01,
        labels=("at_one", "at_the_other"),
    ),
    Saying(
        "shifted_logits",
        "clip",
        "ratio",
        "ratio",
        lambda n: (n["of_logits"], n["rho"]),
        lambda n: close(n["rho"], 1) and n["of_logits"] > 2,
    ),
    Saying(
        "two_old_ones",
        "clip",
        "ratio",
        "ratio",
        lambda n: (n["against_ref"], n["old_against_old"]),
        lambda n: close(n["old_against_old"], 1) and abs(n["against_ref"] - 1) > 0.1,
    ),
    Saying(
        "one_backbone",
        "from_trl",
        "wrapper",
        "backbones",
        lambda n: (1, n["passes"]),
        lambda n: n["passes"] == 2 and not n["same"],
    ),
    Saying(
        "one_value",
        "policy_and_value",
        "value_per_token",
        "surprise",
        lambda n: (n["wrong_surprise"], n["surprise"]),
        lambda n: abs(n["surprise"] - n["wrong_surprise"]) > 0.05,
    ),
    Saying(
        "turned_kl",
        "rewards",
        "last_token",
        "reward",
        lambda n: (n["total_turned"], n["total"]),
        lambda n: n["total_turned"] > n["score"] > n["total"],
    ),
    Saying(
        "always_up",
        "rewards",
        "thermostat",
        "beta",
        lambda n: (n["habit_last"], n["last"]),
        lambda n: n["kl"] < n["target"] and n["last"] < n["first"] < n["habit_last"],
    ),
    Saying(
        "whitening",
        "gae",
        "whitening",
        "pushed_down",
        lambda n: (n["below_before"], n["turned"]),
        lambda n: n["below_before"] == 0 and n["turned"] > 0,
    ),
    Saying(
        "outside",
        "clip",
        "dead_zones",
        "slope",
        lambda n: (0.0, n["gradient"]),
        lambda n: n["outside"] and close(n["gradient"], -n["advantage"] * n["ratio"], 1e-6),
    ),
    Saying(
        "without_min",
        "clip",
        "dead_zones",
        "loss",
        lambda n: (n["clip_alone"], n["loss"]),
        lambda n: close(n["clip_alone"], -n["advantage"] * n["low"]) and abs(n["gradient"]) > 0 and n["loss"] > n["clip_alone"] + 0.1,
        at={"ratio": 0.5, "advantage": 0.8},
    ),
    Saying(
        "smaller_loss",
        "clip",
        "value_clip",
        "loss",
        lambda n: (n["smaller"], n["loss"]),
        lambda n: close(n["loss"], max(n["plain"], n["limited"])) and n["loss"] > n["smaller"] + 0.1,
    ),
    Saying(
        "twice_as_good",
        "reward_model",
        "bradley_terry",
        "times_as_large",
        lambda n: (n["first"] / n["second"], n["one"] / n["two"]),
        lambda n: n["ratio"] != n["ratio_before"] and close(n["chance"], n["chance_before"]),
        labels=("before_both_moved", "after_both_moved"),
    ),
    Saying(
        "better_text",
        "what_goes_wrong",
        "two_curves",
        "change",
        lambda n: (n["score"] - n["first_score"], n["gold"] - n["first_gold"]),
        lambda n: n["score"] > n["first_score"] and n["gold"] < n["first_gold"],
        labels=("of_score", "of_gold"),
    ),
    Saying(
        "more_epochs",
        "what_goes_wrong",
        "more_passes",
        "true_score",
        lambda n: (n["same"], n["fresh"]),
        lambda n: n["fresh"] > 2 * n["same"] and n["added"] < n["first"],
        labels=("one_batch", "fresh_batches"),
    ),
)
"""In the order of the lessons, more or less."""

_PAGES = (clip, from_trl, gae, lora, policy_and_value, reward_model, rewards, sampling, what_goes_wrong)
_SCENES: dict[tuple[str, str], Scene] = {(page.__name__.rpartition(".")[2], scene.name): scene for page in _PAGES for scene in page.SCENES}


def shown_here(saying: Saying) -> Scene:
    """The other lesson's scene at fixed values: without its controls, and with one picture, what is said beside what is so."""
    of = _SCENES[saying.lesson, saying.scene]
    values = {**of.start(), **saying.at}

    def alone() -> Numbers:
        return of.compute(values, {})

    def of_run(run: Any) -> Numbers:
        return of.compute(values, {"run": run})

    def of_world(world: Any) -> Numbers:
        return of.compute(values, {"world": world})

    def draw(n: Numbers) -> Picture:
        pair = saying.compared(n)
        items = [Bar(Word(label), [number], mark=mark) for label, number, mark in zip(saying.labels, pair, ("", "chosen"), strict=True)]
        digits = 0 if all(isinstance(number, int) for number in pair) else 2
        return bars(items, [Word(saying.unit)], label=Word(saying.unit), low=min(0, *pair), high=max(0, *pair), digits=digits)

    functions: dict[tuple[str, ...], Callable[..., Numbers]] = {(): alone, ("run",): of_run, ("world",): of_world}
    claims = {"the saying is refuted": saying.refuted, **of.claims}
    return Scene(saying.name, functions[tuple(of.needs)], pictures={"compared": draw}, claims=claims, needs=of.needs)


SCENES = tuple(shown_here(saying) for saying in SAYINGS)
