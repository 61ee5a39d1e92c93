"""Sampling, against exact enumeration with a model whose probabilities are a small table."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.loop.generate import generate
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.kv_cache import PreallocatedLayer
from rlhf_studio.engine.models.position_ids import PositionScheme
from rlhf_studio.engine.sampling.decode import sample_responses
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
    """Predicts the next token from the last one alone; keeps what it was asked. ``shrinks`` lets rows that ended leave the batch."""

    values_while_sampling, position_scheme = True, PositionScheme()

    def __init__(self, table: list[list[float]] = TABLE, *, shrinks: bool = False):
        self._logits = torch.tensor(table).log()
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []
        self.left: list[list[int]] = []
        self.layers = [] if shrinks else ["a layer that cannot drop rows"]

    def new_cache(self, room: int) -> TableModel:
        return self

    def batch_select_indices(self, indices: Tensor) -> None:
        self.left.append(indices.tolist())

    def next_logits(self, ids: Tensor, attention: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        assert cache is self
        self.calls.append((ids, attention, positions))
        return self._logits[ids[:, -1]], ids[:, -1:].float()

    def values(self, hidden: Tensor) -> Tensor:
        return hidden[:, 0] + 10


def draw(model: Any, prompts: int, settings: dict[str, Any], *, stop_ids: tuple[int, ...] = (), start: int = 0, **more: Any) -> TokenBatch:
    ids = torch.full((prompts, 1), start)
    mask = torch.ones_like(ids, dtype=torch.bool)
    uniforms = numbers(prompts, settings["response_length"])
    generation = GenerationConfig(**settings)
    return sample_responses(model, ids, mask, generation, uniforms=uniforms, stop_ids=stop_ids, pad_id=PAD, **more)[0]


def numbers(rows: int, columns: int) -> Tensor:
    return torch.rand((rows, columns), generator=torch.Generator().manual_seed(0), dtype=torch.float64)


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
        (2.0, 0, 1.0),
        (1.0, 0, 0.7),
        (0.7, 3, 0.8),
        (1.0, 0, 1e-9),
        (1.0, 99, 1.0),
    ],
)
def test_every_sequence_has_its_exact_probability(temperature: float, top_k: int, top_p: float) -> None:
    number = 20_000
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
    tokens = draw(TableModel(), 500, {"response_length": 6}, stop_ids=(2,))
    for ids, mask, length in zip(tokens.response_ids.tolist(), tokens.mask.tolist(), tokens.lengths.tolist(), strict=True):
        assert mask == [index < length for index in range(len(mask))]
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
    stopped = draw(TableModel([[1e-30, 1.0, 1e-30, 1e-30, 1e-30]] * 5), 4, {"response_length": 9}, stop_ids=(1,), limits=limits)
    assert stopped.lengths.tolist() == [1, 1, 1, 1]


def test_what_the_model_is_asked_with_left_padding() -> None:
    """Positions and attention of every step by hand: one prompt of three tokens, one of one; the second stops after a token."""
    certain = [[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [1.0] * 5]
    model = TableModel(certain)  # 0 -> 1 -> 2 -> 3 -> 0
    ids = torch.tensor([[1, 1, 0], [PAD, PAD, 2]])
    mask = torch.tensor([[True, True, True], [False, False, True]])
    settings = GenerationConfig(response_length=3)
    tokens, _ = sample_responses(model, ids, mask, settings, uniforms=numbers(2, 3), stop_ids=(3,), pad_id=PAD)  # type: ignore[arg-type]
    assert tokens.response_ids.tolist() == [[1, 2, 3], [3, PAD, PAD]]
    assert tokens.mask.tolist() == [[True, True, True], [True, False, False]]
    asked = [tuple(tensor.int().tolist() for tensor in call) for call in model.calls]
    assert asked == [
        ([[1, 1, 0], [PAD, PAD, 2]], [[1, 1, 1], [0, 0, 1]], [[0, 1, 2], [0, 0, 0]]),
        ([[1], [PAD]], [[1, 1, 1, 1], [0, 0, 1, 1]], [[3], [1]]),
        ([[2], [PAD]], [[1, 1, 1, 1, 1], [0, 0, 1, 1, 0]], [[4], [2]]),
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
    tokens, _ = generate(trainer.models, batch, trainer.config.generation, torch.Generator().manual_seed(0))
    counts = Counter(tokens.lengths.tolist())
    assert counts.keys() == {3, 4, 5}
    assert all(abs(count - 1000) < 5 * (3000 * 2 / 9) ** 0.5 for count in counts.values())


def test_the_models_generation_config_does_not_leak(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    """A folder that asks generate() for top_k 7, a repetition penalty and forced tokens: sampling follows the plain logits."""
    small_config(tmp_path)
    leaky = {"do_sample": True, "top_k": 7, "repetition_penalty": 1.3, "temperature": 0.1, "min_new_tokens": 3, "forced_eos_token_id": 1}
    (tmp_path / "policy" / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "pad_token_id": 0, **leaky}))
    trainer = make_trainer(generation={"response_length": 1})
    model = trainer.models.policy.model
    assert (model.generation_config.top_k, model.generation_config.repetition_penalty) == (0, None)  # it will be saved as the run samples
    number = 3000
    batch = trainer.prompts.batch([1, 2, *[1] * number])  # the longest prompt pads the others
    tokens, _ = generate(trainer.models, batch, trainer.config.generation, torch.Generator().manual_seed(0))
    with torch.no_grad():
        prompt = torch.tensor([trainer.models.tokenizer("w4")["input_ids"]])
        expected = model(prompt).logits[0, -1].softmax(dim=-1).tolist()
    counts = Counter(tokens.response_ids[2:, 0].tolist())
    assert len(counts) > 7
    for token, probability in enumerate(expected):
        assert abs(counts[token] - number * probability) <= 5 * (number * probability * (1 - probability)) ** 0.5 + 1, token


# --- what is computed while sampling, and rows that leave --------------------------------------------------------------------


def test_log_probabilities_entropy_and_values_of_the_table() -> None:
    ids, mask = torch.zeros((200, 1), dtype=torch.long), torch.ones((200, 1), dtype=torch.bool)
    settings = GenerationConfig(response_length=3, temperature=0.5, top_k=3)
    model: Any = TableModel()
    tokens, output = sample_responses(model, ids, mask, settings, uniforms=numbers(200, 3), stop_ids=(2,), pad_id=PAD, top_rows=4)
    rows = [kept(row, 0.5, 0, 1.0) for row in TABLE]  # of the whole distribution: top-k cuts what is drawn, not the log-probabilities
    for row in range(200):
        last = 0
        for index, token in enumerate(tokens.response_ids[row][tokens.mask[row]].tolist()):
            assert float(output.logprobs[row, index]) == pytest.approx(math.log(rows[last][token]), abs=1e-5)
            assert float(output.entropy[row, index]) == pytest.approx(-sum(p * math.log(p) for p in rows[last]), abs=1e-5)
            assert float(output.values[row, index]) == last + 10
            if row < 4:
                assert output.top is not None
                best = sorted(range(5), key=lambda candidate: -rows[last][candidate])
                assert sorted(output.top.logprobs[row, index].tolist()) == pytest.approx(sorted(math.log(p) for p in rows[last]), abs=1e-5)
                assert TABLE[last][output.top.ids[row, index, 0]] == TABLE[last][best[0]]
            last = token
        assert not output.logprobs[row, int(tokens.lengths[row]) :].any()


def test_an_episode_does_not_depend_on_the_others() -> None:
    """Rows that leave, other rows, another batch size: the same numbers give the same text."""
    ids, mask = torch.arange(60)[:, None] % 5, torch.ones((60, 1), dtype=torch.bool)
    settings, uniforms = GenerationConfig(response_length=12), numbers(60, 12)

    def play(rows: slice, shrinks: bool) -> tuple[list[list[int]], list[list[float]], Any]:
        model: Any = TableModel(shrinks=shrinks)
        tokens, output = sample_responses(model, ids[rows], mask[rows], settings, uniforms=uniforms[rows], stop_ids=(2,), pad_id=PAD)
        texts = [row[keep].tolist() for row, keep in zip(tokens.response_ids, tokens.mask, strict=True)]
        return texts, [row[keep].tolist() for row, keep in zip(output.logprobs, tokens.mask, strict=True)], model

    texts, logprobs, model = play(slice(None), shrinks=True)
    assert len(model.left) > 2 and len(model.calls[-1][0]) < 10  # rows did leave
    assert play(slice(None), shrinks=False)[:2] == (texts, logprobs)
    assert play(slice(7, 23), shrinks=True)[:2] == (texts[7:23], logprobs[7:23])


def test_likely_tokens_stay_with_their_episodes_when_rows_leave() -> None:
    ids, mask = torch.arange(60)[:, None] % 5, torch.ones((60, 1), dtype=torch.bool)
    settings, uniforms = GenerationConfig(response_length=12), numbers(60, 12)
    actual = []
    for shrinks in (True, False):
        model: Any = TableModel(shrinks=shrinks)
        tokens, output = sample_responses(model, ids, mask, settings, uniforms=uniforms, stop_ids=(2,), pad_id=PAD, top_rows=20)
        assert output.top is not None
        top_mask = tokens.mask[:20]
        actual.append((output.top.ids[top_mask], output.top.logprobs[top_mask]))
    assert top_mask[:, 6:].any() and not top_mask[:, 6:].all()  # some of them left early
    assert all(torch.equal(ours, plain) for ours, plain in zip(*actual, strict=True))


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(("family", "lora"), [("gpt2", {}), ("llama", {"enabled": True, "r": 4})], ids=["full", "lora"])
def test_the_fast_path_is_taken_and_equals_a_whole_pass(make_trainer: Callable[..., Trainer], family: str, lora: dict[str, Any]) -> None:
    trainer = make_trainer(family, lora=lora, model={"value_head_init": "normal"}, generation={"response_length": 12, "temperature": 0.7})
    trainer.step()  # adapters start at 0: let them move
    policy = trainer.models.policy
    batch = trainer.prompts.batch([0, 1, 2, 3, 4, 5] * 3)
    weights = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    tokens, output = generate(trainer.models, batch, trainer.config.generation, torch.Generator().manual_seed(0), recorded=2)
    assert all(isinstance(layer, PreallocatedLayer) for layer in policy.new_cache(8).layers)
    assert trainer.models.traced_step is not None and policy.packs
    with policy.merged():
        merged = [module.disable_adapters for module in policy.modules() if isinstance(module, LoraLayer)]
    assert all(merged) and bool(merged) == bool(lora)
    again = trainer.models.forward_pass.run(policy, tokens, 2, critic=policy)
    for name in ("logprobs", "entropy", "values"):
        torch.testing.assert_close(getattr(output, name), getattr(again, name), atol=2e-5, rtol=1e-5)
    assert output.top is not None and again.top is not None
    top_mask = tokens.mask[:2].cpu()  # the two tables may differ behind the mask
    torch.testing.assert_close(output.top.logprobs[top_mask], again.top.logprobs[top_mask], atol=2e-5, rtol=1e-5)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in policy.model.state_dict().items())  # nothing drifts
