"""Texts and tokens: the text of single tokens for people to look at, how a text is cut, and the tokenizer's own template for chats."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.prompts.prepare import cut
from rlhf_studio.token_texts import Decoder, GrowingText, decoded, remembering


def cut_left(ids: list[int], limit: int, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The last ``limit`` ids; a beginning-of-text or class token in front stays, since models rely on seeing it there."""
    return cut(ids, limit, "cut_left", start_tokens(tokenizer))


def start_tokens(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Ids of the tokens that stand in front of a text."""
    return {int(token) for token in (tokenizer.bos_token_id, tokenizer.cls_token_id) if token is not None}


@lru_cache(maxsize=2)
def remembering_decoder(tokenizer: PreTrainedTokenizerBase) -> Decoder:
    """The decoder with a memory of a tokenizer: one for each."""
    return remembering(tokenizer)


def token_pieces(tokenizer: PreTrainedTokenizerBase, ids: list[int], decoder: Decoder | None = None) -> list[str]:
    """The text that each token adds, see :class:`~rlhf_studio.token_texts.GrowingText`."""
    text = growing_text(tokenizer, decoder)
    return [text.add(token) for token in ids]


def growing_text(tokenizer: PreTrainedTokenizerBase, decoder: Decoder | None = None) -> GrowingText:
    """An empty text to which tokens are added."""
    return GrowingText(decoder or (lambda ids: decoded(tokenizer, ids)))


def response_pieces(tokenizer: PreTrainedTokenizerBase, tokens: TokenBatch, row: int) -> list[str]:
    """The text that each token of one response adds, decoded behind its prompt."""
    prompt = tokens.prompt_ids[row][tokens.prompt_mask[row]].tolist()
    ids = prompt + tokens.response_ids[row][tokens.mask[row]].tolist()
    return token_pieces(tokenizer, ids, remembering_decoder(tokenizer))[len(prompt) :]


def text_as_read(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of ids with its special tokens: in a chat they show who says what.

    A beginning-of-text or class token is left out where the tokenizer itself puts it in front of every text.
    """
    added = start_tokens(tokenizer).intersection(tokenizer("")["input_ids"][:1])
    return decoded(tokenizer, ids[1:] if ids and ids[0] in added else ids)


class PieceTable:
    """Texts of single ids, decoded once each."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def __call__(self, ids: set[int]) -> dict[int, str]:
        for token in ids - self._pieces.keys():
            self._pieces[token] = decoded(self._tokenizer, [token])
        return {token: self._pieces[token] for token in ids}


def chat_template(tokenizer: PreTrainedTokenizerBase) -> ChatTemplate | None:
    """The tokenizer's own template for chats, or None. A tokenizer with several has one called ``default``, or none for us."""
    source = tokenizer.chat_template.get("default") if isinstance(tokenizer.chat_template, dict) else tokenizer.chat_template
    if source is None:
        return None
    return ChatTemplate(source, tuple(tokenizer.special_tokens_map.items()), tuple(tokenizer.added_tokens_encoder))
