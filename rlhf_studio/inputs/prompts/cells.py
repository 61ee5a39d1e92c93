"""A row's cells become a prompt: text or chat messages, and a reference text."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.rows import MAX_ROW_CHARACTERS, TYPE_KEY

Message = dict[str, str]
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
    """

    number: int
    text: str
    messages: tuple[Message, ...] | None = None
    reference: str = ""
    answered: bool = False

    def memory(self) -> int:
        """Bytes that it takes. One character beyond Latin-1 makes each character of its text two or four bytes."""
        said = [text for message in self.messages or () for text in message.values()]
        return OBJECT_BYTES * (1 + len(self.messages or ())) + sum(map(sys.getsizeof, (self.text, self.reference, *said)))


def prompt_from(number: int, cells: list[Any], columns: dict[str, str], *, chat: bool) -> Prompt:
    """The prompt in a row's cells; an empty cell gives an empty text. Raises :class:`PromptsError` for anything else than text.

    With ``chat``, a list of messages such as ``{"role": "user", "content": "Hello"}`` is a prompt too.
    """
    named = dict(zip(columns.items(), cells, strict=True))
    reference = "".join(_text(cell, number, *name) for name, cell in named.items() if name[0] == "data.reference_column")
    (field, column), cell = next(iter(named.items()))
    if not isinstance(cell, list):
        return Prompt(number, _text(cell, number, field, column), None, reference)
    if not chat:
        hint = "; chat messages need the chat template (data.chat_template)" if cell and _is_message(cell[0]) else ""
        raise PromptsError(field, f"row {number} holds a list in {column!r}, not text{hint}")
    messages = [_message(part, place, number, column) for place, part in enumerate(cell, start=1)]
    answered = bool(messages) and messages[-1]["role"] == "assistant"
    if answered:
        messages.pop()
    text = "\n".join(message["content"] for message in messages)
    if len(text) > MAX_ROW_CHARACTERS:
        raise PromptsError(field, f"row {number} holds more than {MAX_ROW_CHARACTERS:,} characters in {column!r}")
    return Prompt(number, text, tuple(messages), reference, answered)


def _text(cell: Any, number: int, field: str, column: str) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        kind = cell[TYPE_KEY] if isinstance(cell, dict) and TYPE_KEY in cell else type(cell).__name__
        raise PromptsError(field, f"row {number} holds {kind} in {column!r}, not text")
    return _whole_characters(cell, number)


def _is_message(part: Any) -> bool:
    return isinstance(part, dict) and "role" in part and "content" in part


def _message(part: Any, place: int, number: int, column: str) -> Message:
    where = f"row {number}, message {place} in {column!r}"
    if not _is_message(part):
        raise PromptsError("data.column", f'{where} is not like {{"role": "user", "content": "Hello"}}')
    if not isinstance(part["role"], str) or not isinstance(part["content"], str):
        raise PromptsError("data.column", f"{where}: role and content must be text")
    return {key: _whole_characters(part[key], number) for key in ("role", "content")}


def _whole_characters(text: str, number: int) -> str:
    """Refuses half of a surrogate pair: no tokenizer can encode it, and the run would fail much later."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PromptsError("data.prompts", f"row {number} holds half a character (a lone surrogate)") from None
    return text
