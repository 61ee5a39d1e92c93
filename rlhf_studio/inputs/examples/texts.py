"""Examples as the texts that are encoded: in the model's chat template, in the prompt format, or as they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, Messages, render_chats, write_chats
from rlhf_studio.inputs.ends import turn_end
from rlhf_studio.inputs.examples.rows import Demonstration, Pair
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import WEIGHT, Fields, Message, content_of
from rlhf_studio.inputs.prompts.prepare import with_system
from rlhf_studio.inputs.prompts.written import joined, written, written_chat

Tick = Callable[[], None]
T = TypeVar("T")
Part = tuple[str, bool]
"""A piece of a text, and whether the assistant is to write it."""


def demonstration_parts(
    rows: Sequence[Demonstration], data: DemonstrationsConfig, chat: ChatTemplate | None, counts: Counter[str], tick: Tick, fields: Fields
) -> list[list[Part]]:
    """The parts of each demonstration, in their order; no parts for a demonstration whose answers have no text.

    ``counts`` takes what was done to them, ``fields`` what chats say beside role and content. Raises :class:`PromptsError` with the row.
    """
    if data.chat_template:
        return _chat_parts(rows, data, chat, counts, tick, fields)
    for row in rows:
        fields.add(row.messages or ())
    return [_plain_parts(row, data, counts) for row in rows]


def pair_texts(
    rows: Sequence[Pair], data: PairsConfig, chat: ChatTemplate | None, counts: Counter[str], tick: Tick, fields: Fields
) -> list[tuple[str, str, str] | None]:
    """Prompt, chosen and rejected response of each pair; None for a pair with a response that has no text.

    The other arguments and errors are as in :func:`demonstration_parts`.
    """
    if data.chat_template:
        return _chat_texts(rows, data, chat, tick, fields)
    for row in rows:
        fields.add((*(row.messages or ()), *(row.answers or ())))
    return [_plain_texts(row, data, counts) for row in rows]


def _plain_parts(row: Demonstration, data: DemonstrationsConfig, counts: Counter[str]) -> list[tuple[str, bool]]:
    """Prompt and response in turn, each with whether it is to be learned; of a plain text the one part that it is."""
    if row.messages is None:
        if not row.prompt:
            return [(row.completion, True)]
        prompt = written(row.prompt, data.prompt_format)
        return [(prompt, False), (_spaced(prompt, row.completion, data, counts), True)]
    parts: list[tuple[str, bool]] = []
    text, silent = "", 0
    for index, message in enumerate(row.messages):
        if message["role"] == "assistant" and message.get(WEIGHT) != 0:
            if not content_of(message).strip():
                silent += 1
                continue
            before = written_chat(row.messages[:index], data.prompt_format)
            answer = joined(before, content_of(message))
            parts += [(before[len(text) :], False), (answer, True)]
            text = before + answer
    counts["silent"] += silent if parts else 0
    return parts


def _plain_texts(row: Pair, data: PairsConfig, counts: Counter[str]) -> tuple[str, str, str] | None:
    if not row.chosen.strip() or not row.rejected.strip():
        return None
    prompt = written(row.prompt, data.prompt_format) if row.messages is None else written_chat(row.messages, data.prompt_format)
    return prompt, _spaced(prompt, row.chosen, data, counts), _spaced(prompt, row.rejected, data, counts)


def _spaced(prompt: str, response: str, data: DemonstrationsConfig | PairsConfig, counts: Counter[str]) -> str:
    """The response as it follows its prompt: behind a form with a space, else as it stands."""
    apart = joined(prompt, response)
    counts["followed"] += 1
    counts["spaced" if data.prompt_format else "stuck"] += apart != response
    return apart if data.prompt_format else response


def _chat_parts(
    rows: Sequence[Demonstration], data: DemonstrationsConfig, chat: ChatTemplate | None, counts: Counter[str], tick: Tick, fields: Fields
) -> list[list[Part]]:
    """Each chat as parts in turn, each with whether the assistant is to write it.

    The token with which the template closes an answer is the assistant's, too, also where the template's marks leave it out: a model that
    never learns it never stops.
    """
    conversations = [_conversation(row, row.completion if row.messages is None else None, data) for row in rows]
    marked = _guarded(rows, lambda: write_chats(_needed(chat), conversations, "marked", tick))
    closing, result = turn_end(_needed(chat)), list[list[Part]]()
    for row, messages, (text, spans, idle, silent) in zip(rows, conversations, marked, strict=True):
        fields.add(messages, idle)
        if silent and not spans:
            result.append([])
            continue
        if not spans:
            raise PromptsError("data.chat_template", f"row {row.number}: the chat template marks no answer to learn")
        closed = [[first, _closed(text, first, last, closing)] for first, last in spans] if closing else spans
        counts["unmarked_end"] += closed != spans
        counts["silent"] += silent
        ending = closed[-1][1] if silent else len(text)  # a chat is read up to its last answer to learn
        edges = [0, *(edge for span in closed for edge in span), ending]
        parts = [(text[first:last], index % 2 == 1) for index, (first, last) in enumerate(zip(edges, edges[1:], strict=False))]
        result.append([part for part in parts if part[0]])
    return result


def _closed(text: str, first: int, last: int, closing: str) -> int:
    """Where an answer ends with its closing token, if that stands right behind it or, with white space alone between, soon after."""
    behind = text[last:]
    if closing in text[first:last] or not behind.lstrip().startswith(closing):
        return last
    return last + behind.index(closing) + len(closing)


def _chat_texts(
    rows: Sequence[Pair], data: PairsConfig, chat: ChatTemplate | None, tick: Tick, fields: Fields
) -> list[tuple[str, str, str] | None]:
    """Prompt, chosen and rejected response as the template writes them."""
    template = _needed(chat)
    prompts = _guarded(rows, lambda: render_chats(template, [_conversation(row, None, data) for row in rows], tick))
    conversations = [_conversation(row, answer, data) for row in rows for answer in (row.answers or (row.chosen, row.rejected))]
    twice = [row for row in rows for _ in range(2)]
    both = _guarded(twice, lambda: write_chats(template, conversations, "answered", tick))
    for messages, text in zip(conversations, both, strict=True):
        fields.add(messages, text.idle)
    result: list[tuple[str, str, str] | None] = []
    for row, prompt, *written_both in zip(rows, prompts, both[::2], both[1::2], strict=True):
        if any(text.silent for text in written_both):
            result.append(None)
            continue
        chosen, rejected = (text.text for text in written_both)
        if not chosen.startswith(prompt) or not rejected.startswith(prompt):
            message = f"row {row.number}: the chat template writes a chat with its answer otherwise than up to its answer"
            raise PromptsError("data.chat_template", message)
        result.append((prompt, chosen[len(prompt) :], rejected[len(prompt) :]))
    return result


def _conversation(row: Demonstration | Pair, answer: str | Message | None, data: DemonstrationsConfig | PairsConfig) -> Messages:
    messages = with_system(row.messages if row.messages is not None else [{"role": "user", "content": row.prompt}], data.system_text)
    if answer is None:
        return messages
    return [*messages, answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}]


def _needed(chat: ChatTemplate | None) -> ChatTemplate:
    if chat is None:
        raise PromptsError("data.chat_template", "the tokenizer has no chat template; switch this off, or use a chat model")
    return chat


def _guarded(rows: Sequence[Demonstration | Pair], render: Callable[[], T]) -> T:
    """What ``render`` gives. An error of the template names the row that it refuses."""
    try:
        return render()
    except ChatError as error:
        where = "" if error.index is None else f"row {rows[error.index].number}: "
        raise PromptsError("data.chat_template", f"{where}{error}") from None
