"""The text of single tokens, for people to look at. Nothing here imports a tokenizer: whoever has one gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

PARTIAL = "\ufffd"
MOST_REMEMBERED = 65_536  # pairs of tokens: some ten megabytes
_WORD = re.compile(r"\s*\S+|\s+")

Decoder = Callable[[tuple[int, ...]], str]
"""From the ids of a few tokens to their text, special tokens included."""


def decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of ids by a tokenizer of transformers, or one like it, with special tokens and with its blanks as they are."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)) if ids else ""


def remembering(tokenizer: Any) -> Decoder:
    """A decoder with a memory: the same pairs of tokens come again and again in a run."""
    return lru_cache(maxsize=MOST_REMEMBERED)(lambda ids: decoded(tokenizer, ids))


def words_of(text: str) -> list[str]:
    """A text whose tokens nobody knows, cut at words: each with the blanks before it, the last one also with those behind."""
    words: list[str] = _WORD.findall(text)
    if len(words) > 1 and words[-1].isspace():
        words[-2:] = ["".join(words[-2:])]
    return words


class GrowingText:
    """A text that grows token by token.

    A byte-level token may end inside a UTF-8 character: it shows as U+FFFD, and the token that completes the character
    carries it whole. Decoding a growing window keeps the leading spaces that decoding a token alone would lose.
    """

    def __init__(self, decode: Decoder):
        self._decode = decode
        self._settled: list[int] = []  # the tokens that the next one is decoded behind
        self._open: list[int] = []  # tokens after those; each so far has a mark as its piece

    def add(self, token: int) -> str:
        """The text that the next token adds."""
        self._open.append(token)
        before = self._decode(tuple(self._settled))
        after = self._decode((*self._settled, *self._open))
        if after.endswith(PARTIAL) and len(self._open) < 4:
            return PARTIAL
        piece = _added(before, after, len(self._open) - 1)
        self._settled, self._open = self._open, []
        return piece


def _added(before: str, after: str, marks: int) -> str:
    """The text that ``after`` has beyond ``before``, without the marks that earlier pieces show for bytes that never made a character."""
    settled = before.rstrip(PARTIAL)
    marks_before = len(before) - len(settled) + marks
    new = after[len(settled) :]
    return new[min(marks_before, len(new) - len(new.lstrip(PARTIAL))) :]
