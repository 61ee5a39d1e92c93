"""Token ids of texts that are made of pieces: a prompt and its response, or the turns of a chat."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.inputs.examples.texts import Tick
from rlhf_studio.inputs.prompts.prepare import Encoder, encoded

BEFORE = ("\n", ".", "so\n", "so.", "so")
"""Texts that are put in front of another text, to learn which ids it has behind a text."""


def encode_pieces(texts: Sequence[Sequence[str]], encoder: Encoder, special: bool, tick: Tick) -> list[list[list[int]]]:
    """The ids of each piece of each text; the tokenizer's special tokens only in front of the first.

    The first piece has the ids that it has alone, as PPO gives a prompt to a policy. The next pieces have the ids that they have behind it.
    With most tokenizers these are the same as alone. Some tokenizers mark the beginning of every text. For them all pieces so far are
    encoded as one text, unless the tokenizer joins two pieces at their border.
    """
    alone = _pieces_join(encoder)
    keys = [
        [(piece if alone else "".join(pieces[: index + 1]), special and (index == 0 or not alone)) for index, piece in enumerate(pieces)]
        for pieces in texts
    ]
    ids = _encoded(keys, encoder, tick)
    if alone:
        return [[ids[key] if key[0] or not index else [] for index, key in enumerate(row)] for row in keys]
    return [_differences([ids[key] for key in row], pieces, encoder) for row, pieces in zip(keys, texts, strict=True)]


def encode_whole(texts: Sequence[str], encoder: Encoder, special: bool, tick: Tick) -> list[list[int]]:
    """The ids of each text; the same text is encoded once."""
    ids = _encoded([[(text, special)] for text in texts], encoder, tick)
    return [ids[text, special] for text in texts]


def _pieces_join(encoder: Encoder) -> bool:
    """Whether a text has the same ids when it is encoded in two pieces, divided before a space or behind a line break.

    Both are tried: a tokenizer that puts a mark like a space in front of every text may pass the first, which has a space already.
    """
    spaced, line, so, space_it, so_line, it = encoder.encode(["so it", "so\nit", "so", " it", "so\n", "it"], special=False)
    return spaced == [*so, *space_it] and line == [*so_line, *it]


def encode_behind(texts: Sequence[str], encoder: Encoder) -> list[list[int]]:
    """The ids of each text as they are behind another text, whichever that is."""
    if _pieces_join(encoder):
        return encoder.encode(list(texts), special=False)
    return [_behind(text, encoder) for text in texts]


def _behind(text: str, encoder: Encoder) -> list[int]:
    """The ids of a text behind another one that does not join with it; its ids alone where all texts of :data:`BEFORE` do."""
    alone = encoder.encode([text, *BEFORE, *(before + text for before in BEFORE)], special=False)
    befores, wholes = alone[1 : 1 + len(BEFORE)], alone[1 + len(BEFORE) :]
    return next((both[len(before) :] for before, both in zip(befores, wholes, strict=True) if both[: len(before)] == before), alone[0])


def _encoded(keys: Sequence[Sequence[tuple[str, bool]]], encoder: Encoder, tick: Tick) -> dict[tuple[str, bool], list[int]]:
    """(text, with special tokens) -> ids, each asked for once."""
    unique = list(dict.fromkeys(key for row in keys for key in row))
    ids: dict[tuple[str, bool], list[int]] = {}
    for special in (True, False):
        part = [key for key in unique if key[1] == special]
        ids.update(zip(part, encoded([text for text, _ in part], encoder, special, tick), strict=True))
    return ids


def _differences(ids: list[list[int]], pieces: Sequence[str], encoder: Encoder) -> list[list[int]]:
    """The ids that each piece adds. ``ids``: of the first piece, of the first two together, and so on."""
    result = [ids[0]]
    for before, now, piece in zip(ids, ids[1:], pieces[1:], strict=False):
        if now[: len(before)] == before:
            result.append(now[len(before) :])
        else:
            result.append(_behind(piece, encoder) if piece else [])
    return result
