"""Dialogues written as one text, such as those of Anthropic's HH-RLHF: where the last answer begins, and who says what.

A text counts as one only when it begins with the person's mark and an answer's mark follows, so ordinary text is left alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

START = r"\A\s*"
LINE = r"(?:\r\n|\r(?!\n)|\n)"  # how Windows, old Macs and everybody else end a line; \r\n is one end, never two
FORMS = {
    "Human: ... Assistant: ...": re.compile(rf"(?:{START}|{LINE}{{2}})(?:(Human)|Assistant):"),
    "### Human: ... ### Assistant: ...": re.compile(r"### (?:(Human)|Assistant):"),
    "### Instruction: ... ### Response: ...": re.compile(rf"(?:{START}|{LINE})### (?:(Instruction)|Response):"),
}
"""How dialogues are written -> what finds their marks; the first group is filled for a person's mark."""
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


def read_dialogue(text: str) -> Dialogue | None:
    """The dialogue that a text is, or None."""
    for form, pattern in FORMS.items():
        marks = list(pattern.finditer(text))
        roles = ["user" if mark[1] else "assistant" for mark in marks]
        if roles[:1] == ["user"] and "assistant" in roles and (form == WITH_PREAMBLE or not text[: marks[0].start()].strip()):
            break
    else:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    texts = [text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    answer = texts[-1] if roles[-1] == "assistant" else ""
    turns = list(zip(roles, texts, strict=True))[: -1 if roles[-1] == "assistant" else None]
    prompt = text[: marks[-1].end()] if answer else text
    return Dialogue(form, prompt, _messages([("system", text[: marks[0].start()].strip()), *turns]), answer)


def shared_prompt(chosen: str, rejected: str) -> str | None:
    """What two texts share up to the last place there where an answer begins; empty when there is none, None when one is no dialogue."""
    first, second = read_dialogue(chosen), read_dialogue(rejected)
    if first is None or second is None or first.form != second.form:
        return None
    shared = len(os.path.commonprefix([chosen, rejected]))
    ends = [mark.end() for mark in FORMS[first.form].finditer(chosen) if not mark[1] and mark.end() <= shared]
    return chosen[: ends[-1]] if ends else ""


def _messages(turns: list[tuple[str, str]]) -> tuple[dict[str, str], ...]:
    messages: list[dict[str, str]] = []
    for role, content in turns:
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f"\n\n{content}"
        elif content or role != "system":
            messages.append({"role": role, "content": content})
    return tuple(messages)
