"""From examples to token ids: chat template or prompt format, tokens that count, and what is cut or left out by length.

Prompt and response are encoded apart, as PPO gives the one to a policy and has it write the other; for a reward model, which reads
whole texts, as one text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.ends import turn_end
from rlhf_studio.inputs.examples.encoded import IGNORED, EncodedExample, EncodedPair, Length, PreparedDemonstrations, PreparedPairs
from rlhf_studio.inputs.examples.pieces import encode_pieces, encode_whole
from rlhf_studio.inputs.examples.rows import Demonstration, Pair
from rlhf_studio.inputs.examples.texts import Part, Tick, demonstration_parts, pair_texts
from rlhf_studio.inputs.prompts.prepare import Encoder, cut, special_finder

Row = TypeVar("Row", Demonstration, Pair)
Numbers = dict[int, int]
"""One object for each token id: else every token of every example would be a number object of its own."""
PACK_ROWS, CHAT_PACK_ROWS = 4_000, 20_000
"""Rows that are prepared at once: their texts and ids are in memory several times. Each pack of chats starts a process to write them."""


def prepare_demonstrations(
    rows: Sequence[Demonstration],
    data: DemonstrationsConfig,
    encoder: Encoder,
    chat: ChatTemplate | None,
    loss_on: Literal["response", "text"],
    *,
    end: int | None,
    tick: Tick = lambda: None,
    keep_texts: int = 0,
) -> PreparedDemonstrations:
    """Demonstrations as training reads them. The result may be empty.

    Args:
        chat: the model's template, needed when ``data.chat_template`` is on.
        loss_on: whether the tokens of prompts count too.
        end: the end token, which follows each response; a chat's only where its template closes an answer with no token of its own.
            None: nothing follows.
        tick: called now and then; may raise to give up.
        keep_texts: how many of the first texts to keep, to be looked at.

    Raises :class:`PromptsError` when the template refuses a row.
    """
    done, numbers, finds_special = PreparedDemonstrations(), Numbers(), special_finder(encoder)
    end = _end_beside(chat, data, end)
    for pack in _packs(rows, data):
        texts = demonstration_parts(pack, data, chat, done.counts, tick, done.fields)
        ids = encode_pieces([[text for text, _ in parts] for parts in texts], encoder, not data.chat_template, tick)
        for row, parts, pieces in zip(pack, texts, ids, strict=True):
            if not parts:
                done.left_out["silent"] += 1
                continue
            last = last_answer(parts)
            pieces[last] = _ended(pieces[last], end)
            if _add_demonstration(done, row, parts, pieces, data, encoder, loss_on, numbers):
                done.counts["special"] += finds_special(row.prompt, row.completion)
                if len(done.texts) < keep_texts:
                    done.texts.append(("".join(text for text, _ in parts[:last]), "".join(text for text, _ in parts[last:])))
    return done


def prepare_pairs(
    rows: Sequence[Pair],
    data: PairsConfig,
    encoder: Encoder,
    chat: ChatTemplate | None,
    *,
    whole_texts: bool,
    ties: bool,
    end: int | None,
    tick: Tick = lambda: None,
    keep_texts: int = 0,
) -> PreparedPairs:
    """Pairs as training reads them. The result may be empty. The other arguments and errors are as in :func:`prepare_demonstrations`.

    Args:
        whole_texts: prompt and response are encoded as one text, as a reward model reads them; the prompt is then what the ids of both
            begin with. Else prompt and response are apart.
        ties: whether pairs of equally good responses can be used; else they are left out.
        end: as there; where ``whole_texts`` is on, it follows each chat.
    """
    done, numbers, finds_special = PreparedPairs(), Numbers(), special_finder(encoder)
    usable = [row for row in rows if ties or not row.tie]
    if len(usable) < len(rows):
        done.left_out["tie"] = len(rows) - len(usable)
    end = end if whole_texts else _end_beside(chat, data, end)
    for pack in _packs(usable, data):
        both = zip(pack, pair_texts(pack, data, chat, done.counts, tick, done.fields), strict=True)
        spoken = [(row, text) for row, text in both if text is not None]
        if silent := len(pack) - len(spoken):
            done.left_out["silent"] += silent
        texts = [text for _, text in spoken]
        ids = _whole_pairs(texts, encoder, data, end, tick) if whole_texts else _apart_pairs(texts, encoder, data, end, tick)
        for (row, row_texts), row_ids in zip(spoken, ids, strict=True):
            if _add_pair(done, row, row_ids, data, encoder, numbers):
                done.counts["special"] += finds_special(row.prompt, row.chosen, row.rejected)
                if len(done.texts) < keep_texts:
                    done.texts.append(row_texts)
    return done


def _packs(rows: Sequence[Row], data: DemonstrationsConfig | PairsConfig) -> Iterator[Sequence[Row]]:
    size = CHAT_PACK_ROWS if data.chat_template else PACK_ROWS
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _end_beside(chat: ChatTemplate | None, data: DemonstrationsConfig | PairsConfig, end: int | None) -> int | None:
    """The end token that is put behind a response; None where the chat template closes an answer with a token of its own."""
    return None if data.chat_template and chat is not None and turn_end(chat) else end


def _ended(ids: list[int], end: int | None) -> list[int]:
    return ids if end is None or ids[-1:] == [end] else [*ids, end]


def _shared(ids: Sequence[int], numbers: Numbers) -> tuple[int, ...]:
    return tuple(map(numbers.setdefault, ids, ids))


# --- demonstrations ----------------------------------------------------------------------------------------------------------


def last_answer(parts: Sequence[Part]) -> int:
    """The index of the last part that the assistant is to write; 0 without one."""
    return max((index for index, (_, answer) in enumerate(parts) if answer), default=0)


def _add_demonstration(
    done: PreparedDemonstrations,
    row: Demonstration,
    parts: list[Part],
    pieces: list[list[int]],
    data: DemonstrationsConfig,
    encoder: Encoder,
    loss_on: Literal["response", "text"],
    numbers: Numbers,
) -> bool:
    """Add it, cut or divided where it is too long, or count why not. Returns whether it was added."""
    ids = [token for piece in pieces for token in piece]
    counts = [answer or loss_on == "text" for (_, answer), piece in zip(parts, pieces, strict=True) for _ in piece]
    prompt = sum(map(len, pieces[: last_answer(parts)]))
    if not any(answer for _, answer in parts) or not any(counts[1:]):
        done.left_out["empty_response"] += 1
        return False
    if len(ids) > data.max_tokens and (reason := _too_long(len(ids) - prompt, prompt, data)):
        done.left_out[reason] += 1
        return False
    done.lengths.append(Length(prompt, len(ids) - prompt))
    if len(ids) <= data.max_tokens:
        cuts = [list(range(len(ids)))]
    elif prompt:
        done.counts["cut"] += 1
        before = _cut_indices(ids[:prompt], data.max_tokens - len(ids) + prompt, encoder)
        cuts = [[*before, *range(prompt, len(ids))]]
    else:
        done.counts["divided"] += 1
        cuts = list(_divided(ids, data.max_tokens, encoder))
    for chosen in cuts:
        labels = [ids[index] if counts[index] else IGNORED for index in chosen]
        done.items.append(EncodedExample(_shared([ids[index] for index in chosen], numbers), _shared(labels, numbers)))
        done.rows.append(row)
    return True


def _too_long(response: int, prompt: int, data: DemonstrationsConfig | PairsConfig) -> str:
    """Why an example that is too long cannot be used; empty when it can be cut. One token of a prompt is left at least."""
    if data.overlong == "drop":
        return "too_long"
    return "long_response" if prompt and response >= data.max_tokens else ""


def _cut_indices(prompt: list[int], limit: int, encoder: Encoder) -> list[int]:
    """The indices of the prompt's tokens that stay: its last ones, and a beginning-of-text token."""
    length = len(cut(prompt, limit, "cut_left", encoder.starts))
    front = [0] if length > 1 and prompt[0] in encoder.starts else []
    return front + list(range(len(prompt) - length + len(front), len(prompt)))


def _divided(ids: list[int], limit: int, encoder: Encoder) -> Iterator[list[int]]:
    """The indices of the tokens of each piece; every piece begins with the beginning-of-text token where the text does."""
    front = [0] if ids[0] in encoder.starts else []
    step = limit - len(front)
    for first in range(len(front), len(ids), step):
        piece = [*front, *range(first, min(first + step, len(ids)))]
        if len(piece) > 1:  # nothing predicts a token alone
            yield piece


# --- pairs -------------------------------------------------------------------------------------------------------------------


Three = tuple[list[int], list[int], list[int]]


def _apart_pairs(
    texts: Sequence[tuple[str, str, str]], encoder: Encoder, data: PairsConfig, end: int | None, tick: Tick
) -> Iterator[Three]:
    both = [[prompt, response] for prompt, *responses in texts for response in responses]
    ids = encode_pieces(both, encoder, not data.chat_template, tick)
    for (prompt, chosen), (_, rejected) in zip(ids[::2], ids[1::2], strict=True):
        yield prompt, _ended(chosen, end), _ended(rejected, end)


def _whole_pairs(
    texts: Sequence[tuple[str, str, str]], encoder: Encoder, data: PairsConfig, end: int | None, tick: Tick
) -> Iterator[Three]:
    ids = encode_whole([prompt + response for prompt, *responses in texts for response in responses], encoder, not data.chat_template, tick)
    for chosen, rejected in zip(ids[::2], ids[1::2], strict=True):
        chosen, rejected = _ended(chosen, end), _ended(rejected, end)
        shared = min(len(os.path.commonprefix([chosen, rejected])), len(chosen) - 1, len(rejected) - 1)
        yield chosen[:shared], chosen[shared:], rejected[shared:]


def _add_pair(done: PreparedPairs, row: Pair, three: Three, data: PairsConfig, encoder: Encoder, numbers: Numbers) -> bool:
    """Add it, its prompt cut where that is too long, or count why not. Returns whether it was added."""
    prompt, chosen, rejected = three
    reason = "empty_response" if not chosen or not rejected else "equal" if chosen == rejected else ""
    longer = max(len(chosen), len(rejected))
    if not reason and len(prompt) + longer > data.max_tokens:
        reason = _too_long(longer, len(prompt), data) or ("" if prompt else "long_response")
    if reason:
        done.left_out[reason] += 1
        return False
    length = Length(len(prompt), len(chosen), len(rejected))
    if length.longest > data.max_tokens:
        done.counts["cut"] += 1
        prompt = cut(prompt, data.max_tokens - longer, "cut_left", encoder.starts)
    ids = (_shared(prompt, numbers), _shared(chosen, numbers), _shared(rejected, numbers))
    done.items.append(EncodedPair(*ids, row.margin, row.weight, row.tie, row.group, row.number))
    done.rows.append(row)
    done.lengths.append(length)
    return True
