"""Cells that hold text, and cells that hold chat messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError
from rlhf_studio.inputs.prompts.sources.rows import TYPE_KEY
from rlhf_studio.language import S_

Message = dict[str, Any]
"""A role and a content, both text, and whatever else the source says of it, such as ``tool_calls``: chat templates read that.

The content is None only where a call takes its place. An answer with ``weight`` 0 is read and not learned. The functions of the whole chat
stand under ``tools`` in one of its messages.
"""
KEYS = (("role", "content"), ("from", "value"))
"""The keys of a message: those of chat templates, and those of ShareGPT."""
SPEAKERS = {"human": "user", "gpt": "assistant", "observation": "tool"}
"""What ShareGPT calls the roles -> what chat templates call them."""
CALL = "function_call"
"""ShareGPT's role of a message in which the assistant calls functions, written as JSON."""
CALLS = ("tool_calls", "function_call")
"""Keys of a message that is a call: it needs no content."""
WEIGHT, TOOLS = "weight", "tools"


@dataclass
class Fields:
    """What chats say beside role and content, and how much of it reaches no text.

    Attributes:
        present: key of messages -> chats that have it.
        idle: key of messages -> chats whose text is the same without it.
    """

    present: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)

    def add(self, messages: Iterable[Message], idle: Iterable[str] | None = None) -> None:
        """Count one chat, of which these keys are idle; None: all are."""
        names = further(messages)
        self.present.update(names)
        self.idle.update(names if idle is None else idle)

    def notes(self) -> list[str]:
        """One sentence for those that change nothing in any chat, or none."""
        unused = [name for name, count in self.present.items() if self.idle[name] == count]
        listed = ", ".join(f"{name!r} (in {self.present[name]:,} {'chat' if self.present[name] == 1 else 'chats'})" for name in unused)
        return [S_(f"Not used, since what the model reads is the same without: {listed}.")] if unused else []


def text_of(cell: Any, number: int, field: str, column: str) -> str:
    """The text of a cell, empty for none. Raises :class:`PromptsError` for anything else."""
    if cell is None:
        return ""
    if not isinstance(cell, str):
        kind = cell[TYPE_KEY] if isinstance(cell, dict) and TYPE_KEY in cell else type(cell).__name__
        raise PromptsError(field, f"row {number} holds {kind} in {column!r}, not text")
    return require_whole_characters(cell, number)


def list_of(cell: Any, number: int, field: str, column: str) -> list[Any]:
    """The list in a cell, also from a JSON text, as CSV files hold it; a message alone is a list of one. Raises :class:`PromptsError`."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            raise PromptsError(field, f"row {number} holds a list that is not valid JSON in {column!r}") from None
    if is_message(cell):
        return [cell]
    if not isinstance(cell, list):
        raise PromptsError(field, f"row {number} holds {type(cell).__name__} in {column!r}, not a list")
    return cell


def is_message(part: Any) -> bool:
    """Whether it is a message such as ``{"role": "user", "content": "Hello"}`` or ``{"from": "human", "value": "Hello"}``."""
    if not isinstance(part, dict):
        return False
    return any(role in part and content in part for role, content in KEYS) or ("role" in part and any(part.get(key) for key in CALLS))


def messages_of(cell: list[Any], number: int, field: str, column: str) -> list[Message]:
    """The messages of a cell, with the keys role and content. Raises :class:`PromptsError` that names the message."""
    return [_message(part, index, number, field, column) for index, part in enumerate(cell, start=1)]


def content_of(message: Message) -> str:
    """The content of a message; empty where a call takes its place."""
    return message["content"] or ""


def spoken(messages: Iterable[Message]) -> str:
    """What was said in a chat, one message below the other."""
    return "\n".join(map(content_of, messages))


def further(messages: Iterable[Message]) -> list[str]:
    """The keys of these messages that say more than role, content and weight, each once."""
    return list(dict.fromkeys(key for message in messages for key in message if key not in ("role", "content", WEIGHT)))


def parts_of(message: Message) -> tuple[str, ...]:
    """All that a message says, as texts: to compare, to count and to measure."""
    return tuple(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True) for value in message.values())


def key_of(messages: Sequence[Message] | None) -> tuple[tuple[str, ...], ...] | None:
    """The messages as something that can be compared and counted."""
    return messages and tuple(map(parts_of, messages))  # type: ignore[return-value]


def _message(part: Any, index: int, number: int, field: str, column: str) -> Message:
    where = S_(f"row {number}, message {index} in {column!r}")
    if not is_message(part):
        raise PromptsError(field, f'{where} is not like {{"role": "user", "content": "Hello"}}')
    keys = next((keys for keys in KEYS if keys[0] in part and keys[1] in part), KEYS[0])
    role, content = (part.get(key) for key in keys)
    more = {str(key): value for key, value in part.items() if key not in keys and value not in (None, "", [], {})}
    if keys == KEYS[1] and role == CALL and isinstance(content, str):
        more["tool_calls"] = _calls(content, where, field)
        role, content = "assistant", None
    calls = any(key in more for key in CALLS)
    if not isinstance(role, str) or not (isinstance(content, str) or (content is None and calls)):
        raise PromptsError(field, f"{where}: role and content must be text")
    weight = more.pop(WEIGHT, 1)
    if weight not in (0, 1):
        raise PromptsError(
            field, f"{where} has the weight {repr(weight)[:40]}; 1 learns an answer and 0 does not, and there is nothing between"
        )
    if weight == 0:
        more[WEIGHT] = 0
    require_whole_characters(json.dumps([role, content, more], ensure_ascii=False), number)
    return {"role": SPEAKERS.get(role, role), "content": content, **more}


def _calls(text: str, where: str, field: str) -> list[dict[str, Any]]:
    """The calls of ShareGPT's :data:`CALL`, as chat templates know them. Raises :class:`PromptsError`."""
    try:
        calls = json.loads(text)
    except (ValueError, RecursionError):
        calls = None
    calls = calls if isinstance(calls, list) else [calls]
    if not calls or not all(isinstance(call, dict) and "name" in call for call in calls):
        raise PromptsError(field, f'{where} is no function call such as {{"name": "count", "arguments": {{}}}}')
    return [{"type": "function", "function": call} for call in calls]


def require_whole_characters(text: str, number: int) -> str:
    """Refuses half of a surrogate pair: no tokenizer can encode it, and the run would fail much later."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise PromptsError(SOURCE, f"row {number} holds half a character (a lone surrogate)") from None
    return text
