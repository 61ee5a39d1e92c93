"""Preference pairs from responses that a policy wrote: the review world's raters say which of two they like better, mistakes included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from statistics import fmean

from rlhf_studio.inputs.completions import Labelled, LabelledPair
from rlhf_studio.inputs.world.corpus import appeal_of, chance_first, prefers_first
from rlhf_studio.inputs.world.parser import is_of_world


def label_by_world(completions: Mapping[str, Sequence[str]], seed: int) -> Labelled:
    """Each two different responses to a prompt, judged once by a rater of the world. The same seed gives the same pairs."""
    rng = Random(seed)
    pairs: list[LabelledPair] = []
    foreseen: list[float] = []  # for each pair, how often a judge who knows the raters' taste agrees with one of them
    equal = 0
    for prompt, responses in completions.items():
        appeals = [appeal_of(prompt, response) for response in responses]
        for first, second in combinations(range(len(responses)), 2):
            if responses[first] == responses[second]:
                equal += 1
                continue
            best, other = (first, second) if prefers_first(appeals[first], appeals[second], rng) else (second, first)
            pairs.append(LabelledPair(prompt, responses[best], responses[other]))
            chance = chance_first(appeals[first], appeals[second])
            foreseen.append(max(chance, 1.0 - chance))
    single = sum(len(responses) < 2 for responses in completions.values())
    foreign = [prompt for prompt in completions if not is_of_world(prompt)]
    return Labelled(pairs, equal, 0, single, fmean(foreseen) if foreseen else None, len(foreign))
