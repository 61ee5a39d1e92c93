"""The stream of prompts: every prompt equally often, in an order that a resumed run takes up exactly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from rlhf_studio.config import DataConfig
from rlhf_studio.engine.prompts import PromptStream, pad_left, tokenize_prompts
from tests.engine.small_models import save_tokenizer


def stream(count: int, *, shuffle: bool = True, seed: int = 0) -> PromptStream:
    """Prompts "0", "1" ... of one to three tokens."""
    return PromptStream(
        [str(row) for row in range(count)], [[10 + row] * (1 + row % 3) for row in range(count)], pad_id=7, shuffle=shuffle, seed=seed
    )


def drawn(prompts: PromptStream, *sizes: int) -> list[int]:
    return [int(text) for size in sizes for text in prompts.next_batch(size).texts]


def test_without_shuffling_the_order_is_the_files() -> None:
    assert drawn(stream(5, shuffle=False), 2, 2, 2, 2) == [0, 1, 2, 3, 4, 0, 1, 2]


def test_every_pass_holds_each_prompt_once_in_a_new_order() -> None:
    rows = drawn(stream(10), *[3] * 20)
    passes = [rows[start : start + 10] for start in range(0, 60, 10)]
    assert all(sorted(order) == list(range(10)) for order in passes)
    assert len({tuple(order) for order in passes}) == 6


def test_a_set_smaller_than_a_batch_repeats_evenly() -> None:
    counts = Counter(drawn(stream(3), 8, 8, 8))
    assert counts == {0: 8, 1: 8, 2: 8}


def test_the_order_depends_on_the_seed_alone() -> None:
    assert drawn(stream(20, seed=4), 20) == drawn(stream(20, seed=4), 7, 13)
    assert drawn(stream(20, seed=4), 20) != drawn(stream(20, seed=5), 20)


@pytest.mark.parametrize("steps", [0, 1, 4, 9])
def test_a_restored_stream_goes_on_exactly(steps: int) -> None:
    whole = stream(10)
    drawn(whole, *[3] * steps)
    resumed = stream(10)
    resumed.restore(whole.state())
    assert resumed.state() == whole.state()
    assert drawn(resumed, *[3] * 12) == drawn(whole, *[3] * 12)


def test_restoring_into_fewer_prompts_goes_on_with_the_next_pass() -> None:
    whole = stream(10)
    drawn(whole, 8)
    shorter = stream(4)
    shorter.restore(whole.state())
    assert sorted(drawn(shorter, 4)) == [0, 1, 2, 3]


def test_batches_are_padded_on_the_left() -> None:
    batch = stream(3, shuffle=False).next_batch(3)
    assert batch.ids.tolist() == [[7, 7, 10], [7, 11, 11], [12, 12, 12]]
    assert batch.mask.tolist() == [[False, False, True], [False, True, True], [True, True, True]]
    assert batch.texts == ["0", "1", "2"]
    ids, mask = pad_left([[1], [2]], 0)
    assert ids.dtype == torch.int64 and mask.dtype == torch.bool and ids.shape == (2, 1)


def test_no_prompts_at_all() -> None:
    with pytest.raises(ValueError, match="no prompts"):
        stream(0)


@pytest.mark.parametrize(("count", "wanted", "rows"), [(10, 5, [0, 2, 4, 6, 8]), (3, 6, [0, 1, 2]), (7, 3, [0, 2, 4]), (5, 0, [])])
def test_watched_rows_are_spread_evenly(count: int, wanted: int, rows: list[int]) -> None:
    assert stream(count).watched_rows(wanted) == rows


# --- token ids ---------------------------------------------------------------------------------------------------------------


def with_start(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer as Llama's: every text begins with the beginning-of-text token."""
    tokenizer.bos_token = "w27"
    start = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="w27 $A", special_tokens=[("w27", start)])
    return tokenizer


def test_prompts_are_cut_on_the_left(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    assert tokenize_prompts(["w0 w1 w2 w3", "w4"], tokenizer, DataConfig(max_prompt_tokens=3)) == [[3, 4, 5], [6]]


def test_a_beginning_of_text_token_survives_the_cut(tmp_path: Path) -> None:
    tokenizer = with_start(save_tokenizer(tmp_path))
    start = tokenizer.bos_token_id
    rows = tokenize_prompts(["w0 w1 w2 w3", "w4", ""], tokenizer, DataConfig(max_prompt_tokens=3))
    assert rows == [[start, 4, 5], [start, 6], [start]]


def test_an_empty_prompt_becomes_one_token(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    assert tokenize_prompts(["", "   "], tokenizer, DataConfig()) == [[1], [1]]  # the end token: there is no other
    tokenizer.bos_token = "w5"
    assert tokenize_prompts([""], tokenizer, DataConfig()) == [[7]]
    tokenizer.bos_token = tokenizer.eos_token = None
    assert tokenize_prompts([""], tokenizer, DataConfig()) == [[0]]
