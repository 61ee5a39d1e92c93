"""The text of single tokens, for people to look at. It knows no tokenizer, only a function that decodes ids."""

from __future__ import annotations

from collections.abc import Callable

PARTIAL = "\ufffd"

Decoder = Callable[[tuple[int, ...]], str]
"""From the ids of a few tokens to their text, special tokens included."""


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
