"""The stream of prompts: every prompt equally often, in an order that a resumed run takes up exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from rlhf_studio.config import DataConfig, RunConfig
from rlhf_studio.engine.prompts import PromptStream, TokenizerEncoder, chat_template, pad_left, prepare_prompts
from rlhf_studio.engine.trainer import Trainer
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.prompts import Prompts, PromptsError
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.tokens import load_encoder
from tests.engine.small_models import save_tokenizer
from tests.inputs.chat_templates import TEMPLATES


def stream(count: int, *, shuffle: bool = True, seed: int = 0, references: list[str] | None = None) -> PromptStream:
    """Prompts "0", "1" ... of one to three tokens."""
    ids = [[10 + row] * (1 + row % 3) for row in range(count)]
    prepared = Prepared([str(row) for row in range(count)], ids, [len(row) for row in ids], references, Counter())
    return PromptStream(prepared, pad_id=7, shuffle=shuffle, seed=seed)


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
    assert resumed.restore(whole.state()) == []
    assert resumed.state() == whole.state()
    assert drawn(resumed, *[3] * 12) == drawn(whole, *[3] * 12)


def test_restoring_into_fewer_prompts_goes_on_with_the_next_pass() -> None:
    whole = stream(10)
    drawn(whole, 8)
    shorter = stream(4)
    assert shorter.restore(whole.state()) == ["the prompts have changed since: there were 10 and now there are 4"]
    assert sorted(drawn(shorter, 4)) == [0, 1, 2, 3]


def test_a_restored_stream_notices_other_prompts() -> None:
    whole = stream(1200)
    changed = stream(1200, references=["x"] * 1200)
    assert changed.restore(whole.state()) == ["the prompts have changed since: there are 1,200 as before, but not the same"]
    assert stream(3).restore({"pass": 1, "place": 2}) == []  # from a checkpoint that did not note them


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


def made(texts: list[str], tokenizer: PreTrainedTokenizerFast, **settings: Any) -> Prepared:
    """What the engine makes of these texts."""
    config = RunConfig.model_validate({"data": settings})
    rows = Prompts([Prompt(number, text) for number, text in enumerate(texts, start=1)])
    return prepare_prompts(rows, tokenizer, config, lambda text, fraction: None)


def ids_of(texts: list[str], tokenizer: PreTrainedTokenizerFast, **settings: Any) -> list[list[int]]:
    return made(texts, tokenizer, **settings).ids


def test_prompts_are_cut_on_the_left(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    assert ids_of(["w0 w1 w2 w3", "w4"], tokenizer, max_prompt_tokens=3) == [[3, 4, 5], [6]]


def test_a_beginning_of_text_token_survives_the_cut(tmp_path: Path) -> None:
    tokenizer = with_start(save_tokenizer(tmp_path))
    start = tokenizer.bos_token_id
    rows = ids_of(["w0 w1 w2 w3", "w4", ""], tokenizer, max_prompt_tokens=3)
    assert rows == [[start, 4, 5], [start, 6], [start]]
    assert ids_of(["w0 w1 w2 w3"], tokenizer, query_tokens_min=2, query_tokens_max=2) == [[start, 2, 3]]


def test_an_empty_prompt_becomes_one_token(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    assert ids_of(["", "   "], tokenizer) == [[1], [1]]  # the end token: there is no other
    tokenizer.bos_token = "w5"
    assert ids_of([""], tokenizer) == [[7]]
    tokenizer.bos_token = tokenizer.eos_token = None
    assert ids_of([""], tokenizer) == [[0]]
    assert TokenizerEncoder(tokenizer).encode([], special=True) == []


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match="data.min_prompt_tokens: .* no prompts that are left: 2 with fewer than 3 tokens"):
        ids_of(["w1", "w2 w3"], save_tokenizer(tmp_path), min_prompt_tokens=3)


@pytest.mark.parametrize("settings", [{"query_tokens_min": 2, "query_tokens_max": 2}, {"max_prompt_tokens": 3, "overlong": "cut_right"}])
def test_a_text_cut_on_the_right_is_the_text_of_its_tokens(settings: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = with_start(save_tokenizer(tmp_path))
    prepared = made(["w0 w1 w2 w3"], tokenizer, **settings)
    assert (prepared.texts, prepared.ids) == (["w0 w1"], [[tokenizer.bos_token_id, 2, 3]])


# --- chats: the same ids as transformers' own way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_same_ids_as_apply_chat_template(name: str, tmp_path: Path) -> None:
    """Special tokens come from the template alone: a tokenizer that adds its own to plain texts must not add them twice."""
    tokenizer = with_start(byte_tokenizer())
    tokenizer.eos_token, tokenizer.chat_template = "w1", TEMPLATES[name]
    texts = ["Hello <b>you</b> é", "  w1 w2\n"]
    prepared = made(texts, tokenizer, chat_template=True, system_text="Be brief.", max_prompt_tokens=4096)
    for text, ids, shown in zip(texts, prepared.ids, prepared.texts, strict=True):
        chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        assert ids == tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert shown == tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        assert ids.count(tokenizer.bos_token_id) == shown.count("w27")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Every byte a token, so that each character of a template counts; w1 and w27 are special."""
    backend = Tokenizer(BPE({letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(["w1", "w27"])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_which_template_a_tokenizer_has(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    assert chat_template(tokenizer) is None
    tokenizer.chat_template = {"default": "a", "tool_use": "b"}
    assert chat_template(tokenizer) == ChatTemplate("a", tuple(tokenizer.special_tokens_map.items()))
    tokenizer.chat_template = {"tool_use": "b"}
    assert chat_template(tokenizer) is None


@pytest.mark.parametrize(
    "settings", [{}, {"query_tokens_min": 1, "query_tokens_max": 3}, {"max_prompt_tokens": 2, "overlong": "cut_right"}]
)
@pytest.mark.parametrize("start", [False, True])
def test_the_preview_sees_what_the_engine_makes(settings: dict[str, Any], start: bool, tmp_path: Path) -> None:
    """Two tokenizer libraries, one result: tokenizers in the app, transformers in the engine."""
    tokenizer = save_tokenizer(tmp_path)
    if start:
        with_start(tokenizer).save_pretrained(tmp_path)
    texts = ["w0 w1 w2 w3 w4", "w5", "nothing known", "w6  w7"]
    data = DataConfig(**settings)
    rows = Prompts([Prompt(number, text) for number, text in enumerate(texts, start=1)])
    ours = prepare(rows, data, TokenizerEncoder(tokenizer), None, 3)
    assert load_encoder(tmp_path / "tokenizer.json").starts == TokenizerEncoder(tokenizer).starts
    assert prepare(rows, data, load_encoder(tmp_path / "tokenizer.json"), None, 3) == ours


def test_several_responses_per_prompt(make_trainer: Callable[..., Trainer]) -> None:
    """Two prompts, four answers each: neighbours share the prompt, not the text."""
    trainer = make_trainer(ppo={"responses_per_prompt": 4}, generation={"response_length": 6, "stop_token": "none"})
    first = trainer.step()
    trainer.prompts.restore({"pass": 0, "place": 0})
    twice = trainer.prompts.next_batch(2)
    assert [record.prompt for record in first.rollouts] == [twice.texts[0]] * 3
    assert len({record.response for record in first.rollouts}) > 1
    batch = twice.repeat(4)
    assert batch.texts == [twice.texts[0]] * 4 + [twice.texts[1]] * 4
    assert torch.equal(batch.ids[4:], twice.ids[1:].expand(4, -1)) and torch.equal(batch.mask[:4], twice.mask[:1].expand(4, -1))
