"""Demonstrations of a source: prompts with completions, whole texts, or chats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlhf_studio.config import DemonstrationsConfig
from rlhf_studio.inputs.examples.reading.notes import source_notes
from rlhf_studio.inputs.examples.reading.shapes import CHAT, COMPLETIONS
from rlhf_studio.inputs.examples.reading.table import Cells, ExampleTable, bounded, nothing_left_of, open_table_of, with_own_setting
from rlhf_studio.inputs.examples.rows import Demonstration, Demonstrations
from rlhf_studio.inputs.prompts.dialogues import read_dialogue
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import WEIGHT, Message, content_of, further, spoken
from rlhf_studio.inputs.prompts.sources.opening import STALL_SECONDS
from rlhf_studio.inputs.prompts.sources.rows import Tick
from rlhf_studio.language import S_


def read_demonstrations(
    data: DemonstrationsConfig, tick: Tick = lambda text: None, *, limit: int | None = None, seconds: float = STALL_SECONDS
) -> Demonstrations:
    """The demonstrations that ``data.source`` names, of the first ``limit`` rows (None: all up to ``data.max_rows``).

    Args:
        tick: called with the progress of a slow source, as text.
        seconds: the longest wait for the next rows of a slow source.

    Raises :class:`PromptsError` for a source that is missing, not readable, of no known shape, or of which nothing is left.
    """
    try:
        table = open_table_of(data, limit, seconds, tick)
        rows = list(bounded(_demonstrations(table), data, table))
    except PromptsError as error:
        raise with_own_setting(error, data) from None
    if not rows and not table.partial:
        raise nothing_left_of(table.data, table.left_out)
    shape = table.layout.sentence if table.layout else ""
    return Demonstrations(rows, table.left_out, table.source.columns, shape, source_notes(table), table.partial)


def _demonstrations(table: ExampleTable) -> Iterator[Demonstration]:
    for cells in table.rows():
        row = _demonstration(cells, table)
        if row is None:
            table.left_out["no_answer"] += 1
        elif not row.completion.strip() and not (row.messages and further(row.messages[-1:])):  # a call has no content
            table.left_out["empty_response"] += 1
        else:
            yield row


def _demonstration(cells: Cells, table: ExampleTable) -> Demonstration | None:
    """The demonstration in a row; None for a chat in which the assistant says nothing."""
    shape = cells.layout.shape
    if shape is CHAT:
        return _from_chat(cells, cells.whole_chat(cells.messages("messages")), table)
    part = "completion" if shape is COMPLETIONS else "text" if "text" in cells.parts else "chosen"
    if cells.is_list("prompt") or cells.is_list(part):
        return _from_chat(cells, cells.whole_chat(_joined(cells, part)), table)
    text = cells.text(part)
    if shape is COMPLETIONS or "prompt" in cells.parts:
        own = cells.text("prompt")
        if part == "chosen" and own and text.startswith(own):
            text = text[len(own) :]
        prompt, messages = cells.prompt()
        chat = None if messages is None else (*messages, {"role": "assistant", "content": text})
        return Demonstration(cells.number, prompt, text, chat)
    return _from_text(cells.number, text, table)


def _from_text(number: int, text: str, table: ExampleTable) -> Demonstration:
    dialogue = read_dialogue(text)
    if dialogue is None or not dialogue.answer:
        if table.data.chat_template and text.strip():
            message = S_(f"row {number} holds a plain text, which no chat template can write; switch this off")
            raise PromptsError("data.chat_template", message)
        return Demonstration(number, "", text)
    table.counts["dialogue"] += 1
    messages = (*dialogue.messages, {"role": "assistant", "content": dialogue.answer}) if table.data.chat_template else None
    return Demonstration(number, dialogue.prompt, text[len(dialogue.prompt) :], messages)


def _joined(cells: Cells, part: str) -> list[Message]:
    """Prompt and completion of which at least one is a list of messages."""
    answer = cells.messages(part) if cells.is_list(part) else [{"role": "assistant", "content": cells.text(part)}]
    if answer and answer[0]["role"] != "assistant":  # the whole chat
        return answer
    if cells.is_list("prompt"):
        return [*cells.messages("prompt"), *answer]
    return [{"role": "user", "content": cells.text("prompt")}, *answer]


def _from_chat(cells: Cells, messages: Sequence[Message], table: ExampleTable) -> Demonstration | None:
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    last = max((index for index in answers if messages[index].get(WEIGHT) != 0), default=None)
    table.counts["unlearned"] += sum(messages[index].get(WEIGHT) == 0 for index in answers)
    if last is None:
        return None
    table.counts["unanswered"] += last + 1 < len(messages)
    return Demonstration(cells.number, spoken(messages[:last]), content_of(messages[last]), tuple(messages[: last + 1]))
