"""A reward for tasks with one right answer: the response's final answer is compared with the reference of its row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rlhf_studio.config.base import setting
from rlhf_studio.config.permissions import Permissions
from rlhf_studio.config.reward_base import Component, ComponentProblem
from rlhf_studio.config.reward_patterns import pattern_problems
from rlhf_studio.language import S_


class AnswerReward(Component):
    """1 when the final answer of the response equals that of its row's reference, else 0. Needs a reference column in the data."""

    title = "Right answer"
    group = "Against a reference"
    takes_reference = True
    used_when = {
        "tolerance": ("compare", "number"),
        "ignore_case": ("compare", ("exact", "regex")),
        "ignore_space": ("compare", ("exact", "regex")),
        "pattern": ("compare", "regex"),
        "reference_is": ("compare", "regex"),
        "timeout": ("compare", "regex"),
    }

    kind: Literal["answer"] = "answer"
    compare: Literal["number", "exact", "regex"] = setting(
        "number", "Compare",
        "number: the last number of the response and the one of the reference. exact: the whole texts. regex: what the pattern's group "
        "finds last in each text.",
        level="basic",
    )  # fmt: skip
    tolerance: float = setting(
        1e-6, "Tolerance", "With number: two numbers are equal when they differ by no more than this.", level="basic", ge=0, le=1e12
    )
    ignore_case: bool = setting(True, "Ignore case", "With exact and regex: Yes equals yes.", level="basic")
    ignore_space: bool = setting(
        True, "Ignore spaces", "With exact and regex: white space at the ends is left out, and inside any run of it equals one space.",
        level="basic",
    )  # fmt: skip
    pattern: str = setting(
        r"Answer:\s*(.+)", "Pattern", "With regex: a regular expression with one group in round brackets, which holds the answer.",
        level="basic", min_length=1, max_length=2000,
    )  # fmt: skip
    reference_is: Literal["text", "answer"] = setting(
        "text", "The reference is",
        "With regex: a text in which the pattern finds the answer, as it does in the response; or the answer itself.",
        level="basic",
    )  # fmt: skip
    timeout: float = setting(
        0.5, "Time limit", "With regex: a search that takes longer stops the run with a message, so that a costly pattern cannot hang it.",
        unit="seconds", gt=0, le=30,
    )  # fmt: skip

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """A pattern that is no regular expression, or does not have exactly one group."""
        if self.compare == "regex":
            yield from pattern_problems(self.pattern, groups=1)

    def described(self) -> str:
        """The rule in words."""
        return S_("whether the answer is right")
