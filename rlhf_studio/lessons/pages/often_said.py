"""What is often said, and is not so. Each saying is refuted by numbers of a scene of another lesson, computed there and shown here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.lessons.kit import Bar, Numbers, Picture, Scene, Word, bars
from rlhf_studio.lessons.pages import clip, from_trl, gae, lora, policy_and_value, reward_model, rewards, sampling, what_goes_wrong

NUMBER = 18


@dataclass(frozen=True)
class Saying:
    """A saying that is not so.

    Attributes:
        name: of its scene in this lesson; the text has the saying itself.
        lesson, scene: where it is refuted.
        unit: the word that says what is compared.
        compared: takes the numbers of that scene; gives the number that the saying claims, and the true one.
        at: values of the scene's controls that differ from its start.
        labels: the words of the two numbers.
    """

    name: str
    lesson: str
    scene: str
    unit: str
    compared: Callable[[Numbers], tuple[float, float]]
    at: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, str] = ("as_said", "as_it_is")


SAYINGS = (
    Saying("three_squares", "lora", "count", "weights", lambda n: (n["three_squares"], n["trained"])),
    Saying("alpha", "lora", "doubled", "size", lambda n: (n["rate_now"], n["alpha_now"])),
    Saying("powers", "sampling", "temperature", "sum", lambda n: (n["sum_powers"], n["sum_here"])),
    Saying(
        "temperature_and_kl",
        "sampling",
        "two_temperatures",
        "nats",
        lambda n: (n["exact_at_scored"], n["exact"]),
        labels=("at_one", "at_the_other"),
    ),
    Saying("shifted_logits", "clip", "ratio", "ratio", lambda n: (n["of_logits"], n["rho"])),
    Saying("two_old_ones", "clip", "ratio", "ratio", lambda n: (n["against_ref"], n["old_against_old"])),
    Saying("one_backbone", "from_trl", "wrapper", "backbones", lambda n: (1, n["passes"])),
    Saying("one_value", "policy_and_value", "value_per_token", "surprise", lambda n: (n["wrong_surprise"], n["surprise"])),
    Saying("turned_kl", "rewards", "last_token", "reward", lambda n: (n["total_turned"], n["total"])),
    Saying("always_up", "rewards", "thermostat", "beta", lambda n: (n["habit_last"], n["last"])),
    Saying("whitening", "gae", "whitening", "pushed_down", lambda n: (n["below_before"], n["turned"])),
    Saying("outside", "clip", "dead_zones", "slope", lambda n: (0.0, n["gradient"])),
    Saying("without_min", "clip", "dead_zones", "loss", lambda n: (n["clip_alone"], n["loss"]), at={"ratio": 0.5, "advantage": 0.8}),
    Saying("smaller_loss", "clip", "value_clip", "loss", lambda n: (n["smaller"], n["loss"])),
    Saying(
        "twice_as_good",
        "reward_model",
        "bradley_terry",
        "times_as_large",
        lambda n: (n["first"] / n["second"], n["one"] / n["two"]),
        labels=("before_both_moved", "after_both_moved"),
    ),
    Saying(
        "better_text",
        "what_goes_wrong",
        "two_curves",
        "change",
        lambda n: (n["score"] - n["first_score"], n["gold"] - n["first_gold"]),
        labels=("of_score", "of_gold"),
    ),
    Saying(
        "more_epochs",
        "what_goes_wrong",
        "more_passes",
        "true_score",
        lambda n: (n["same"], n["fresh"]),
        labels=("one_batch", "fresh_batches"),
    ),
)
"""In the order of the lessons, more or less."""

_PAGES = (clip, from_trl, gae, lora, policy_and_value, reward_model, rewards, sampling, what_goes_wrong)
_SCENES: dict[tuple[str, str], Scene] = {(page.__name__.rpartition(".")[2], scene.name): scene for page in _PAGES for scene in page.SCENES}


def shown_here(saying: Saying) -> Scene:
    """The other lesson's scene at fixed values, without controls; one picture shows the claim beside the truth."""
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
    return Scene(saying.name, functions[tuple(of.needs)], pictures={"compared": draw}, needs=of.needs)


SCENES = tuple(shown_here(saying) for saying in SAYINGS)
