"""How long the prompts are, in tokens of the policy."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PromptTokens:
    """Lengths of the prompts in tokens, after the cut.

    Attributes:
        usual: their mean, rounded up.
        longest: bounds for the longest; equal when every prompt was counted.
        count: how many there are; None when only the first were looked at.
        usual_text, longest_text: the same of the texts that rewards read: the whole prompt, also where its beginning is cut off for the
            policy. ``usual_text`` is None where it equals ``usual``; ``longest_text`` is None where it is not known.
        shortest: of those that were counted.
    """

    usual: int
    longest: tuple[int, int]
    count: int | None = None
    usual_text: int | None = None
    longest_text: int | None = None
    shortest: int = field(default=1, compare=False)
