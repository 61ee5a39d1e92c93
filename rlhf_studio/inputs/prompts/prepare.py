"""From texts to what the policy reads: chat template, token ids, filters and cuts by length.

The engine and the preview both go this way; they differ only in the tokenizer library behind :class:`Encoder`.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, Messages, write_chats
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import Fields, Message
from rlhf_studio.inputs.prompts.read import Prompts, reasons
from rlhf_studio.inputs.prompts.written import written, written_chat
from rlhf_studio.language import S_

PACK_CHARACTERS = 1_000_000


class Encoder(Protocol):
    """A tokenizer, as far as prompts need one.

    Attributes:
        starts: ids of tokens that stand in front of every text.
        specials: the texts of its special tokens; where one stands in a text, it becomes the token.
    """

    @property
    def starts(self) -> Container[int]: ...

    @property
    def specials(self) -> Collection[str]: ...

    def encode(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token ids of each text, with or without the tokenizer's own special tokens around it."""

    def decode(self, ids: list[int]) -> str:
        """The text of these ids, without special tokens."""


@dataclass(frozen=True)
class Prepared:
    """The prompts as the policy reads them, one entry per prompt in each list.

    Attributes:
        texts: what people and rewards see. Of a chat, the whole of what the policy reads; of a query, its text.
        ids: token ids, never more than ``data.max_prompt_tokens``.
        lengths: tokens before the cut to ``data.max_prompt_tokens``.
        references: reference texts, or None when the data has none.
        left_out: rows left out so far, by reason.
        answered: conversations whose last answer was left out.
        origin: one sentence each about the source.
        chats: the conversations behind the texts, for rewards that write them in a form of their own; None without chat template.
        dialogues: texts that were dialogues, by the way they are written.
        rows: what the source holds, for a policy that reads it with another tokenizer.
        fields: what chats say beside role and content.
        special: prompts in whose own text special tokens stand.
    """

    texts: list[str]
    ids: list[list[int]]
    lengths: list[int]
    references: list[str] | None
    left_out: Counter[str]
    answered: int = 0
    origin: list[str] = field(default_factory=list)
    chats: list[Messages] | None = None
    dialogues: Counter[str] = field(default_factory=Counter)
    rows: list[Prompt] = field(default_factory=list)
    fields: Fields = field(default_factory=Fields)
    special: int = 0

    def notes(self, data: DataConfig) -> list[str]:
        """What a person should know: one sentence each for the source, rows left out, answers left out, and cuts."""
        notes = [*self.origin, *self.fields.notes(), *special_note(self.special, len(self.texts), "prompts")]
        if self.left_out:
            total = sum(self.left_out.values())
            rows = total + len(self.texts)
            notes.append(S_(f"{total:,} of {rows:,} rows {_were(total)} left out: {reasons(self.left_out, data)}."))
        notes += dialogue_notes(self.dialogues, data)
        if self.answered:
            noun = "conversation" if self.answered == 1 else "conversations"
            notes.append(S_(f"The last answer of {self.answered:,} {noun} was left out: the policy writes it."))
        return notes + self.cut_note(data)

    def cut_note(self, data: DataConfig) -> list[str]:
        """One sentence on prompts that are cut, or none."""
        count = sum(length > data.max_prompt_tokens for length in self.lengths)
        side = S_("lost their end") if data.overlong == "cut_right" else S_("lost their beginning")
        side += S_(", and with it the front of the chat") if data.chat_template else ""
        note = S_(f"{count:,} of {len(self.ids):,} prompts have more than {data.max_prompt_tokens:,} tokens and {side}.")
        return [note] if count else []

    def fingerprint(self) -> str:
        """SHA-256 over texts, ids and references: changes when anything that training reads does."""
        digest = hashlib.sha256()
        for part in (self.texts, self.ids, self.references):
            for entry in part or []:
                digest.update(f"{entry!r}\n".encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        return digest.hexdigest()


def prepare(
    prompts: Prompts, data: DataConfig, encoder: Encoder, chat: ChatTemplate | None, seed: int, tick: Callable[[], None] = lambda: None
) -> Prepared:
    """Apply the chat template, encode, filter and cut. ``chat`` is needed when ``data.chat_template`` is on; ``tick`` as in the helper.

    Nothing may be left: the caller decides whether that is an error. Raises :class:`PromptsError` when the template refuses a row.
    """
    fields, finds_special = Fields(), special_finder(encoder)
    texts = prompt_texts(prompts.rows, data, chat, tick, fields)
    left_out = Counter(prompts.left_out)
    usable: list[tuple[Prompt, str, list[int], int]] = []
    same: dict[int, int] = {}  # one object for each token id: else every token of every prompt is a number object of its own
    for row, text, ids in zip(prompts.rows, texts, encoded(texts, encoder, not data.chat_template, tick), strict=True):
        if len(ids) < data.min_prompt_tokens:
            left_out["few_tokens"] += 1
            continue
        if data.query_tokens_max:
            ids = cut(ids, _query_length(data, seed, row.number) + _leading(ids, encoder.starts), "cut_right", encoder.starts)
            text = encoder.decode(ids[_leading(ids, encoder.starts) :])
        if len(ids) > data.max_prompt_tokens and data.overlong == "drop":
            left_out["many_tokens"] += 1
            continue
        read_ids = cut(ids, data.max_prompt_tokens, data.overlong, encoder.starts)
        if data.overlong == "cut_right" and len(read_ids) < len(ids):
            text = encoder.decode(
                read_ids[_leading(read_ids, encoder.starts) :]
            )  # the response follows where the cut is, and so must the text that rewards read
        usable.append((row, text, [same.setdefault(token, token) for token in read_ids], len(ids)))
    return Prepared(
        texts=[text for _, text, _, _ in usable],
        ids=[ids for _, _, ids, _ in usable],
        lengths=[length for _, _, _, length in usable],
        references=[row.reference for row, _, _, _ in usable] if prompts.has_references else None,
        left_out=left_out,
        answered=sum(row.answered for row, _, _, _ in usable),
        origin=prompts.notes,
        chats=[chat_of(row, data.system_text) for row, _, _, _ in usable] if data.chat_template else None,
        dialogues=Counter(row.dialogue for row, _, _, _ in usable if row.dialogue),
        rows=[row for row, _, _, _ in usable],
        fields=fields,
        special=sum(finds_special(row.text) for row, _, _, _ in usable),
    )


def special_finder(encoder: Encoder) -> Callable[..., bool]:
    """What tells whether a special token of the tokenizer stands in any of some texts."""
    pattern = re.compile("|".join(map(re.escape, filter(None, encoder.specials))) or r"(?!)")
    return lambda *texts: any(pattern.search(text) for text in texts)


def special_note(count: int, total: int, noun: str) -> list[str]:
    """One sentence on texts in which special tokens stand, or none."""
    stands = S_(f"{count:,} of {total:,} {noun} hold the text of a special token of the tokenizer")
    return [S_(f"{stands}: the model reads it as that token, not as the characters, also where a person typed it.")] if count else []


def dialogue_notes(dialogues: Counter[str], data: DataConfig) -> Iterator[str]:
    """What became of texts that are dialogues, one sentence for each way of writing them."""
    for form, count in dialogues.items():
        noun = S_("text is a dialogue") if count == 1 else S_("texts are dialogues")
        became = S_("the turns became messages") if data.chat_template else S_("what follows the mark of the last answer was left out")
        yield f"{count:,} {noun} ({form}): {became} (data.dialogue)."


def encoded(texts: Sequence[str], encoder: Encoder, special: bool, tick: Callable[[], None]) -> Iterator[list[int]]:
    """Token ids text by text, encoded in packs: those of all texts at once would take many times the memory of the texts."""
    pack: list[str] = []
    characters = 0
    for index, text in enumerate(texts, start=1):
        pack.append(text)
        characters += len(text)
        if characters > PACK_CHARACTERS or index == len(texts):
            yield from encoder.encode(pack, special=special)
            tick()
            pack, characters = [], 0


def prompt_texts(
    rows: list[Prompt],
    data: DataConfig,
    chat: ChatTemplate | None,
    tick: Callable[[], None] = lambda: None,
    fields: Fields | None = None,
) -> list[str]:
    """Each prompt as the policy reads it: as a chat, in the form of ``data.prompt_format``, or as it stands.

    ``fields`` takes what chats say beside role and content. Raises :class:`PromptsError` as :func:`chat_texts` does.
    """
    fields = Fields() if fields is None else fields
    if data.chat_template:
        return chat_texts(rows, data, chat, tick, fields)
    for row in rows:
        fields.add(row.messages or ())
    if not data.prompt_format:
        return [row.text for row in rows]
    return [
        written(row.text, data.prompt_format) if row.messages is None else written_chat(row.messages, data.prompt_format) for row in rows
    ]


def chat_texts(
    rows: list[Prompt],
    data: DataConfig,
    chat: ChatTemplate | None,
    tick: Callable[[], None] = lambda: None,
    fields: Fields | None = None,
) -> list[str]:
    """Each prompt as a chat that ends where the policy is to answer. Raises :class:`PromptsError` with the row."""
    if chat is None:
        raise PromptsError("data.chat_template", "the tokenizer has no chat template; switch this off, or use a chat model")
    chats = [chat_of(row, data.system_text) for row in rows]
    try:
        chat_texts_written = write_chats(chat, chats, "open", tick)
    except ChatError as error:
        where = "" if error.index is None else f"row {rows[error.index].number}: "
        raise PromptsError("data.chat_template", f"{where}{error}") from None
    if fields is not None:
        for messages, chat_text in zip(chats, chat_texts_written, strict=True):
            fields.add(messages, chat_text.idle)
    return [chat_text.text for chat_text in chat_texts_written]


def chat_of(row: Prompt, system_text: str) -> Messages:
    """The conversation of a row: its own messages, or its text as what the user says; the system text in front where there is none."""
    return with_system(row.messages if row.messages is not None else [{"role": "user", "content": row.text}], system_text)


def with_system(messages: Sequence[Message], system_text: str) -> Messages:
    """The messages, behind the system text where they have none of their own."""
    if system_text and (not messages or messages[0]["role"] != "system"):
        return [{"role": "system", "content": system_text}, *messages]
    return list(messages)


def cut(ids: list[int], limit: int, side: str, starts: Container[int]) -> list[int]:
    """``limit`` of the ids: the last ones for ``cut_left``, else the first. A token of ``starts`` in front stays: models rely on it."""
    if len(ids) <= limit:
        return ids
    if side != "cut_left":
        return ids[:limit]
    front = ids[:1] if limit > 1 and ids[0] in starts else []
    return front + ids[len(ids) - limit + len(front) :]


def _query_length(data: DataConfig, seed: int, number: int) -> int:
    """Drawn from the seed and the row's number alone, so that a filter on other rows changes nothing."""
    return Random(seed * 1_000_003 + number).randint(data.query_tokens_min, data.query_tokens_max)


def _leading(ids: list[int], starts: Container[int]) -> int:
    return int(bool(ids) and ids[0] in starts)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
