"""Cells that hold text, and cells that hold chat messages."""

from __future__ import annotations

from typing import Any

from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError
from rlhf_studio.inputs.prompts.sources.rows import TYPE_KEY

Message = dict[str, str]
KEYS = (("role", "content"), ("from", "value"))
"""The keys of a message: those of chat templates, and those of ShareGPT."""
SPEAKERS = {"human": "user", "gpt": "assistant"}
"""What ShareGPT calls the roles -> what chat templates call them."""


def text_of(cell: Any, number: int, field: str, column: str) -> str:
    """The text of a cell, empty for none. Raises :class:`PromptsError` for anything else."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        kind = cell[TYPE_KEY] if isinstance(cell, dict) and TYPE_KEY in cell else type(cell).__name__
        raise PromptsError(field, f"row {number} holds {kind} in {column!r}, not text")
    return _whole_characters(cell, number)


def is_message(part: Any) -> bool:
    """Whether it is a message such as ``{"role": "user", "content": "Hello"}`` or ``{"from": "human", "value": "Hello"}``."""
    return isinstance(part, dict) and any(role in part and content in part for role, content in KEYS)


def messages_of(cell: list[Any], number: int, field: str, column: str) -> list[Message]:
    """The messages of a cell, with the keys role and content. Raises :class:`PromptsError` that names the message."""
    return [_message(part, place, number, field, column) for place, part in enumerate(cell, start=1)]


def _message(part: Any, place: int, number: int, field: str, column: str) -> Message:
    where = f"row {number}, message {place} in {column!r}"
    if not is_message(part):
        raise PromptsError(field, f'{where} is not like {{"role": "user", "content": "Hello"}}')
    role, content = next((part[role], part[content]) for role, content in KEYS if role in part and content in part)
    if not isinstance(role, str) or not isinstance(content, str):
        raise PromptsError(field, f"{where}: role and content must be text")
    return {"role": SPEAKERS.get(role, _whole_characters(role, number)), "content": _whole_characters(content, number)}


def _whole_characters(text: str, number: int) -> str:
    """Refuses half of a surrogate pair: no tokenizer can encode it, and the run would fail much later."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PromptsError(SOURCE, f"row {number} holds half a character (a lone surrogate)") from None
    return text
