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
from rlhf_studio.language import S_


@dataclass(frozen=True)
class ExampleTokens:
    """Lengths of the texts that training reads, after the cut; a pair is two texts, each with the prompt.

    Attributes:
        texts: tokens of each text that was looked at, ascending.
        counted: how many tokens of a text count in the loss, on average; all of them where that is not known.
        complete: whether every example was looked at; else a longer one may come, of up to ``data.max_tokens``.
    """

    texts: tuple[int, ...]
    counted: float
    complete: bool = True

    @property
    def usual(self) -> int:
        """Their mean, rounded up."""
        return ceil(sum(self.texts) / len(self.texts))

    @property
    def longest(self) -> int:
        """Tokens of the longest text that was looked at."""
        return self.texts[-1]

    def longest_of(self, count: int) -> int:
        """Tokens of the longest of ``count`` texts, as a rule: the quantile count / (count + 1) of all lengths."""
        return self.texts[min(len(self.texts) - 1, len(self.texts) * count // (count + 1))]


@dataclass(frozen=True)
class ExampleFacts:
    """What is known of the examples.

    Attributes:
        count: how many training learns from; None when that is unknown, or the examples cannot be read.
        held_out: how many are held out; None when unknown.
        tokens: None when they could not be counted.
        plain: whether there are texts without a prompt among them, which no chat template can write.
    """

    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    count: int | None = None
    held_out: int | None = None
    tokens: ExampleTokens | None = None
    plain: bool = False


class ExamplesCheck(Protocol):
    """Reads a stage's examples as far as that is quick, and prepares the first of them as the engine will. Raises nothing."""

    def __call__(self, config: SupervisedConfig, facts: ModelFacts | None) -> ExampleFacts:
        """``facts``: about the model, whose tokenizer counts the tokens; None when the model cannot be used."""


def examples_facts(config: SupervisedConfig, facts: ModelFacts | None) -> ExampleFacts:
    """What is known of a stage's examples, by reading them."""
    checked = check_examples(config, facts)
    tokens = ExampleTokens(checked.texts, checked.counted, checked.complete) if checked.texts else None
    return ExampleFacts(checked.problems, checked.notes, checked.count, checked.held_out, tokens, checked.plain)


def length_problems(config: SupervisedConfig, facts: ModelFacts, tokens: ExampleTokens | None) -> Iterator[Problem]:
    """Examples that have more tokens than the model has positions, or that lie on both sides of its rotation boundary."""
    limit, most = facts.max_positions, config.data.max_tokens
    longest = most if tokens is None or not tokens.complete else min(most, tokens.longest)
    if limit is not None and longest > limit:
        has = S_("examples may have") if tokens is None or not tokens.complete else S_("the longest example has")
        if facts.attends_to == limit:
            yield Problem("data.max_tokens", f"in texts of more than {limit:,} tokens this model attends only to those that it picks; "
                          f"use at most {limit:,}")  # fmt: skip
        else:
            yield Problem("data.max_tokens", f"{has} {longest:,} tokens, but the model has {limit:,} positions; use at most {limit:,}")
    generation = getattr(config, "generation", None)
    if generation is not None and limit is not None and config.engine.watch_prompts and generation.response_length >= limit:
        message = S_(f"the model has only {limit:,} positions, prompt included; use less than that, or watch no prompts")
        yield Problem("generation.response_length", message)
    if tokens is None or isinstance(config, SFTRunConfig) and config.model.fresh:
        return
    if boundary_problem(config.model.policy, facts.rotation_boundary, (tokens.texts[0], longest), 0):
        message = S_(
            f"{config.model.policy} turns its positions by other frequencies in a text of more than {facts.rotation_boundary:,} tokens, "
            f"and examples of {tokens.texts[0]:,} to {longest:,} tokens lie on both sides; keep it at {facts.rotation_boundary:,} or less"
        )
        yield Problem("data.max_tokens", message)
