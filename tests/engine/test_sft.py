"""Supervised fine-tuning against hand-made sums, invariants and a text it must learn by heart."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlhf_studio.config import SFTConfig
from rlhf_studio.engine.stages.sft import (
    IGNORED,
    EncodedExample,
    Example,
    LanguageModelObjective,
    encode_example,
    train_sft,
)
from rlhf_studio.engine.stages.supervised import watching
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.stages.supervised.trainer import SupervisedTrainer
from rlhf_studio.engine.stages.supervised.training_loop import TrainingProgress, compute_of, run_training

WORDS = ["<pad>", "<eos>", *"abcdefgh"]
EXAMPLES = [Example("a b", "c d"), Example("a", "e f g h"), Example("h g f", "b")]


def make_tokenizer(*, eos: bool = True, pad: bool = True) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    names = ({"eos_token": "<eos>"} if eos else {}) | ({"pad_token": "<pad>"} if pad else {})
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def make_model(seed: int = 0, dropout: float = 0.0) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    shape = GPT2Config(
        vocab_size=len(WORDS), n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.3,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=1, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(shape)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def hand_made_sum(model: GPT2LMHeadModel, examples: Sequence[tuple[list[int], int]]) -> float:
    """Sum of -log p over the ids from position ``first`` on, one text and one token at a time."""
    total = 0.0
    for ids, first in examples:
        logits = model(input_ids=torch.tensor([ids])).logits[0].detach().double()
        for position in range(max(first, 1), len(ids)):
            row = logits[position - 1]
            total -= float(row[ids[position]] - row.exp().sum().log())
    return total


def test_encoding_marks_the_response_and_its_end() -> None:
    """In the whole text all but the first token count; a cut example does not end, nor one of a tokenizer without an end token."""
    encoded = encode_example(make_tokenizer(), EXAMPLES[0], "response", 512)
    assert encoded == EncodedExample((2, 3, 4, 5, 1), (IGNORED, IGNORED, 4, 5, 1)) and encoded.counted == 3
    text = encode_example(make_tokenizer(), EXAMPLES[0], "text", 512)
    assert text.labels == (2, 3, 4, 5, 1) and text.counted == 4
    assert encode_example(make_tokenizer(), EXAMPLES[1], "response", 3).ids == (2, 6, 7)
    assert encode_example(make_tokenizer(eos=False), Example("", "c d"), "response", 512) == EncodedExample((4, 5), (4, 5))


@pytest.mark.parametrize(("loss_on", "firsts"), [("response", (2, 1, 3)), ("text", (1, 1, 1))])
def test_loss_is_the_sum_over_counted_tokens(loss_on: str, firsts: tuple[int, int, int]) -> None:
    model, tokenizer = make_model(), make_tokenizer()
    encoded = [encode_example(tokenizer, example, loss_on, 512) for example in EXAMPLES]
    expected = hand_made_sum(model, [(list(item.ids), first) for item, first in zip(encoded, firsts, strict=True)])
    objective = LanguageModelObjective()
    assert float(objective.loss_sum(model, encoded).detach()) == pytest.approx(expected, abs=1e-4)
    tokens = 3 + 5 + 2 if loss_on == "response" else 4 + 5 + 4
    assert objective.count(encoded) == tokens
    trainer = SupervisedTrainer(model, encoded, objective, SFTConfig(micro_batch_size=2), compute_of(model), 0)
    assert trainer.mean_loss(encoded) == pytest.approx(expected / tokens, abs=1e-5)


def test_micro_batches_of_unequal_size_train_the_same() -> None:
    """Losses and gradient norms agree; single weights may not, where Adam divides rounding errors by each other."""
    results = []
    for micro in (0, 1, 2):
        reported: list[TrainingProgress] = []
        config = SFTConfig(epochs=3, batch_size=3, micro_batch_size=micro, learning_rate=1e-2)
        train_sft(make_model(), make_tokenizer(), EXAMPLES, config, on_step=reported.append)
        results.append([(entry.loss, entry.grad_norm) for entry in reported])
    for losses_and_norms in results[1:]:
        torch.testing.assert_close(torch.tensor(losses_and_norms), torch.tensor(results[0]), atol=1e-3, rtol=1e-3)


def test_learns_a_text_by_heart() -> None:
    model, tokenizer = make_model(), make_tokenizer()
    reported: list[TrainingProgress] = []
    config = SFTConfig(epochs=60, batch_size=2, learning_rate=1e-2, warmup_steps=5)
    record = train_sft(model, tokenizer, EXAMPLES, config, eval_examples=EXAMPLES, on_step=reported.append)
    assert record.steps == len(record.losses) == len(reported) == 120
    assert [entry.step for entry in reported] == list(range(1, 121))
    assert reported[-1].steps == 120 and reported[-1].loss == record.losses[-1]
    assert record.tokens == (3 + 5 + 2) * 60
    assert record.eval_loss is not None and record.eval_loss < 0.05
    ids = [2]
    while ids[-1] != 1 and len(ids) < 10:
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    assert [WORDS[index] for index in ids] == ["a", "e", "f", "g", "h", "<eos>"]


class Flat(TrainingObjective[int]):
    """A loss that does not move."""

    def count(self, items: Sequence[int]) -> int:
        return len(items)

    def tokens(self, items: Sequence[int]) -> int:
        return len(items)

    def read(self, model: torch.nn.Module, items: Sequence[int]) -> list[int]:
        return list(items)

    def mean_of(self, items: Sequence[int], results: Sequence[int]) -> float:
        raise NotImplementedError

    def loss_sum(self, model: torch.nn.Module, items: Sequence[int]) -> torch.Tensor:
        return 0.0 * sum(parameter.sum() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        ("linear", 1, [1.0, 2.0, 1.5, 1.0, 0.5]),
        ("cosine", 0, [2.0, 1.0 + 0.5**0.5, 1.0, 1.0 - 0.5**0.5]),
        ("constant", 0, [2.0, 2.0, 2.0]),
    ],
)
def test_each_step_has_the_rate_of_the_schedule(schedule: str, warmup: int, rates: list[float]) -> None:
    """The rates are those that AdamW had: with decay alone each step shrinks the matrices by (1 - rate * decay)."""
    model, reported = make_model(), list[TrainingProgress]()
    before = model.transformer.wte.weight.detach().clone()
    config = SFTConfig.model_validate(
        {"learning_rate": 2.0 / 4, "lr_schedule": schedule, "warmup_steps": warmup, "weight_decay": 0.2, "batch_size": 1}
    )
    run_training(model, [1] * len(rates), Flat(), config, 0, reported.append)
    assert [entry.learning_rate for entry in reported] == pytest.approx([rate / 4 for rate in rates])
    torch.testing.assert_close(model.transformer.wte.weight.detach(), before * math.prod(1 - 0.2 * rate / 4 for rate in rates))


def test_only_matrices_decay() -> None:
    """With a loss that does not move, decay alone shrinks matrices by (1 - lr * decay) and leaves vectors alone."""
    model = make_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    run_training(model, [1], Flat(), SFTConfig(learning_rate=0.5, weight_decay=0.2, lr_schedule="constant"), 0)
    for name, parameter in model.named_parameters():
        expected = before[name] * (0.9 if parameter.ndim >= 2 else 1.0)
        torch.testing.assert_close(parameter.detach(), expected)


def test_clipping_limits_the_step_but_reports_the_norm() -> None:
    reported: list[TrainingProgress] = []
    for clip in (0.0, 0.1):
        config = SFTConfig(batch_size=3, learning_rate=1e-3, max_grad_norm=clip)
        train_sft(make_model(), make_tokenizer(), EXAMPLES, config, on_step=reported.append)
    assert reported[0].grad_norm == pytest.approx(reported[1].grad_norm) and reported[0].grad_norm > 0.1


def test_examples_that_teach_nothing_are_skipped_and_reported() -> None:
    long_prompt = Example("a b c d e f", "g")
    record = train_sft(make_model(), make_tokenizer(), [EXAMPLES[0], long_prompt], SFTConfig(), max_tokens=6)
    assert record.skipped == 1 and record.tokens == 3
    with pytest.raises(ValueError, match="no example with a token to learn"):
        train_sft(make_model(), make_tokenizer(), [long_prompt], SFTConfig(), max_tokens=6)
    with pytest.raises(ValueError, match="no example"):
        train_sft(make_model(), make_tokenizer(), [], SFTConfig())


@pytest.mark.parametrize("most", [1, 60, 10**9])
def test_examples_are_recorded_as_if_each_were_read_alone(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """One at a time, some together, all together; a text of one token has nothing that is predicted."""
    monkeypatch.setattr(watching, "MOST_LOGITS", most)
    model = make_model()
    texts = [([2, 3, 4, 5], 2), ([6], 1), ([2, 7, 8, 9, 3, 4], 0), ([5, 4, 3], 2)]
    records = watching.ExampleRecorder(make_tokenizer(), compute_of(model), (1,)).record(model, texts)
    assert model.training and [record.length for record in records] == [2, 0, 5, 1]
    for (ids, start), record in zip(texts, records, strict=True):
        assert record.tokens is not None
        logprobs = model.eval()(input_ids=torch.tensor([ids])).logits[0].detach().log_softmax(dim=-1)
        for place, position in enumerate(range(max(start, 1), len(ids))):
            row = logprobs[position - 1]
            best = row.topk(5)
            assert float(record.tokens.arrays["logprobs"][place]) == pytest.approx(float(row[ids[position]]), abs=1e-5)
            assert float(record.tokens.arrays["entropy"][place]) == pytest.approx(-float((row.exp() * row).sum()), abs=1e-5)
            assert record.tokens.top_ids[place].tolist() == best.indices.tolist()
            assert record.tokens.top_logprobs[place].tolist() == pytest.approx(best.values.tolist(), abs=1e-5)
