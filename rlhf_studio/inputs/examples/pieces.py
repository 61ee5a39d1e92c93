"""Token ids of texts that are made of pieces: a prompt and its response, or the turns of a chat."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_studio.inputs.examples.texts import Tick
from rlhf_studio.inputs.prompts.prepare import Encoder, encoded


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
    """Whether a text has the same ids when it is encoded in two pieces, of which the second begins with a space."""
    whole, first, second = encoder.encode(["so it", "so", " it"], special=False)
    return whole == [*first, *second]


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
            result.append(encoder.encode([piece], special=False)[0] if piece else [])
    return result
