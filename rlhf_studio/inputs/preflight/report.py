"""What the check before a start found."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlhf_studio.config.fitting import NOTHING_KNOWN, Known
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.checks.examples import ExampleFacts
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.prompts.lengths import PromptTokens


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Attributes:
        problems: the run may start when there are none.
        notes: one sentence each about what is unusual but works; risky settings are the doctor's (``analysis.doctor``).
        policy: facts about the model that learns or answers, or None when it is the problem.
        prompts: how many prompts there are, in an evaluation those that may be answered; None when they are the problem or only the
            first were looked at.
        download_bytes, disk_bytes: what the run fetches, and what it writes at most beside what is there already.
        memory_estimate: the memory that the run needs; None when a model is the problem.
        change: the cheapest change that would make it fit; None when it fits, or when no single change is enough.
        models: facts about all models; None when one is the problem.
        prompt_tokens: lengths of the prompts as the policy reads them; None when they could not be counted.
        examples: what a supervised stage learns from; None in other stages.
        steps: how many steps the run will have; None where that shows only when it has read its data.
        known: what its settings are measured against.
        answering: how many policies an evaluation compares; None in other stages, and where a line of them leads nowhere.
    """

    problems: list[Problem]
    notes: list[str] = field(default_factory=list)
    policy: ModelFacts | None = None
    prompts: int | None = None
    download_bytes: int = 0
    disk_bytes: int = 0
    memory_estimate: MemoryEstimate | None = None
    change: MemorySaving | None = None
    models: RunModels | None = None
    prompt_tokens: PromptTokens | None = None
    examples: ExampleFacts | None = None
    steps: int | None = None
    known: Known = NOTHING_KNOWN
    answering: int | None = None

    @property
    def weights(self) -> int | None:
        """How many weights the model has that learns; None when its files do not tell."""
        return self.known.weights

    @property
    def expected_peak(self) -> tuple[int, int] | None:
        """The least and the most bytes that the metric memory/peak should show; None when the model's files do not tell."""
        return self.memory_estimate.measured_range() if self.memory_estimate else None
