"""Dialogues written as one text, such as those of Anthropic's HH-RLHF: where the last answer begins, and who says what.

A text counts as one only when it begins with the person's mark and an answer's mark follows, so ordinary text is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE = r"(?:\r\n|\r(?!\n)|\n)"  # how Windows, old Macs and everybody else end a line; \r\n is one end, never two


@dataclass(frozen=True)
class _Marks:
    """Finds the marks of one way to write dialogues. The first group of a match is filled for a person's mark.

    The mark that may begin a text has an expression of its own: one expression for both would take ten times as long.
    """

    first: re.Pattern[str] | None
    others: re.Pattern[str]

    def find(self, text: str) -> list[re.Match[str]]:
        first = self.first.match(text) if self.first is not None else None
        return [*([first] if first else []), *self.others.finditer(text, first.end() if first else 0)]


def _at_lines(between: str, marks: str) -> _Marks:
    return _Marks(re.compile(rf"\s*{marks}"), re.compile(rf"{between}{marks}"))


FORMS = {
    "Human: ... Assistant: ...": _at_lines(LINE * 2, r"(?:(Human)|Assistant):"),
    "### Human: ... ### Assistant: ...": _Marks(None, re.compile(r"### (?:(Human)|Assistant):")),
    "### Instruction: ... ### Response: ...": _at_lines(LINE, r"### (?:(Instruction)|Response):"),
}
"""How dialogues are written -> what finds their marks."""
WITH_PREAMBLE = "### Instruction: ... ### Response: ..."
"""The form in which a text may stand before the first mark, which says what is to be done."""


@dataclass(frozen=True)
class Dialogue:
    """A dialogue found in a text.

    Attributes:
        form: how it is written, a key of :data:`FORMS`.
        prompt: the text up to the place where the last answer begins.
        messages: what is said before that, as chat messages; turns of one speaker in a row are one message.
        answer: the last answer, empty when the text ends where it is to begin, or with the person.
    """

    form: str
    prompt: str
    messages: tuple[dict[str, str], ...]
    answer: str


@dataclass(frozen=True)
class SharedDialogue:
    """What two dialogues have in common.

    Attributes:
        prompt: what both begin with, up to the last place there where an answer begins; empty when there is no such place.
        early: one of them goes on with further answers behind that.
    """

    prompt: str
    early: bool


def read_dialogue(text: str) -> Dialogue | None:
    """The dialogue that a text is, or None."""
    form_and_marks = _find_marks(text)
    if form_and_marks is None:
        return None
    form, marks = form_and_marks
    roles = ["user" if mark[1] else "assistant" for mark in marks]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    texts = [text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    answer = texts[-1] if roles[-1] == "assistant" else ""
    turns = list(zip(roles, texts, strict=True))[: -1 if roles[-1] == "assistant" else None]
    prompt = text[: marks[-1].end()] if answer else text
    return Dialogue(form, prompt, _messages([("system", text[: marks[0].start()].strip()), *turns]), answer)


def shared_dialogue(chosen: str, rejected: str) -> SharedDialogue | None:
    """What two texts share when both are dialogues of one form, or None."""
    form_and_marks = _find_marks(chosen)
    if form_and_marks is None:
        return None
    form, marks = form_and_marks
    shared = _shared_length(chosen, rejected)
    ends = [mark.end() for mark in marks if not mark[1]]
    inside = [end for end in ends if end <= shared]
    if not inside:
        return None if read_dialogue(rejected) is None else SharedDialogue("", False)
    early = ends[-1] > inside[-1] or any(not mark[1] for mark in FORMS[form].others.finditer(rejected, inside[-1]))
    return SharedDialogue(chosen[: inside[-1]], early)


def _find_marks(text: str) -> tuple[str, list[re.Match[str]]] | None:
    """The form of a dialogue and its marks, or None: it begins with a person's mark, and an answer's mark follows."""
    for form, patterns in FORMS.items():
        marks = patterns.find(text)
        begins = bool(marks) and marks[0][1] and any(not mark[1] for mark in marks)
        if begins and (form == WITH_PREAMBLE or not text[: marks[0].start()].strip()):
            return form, marks
    return None


def _shared_length(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _messages(turns: list[tuple[str, str]]) -> tuple[dict[str, str], ...]:
    messages: list[dict[str, str]] = []
    for role, content in turns:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n\n{content}"
        elif content or role != "system":
            messages.append({"role": role, "content": content})
    return tuple(messages)
