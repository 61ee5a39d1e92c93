"""The stream of prompt batches: tokenised once, shuffled per pass by the seed, resumable at any step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import DataConfig, RunConfig
from rlhf_studio.engine.padding import pad_left
from rlhf_studio.engine.text import chat_template, start_tokens
from rlhf_studio.engine.types import OnProgress, PromptBatch
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.held_out import eval_error, eval_settings, held_out_notes, set_aside
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.prompts.read import Prompts, nothing_left, read_prompts
from rlhf_studio.language import S_


class TokenizerEncoder:
    """A transformers tokenizer, as :mod:`rlhf_studio.inputs.prompts.prepare` wants it.

    A text without any token becomes the beginning-of-text (or end-of-text) token, since a model needs one position to predict from.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        added = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
        self.specials = {*added, *tokenizer.all_special_tokens}
        self.starts = start_tokens(tokenizer)
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        self._first = 0 if first is None else int(first)

    def encode(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token ids of each text, with or without the tokenizer's own special tokens around it."""
        if not texts:
            return []
        rows = self._tokenizer(texts, truncation=False, verbose=False, add_special_tokens=special)["input_ids"]
        return [row or [self._first] for row in rows]

    def decode(self, ids: list[int]) -> str:
        """The text of these ids, without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def prepare_prompts(prompts: Prompts, tokenizer: PreTrainedTokenizerBase, config: RunConfig, report: OnProgress) -> Prepared:
    """The prompts as the policy reads them. Raises :class:`PromptsError`, also when no prompt is left."""
    data = config.data
    report("Encoding the prompts", None)
    chat = chat_template(tokenizer) if data.chat_template else None
    doing = "Writing and encoding the chats" if data.chat_template else "Encoding the prompts"
    prepared = prepare(prompts, data, TokenizerEncoder(tokenizer), chat, config.engine.seed, lambda: report(doing, None))
    if not prepared.ids:
        raise nothing_left(data, prepared.left_out)
    return prepared


class PlainEncoder(TokenizerEncoder):
    """For texts in which a chat template has written the special tokens already."""

    def encode(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token ids of each text, without anything around it."""
        return super().encode(texts, special=False)


def prepare_typed(
    prompts: Prompts, data: DataConfig, tokenizer: PreTrainedTokenizerBase, most: int, *, as_read: bool
) -> tuple[Prepared, DataConfig]:
    """A person's own prompts, prepared as the run prepares its own; and the settings of ``data`` that were used for them.

    A run may draw its prompts' lengths, or leave out prompts that are too short or too long. A person's prompts are only cut to ``most``
    tokens, at the side at which the run cuts. ``as_read``: the policy reads the texts as they are, and nothing is written around them.
    Raises :class:`PromptsError` for a text that the chat template refuses.
    """
    typed: dict[str, Any] = {"max_prompt_tokens": most, "query_tokens_min": 0, "query_tokens_max": 0, "min_prompt_tokens": 0}
    typed |= {"chat_template": False, "prompt_format": ""} if as_read else {}
    typed["overlong"] = "cut_right" if data.overlong == "cut_right" else "cut_left"
    encoder = PlainEncoder(tokenizer) if data.chat_template and as_read else TokenizerEncoder(tokenizer)
    data = data.model_copy(update=typed)
    return prepare(prompts, data, encoder, chat_template(tokenizer) if data.chat_template else None, 0), data


def batch_of(prompts: Prepared, rows: list[int], pad_id: int) -> PromptBatch:
    """The prompts with these numbers."""
    ids, mask = pad_left([prompts.ids[row] for row in rows], pad_id)
    references = None if prompts.references is None else [prompts.references[row] for row in rows]
    chats = None if prompts.chats is None else [prompts.chats[row] for row in rows]
    return PromptBatch(ids, mask, [prompts.texts[row] for row in rows], references, chats)


class PromptStream:
    """Endless batches over the prompts. A set smaller than a batch repeats; each pass has a new order.

    Its state is two numbers: the pass, and the position in that pass's order. The order of pass k depends on the seed and k alone. Training
    never draws the prompts with the numbers ``aside``; those, or ``held_out``, are the watched ones.
    """

    def __init__(
        self, prompts: Prepared, *, pad_id: int, shuffle: bool, seed: int, aside: Sequence[int] = (), held_out: Prepared | None = None
    ):
        if not prompts.ids:
            raise ValueError(S_("there are no prompts to draw from"))
        self._prompts, self._held_out, self._pad_id = prompts, held_out, pad_id
        self._fingerprint = prompts.fingerprint()
        self._shuffle, self._seed = shuffle, seed
        self._pass, self._position = 0, 0
        self._set_aside(aside)

    def _set_aside(self, rows: Sequence[int]) -> None:
        self._aside = list(rows)
        without = set(rows)
        self._drawn = [row for row in range(len(self._prompts.ids)) if row not in without]
        self._order = self._order_of(self._pass)

    def next_batch(self, size: int) -> PromptBatch:
        """The next ``size`` prompts."""
        rows: list[int] = []
        while len(rows) < size:
            if self._position >= len(self._order):  # beyond the end only when a resumed run finds fewer prompts than before
                self._pass, self._position = self._pass + 1, 0
                self._order = self._order_of(self._pass)
            taken = self._order[self._position : self._position + size - len(rows)]
            rows += taken
            self._position += len(taken)
        return self.batch(rows)

    def batch(self, rows: list[int]) -> PromptBatch:
        """The prompts with these numbers."""
        return batch_of(self._prompts, rows, self._pad_id)

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the shortest and of the longest prompt."""
        lengths = [len(ids) for ids in self._prompts.ids]
        return min(lengths), max(lengths)

    def of_all_lengths(self, count: int) -> PromptBatch:
        """``count`` prompts from the shortest to the longest; fewer prompts repeat."""
        order = sorted(range(len(self._prompts.ids)), key=lambda row: len(self._prompts.ids[row]))
        return self.batch([order[index * (len(order) - 1) // max(count - 1, 1)] for index in range(count)])

    def watched(self, count: int) -> PromptBatch | None:
        """``count`` of the held-out prompts, spread evenly and the same in every run on this data; None for 0.

        Where nothing is held out they are among those that training draws.
        """
        prompts, rows = self._prompts, self._aside or self._drawn
        if self._held_out is not None:
            prompts, rows = self._held_out, list(range(len(self._held_out.ids)))
        count = min(count, len(rows))
        return batch_of(prompts, [rows[index * len(rows) // count] for index in range(count)], self._pad_id) if count else None

    def state(self) -> dict[str, Any]:
        where = {"pass": self._pass, "place": self._position}
        return {**where, "count": len(self._prompts.ids), "sha256": self._fingerprint, "aside": self._aside}

    def restore(self, state: dict[str, Any]) -> list[str]:
        """Go on from a saved ``state``. Returns clauses for people about what differs from before; none when the prompts are the same.

        When the prompts are the same, those that were held out stay held out. The saved position belongs to the order of the prompts
        that training draws, and this order would change if others were held out. An earlier version held no prompts out: from its state,
        training goes on with all prompts.
        """
        self._pass, self._position = int(state["pass"]), int(state["place"])
        before, now = f"{state.get('count', 0):,}", f"{len(self._prompts.ids):,}"
        changed = state.get("sha256", self._fingerprint) != self._fingerprint  # the first versions noted none
        aside = list(state.get("aside", ()))
        if changed:
            counts = (
                S_(f"there were {before} and now there are {now}") if before != now else S_(f"there are {now} as before, but not the same")
            )
            self._order = self._order_of(self._pass)
            return [S_(f"the prompts have changed since: {counts}")]
        configured = self._aside
        self._set_aside(aside)
        if aside == configured:
            return []
        held = (
            S_(f"{len(aside):,} of its prompts stay held out, not")
            if aside
            else S_("it goes on with all prompts and holds none out, not even")
        )
        return [S_(f"{held} the {len(configured):,} that the settings would choose for a new run")]

    def _order_of(self, number: int) -> list[int]:
        """The numbers of the prompts that training draws, in the order of this pass."""
        if not self._shuffle:
            return self._drawn
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + number) % 2**63)
        return [self._drawn[index] for index in torch.randperm(len(self._drawn), generator=generator).tolist()]


@dataclass(frozen=True)
class HeldOut:
    """Prompts that training never draws: numbers of its own (``aside``), or prompts from elsewhere; ``notes`` are for people."""

    aside: list[int]
    prompts: Prepared | None
    notes: list[str]


def hold_out(prompts: Prepared, rows: Prompts | None, tokenizer: PreTrainedTokenizerBase, config: RunConfig, report: OnProgress) -> HeldOut:
    """What is held out: ``rows``, read from ``data.eval``, or some of the prompts themselves. Raises :class:`PromptsError`."""
    data = config.data
    settings = eval_settings(data)
    if settings is None or rows is None:
        aside = set_aside(prompts.ids, data.eval_share, config.engine.seed)
        return HeldOut(aside, None, held_out_notes(data, len(prompts.ids), len(aside), None))
    try:
        prepared = prepare_prompts(rows, tokenizer, config.model_copy(update={"data": settings}), report)
    except PromptsError as error:
        raise eval_error(error) from None
    notes = held_out_notes(data, len(prompts.ids), 0, len(prepared.ids))
    known = {tuple(ids) for ids in prompts.ids}
    if both := sum(tuple(ids) in known for ids in prepared.ids):
        notes.append(S_(f"{both:,} of {len(prepared.ids):,} held-out prompts are among those that training draws too."))
    return HeldOut([], prepared, notes)


def read_held_out(data: DataConfig, report: OnProgress) -> Prompts | None:
    """The rows of ``data.eval``; None when it names nothing. Raises :class:`PromptsError`."""
    settings = eval_settings(data)
    try:
        return (
            None
            if settings is None
            else read_prompts(settings, tick=lambda text: report(S_(f"Reading the held-out prompts: {text}"), None))
        )
    except PromptsError as error:
        raise eval_error(error) from None
