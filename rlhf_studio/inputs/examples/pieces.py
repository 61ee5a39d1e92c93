"""Token ids of texts that are made of pieces: a prompt and its response, or the turns of a chat."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.inputs.examples.texts import Tick
from rlhf_studio.inputs.prompts.prepare import Encoder, encoded

BEFORE = ("\n", ".", "so\n", "so.", "so")
"""Texts to put in front of one that shall be encoded as what stands behind others."""


def encode_pieces(texts: Sequence[Sequence[str]], encoder: Encoder, special: bool, tick: Tick) -> list[list[list[int]]]:
    """The ids of each piece of each text; the tokenizer's special tokens only in front of the first.

    A first piece has the ids that it has alone, as PPO gives a prompt to a policy. The next have those that they have behind it. With
    most tokenizers these are the same as alone; for those that mark the beginning of every text the pieces so far are encoded as one,
    unless the tokenizer melts two pieces at their border.
    """
    alone = _pieces_join(encoder)
    keys = [
        [(piece if alone else "".join(pieces[: place + 1]), special and (place == 0 or not alone)) for place, piece in enumerate(pieces)]
        for pieces in texts
    ]
    ids = _encoded(keys, encoder, tick)
    if alone:
        return [[ids[key] if key[0] or not place else [] for place, key in enumerate(row)] for row in keys]
    return [_differences([ids[key] for key in row], pieces, encoder) for row, pieces in zip(keys, texts, strict=True)]


def encode_whole(texts: Sequence[str], encoder: Encoder, special: bool, tick: Tick) -> list[list[int]]:
    """The ids of each text; the same text is encoded once."""
    ids = _encoded([[(text, special)] for text in texts], encoder, tick)
    return [ids[text, special] for text in texts]


def _pieces_join(encoder: Encoder) -> bool:
    """Whether a text has the same ids when it is encoded in two pieces, divided before a space or behind a line break.

    A tokenizer that puts a mark like a space in front of every text may pass the first, where the space is there already.
    """
    spaced, line, so, space_it, so_line, it = encoder.encode(["so it", "so\nit", "so", " it", "so\n", "it"], special=False)
    return spaced == [*so, *space_it] and line == [*so_line, *it]


def encode_behind(texts: Sequence[str], encoder: Encoder) -> list[list[int]]:
    """The ids of each text as they are behind another text, whichever that is."""
    if _pieces_join(encoder):
        return encoder.encode(list(texts), special=False)
    return [_behind(text, encoder) for text in texts]


def _behind(text: str, encoder: Encoder) -> list[int]:
    """The ids of a text behind one that does not melt with it; those that it has alone where there is none such."""
    alone = encoder.encode([text, *BEFORE, *(before + text for before in BEFORE)], special=False)
    befores, wholes = alone[1 : 1 + len(BEFORE)], alone[1 + len(BEFORE) :]
    return next((whole[len(before) :] for before, whole in zip(befores, wholes, strict=True) if whole[: len(before)] == before), alone[0])


def _encoded(keys: Sequence[Sequence[tuple[str, bool]]], encoder: Encoder, tick: Tick) -> dict[tuple[str, bool], list[int]]:
    """(text, with special tokens) -> ids, each asked for once."""
    wanted = list(dict.fromkeys(key for row in keys for key in row))
    ids: dict[tuple[str, bool], list[int]] = {}
    for special in (True, False):
        part = [key for key in wanted if key[1] == special]
        ids.update(zip(part, encoded([text for text, _ in part], encoder, special, tick), strict=True))
    return ids


def _differences(ids: list[list[int]], pieces: Sequence[str], encoder: Encoder) -> list[list[int]]:
    """What each text of a growing row adds to the one before."""
    result = [ids[0]]
    for before, now, piece in zip(ids, ids[1:], pieces[1:], strict=False):
        if now[: len(before)] == before:
            result.append(now[len(before) :])
        else:
            result.append(_behind(piece, encoder) if piece else [])
    return result
