"""Whether the final answer of a response is the answer of its reference text."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import regex
import torch

from rlhf_studio.config import AnswerReward
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, Source
from rlhf_studio.engine.rewards.errors import ComponentError, quoted
from rlhf_studio.engine.rewards.kinds.numbers import last_number, only_number
from rlhf_studio.engine.rewards.registry import BuildContext, refuse_problems, scorer
from rlhf_studio.language import S_

Reading = Callable[[str], str | Fraction | None]
"""A text to the answer in it, or None when it holds none. Raises :class:`ComponentError`."""


@scorer(AnswerReward)
def build(settings: AnswerReward, context: BuildContext) -> Source:
    """Compares each response with its reference. Raises :class:`ConfigError` for a pattern that cannot be used."""
    refuse_problems(settings, context.field, context.permissions)
    return right_answers(settings)


def right_answers(settings: AnswerReward) -> Source:
    """1 for each response whose answer equals its reference's, else 0. A reference without an answer raises :class:`ComponentError`."""
    equal = answer_rule(settings)

    def score(episodes: Episodes) -> Answer:
        values = []
        for row, pair in enumerate(zip(episodes.responses, episodes.required_references(), strict=True)):
            try:
                values.append(equal(*pair))
            except ComponentError as error:
                raise ComponentError(str(error), row) from error
        return Answer(torch.tensor(values, dtype=torch.float32))

    return score


def answer_rule(settings: AnswerReward) -> Callable[[str, str], float]:
    """(response, reference) to 1 where the answers are equal, else 0. Raises :class:`ComponentError` where the reference has none."""
    read_response, read_reference = _readings(settings)

    def score(response: str, reference: str) -> float:
        right, given = read_reference(reference), read_response(response)
        if right is None:
            raise ComponentError(_no_answer(settings, reference))
        if isinstance(given, Fraction) and isinstance(right, Fraction):
            return float(abs(given - right) <= Fraction(settings.tolerance))
        return float(given == right)

    return score


def _no_answer(settings: AnswerReward, reference: str) -> str:
    """One sentence about a reference without an answer, or without a single one."""
    if settings.compare == "number":
        return S_(f"no single plain number is found in the reference {quoted(reference)}; give one, such as -1234.5 or 2/3")
    hint = S_("; set reference_is to answer when the column holds answers alone") if settings.compare == "regex" else ""
    return S_(f"no answer is found in the reference {quoted(reference)}{hint}")


def _readings(settings: AnswerReward) -> tuple[Reading, Reading]:
    """How the response and how the reference is read."""
    if settings.compare == "number":
        return last_number, only_number

    def plain(text: str) -> str:
        if settings.ignore_space:
            text = " ".join(text.split())
        return text.casefold() if settings.ignore_case else text

    if settings.compare == "exact":
        return plain, plain
    pattern = regex.compile(settings.pattern)

    def group(text: str) -> str | None:
        try:
            matches = pattern.findall(text, timeout=settings.timeout)
        except TimeoutError:
            raise ComponentError(
                f"the pattern {settings.pattern!r} took longer than {settings.timeout} s on a text; use a simpler pattern"
            ) from None
        return plain(matches[-1]) or None if matches else None

    return group, plain if settings.reference_is == "answer" else group
