"""Sampling, against exact enumeration with a model whose probabilities are a small table."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.rollout import sample
from rlhf_studio.engine.sampling import sample_responses
from rlhf_studio.engine.trainer import Trainer
from rlhf_studio.engine.types import NonFiniteError, TokenBatch
from tests.engine.conftest import small_config

PAD = 4
TABLE = [  # TABLE[last][next]: unnormalised probabilities of a world of five tokens
    [1.0, 2.0, 3.0, 4.0, 0.5],
    [8.0, 1.0, 1.0, 1.0, 1.0],
    [0.2, 0.2, 5.0, 3.0, 1.0],
    [2.0, 2.0, 2.0, 2.0, 2.0],
    [1.0, 5.0, 1.0, 0.1, 3.0],
]


class TableModel:
    """Predicts the next token from the last one alone; keeps what it was asked."""

    def __init__(self, table: list[list[float]] = TABLE):
        self._logits = torch.tensor(table).log()
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def next_logits(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
        assert (cache is None) == (not self.calls)
        self.calls.append((ids, attention, positions))
        return self._logits[ids[:, -1]], "cache"


def draw(model: Any, prompts: int, settings: dict[str, Any], *, stop_id: int | None = None, start: int = 0, **more: Any) -> TokenBatch:
    ids = torch.full((prompts, 1), start)
    mask = torch.ones_like(ids, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    return sample_responses(model, ids, mask, GenerationConfig(**settings), stop_id=stop_id, pad_id=PAD, generator=generator, **more)


def kept(row: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """The distribution of one draw by plain arithmetic: likelihoods to the power 1 / temperature, then the two cuts."""
    powers = [weight ** (1 / temperature) for weight in row]
    order = sorted(range(len(row)), key=lambda token: -powers[token])
    if top_k:
        order = order[:top_k]
    total, reached, chosen = sum(powers[token] for token in order), 0.0, []
    for token in order:
        if reached < top_p:
            chosen.append(token)
        reached += powers[token] / total
    mass = sum(powers[token] for token in chosen)
    return [powers[token] / mass if token in chosen else 0.0 for token in range(len(row))]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [
        (1.0, 0, 1.0),
        (0.5, 0, 1.0),
        (2.0, 0, 1.0),
        (1.0, 2, 1.0),
        (1.0, 0, 0.7),
        (0.7, 3, 0.8),
        (1.0, 1, 1.0),
        (1.0, 0, 1e-9),
        (1.0, 99, 1.0),
    ],
)
def test_every_sequence_has_its_exact_probability(temperature: float, top_k: int, top_p: float) -> None:
    number = 40_000
    # Token 3's row is flat: which of its ties a cut keeps is arbitrary, so it gets a clear order here.
    table = [*TABLE[:3], [5.0, 4.0, 3.0, 2.0, 1.0], TABLE[4]]
    settings = {"response_length": 2, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    tokens = draw(TableModel(table), number, settings)
    counts = Counter(map(tuple, tokens.response_ids.tolist()))
    rows = [kept(row, temperature, top_k, top_p) for row in table]
    total = 0.0
    for first, second in itertools.product(range(5), repeat=2):
        expected = rows[0][first] * rows[first][second]
        total += expected
        deviation = (number * expected * (1 - expected)) ** 0.5
        assert abs(counts[first, second] - number * expected) <= 5 * deviation + 1e-9, (first, second)
    assert total == pytest.approx(1.0)


def test_a_response_ends_with_its_first_stop_token() -> None:
    tokens = draw(TableModel(), 500, {"response_length": 6}, stop_id=2)
    for ids, mask, length in zip(tokens.response_ids.tolist(), tokens.mask.tolist(), tokens.lengths.tolist(), strict=True):
        assert mask == [place < length for place in range(len(mask))]
        assert 2 not in ids[: length - 1]
        assert ids[length - 1] == 2 or length == 6
        assert ids[length:] == [PAD] * (len(ids) - length)
    assert {1, 6} <= set(tokens.lengths.tolist())


def test_without_a_stop_token_every_response_has_full_length() -> None:
    tokens = draw(TableModel(), 100, {"response_length": 6})
    assert tokens.mask.all() and tokens.response_ids.shape == (100, 6)
    assert all((tokens.response_ids == token).any() for token in range(5))


def test_each_episode_has_its_own_limit() -> None:
    limits = torch.tensor([1, 3, 5, 2])
    tokens = draw(TableModel(), 4, {"response_length": 9}, limits=limits)
    assert tokens.lengths.tolist() == [1, 3, 5, 2]
    assert tokens.response_ids.shape == (4, 5)
    stopped = draw(TableModel([[1e-30, 1.0, 1e-30, 1e-30, 1e-30]] * 5), 4, {"response_length": 9}, stop_id=1, limits=limits)
    assert stopped.lengths.tolist() == [1, 1, 1, 1]


def test_a_finished_batch_ends_at_once() -> None:
    chain = [[0.0, 0.0, 1.0, 0.0, 0.0], [1.0] * 5, [0.0, 1.0, 0.0, 0.0, 0.0], [1.0] * 5, [1.0] * 5]  # 0 -> 2 -> 1
    model = TableModel(chain)
    tokens = draw(model, 3, {"response_length": 5000}, stop_id=1)
    assert tokens.response_ids.tolist() == [[2, 1]] * 3
    assert len(model.calls) == 2


def test_what_the_model_is_asked_with_left_padding() -> None:
    """Positions and attention of every step by hand: one prompt of three tokens, one of one; the second stops after a token."""
    certain = [[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [1.0] * 5]
    model = TableModel(certain)  # 0 -> 1 -> 2 -> 3 -> 0
    ids = torch.tensor([[1, 1, 0], [PAD, PAD, 2]])
    mask = torch.tensor([[True, True, True], [False, False, True]])
    settings = GenerationConfig(response_length=3)
    tokens = sample_responses(model, ids, mask, settings, stop_id=3, pad_id=PAD, generator=torch.Generator())  # type: ignore[arg-type]
    assert tokens.response_ids.tolist() == [[1, 2, 3], [3, PAD, PAD]]
    assert tokens.mask.tolist() == [[True, True, True], [True, False, False]]
    asked = [tuple(tensor.int().tolist() for tensor in call) for call in model.calls]
    assert asked == [
        ([[1, 1, 0], [PAD, PAD, 2]], [[1, 1, 1], [0, 0, 1]], [[0, 1, 2], [0, 0, 0]]),
        ([[1], [3]], [[1, 1, 1, 1], [0, 0, 1, 1]], [[3], [1]]),
        ([[2], [PAD]], [[1, 1, 1, 1, 1], [0, 0, 1, 1, 0]], [[4], [1]]),
    ]


def test_no_distribution_to_sample_from() -> None:
    broken = [[1.0] * 5, [1.0] * 5, [1.0] * 5, [1.0] * 5, [1.0, float("nan"), 1.0, 1.0, 1.0]]
    chain = [[0.0, 0.0, 0.0, 0.0, 1.0], *broken[1:]]  # 0 -> 4, and after 4 the model breaks
    with pytest.raises(NonFiniteError, match="episode 0, response token 1"):
        draw(TableModel(chain), 2, {"response_length": 3})


def test_what_the_model_says_after_the_end_is_not_read() -> None:
    """The first row is over after one token; from there on its input is padding, where this model answers with NaN."""
    table = [[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0], [1.0] * 5, [1.0] * 5, [float("nan")] * 5]
    tokens = draw(TableModel(table), 2, {"response_length": 4}, limits=torch.tensor([1, 4]))
    assert tokens.response_ids.tolist() == [[1, PAD, PAD, PAD], [1, 1, 1, 1]]


def test_drawn_limits_are_uniform(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(generation={"response_length": 5, "response_length_min": 3, "stop_token": "none"})
    batch = trainer.prompts.batch([1] * 3000)
    tokens = sample(trainer.player, batch, trainer.config.generation, torch.Generator().manual_seed(0))
    counts = Counter(tokens.lengths.tolist())
    assert counts.keys() == {3, 4, 5}
    assert all(abs(count - 1000) < 5 * (3000 * 2 / 9) ** 0.5 for count in counts.values())


def test_the_models_generation_config_does_not_leak(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    """A folder that asks generate() for top_k 7, a repetition penalty and forced tokens: sampling follows the plain logits."""
    small_config(tmp_path)
    leaky = {"do_sample": True, "top_k": 7, "repetition_penalty": 1.3, "temperature": 0.1, "min_new_tokens": 3, "forced_eos_token_id": 1}
    (tmp_path / "policy" / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "pad_token_id": 0, **leaky}))
    trainer = make_trainer(generation={"response_length": 1})
    model = trainer.player.policy.model
    assert model.generation_config.top_k == 7
    number = 6000
    batch = trainer.prompts.batch([1, 2, *[1] * number])  # the longest prompt pads the others
    tokens = sample(trainer.player, batch, trainer.config.generation, torch.Generator().manual_seed(0))
    with torch.no_grad():
        prompt = torch.tensor([trainer.player.tokenizer("w4")["input_ids"]])
        expected = model(prompt).logits[0, -1].softmax(dim=-1).tolist()
    counts = Counter(tokens.response_ids[2:, 0].tolist())
    assert len(counts) > 7
    for token, probability in enumerate(expected):
        assert abs(counts[token] - number * probability) <= 5 * (number * probability * (1 - probability)) ** 0.5 + 1, token
