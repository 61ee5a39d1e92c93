"""A row's cells become a prompt: text or chat messages, and a reference text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts.dialogues import FORMS, read_dialogue
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import Message, is_message, messages_of, text_of
from rlhf_studio.inputs.prompts.sources.rows import MAX_ROW_CHARACTERS

PAIR = ("chosen", "rejected")
"""The columns of a preference pair, as data sets name them."""
OBJECT_BYTES = 200
"""About what a prompt, or a message, takes beside its texts."""


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        number: its row in the source, as a person counts.
        text: what the row holds; of a conversation its messages' texts, one below the other.
        messages: the conversation when the row holds one, ending where the policy is to answer.
        reference: the reference text, empty when there is none.
        answered: the conversation ended with an answer, which was left out.
        dialogue: how the conversation was written in one text (a key of :data:`dialogues.FORMS`); empty when it was not, or was left so.
    """

    number: int
    text: str
    messages: tuple[Message, ...] | None = None
    reference: str = ""
    answered: bool = False
    dialogue: str = ""

    def memory(self) -> int:
        """Bytes that it takes. One character beyond Latin-1 makes each character of its text two or four bytes."""
        parts = [text for message in self.messages or () for text in message.values()]
        return OBJECT_BYTES * (1 + len(self.messages or ())) + sum(map(sys.getsizeof, (self.text, self.reference, *parts)))


def prompt_from(number: int, cells: list[Any], columns: dict[str, str], data: DataConfig, every_column: Sequence[str] = ()) -> Prompt:
    """The prompt in a row's cells; an empty cell gives an empty text. Raises :class:`PromptsError` for anything else than text.

    With the chat template or a prompt format, a list of messages such as ``{"role": "user", "content": "Hello"}`` is a prompt too.
    ``every_column`` of the source shows whether the prompt's column is one of a preference pair, which hold answers too.
    """
    named = dict(zip(columns.items(), cells, strict=True))
    reference = "".join(_reference(cell, number, *name, data) for name, cell in named.items() if name[0] == "data.reference_column")
    (field, column), cell = next(iter(named.items()))
    chat = data.chat_template or data.prompt_format
    if not isinstance(cell, list):
        return _from_text(text_of(cell, number, field, column), number, column, reference, data, every_column)
    if not chat:
        hint = (
            "; chat messages need the chat template (data.chat_template) or a form (data.prompt_format)"
            if cell and is_message(cell[0])
            else ""
        )
        raise PromptsError(field, f"row {number} holds a list in {column!r}, not text{hint}")
    messages = messages_of(cell, number, field, column)
    answered = bool(messages) and messages[-1]["role"] == "assistant"
    if answered:
        messages.pop()
    text = "\n".join(message["content"] for message in messages)
    if len(text) > MAX_ROW_CHARACTERS:
        raise PromptsError(field, f"row {number} holds more than {MAX_ROW_CHARACTERS:,} characters in {column!r}")
    return Prompt(number, text, tuple(messages), reference, answered)


def _from_text(text: str, number: int, column: str, reference: str, data: DataConfig, every_column: Sequence[str]) -> Prompt:
    found = read_dialogue(text) if data.dialogue != "whole" else None
    if found is None:
        of_a_pair = data.dialogue == "auto" and column in PAIR and set(PAIR) <= set(every_column)
        if text.strip() and (data.dialogue == "cut" or of_a_pair):
            raise _no_dialogue(number, column, of_a_pair and "prompt" in every_column)
        return Prompt(number, text, None, reference)
    if data.chat_template:
        spoken = "\n".join(message["content"] for message in found.messages)
        return Prompt(number, spoken, found.messages, reference, bool(found.answer), found.form)
    return Prompt(number, found.prompt, None, reference, bool(found.answer), found.form if found.answer else "")


def _no_dialogue(number: int, column: str, has_prompts: bool) -> PromptsError:
    message = f"row {number} holds no dialogue in {column!r}, so where its answer begins cannot be told"
    if has_prompts:
        return PromptsError("data.column", f"{message}; name the column 'prompt' instead")
    return PromptsError(
        "data.dialogue", f"{message}; texts look like {', or '.join(FORMS)}; whole takes them as they are, answers included"
    )


def _reference(cell: Any, number: int, field: str, column: str, data: DataConfig) -> str:
    """The reference text; of a dialogue its last answer, since that is what the response is compared with."""
    text = text_of(cell, number, field, column)
    found = read_dialogue(text) if data.dialogue != "whole" else None
    return found.answer if found is not None and found.answer else text
