"""A tokenizer that puts a mark in front of every text: the answer in a chat has the ids that it has in the whole chat."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.stages.evaluating import answering
from rlhf_studio.engine.stages.supervised.examples import load_demonstrations, load_pairs
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.inputs.examples.pieces import encode_behind
from tests.cases.chat_models import WORDS, fast

TEMPLATE = (
    "{% for m in messages %}{{ '### ' + m['role'] + '\n' + m['content'] + eos_token + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### assistant\n' }}{% endif %}"
)
CHAT = [
    {"role": "user", "content": "what is the capital of France?"},
    {"role": "assistant", "content": "love this"},
    {"role": "user", "content": "really?"},
    {"role": "assistant", "content": "Paris"},
]


@pytest.fixture(params=["first", "always"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=request.param)
    pieces.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=request.param)
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    pieces.train_from_iterator([" ".join(WORDS[place:] + WORDS[:place]) + end for place in range(len(WORDS)) for end in ".!?\n"], trainer)
    return fast(pieces, TEMPLATE, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def test_the_ids_are_those_of_the_whole_chat(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    expected = tokenizer.apply_chat_template(CHAT, tokenize=True, return_dict=False)
    (tmp_path / "sft.jsonl").write_text(json.dumps({"messages": CHAT}) + "\n")
    data = DemonstrationsConfig(source=str(tmp_path / "sft.jsonl"), eval_share=0, chat_template=True)
    (item,) = load_demonstrations(data, "response", tokenizer, 0, lambda *_: None, end=tokenizer.eos_token_id).training.items
    assert list(item.ids) == expected
    learned = tokenizer.convert_ids_to_tokens([label for label in item.labels if label != -100])
    assert [token for token in learned if len(token) > 1 and token.startswith("▁")] == ["▁this"]  # no space in front of an answer

    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"chosen": CHAT, "rejected": [*CHAT[:3], {"role": "assistant", "content": "cats"}]}) + "\n"
    )
    pairs = PairsConfig(source=str(tmp_path / "pairs.jsonl"), eval_share=0, chat_template=True)
    found = load_pairs(pairs, tokenizer, 0, lambda *_: None, whole_texts=False, ties=True, end=None)
    (pair,) = found.training.items
    assert [*pair.prompt, *pair.chosen] == expected


def test_a_response_behind_a_prompt_that_is_ids_already(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an evaluation reads completions."""
    assert tokenizer.convert_ids_to_tokens(encode_behind(["love this"], TokenizerEncoder(tokenizer))[0])[-1] == "▁this"
    whole = tokenizer("what\nlove this")["input_ids"]
    before = tokenizer("what\n")["input_ids"]
    assert encode_behind(["love this"], TokenizerEncoder(tokenizer))[0] == whole[len(before) :]

    batches: list[TokenBatch] = []
    monkeypatch.setattr(answering, "read", lambda model, tokens, forward: batches.append(tokens) or [(0.0, 0)])
    reader: Any = SimpleNamespace(
        encoder=TokenizerEncoder(tokenizer), longest=99, model=None, forward=SimpleNamespace(compute=SimpleNamespace(device="cpu"))
    )
    answering.read_texts(reader, [before], ["love this"])
    assert [*batches[0].prompt_ids[0].tolist(), *batches[0].response_ids[0].tolist()] == whole
