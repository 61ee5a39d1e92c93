"""Packed rows: built by hand, and against the same models on padded batches and on single texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rlhf_studio.config import RewardConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import Lanes
from rlhf_studio.engine.compute.packing import _sliding_mask, attention_for, enable_packing, pack, pack_texts, pack_twins
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.adapters import save_model
from rlhf_studio.engine.models.policy import ResponseModel
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.scorer import build_scorer
from rlhf_studio.engine.types import TokenBatch
from rlhf_studio.inputs.families import TESTED_FAMILIES
from tests.engine.conftest import play
from tests.engine.learning import backward
from tests.engine.small_models import config_of, save_policy, save_reward_model

LORA = {"enabled": True, "r": 4, "dropout": 0.3}
CPU = torch.device("cpu")


def batch() -> TokenBatch:
    """Three episodes of 5, 3 and 3 tokens."""
    prompt_mask = torch.tensor([[1, 1, 1], [0, 0, 1], [0, 1, 1]]).bool()
    mask = torch.tensor([[1, 1], [1, 1], [1, 0]]).bool()
    return TokenBatch(torch.tensor([[7, 8, 9], [0, 0, 5], [0, 3, 4]]), prompt_mask, torch.tensor([[10, 11], [6, 12], [13, 0]]), mask)


def test_episodes_lie_end_to_end_without_their_last_tokens() -> None:
    row = pack(batch())
    assert row.ids.tolist() == [[5, 6, 3, 4, 7, 8, 9, 10]]
    assert row.positions.tolist() == [[0, 1, 0, 1, 0, 1, 2, 3]]
    assert row.groups == [(2, 2), (1, 4)]
    assert row.used.tolist() == [6, 7, 0, 1, 3]  # before 10, 11, 6, 12 and 13
    assert row.predicting(torch.arange(8.0)[None, :, None]).squeeze(1).tolist() == [6, 7, 0, 1, 3]


def test_texts_lie_end_to_end_and_are_read_at_their_ends() -> None:
    row = pack_texts([[4, 5, 6], [7], [8, 9, 10], [11]], CPU)
    assert row.ids.tolist() == [[7, 11, 4, 5, 6, 8, 9, 10]]
    assert row.positions.tolist() == [[0, 0, 0, 1, 2, 0, 1, 2]]
    assert row.groups == [(2, 1), (2, 3)]
    assert row.used.tolist() == [4, 0, 7, 1]


def test_what_two_texts_begin_with_stands_in_the_row_once() -> None:
    """The pairs are 4 5 6 with 4 5 7 8, and 9 with 9 3."""
    row = pack_twins([[4, 5, 6], [9], [4, 5, 7, 8], [9, 3]], CPU, [[2], [0], [1, 3], [1]])
    assert row.ids.tolist() == [[4, 5, 6, 9, 7, 8, 3]] and row.positions.tolist() == [[0, 1, 2, 0, 2, 3, 1]]
    assert row.used.tolist() == [2, 3, 1, 5, 6]
    assert row.groups == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert row.starts is not None
    texts = row.starts.to_texts(row.ids[0].double()).tolist()
    assert texts == [9, 9, 3, 4, 5, 6, 4, 5, 7, 8]
    assert row.starts.to_row(torch.tensor(texts)).tolist() == row.ids[0].tolist()
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(row.starts.to_texts, x)
    assert torch.autograd.gradcheck(row.starts.to_row, torch.randn(10, 2, dtype=torch.float64, requires_grad=True))
    assert pack_twins([[4, 5], [6, 7]], CPU, [[1], [1]]).starts is None


def test_a_window_is_cut_out_of_the_past() -> None:
    assert _sliding_mask(4, None, CPU) is None and _sliding_mask(4, 4, CPU) is None
    window = _sliding_mask(4, 2, CPU)
    assert window is not None
    assert window[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


def gradients(trainer: Trainer, rollout: Any) -> list[Tensor]:
    backward(trainer, rollout)
    return [gradient.clone() for gradient in trainer.updater.gradients.present()]


DAILY = {"gpt2": {}, "llama": LORA, "mistral": {}, "opt": LORA}  # positions that are learned, rotated, in a window, and with an offset


OTHERS = [pytest.param(family, {}, marks=pytest.mark.long) for family in sorted(TESTED_FAMILIES - DAILY.keys())]


@pytest.mark.parametrize(("family", "lora"), [*DAILY.items(), *OTHERS])
def test_numbers_and_gradients_are_those_of_padded_rows(
    make_trainer: Callable[..., Trainer], tmp_path: Path, family: str, lora: dict[str, Any]
) -> None:
    save_policy(tmp_path / family, family, spread=0.2)
    changes = {"ppo": {"entropy_coef": 0.1}, "generation": {"response_length": 9, "response_length_min": 2}, "critic": {"kind": "separate"}}
    trainer = make_trainer(model={"policy": str(tmp_path / family), "value_head_init": "normal"}, lora=lora, **changes)
    trainer.step()  # adapters start at 0: let them move
    policy = trainer.models.policy
    assert policy.packs and policy.critic is not None and policy.critic.packs
    rollout = play(trainer)
    with torch.no_grad():
        packed = policy.logits_and_values(rollout.tokens)
    ours = gradients(trainer, rollout)
    policy.packs = policy.critic.packs = False
    with torch.no_grad():
        padded = policy.logits_and_values(rollout.tokens)
    for mine, theirs in zip(packed, padded, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-5)
    for mine, theirs in zip(ours, gradients(trainer, rollout), strict=True):
        assert float((mine - theirs).norm()) <= 1e-5 * float(theirs.norm()) + 1e-7


def test_other_families_stay_padded() -> None:
    for family in ("gemma2", "bloom", "falcon"):
        assert not enable_packing(AutoModelForCausalLM.from_config(config_of(family, 30))), family
    assert not enable_packing(torch.nn.Linear(2, 2))


def test_gradient_checkpointing_stays_padded(make_trainer: Callable[..., Trainer]) -> None:
    """Layers are computed again in the backward pass, when nobody says any more where an episode ends."""
    assert not make_trainer(model={"gradient_checkpointing": True}).models.policy.packs


def test_threads_read_rows_of_their_own(tmp_path: Path) -> None:
    save_policy(tmp_path / "gpt2", "gpt2", spread=0.2)
    model = ResponseModel(AutoModelForCausalLM.from_pretrained(tmp_path / "gpt2").eval())
    whole = batch()
    parts = [whole.rows(torch.tensor(rows)) for rows in ([0], [1, 2], [0, 2])]
    with torch.no_grad():
        expected = [model(part)[0] for part in parts]
        model.enable_packing()
        with ThreadPoolExecutor(3) as pool:
            for _ in range(20):
                for actual, logits in zip(pool.map(lambda part: model(part)[0].detach(), parts), expected, strict=True):
                    torch.testing.assert_close(actual, logits, atol=1e-5, rtol=1e-5)


def test_a_packed_model_still_reads_plain_batches(tmp_path: Path) -> None:
    save_policy(tmp_path / "gpt2", "gpt2", spread=0.2)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "gpt2").eval()
    ids, mask = torch.tensor([[0, 5, 6], [7, 8, 9]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
    positions = torch.tensor([[0, 0, 1], [0, 1, 2]])
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask, position_ids=positions).logits
        assert enable_packing(model)
        with attention_for(batch()):
            assert torch.equal(model(input_ids=ids, attention_mask=mask, position_ids=positions).logits, before)


def test_what_is_saved_does_not_name_our_attention(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    trainer = make_trainer()
    assert trainer.models.policy.packs
    save_model(trainer.models.policy.model, tmp_path / "saved", tmp_path / "base")
    saved, start = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("saved", "policy"))
    assert {name: value for name, value in saved.items() if value != start.get(name)} == {}


@pytest.mark.parametrize(("family", "lanes"), [("gpt2", 1), ("llama", 2)])
def test_reward_models_score_as_transformers_scores_each_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, lanes: int
) -> None:
    save_reward_model(tmp_path / family, family)
    with torch.no_grad():
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / family).eval()
    words = [[2 + (index * index + row) % 27 for index in range(1 + row % 5)] for row in range(20)]
    with torch.no_grad():
        expected = [float(model(input_ids=torch.tensor([row])).logits[0, 0]) for row in words]
    compute = Compute(CPU, torch.float32, lanes=Lanes(lanes))
    component = {"kind": "reward_model", "model": str(tmp_path / family), "append_eos": False}
    scorer = build_scorer(RewardConfig.model_validate({"components": [component]}), compute, lambda text, fraction: None)
    parts: list[int] = []
    monkeypatch.setattr("rlhf_studio.engine.rewards.kinds.reward_model.pack_texts", lambda texts, device: note(parts, texts, device))
    texts = [" ".join(f"w{token - 2}" for token in row) for row in words]
    actual = scorer(Episodes([""] * 20, texts, [True] * 20, [1] * 20)).raw
    torch.testing.assert_close(actual, torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert sorted(parts) == [20 // lanes] * lanes  # packed, and shared among the lanes


def note(parts: list[int], texts: list[list[int]], device: torch.device) -> Any:
    parts.append(len(texts))
    return pack_texts(texts, device)
