"""A row's cells become a prompt: text or chat messages, what stands beside them in the row, and a reference text."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts.dialogues import FORMS, read_dialogue
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import (
    Message,
    is_message,
    list_of,
    messages_of,
    parts_of,
    require_whole_characters,
    spoken,
    text_of,
)
from rlhf_studio.inputs.prompts.sources.rows import MAX_ROW_CHARACTERS
from rlhf_studio.language import S_

PAIR = ("chosen", "rejected")
"""The columns of a preference pair, as data sets name them."""
OBJECT_BYTES = 200
"""About what a prompt, or a message, takes beside its texts."""
BESIDE = {"input": ("input", "context"), "system": ("system", "system_prompt"), "history": ("history",), "tools": ("tools",)}
"""What a row may say beside its prompt, in every stage alike -> what data sets call its column."""
INSTRUCTION = "instruction"
"""The prompt's column beside which a column ``input`` holds what the instruction is about."""


@dataclass(frozen=True)
class Beside:
    """What a row says beside its prompt.

    Attributes:
        input: what an instruction is about; it goes below the prompt.
        system: the system message, or a text in front of the prompt where prompts are no chats.
        history: earlier turns.
        tools: the functions that the assistant may call, for chat templates.
    """

    input: str = ""
    system: str = ""
    history: tuple[Message, ...] = ()
    tools: tuple[Any, ...] = ()

    def around_text(self, prompt: str, as_chat: bool) -> tuple[str, tuple[Message, ...] | None]:
        """The whole prompt as a text, and as messages where it has to be a chat."""
        prompt = "\n\n".join(filter(None, (prompt, self.input)))
        if as_chat and (self.system or self.history or self.tools):
            messages = self.around_chat([{"role": "user", "content": prompt}])
            return spoken(messages), messages
        return "\n\n".join(filter(None, (self.system, prompt))), None

    def around_chat(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The whole chat of these messages; a system text of its own stays the first."""
        own = messages[:1] if messages and messages[0]["role"] == "system" else []
        system = [{"role": "system", "content": self.system}] if self.system and not own else own
        chat = [*system, *self.history, *messages[len(own) :]]
        return ({**chat[0], "tools": list(self.tools)}, *chat[1:]) if self.tools and chat else tuple(chat)


def beside_of(
    cells: Mapping[str, Any], columns: Mapping[str, str], number: int, field: str, as_chat: bool, chat: Sequence[Message] | None = None
) -> Beside:
    """What the parts of :data:`BESIDE` among a row's cells say.

    Args:
        columns: part -> its column, for errors, which blame the setting ``field``.
        as_chat: prompts are written as chats, so earlier turns can be written.
        chat: the row's prompt where it is a list of messages.

    Raises :class:`PromptsError`.
    """
    texts = {part: text_of(cells.get(part), number, field, columns[part]) for part in ("input", "system") if part in columns}
    lists = {part: _list(cells.get(part), number, field, columns[part]) for part in ("history", "tools") if part in columns}
    history = _turns(lists.get("history", []), number, field, columns.get("history", ""))
    if history and not as_chat:
        ways = S_(
            "switch data.chat_template on, say in data.prompt_format how prompts are written, or rename the column to leave it unread"
        )
        raise PromptsError(field, f"row {number} holds earlier turns of a chat in {columns['history']!r}; {ways}")
    if chat is not None and texts.get("input"):
        raise PromptsError(
            field, f"row {number} holds chat messages, and beside them a text in {columns['input']!r} that has no place in them"
        )
    own = chat[0]["content"] if chat and chat[0]["role"] == "system" else None
    if own and texts.get("system") and own != texts["system"]:
        raise PromptsError(
            field, f"row {number} holds a system message, and another one in {columns['system']!r}; leave one of the two out"
        )
    return Beside(texts.get("input", ""), texts.get("system", ""), tuple(history), tuple(lists.get("tools", [])))


def fits(part: str, cell: Any) -> bool:
    """Whether a cell can be what the part of :data:`BESIDE` says, so that a column of another meaning is left unread."""
    if part in ("input", "system"):
        return cell is None or isinstance(cell, str)
    return cell is None or isinstance(cell, list) or (isinstance(cell, str) and (not cell.strip() or cell.lstrip().startswith("[")))


def beside_columns(columns: Collection[str], prompt: str, taken: Collection[str], named_input: str, chat_template: bool) -> dict[str, str]:
    """The parts of :data:`BESIDE` that stand in columns which nothing else is read from; the first name counts.

    ``prompt``: the column of the prompt; ``named_input``: the one that a setting names; without ``chat_template`` nothing reads tools.
    """
    chosen = {"input": named_input} if named_input else {}
    for part, names in BESIDE.items():
        unread = (part == "input" and prompt != INSTRUCTION) or (part == "tools" and not chat_template)
        free = [name for name in names if name in columns and name not in taken and name not in chosen.values()]
        if free and not unread:
            chosen.setdefault(part, free[0])
    return chosen


def _list(cell: Any, number: int, field: str, column: str) -> list[Any]:
    """The list in a cell; an empty one for nothing. Raises :class:`PromptsError`."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return []
    require_whole_characters(json.dumps(cell, ensure_ascii=False), number)
    return list_of(cell, number, field, column)


def _turns(history: list[Any], number: int, field: str, column: str) -> list[Message]:
    """Messages, or pairs of what the user and what the assistant said. Raises :class:`PromptsError`."""
    if not history or is_message(history[0]):
        return messages_of(history, number, field, column)
    turns = []
    for turn, pair in enumerate(history, start=1):
        if not isinstance(pair, list) or len(pair) != 2:
            raise PromptsError(field, f"row {number}, turn {turn} in {column!r} is not like [what the user said, what the assistant said]")
        turns += [{"role": role, "content": part} for role, part in zip(("user", "assistant"), pair, strict=True)]
    return messages_of(turns, number, field, column)


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        number: its row in the source, as a person counts.
        text: what the row holds; of a conversation its messages' texts, one below the other.
        messages: the conversation when the row holds one, ending where the policy is to answer.
        reference: the reference text, empty when there is none.
        answered: the conversation ended with an answer, which was left out.
        dialogue: the form of the dialogue that the text was (a key of :data:`dialogues.FORMS`); empty for all other texts.
    """

    number: int
    text: str
    messages: tuple[Message, ...] | None = None
    reference: str = ""
    answered: bool = False
    dialogue: str = ""

    def memory(self) -> int:
        """Bytes that it takes. One character beyond Latin-1 makes each character of its text two or four bytes."""
        parts = [text for message in self.messages or () for text in parts_of(message)]
        return OBJECT_BYTES * (1 + len(self.messages or ())) + sum(map(sys.getsizeof, (self.text, self.reference, *parts)))


def prompt_from(
    number: int, cells: Mapping[str, Any], columns: Mapping[str, str], data: DataConfig, of_a_pair: bool, has_prompts: bool
) -> Prompt:
    """The prompt in a row's cells; an empty cell gives an empty text. Raises :class:`PromptsError` for anything else than text.

    With the chat template or a prompt format, a list of messages such as ``{"role": "user", "content": "Hello"}`` is a prompt too.

    Args:
        cells, columns: of the parts ``prompt``, ``reference`` and those of :data:`BESIDE`, as far as they are there.
        of_a_pair: the prompt's column is one of a preference pair, which hold answers too.
        has_prompts: there is a column ``prompt``.
    """
    reference = _reference(cells.get("reference"), number, columns.get("reference", ""), data)
    field, column, cell = "data.column", columns["prompt"], cells["prompt"]
    as_chat = bool(data.chat_template or data.prompt_format)
    if isinstance(cell, list):
        if not as_chat:
            hint = (
                S_("; chat messages need the chat template (data.chat_template) or a form (data.prompt_format)")
                if cell and is_message(cell[0])
                else ""
            )
            raise PromptsError(field, f"row {number} holds a list in {column!r}, not text{hint}")
        prompt = _from_messages(messages_of(cell, number, field, column), number, reference)
    else:
        prompt = _from_text(text_of(cell, number, field, column), number, column, reference, data, of_a_pair, has_prompts)
    beside = beside_of(cells, columns, number, "data.prompts", as_chat, prompt.messages)
    if prompt.text.strip() or prompt.messages:
        if prompt.messages is None:
            text, messages = beside.around_text(prompt.text, as_chat)
        else:
            messages = beside.around_chat(prompt.messages)
            text = spoken(messages)
        prompt = replace(prompt, text=text, messages=messages)
    if len(prompt.text) > MAX_ROW_CHARACTERS:
        raise PromptsError(field, f"row {number} holds more than {MAX_ROW_CHARACTERS:,} characters in {column!r}")
    return prompt


def _from_messages(messages: list[Message], number: int, reference: str) -> Prompt:
    answered = bool(messages) and messages[-1]["role"] == "assistant"
    messages = messages[:-1] if answered else messages
    return Prompt(number, spoken(messages), tuple(messages), reference, answered)


def _from_text(text: str, number: int, column: str, reference: str, data: DataConfig, of_a_pair: bool, has_prompts: bool) -> Prompt:
    dialogue = read_dialogue(text) if data.dialogue != "whole" else None
    if dialogue is None:
        of_a_pair &= data.dialogue == "auto"
        if text.strip() and (data.dialogue == "cut" or of_a_pair):
            raise _no_dialogue(number, column, of_a_pair and has_prompts)
        return Prompt(number, text, None, reference)
    if data.chat_template:
        return Prompt(number, spoken(dialogue.messages), dialogue.messages, reference, bool(dialogue.answer), dialogue.form)
    return Prompt(number, dialogue.prompt, None, reference, bool(dialogue.answer), dialogue.form if dialogue.answer else "")


def _no_dialogue(number: int, column: str, has_prompts: bool) -> PromptsError:
    message = S_(f"row {number} holds no dialogue in {column!r}, so where its answer begins cannot be told")
    if has_prompts:
        return PromptsError("data.column", f"{message}; name the column 'prompt' instead")
    return PromptsError(
        "data.dialogue", f"{message}; texts look like {', or '.join(FORMS)}; whole takes them as they are, answers included"
    )


def _reference(cell: Any, number: int, column: str, data: DataConfig) -> str:
    """The reference text; of a dialogue its last answer, since that is what the response is compared with."""
    text = text_of(cell, number, "data.reference_column", column)
    dialogue = read_dialogue(text) if data.dialogue != "whole" else None
    return dialogue.answer if dialogue is not None and dialogue.answer else text
