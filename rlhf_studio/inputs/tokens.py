"""Counting tokens with a model's tokenizer.json, without transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class FileEncoder:
    """The tokenizer of a tokenizer.json, as :class:`rlhf_studio.inputs.prompts.prepare.Encoder` wants it."""

    def __init__(self, tokenizer: Any):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        around_nothing = tokenizer.encode("a", add_special_tokens=True)
        self.specials = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        self.starts = {around_nothing.ids[0]} if around_nothing.special_tokens_mask[:1] == [1] else set()

    def encode(self, texts: list[str], *, special: bool) -> list[list[int]]:
        """Token ids of each text, with or without the tokenizer's own special tokens around it."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=special)]

    def decode(self, ids: list[int]) -> str:
        """The text of these ids, without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))


def load_encoder(path: Path | None) -> FileEncoder | None:
    """The tokenizer in ``path``, or None when there is no tokenizer.json that this library can read."""
    if path is None or not path.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        return FileEncoder(Tokenizer.from_file(str(path)))
    except Exception:  # noqa: BLE001 - the library raises bare Exception for every kind of bad file; the model check reports it
        return None


def count_tokens(texts: list[str], tokenizer: Path | None, *, special: bool = True) -> list[int] | None:
    """Tokens of each text, or None when there is no tokenizer.json that this library can read."""
    encoder = load_encoder(tokenizer)
    return None if encoder is None else [len(ids) for ids in encoder.encode(texts, special=special)]
