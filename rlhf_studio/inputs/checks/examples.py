"""What is known of a supervised stage's examples before it starts, and whether they fit the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

from rlhf_studio.config import SFTRunConfig, SupervisedConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.examples.check import check_examples
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.rotation import boundary_problem


@dataclass(frozen=True)
class ExampleTokens:
    """Lengths of the texts that training reads, after the cut; a pair is two texts, each with the prompt.

    Attributes:
        texts: tokens of each text that was looked at, ascending.
        counted: of a text, the tokens that the loss is taken over, on average; all of them where that is not known.
        whole: whether every example was looked at; else a longer one may come, of up to ``data.max_tokens``.
    """

    texts: tuple[int, ...]
    counted: float
    whole: bool = True

    @property
    def usual(self) -> int:
        """Their mean, rounded up."""
        return ceil(sum(self.texts) / len(self.texts))

    @property
    def longest(self) -> int:
        """Of those that were looked at."""
        return self.texts[-1]

    def longest_of(self, count: int) -> int:
        """What the longest of so many texts usually has: the length that a share of count / (count + 1) of all do not exceed."""
        return self.texts[min(len(self.texts) - 1, len(self.texts) * count // (count + 1))]


@dataclass(frozen=True)
class ExampleFacts:
    """What is known of the examples.

    Attributes:
        count: how many training learns from; None when unknown, or they are the problem.
        held_out: how many are held out; None when unknown.
        tokens: None when they could not be counted.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int | None = None
    held_out: int | None = None
    tokens: ExampleTokens | None = None


class ExamplesCheck(Protocol):
    """Reads a stage's examples as far as that is quick, and prepares the first of them as the engine will. Raises nothing."""

    def __call__(self, config: SupervisedConfig, facts: ModelFacts | None) -> ExampleFacts:
        """``facts``: of the model, whose tokenizer counts; None where it is the problem."""


def examples_facts(config: SupervisedConfig, facts: ModelFacts | None) -> ExampleFacts:
    """What is known of a stage's examples, by reading them."""
    found = check_examples(config, facts)
    tokens = ExampleTokens(found.texts, found.counted, found.whole) if found.texts else None
    return ExampleFacts(found.problems, found.notes, found.count, found.held_out, tokens)


def length_problems(config: SupervisedConfig, facts: ModelFacts, tokens: ExampleTokens | None) -> Iterator[Problem]:
    """Examples that have more tokens than the model has positions for, and lengths that it cannot have beside each other."""
    limit, most = facts.max_positions, config.data.max_tokens
    longest = most if tokens is None or not tokens.whole else min(most, tokens.longest)
    if limit is not None and longest > limit:
        has = "examples may have" if tokens is None or not tokens.whole else "the longest example has"
        if facts.attends_to == limit:
            yield Problem("data.max_tokens", f"in texts of more than {limit:,} tokens this model attends only to those that it picks; "
                          f"use at most {limit:,}")  # fmt: skip
        else:
            yield Problem("data.max_tokens", f"{has} {longest:,} tokens, but the model has {limit:,} positions; use at most {limit:,}")
    generation = getattr(config, "generation", None)
    if generation is not None and limit is not None and config.engine.watch_prompts and generation.response_length >= limit:
        message = f"the model has only {limit:,} positions, prompt included; use less than that, or watch no prompts"
        yield Problem("generation.response_length", message)
    if tokens is None or isinstance(config, SFTRunConfig) and config.model.fresh:
        return
    if boundary_problem(config.model.policy, facts.rotation_boundary, (tokens.texts[0], longest), 0):
        message = (
            f"{config.model.policy} turns its positions by other frequencies in a text of more than {facts.rotation_boundary:,} tokens, "
            f"and examples of {tokens.texts[0]:,} to {longest:,} tokens lie on both sides; keep it at {facts.rotation_boundary:,} or less"
        )
        yield Problem("data.max_tokens", message)
