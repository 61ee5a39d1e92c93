"""Whether the final answer of a response is the right one: that of the reference text of its row."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

import regex
import torch

from rlhf_studio.config import AnswerReward
from rlhf_studio.engine.rewards.episodes import Answer, Episodes, Source
from rlhf_studio.engine.rewards.errors import ComponentError, quoted
from rlhf_studio.engine.rewards.registry import BuildContext, refuse_problems, scorer

_SPACE = r"[ \u00a0\u2009\u202f]?"
_THOUSANDS = r"(?:,\\!|\{,\}|\\,|[,_'\u2019\u00a0\u2009\u202f])"  # the first three are LaTeX
_PLAIN = rf"(?:\d{{1,3}}(?:{_THOUSANDS}\d{{3}})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_SIGN = r"(?:(?<![\w.)\]}])[-+\u2212])?"  # not in 5-3; and "- 5" is an item of a list
_FRAC = rf"\\[dt]?frac(?:\{{(?P<inner>[-\u2212]?)(?P<over>{_PLAIN})\}}\{{(?P<under>{_PLAIN})\}}|(?P<one>\d)(?P<other>\d))"
_NUMBER = re.compile(
    rf"(?P<sign>{_SIGN}\$?)(?:{_FRAC}"
    rf"|(?P<number>{_PLAIN})(?:[eE](?P<power>[-+]?\d+)(?!\w|\.\d))?(?:{_SPACE}/{_SPACE}(?P<divisor>{_PLAIN}))?)"
)
LARGEST_POWER = 999  # of ten, in a number such as 6e23
_NOT_A_DIGIT = re.compile(r"[^\d.]")

Reading = Callable[[str], str | Fraction | None]
"""A text to the answer in it, or None when it holds none. Raises :class:`ComponentError`."""


@scorer(AnswerReward)
def build(settings: AnswerReward, context: BuildContext) -> Source:
    """Compares each response with its reference. Raises :class:`ConfigError` for a pattern that cannot be used."""
    refuse_problems(settings, context.field, context.permissions)
    return right_answers(settings)


def right_answers(settings: AnswerReward) -> Source:
    """1 for each response whose answer equals its reference's, else 0. A reference without an answer raises :class:`ComponentError`."""
    read_response, read_reference = _readings(settings)

    def equal(response: str, reference: str) -> bool:
        right, given = read_reference(reference), read_response(response)
        if right is None:
            hint = "; set reference_is to answer when the column holds answers alone" if settings.compare == "regex" else ""
            raise ComponentError(f"no answer is found in the reference {quoted(reference)}{hint}")
        if isinstance(given, Fraction) and isinstance(right, Fraction):
            return abs(given - right) <= Fraction(settings.tolerance)
        return given == right

    def score(episodes: Episodes) -> Answer:
        values = []
        for row, pair in enumerate(zip(episodes.responses, episodes.required_references(), strict=True)):
            try:
                values.append(float(equal(*pair)))
            except ComponentError as error:
                raise ComponentError(str(error), row) from error
        return Answer(torch.tensor(values, dtype=torch.float32))

    return score


def _readings(settings: AnswerReward) -> tuple[Reading, Reading]:
    """How the response and how the reference is read."""
    if settings.compare == "number":
        return last_number, last_number

    def plain(text: str) -> str:
        if settings.ignore_space:
            text = " ".join(text.split())
        return text.casefold() if settings.ignore_case else text

    if settings.compare == "exact":
        return plain, plain
    pattern = regex.compile(settings.pattern)

    def group(text: str) -> str | None:
        try:
            found = pattern.findall(text, timeout=settings.timeout)
        except TimeoutError:
            raise ComponentError(
                f"the pattern {settings.pattern!r} took longer than {settings.timeout} s on a text; use a simpler pattern"
            ) from None
        return plain(found[-1]) or None if found else None

    return group, plain if settings.reference_is == "answer" else group


def last_number(text: str) -> Fraction | None:
    r"""The last number of a text, exactly: ``-3``, ``1,234.5``, ``2/3``, ``1 1/2``, ``\frac{2}{3}`` or ``6e23``; None when there is none,
    or when it is too long or its power of ten above 999.

    A comma, an underscore, an apostrophe or a narrow space between groups of three digits separates thousands; a plain space separates
    numbers, and a point is the decimal point. A minus belongs to the number that it touches. A percent sign is not looked at.
    """
    found = list(_NUMBER.finditer(text))
    if not found:
        return None
    last = found[-1]
    value = _value(last)
    before = found[-2] if len(found) > 1 else None
    if value is not None and before is not None and _is_mixed(text, before, last):
        whole = _value(before)
        return None if whole is None else (whole - value if _negative(before) else whole + value)
    return value


def _is_mixed(text: str, whole: re.Match[str], fraction: re.Match[str]) -> bool:
    r"""Whether the two are one number such as 1 1/2 or 1\frac{1}{2}: a whole number and, right behind it, a fraction below 1."""
    parts = fraction["number"] or fraction["over"] or fraction["one"], fraction["divisor"] or fraction["under"] or fraction["other"]
    if not (whole["number"] and whole["number"].isdigit() and not whole["divisor"] and not whole["power"]):
        return False
    if not all(part and part.isdigit() and len(part) <= 6 for part in parts) or fraction["sign"] or fraction["power"] or fraction["inner"]:
        return False
    between = text[whole.end() : fraction.start()]
    return (between == " " or (between == "" and fraction["number"] is None)) and int(parts[0]) < int(parts[1])


def _value(match: re.Match[str]) -> Fraction | None:
    try:
        if match["number"] is None:
            size = _fraction(match["over"] or match["one"]) / _fraction(match["under"] or match["other"])
        else:
            power = int(match["power"] or 0)
            if abs(power) > LARGEST_POWER:
                return None
            size = _fraction(match["number"]) * Fraction(10) ** power
            size /= _fraction(match["divisor"]) if match["divisor"] is not None else 1
    except (ValueError, ZeroDivisionError):  # more digits than Python turns into a number, or a division by zero
        return None
    return -size if _negative(match) else size


def _fraction(digits: str) -> Fraction:
    return Fraction(_NOT_A_DIGIT.sub("", digits))


def _negative(match: re.Match[str]) -> bool:
    minus = ("-", "\u2212")
    return (match["sign"][:1] in minus) != (match["inner"] in minus)
