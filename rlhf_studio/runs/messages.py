"""Chat messages of other programs as one text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_of(value: Any) -> Any:
    """A text, or chat messages as one: a single message is its content alone, several are lines of role and content.

    What is neither is given back as it is.
    """
    if _is_message(value):
        return _content(value)
    if not isinstance(value, list | tuple) or not all(map(_is_message, value)):
        return value
    if len(value) == 1:
        return _content(value[0])
    return "\n".join(f"{message['role']}: {_content(message)}" for message in value)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value


def _content(message: Mapping[str, Any]) -> str:
    """Of a message; parts that are no text, such as images, show what they are."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        parts = [part if isinstance(part, Mapping) else {"text": str(part)} for part in content]
        content = "".join(part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type', 'part')}]" for part in parts)
    return "" if content is None else str(content)
