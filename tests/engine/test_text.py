"""The text of single tokens, and of responses behind their prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlhf_studio.engine.loop.generate import decode_responses
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.text import PieceTable, cut_left, remembering_decoder, text_as_read, token_pieces
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.token_texts import PARTIAL
from tests.cases.chat_models import chatml, llama3

MERGES = [("Ġ", "g"), ("o", "o"), ("Ġg", "oo"), ("Ġgoo", "d"), ("ð", "Ł"), ("Ċ", "Ċ")]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2's: one token per byte and a few merges, one of which ends inside an emoji."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<eos>", *alphabet, *(a + b for a, b in MERGES)])}
    backend = Tokenizer(models.BPE(vocabulary, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", bos_token="<eos>")


def metaspace_tokenizer() -> PreTrainedTokenizerFast:
    """Words as Llama 2's tokenizer has them: the space belongs to the word, and the first one of a text is dropped in decoding."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", "▁the", "▁film", "▁was", "▁good", "▁bad", "s"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


BYTES = byte_tokenizer()


def byte_of(sign: str) -> int:
    """The byte that a sign of the byte-level alphabet stands for, by GPT-2's rule: printable ones stand for themselves."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return ord(sign) if ord(sign) in printable else others[ord(sign) - 256]


SIGNS = {byte_of(sign): sign for sign in pre_tokenizers.ByteLevel.alphabet()}


def byte_ids(data: bytes) -> list[int]:
    """One id per byte, whatever they make as text."""
    return [BYTES.convert_tokens_to_ids(SIGNS[byte]) for byte in data]


# --- pieces ------------------------------------------------------------------------------------------------------------------


def test_pieces_of_words_keep_their_spaces() -> None:
    ids = BYTES("x good  good\n\n")["input_ids"]
    assert token_pieces(BYTES, ids) == ["x", " good", " ", " good", "\n\n"]


def test_an_emoji_split_over_tokens_stands_at_its_last() -> None:
    ids = BYTES("a😀b")["input_ids"]
    assert len(ids) == 5  # a, two bytes in one token, a byte, a byte, b
    assert token_pieces(BYTES, ids) == ["a", PARTIAL, PARTIAL, "😀", "b"]


def test_a_character_that_is_never_finished_is_marked() -> None:
    assert token_pieces(BYTES, byte_ids(b"a\xf0\x9f")) == ["a", PARTIAL, PARTIAL]
    assert token_pieces(BYTES, byte_ids(b"\xc3a")) == [PARTIAL, "a"]


@pytest.mark.parametrize("data", [b"\xff", b"\xff" * 9, b"\xffb", b"a\xff\xff\xff\xffb\xffc"])
def test_bytes_that_are_no_text_are_marked_once_each(data: bytes) -> None:
    pieces = token_pieces(BYTES, byte_ids(data))
    assert pieces == [PARTIAL if byte == 0xFF else chr(byte) for byte in data]


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters=PARTIAL, exclude_categories=("Cs",)), max_size=30))
def test_pieces_join_to_the_text(text: str) -> None:
    ids = BYTES(text)["input_ids"]
    pieces = token_pieces(BYTES, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces).replace(PARTIAL, "") == text


def test_what_is_remembered_is_the_same() -> None:
    decoder = remembering_decoder(BYTES)
    for text in ("good 😀 good", "😀 good\n\n good", "good 😀 good"):
        ids = BYTES(text)["input_ids"]
        assert token_pieces(BYTES, ids, decoder) == token_pieces(BYTES, ids)


def test_special_tokens_are_shown() -> None:
    assert token_pieces(BYTES, [*BYTES(" good")["input_ids"], BYTES.eos_token_id]) == [" good", "<eos>"]
    assert token_pieces(BYTES, []) == []


def test_pieces_of_a_tokenizer_that_drops_the_first_space() -> None:
    tokenizer = metaspace_tokenizer()
    ids = tokenizer("the film was good")["input_ids"]
    assert token_pieces(tokenizer, ids) == ["the", " film", " was", " good"]


def test_piece_table_decodes_each_id_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (good,) = BYTES(" good")["input_ids"]
    table = PieceTable(BYTES)
    assert table({good, 0}) == {good: " good", 0: "<eos>"}
    monkeypatch.setattr(type(BYTES), "decode", None)
    assert table({good}) == {good: " good"}


# --- responses behind their prompts --------------------------------------------------------------------------------------------


def batch_of(prompts: list[list[int]], responses: list[list[int]]) -> TokenBatch:
    width, length = max(map(len, prompts)), max(map(len, responses))
    return TokenBatch(
        torch.tensor([[0] * (width - len(row)) + row for row in prompts]),
        torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in prompts]),
        torch.tensor([row + [0] * (length - len(row)) for row in responses]),
        torch.tensor([[True] * len(row) + [False] * (length - len(row)) for row in responses]),
    )


def decoded(make_trainer: Callable[..., Trainer], tokenizer: Any, prompts: list[list[int]], responses: list[list[int]]) -> list[str]:
    return decode_responses(replace(make_trainer().models, tokenizer=tokenizer), batch_of(prompts, responses))


def test_a_response_keeps_its_leading_space(make_trainer: Callable[..., Trainer]) -> None:
    """Decoded alone, "▁good" would lose its space, and the reward model would read "filmgood"."""
    tokenizer = metaspace_tokenizer()
    names = tokenizer.convert_tokens_to_ids
    prompts = [[names("<s>"), names("▁the"), names("▁film")], [names("▁film")], [names("<s>")]]
    responses = [[names("▁was"), names("▁good"), names("</s>")], [names("s")], [names("▁good")]]
    assert tokenizer.decode(responses[0], skip_special_tokens=True) == "was good"
    assert decoded(make_trainer, tokenizer, prompts, responses) == [" was good", "s", "good"]


def test_responses_of_a_byte_tokenizer(make_trainer: Callable[..., Trainer]) -> None:
    texts = [("A film.", " good 😀"), ("", "good"), ("ends in ", "s")]
    prompts = [BYTES(prompt)["input_ids"] or [0] for prompt, _ in texts]
    responses = [[*BYTES(response)["input_ids"], 0] for _, response in texts]
    assert decoded(make_trainer, BYTES, prompts, responses) == [response for _, response in texts]


def test_a_decoder_that_rewrites_the_prompt(make_trainer: Callable[..., Trainer]) -> None:
    """Where the whole text does not begin with the prompt's, the response is decoded alone."""

    class Reversed:
        def batch_decode(self, rows: list[list[int]], **_: Any) -> list[str]:
            return ["".join(chr(97 + token) for token in reversed(row)) for row in rows]

    assert decoded(make_trainer, Reversed(), [[0, 1]], [[2, 3]]) == ["dc"]


# --- cutting -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "limit", "kept"),
    [
        ([5, 6, 7], 3, [5, 6, 7]), ([5, 6, 7, 8], 3, [6, 7, 8]),
        ([0, 5, 6, 7, 8], 3, [0, 7, 8]),  # the beginning-of-text token stays
        ([0, 5, 6], 1, [6]), ([0, 5], 2, [0, 5]), ([], 3, []),
    ],
)  # fmt: skip
def test_cutting_on_the_left(ids: list[int], limit: int, kept: list[int]) -> None:
    assert cut_left(ids, limit, BYTES) == kept


def test_a_text_is_shown_with_its_marks_but_not_with_what_the_tokenizer_adds() -> None:
    """The mark of a turn may also be the beginning-of-text token, which this tokenizer puts in front of no text."""
    (_, tokenizer), (_, adding) = chatml(), llama3()
    tokenizer.bos_token = "<|im_start|>"
    chat = "<|im_start|>user\nhello<|im_end|>\n"
    assert text_as_read(tokenizer, tokenizer(chat)["input_ids"]) == chat
    assert text_as_read(adding, adding("hello<|eot_id|>")["input_ids"]) == "hello<|eot_id|>"
    assert text_as_read(adding, []) == ""
