"""Regular expressions that a person writes: what is wrong with one, found without letting it use up time or memory.

Compiling repeats the inside of ``(...){1000}`` a thousand times, so a short pattern can need gigabytes. Its size is worked out first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from rlhf_studio.config.reward_base import ComponentProblem
from rlhf_studio.language import S_

MOST_PARTS = 500_000  # characters, classes and groups after all counted repeats are written out; about half a second to compile
DEEPEST = 100  # brackets inside each other
_COUNT = r"\{(?P<least>\d+)(?:,\d*)?\}"
_PART = re.compile(rf"\\.|\(\?\#[^)]*\)?|(?P<open>\()|(?P<close>\))|{_COUNT}|\[\^?\]?(?:\\.|[^\]\\])*\]?|.", re.DOTALL)
# With these flags, comments and sets inside sets are read otherwise than _PART does; then all repeats count as one inside the other.
_OTHER_SYNTAX = re.compile(r"\(\?[\w-]*(?:x|V1)")


def pattern_problems(pattern: str, *, groups: int | None = None) -> Iterator[ComponentProblem]:
    """What is wrong with the setting ``pattern``; ``groups`` is how many groups it must have, None for any number."""
    import regex  # here, because only this needs it

    depth, parts = _depth_and_parts(pattern)
    if depth > DEEPEST:
        yield ComponentProblem("pattern", S_(f"has brackets inside brackets {depth} deep; at most {DEEPEST} can be used"))
        return
    if parts > MOST_PARTS:
        yield ComponentProblem(
            "pattern", S_("is too large once its counted repeats such as {1000} are written out; use smaller counts, or + and *")
        )
        return
    try:
        actual = regex.compile(pattern).groups
    except regex.error as error:
        yield ComponentProblem("pattern", S_(f"is not a valid regular expression: {error}"))
    except (RecursionError, OverflowError, MemoryError):
        yield ComponentProblem("pattern", S_("is too large or too deeply nested; use a simpler pattern"))
    else:
        if groups is not None and actual != groups:
            need = S_("one, the answer") if groups == 1 else groups
            yield ComponentProblem(
                "pattern", S_(f"has {actual} groups and needs exactly {need}; write (?:...) for brackets that are no group")
            )


def _depth_and_parts(pattern: str) -> tuple[int, int]:
    """How deep brackets lie inside each other, and how many parts the pattern has with every counted repeat written out."""
    if _OTHER_SYNTAX.search(pattern):
        plain = re.sub(r"#.*|\s+", "", pattern)
        return pattern.count("("), len(pattern) * max(_product_of_counts(pattern), _product_of_counts(plain))
    deepest, total, last = 0, [0], 0  # total: of each open bracket so far; last: of what a repeat would repeat
    for match in _PART.finditer(pattern):
        if match["open"]:
            total.append(1)
            last = 0
            deepest = max(deepest, len(total) - 1)
        elif match["close"]:
            last = total.pop() if len(total) > 1 else 1
            total[-1] += last
        elif match["least"]:
            more = last * (max(1, _number(match["least"])) - 1)
            last += more
            total[-1] += more
        else:
            last = 1
            total[-1] += 1
    return deepest, sum(total)


def _product_of_counts(pattern: str) -> int:
    return math.prod(max(1, _number(match["least"])) for match in re.finditer(_COUNT, pattern))


def _number(digits: str) -> int:
    return int(digits) if len(digits) <= 12 else 10**12
