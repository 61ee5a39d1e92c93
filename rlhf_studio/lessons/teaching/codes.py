"""Codes that a student copies from a quiz, and what they say. They hold no name and are no secret: anyone can invent one.

A code is ``PPO-`` and groups of letters and digits. It holds, bit by bit: a version, the seed, how many questions of each lesson, which
lessons (by their numbers), a mark of the questions that were asked, an outcome for each question, and a check sum. The check sum finds
every single wrong letter, every two neighbours that were swapped, and of all other damage all but one in thirty thousand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_studio.language import _, told
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.teaching.questions import MOST_EACH, MOST_SEED, Question, Selection

LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O or U, which are misread
PREFIX, GROUP = "PPO-", 4
OUTCOMES = ("open", "first", "second", "not")
"""Of a question: not answered, right at the first try, right at the second, and answered wrongly or shown."""
_MISREAD = str.maketrans("OIL", "011")
_WIDTHS = {"version": 2, "seed": 20, "each": 3, "lessons": 24, "mark": 10}
_VERSION, _OUTCOME_BITS, _CHECK_BITS, _POLYNOMIAL = 1, 2, 15, 0x4599


class BadCode(ValueError):
    """Why a code cannot be read, in a sentence for people."""


@dataclass(frozen=True)
class Result:
    """What a code says: the questions, and an outcome (one of :data:`OUTCOMES`) for each."""

    selection: Selection
    questions: tuple[Question, ...]
    outcomes: tuple[str, ...]

    def count(self, outcome: str) -> int:
        return self.outcomes.count(outcome)


def encode(selection: Selection, outcomes: Sequence[str]) -> str:
    """The code of a quiz. Raises ValueError when there is not one known outcome for each question."""
    questions = selection.picked()
    if len(outcomes) != len(questions) or not set(outcomes) <= set(OUTCOMES):
        raise ValueError(f"there must be one outcome ({', '.join(OUTCOMES)}) for each of {len(questions)} questions")
    numbers = {entry.name: entry.number for entry in shelf.entries()}
    values = {
        "version": _VERSION,
        "seed": selection.seed,
        "each": selection.each,
        "lessons": sum(1 << (numbers[name] - 1) for name in selection.lessons),
        "mark": _mark(questions),
    }
    bits = "".join(f"{values[name]:0{width}b}" for name, width in _WIDTHS.items())
    bits += "".join(f"{OUTCOMES.index(outcome):0{_OUTCOME_BITS}b}" for outcome in outcomes)
    bits += "0" * (-(len(bits) + _CHECK_BITS) % 5)
    bits += f"{_check(bits):0{_CHECK_BITS}b}"
    letters = "".join(LETTERS[int(bits[start : start + 5], 2)] for start in range(0, len(bits), 5))
    return PREFIX + "-".join(letters[start : start + GROUP] for start in range(0, len(letters), GROUP))


def decode(code: str) -> Result:
    """What a code says. Small letters, spaces, and O for 0 or I and L for 1 do no harm. Raises :class:`BadCode`."""
    letters = re.sub(r"[\s-]", "", code.upper().strip().removeprefix("PPO")).translate(_MISREAD)
    if not letters or set(letters) - set(LETTERS):
        raise BadCode(f"{code.strip()[:60]!r} is no result code: one is {PREFIX} and groups of letters and digits.")
    bits = "".join(f"{LETTERS.index(letter):05b}" for letter in letters)
    if len(bits) < sum(_WIDTHS.values()) + _CHECK_BITS or _check(bits[:-_CHECK_BITS]) != int(bits[-_CHECK_BITS:], 2):
        raise BadCode(f"{code.strip()[:60]!r} has a typing error, or a part of it is missing: its check sum does not fit.")
    values, read = {}, 0
    for name, width in _WIDTHS.items():
        values[name], read = int(bits[read : read + width], 2), read + width
    selection = _selection(values)
    questions = selection.picked() if selection else ()
    held = bits[read : read + _OUTCOME_BITS * len(questions)]
    fits = len(bits) == read + len(held) + -(read + len(held) + _CHECK_BITS) % 5 + _CHECK_BITS
    if selection is None or values["mark"] != _mark(questions) or not fits:
        raise BadCode(f"{code.strip()[:60]!r} was made with other lessons than these: by another version of RLHF Studio.")
    pairs = [held[start : start + _OUTCOME_BITS] for start in range(0, len(held), _OUTCOME_BITS)]
    return Result(selection, questions, tuple(OUTCOMES[int(pair, 2)] for pair in pairs))


def checked(lines: Sequence[str]) -> list[dict[str, Any]]:
    """For each line that is not empty: what its code says, as plain data. A name may stand before the code.

    Each has ``who`` and ``code``; and ``problem``, or ``seed``, ``each``, ``lessons``, ``questions`` (lesson, title and scene) and
    ``outcomes``.
    """
    return [_checked(line.strip()) for line in lines if line.strip()]


def _checked(line: str) -> dict[str, Any]:
    at = line.upper().rfind("PPO")  # no letter of a code is an O
    if at < 0:
        return {
            "who": line[:60],
            "code": "",
            "problem": _("There is no code in {line}: one begins with {prefix}.").format(line=repr(line[:60]), prefix=PREFIX),
        }
    who, code = line[:at].strip(" \t:;,")[:60], line[at:].strip()
    try:
        sheet = decode(code)
    except BadCode as error:
        return {"who": who, "code": code[:60], "problem": told(error)}
    questions = [{"lesson": question.lesson, "title": question.title, "scene": question.scene} for question in sheet.questions]
    selection = {"seed": sheet.selection.seed, "each": sheet.selection.each, "lessons": list(sheet.selection.lessons)}
    return {"who": who, "code": code, **selection, "questions": questions, "outcomes": list(sheet.outcomes)}


def _selection(values: dict[str, int]) -> Selection | None:
    by_number = {entry.number: entry.name for entry in shelf.entries()}
    numbers = [bit + 1 for bit in range(_WIDTHS["lessons"]) if values["lessons"] >> bit & 1]
    known = values["version"] == _VERSION and 1 <= values["each"] <= MOST_EACH and values["seed"] <= MOST_SEED
    if not known or not numbers or not set(numbers) <= set(by_number):
        return None
    try:
        return Selection.of([by_number[number] for number in numbers], values["each"], values["seed"])
    except ValueError:  # more questions than a sheet may have: no sheet has such a code
        return None


def _mark(questions: Sequence[Question]) -> int:
    """Ten bits that change when the questions do."""
    names = " ".join(f"{question.lesson}.{question.scene}.{question.slot}" for question in questions)
    return int.from_bytes(hashlib.sha256(names.encode()).digest()[:2], "big") >> 6


def _check(bits: str) -> int:
    """The remainder of a cyclic redundancy check of 15 bits (CAN's polynomial): it finds all damage within 15 neighbouring bits."""
    register = 0
    for bit in bits:
        register = (register << 1) ^ (_POLYNOMIAL if int(bit) ^ (register >> 14) & 1 else 0)
        register &= 0x7FFF
    return register
