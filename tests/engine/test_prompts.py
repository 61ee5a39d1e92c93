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
from rlhf_studio.engine.loop.prompts import (
    HeldOut,
    PromptStream,
    TokenizerEncoder,
    chat_template,
    hold_out,
    pad_left,
    prepare_prompts,
    read_held_out,
)
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.inputs.chat import ChatTemplate
from rlhf_studio.inputs.prompts import Prompts, PromptsError
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.held_out import set_aside
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.tokens import load_encoder
from tests.engine.small_models import save_tokenizer
from tests.inputs.chat_templates import TEMPLATES


def numbered(count: int, references: list[str] | None = None, first: int = 0) -> Prepared:
    """Prompts "0", "1" ... of one to three tokens."""
    ids = [[10 + row] * (1 + row % 3) for row in range(first, first + count)]
    return Prepared([str(row) for row in range(first, first + count)], ids, [len(row) for row in ids], references, Counter())


def stream(count: int, *, shuffle: bool = True, seed: int = 0, references: list[str] | None = None, **held_out: Any) -> PromptStream:
    return PromptStream(numbered(count, references), pad_id=7, shuffle=shuffle, seed=seed, **held_out)


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


def test_a_restored_stream_goes_on_exactly() -> None:
    for steps in (0, 1, 4, 9):
        whole = stream(10)
        drawn(whole, *[3] * steps)
        resumed = stream(10)
        assert resumed.restore(whole.state()) == []
        assert resumed.state() == whole.state()
        assert drawn(resumed, *[3] * 12) == drawn(whole, *[3] * 12), steps


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


def test_watched_prompts_are_spread_evenly() -> None:
    for count, number, rows in ((10, 5, [0, 2, 4, 6, 8]), (3, 6, [0, 1, 2]), (7, 3, [0, 2, 4]), (5, 0, [])):
        batch = stream(count).watched(number)
        assert [int(text) for text in (batch.texts if batch else [])] == rows, (count, number)


# --- held-out prompts ----------------------------------------------------------------------------------------------------------


def test_prompts_that_are_set_aside_are_watched_and_never_drawn() -> None:
    for shuffle in (True, False):
        prompts = stream(10, shuffle=shuffle, aside=[1, 4, 7])
        assert Counter(drawn(prompts, *[3] * 14)) == dict.fromkeys((0, 2, 3, 5, 6, 8, 9), 6)
        assert prompts.watched(2).texts == ["1", "4"] and prompts.watched(9).texts == ["1", "4", "7"]


def test_prompts_from_elsewhere_are_watched_and_all_of_the_others_drawn() -> None:
    """The order of training is that of a run without them, so naming held-out prompts changes no number of a run."""
    prompts = stream(10, held_out=numbered(4, first=90))
    assert drawn(prompts, 7, 13) == drawn(stream(10), 7, 13)
    assert prompts.watched(2).texts == ["90", "92"]


def test_which_prompts_are_set_aside() -> None:
    ids = [[row, row % 7] for row in range(1000)]
    indices = set_aside(ids, 0.05, seed=3)
    assert len(indices) == 50 and indices == sorted(set(indices))
    assert indices == set_aside(ids, 0.05, seed=3) != set_aside(ids, 0.05, seed=4)
    assert sum(index < 500 for index in indices) > 10 < sum(index >= 500 for index in indices)
    fewer = [row for row in ids if row[0] != indices[0]]  # one less: the others stay on their sides but for the last to come in
    assert len({ids[index][0] for index in indices[1:]} - {fewer[index][0] for index in set_aside(fewer, 0.05, seed=3)}) <= 1
    assert len(set_aside([[row] for row in range(20_000)], 0.5, seed=0)) == 256
    assert set_aside([[row] for row in range(99)], 0.5, seed=0) == [] == set_aside(ids, 0.0, seed=0)


def test_the_same_prompt_is_never_on_both_sides() -> None:
    ids = [[row // 3] for row in range(900)] + [[400]] * 100
    indices = set(set_aside(ids, 0.05, seed=0))
    inside, outside = ({ids[index][0] for index in range(1000) if (index in indices) == side} for side in (True, False))
    assert len(indices) > 40 and not inside & outside
    assert set_aside([[1]] * 1000, 0.05, seed=0) == []


def test_a_checkpoint_of_a_version_that_held_nothing_out_goes_on_in_its_own_order() -> None:
    before = stream(10)
    drawn(before, *[3] * 5)  # in the middle of the second pass
    state = before.state()
    del state["aside"]
    resumed = stream(10, aside=[1, 4])
    word = ["it goes on with all prompts and holds none out, not even the 2 that the settings would choose for a new run"]
    assert resumed.restore(state) == word
    assert drawn(resumed, *[3] * 12) == drawn(before, *[3] * 12)
    assert resumed.watched(3).texts == before.watched(3).texts
    again = stream(10, aside=[1, 4])  # and so it does when it is resumed once more
    assert again.restore(resumed.state()) == word
    assert drawn(again, 20) == drawn(before, 20)


def test_a_resumed_run_keeps_what_it_held_out() -> None:
    whole = stream(10, aside=[1, 4])
    drawn(whole, 5)
    for aside, words in (
        ([1, 4], []),
        ([2, 4, 5], ["2 of its prompts stay held out, not the 3 that the settings would choose for a new run"]),
    ):
        resumed = stream(10, aside=aside)
        assert resumed.restore(whole.state()) == words
        assert resumed.watched(2).texts == ["1", "4"] and drawn(resumed, 3, 8) == drawn(whole, 3, 8)
        whole.restore({**whole.state(), "pass": 0, "place": 5})


def test_held_out_prompts_of_a_run(tmp_path: Path) -> None:
    """By default a share of the prompts; named ones from a file, read with the same settings; what is wrong is said at data.eval."""
    tokenizer = save_tokenizer(tmp_path)
    rows = Prompts([Prompt(number, f"w{number % 28} w{number // 28}") for number in range(200)])

    def held(**settings: Any) -> HeldOut:
        config = RunConfig.model_validate({"data": settings})
        quiet = lambda text, fraction: None  # noqa: E731
        prepared = prepare_prompts(rows, tokenizer, config, quiet)
        return hold_out(prepared, read_held_out(config.data, quiet), tokenizer, config, quiet)

    actual = held()
    assert len(actual.aside) == 10 and actual.notes[0].startswith("10 of 200 prompts are held out: training never draws them")
    (tmp_path / "eval.jsonl").write_text('{"prompt": "w27 w27 w27"}\n{"prompt": "w5 w0"}\n')
    actual = held(eval=str(tmp_path / "eval.jsonl"), max_prompt_tokens=2)
    assert (actual.aside, actual.prompts.ids) == ([], [[29, 29], [7, 2]])
    assert actual.notes[1] == "1 of 2 held-out prompts are among those that training draws too."
    for name, settings, field in (("none.jsonl", {}, "data.eval"), ("eval.jsonl", {"min_prompt_tokens": 4, "eval": ""}, "data.min")):
        with pytest.raises(PromptsError, match=field):
            held(**{"eval": str(tmp_path / name), **settings})


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


def test_the_same_ids_as_apply_chat_template() -> None:
    """Special tokens come from the template alone: a tokenizer that adds its own to plain texts must not add them twice."""
    tokenizer, texts = with_start(byte_tokenizer()), ["Hello <b>you</b> é", "  w1 w2\n"]
    tokenizer.eos_token = "w1"
    for name, template in TEMPLATES.items():
        tokenizer.chat_template = template
        prepared = made(texts, tokenizer, chat_template=True, system_text="Be brief.", max_prompt_tokens=4096)
        for text, ids, shown in zip(texts, prepared.ids, prepared.texts, strict=True):
            chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
            assert ids == tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"], name
            assert shown == tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False), name
            assert ids.count(tokenizer.bos_token_id) == shown.count("w27"), name


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
    assert chat_template(tokenizer) == ChatTemplate("a", tuple(tokenizer.special_tokens_map.items()), tuple(tokenizer.added_tokens_encoder))
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
