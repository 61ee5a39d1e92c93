"""Settings that another part uses: each arrives there, seen by what it does."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from rlhf_studio.config import REWARD_KINDS, LoraConfig, PPOConfig, RewardConfig, SFTConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.loop.update import make_optimizer
from rlhf_studio.engine.models import load_model as loading
from rlhf_studio.engine.models.adapters import add_lora, save_model
from rlhf_studio.engine.rewards import scorer as scorer_module
from rlhf_studio.engine.rewards.episodes import Answer
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.scorer import Episodes, build_scorer
from rlhf_studio.engine.stages.supervised.objective import TrainingObjective
from rlhf_studio.engine.stages.supervised.training_loop import run_training
from tests.engine.conftest import PROMPTS
from tests.engine.small_models import save_policy, save_reward_model

CPU = Compute(torch.device("cpu"), torch.float32)

# --- models --------------------------------------------------------------------------------------------------------------------


def test_each_revision_is_asked_of_the_hub_for_its_own_model(
    make_trainer: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("policy", "reference", "critic"):
        save_policy(tmp_path / "hub" / name)
    for name in ("reward", "one", "two"):
        save_reward_model(tmp_path / "hub" / name)
    asked: dict[str, str] = {}

    def download(name: str, *, revision: str, **_: Any) -> str:
        asked[name] = revision
        return str(tmp_path / "hub" / name.removeprefix("owner/"))

    monkeypatch.setattr(loading, "snapshot_download", download)
    make_trainer(
        model={"policy": "owner/policy", "revision": "v1", "reference": "owner/reference", "reference_revision": "v2"},
        critic={"kind": "separate", "start": "model", "model": "owner/critic", "revision": "v3"},
        reward={
            "components": [
                {"kind": "reward_model", "model": "owner/reward", "revision": "v4"},
                {"kind": "ensemble", "models": "owner/one,owner/two", "revision": "v5"},
            ]
        },
    )
    assert asked == {
        "owner/policy": "v1", "owner/reference": "v2", "owner/critic": "v3", "owner/reward": "v4", "owner/one": "v5", "owner/two": "v5",
    }  # fmt: skip


def test_dropout_is_kept_with_the_adapter(tmp_path: Path) -> None:
    """PPO runs with it off; whoever trains the adapter on finds it."""
    base = AutoModelForCausalLM.from_pretrained(save_policy(tmp_path / "policy"))
    save_model(add_lora(base, LoraConfig(enabled=True, r=3, dropout=0.25)), tmp_path / "saved", tmp_path / "base")
    assert json.loads((tmp_path / "saved" / "adapter_config.json").read_text())["lora_dropout"] == 0.25


# --- prompts ------------------------------------------------------------------------------------------------------------------------


def test_so_many_responses_are_sampled_recorded_and_watched_in_the_order_of_the_file(make_trainer: Callable[..., Trainer]) -> None:
    ppo = {"batch_size": 6, "mini_batch_size": 3, "ppo_epochs": 1}
    engine = {"record_samples": 5, "watch_prompts": 4}
    trainer = make_trainer(ppo=ppo, engine=engine, generation={"response_length": 2}, data={"shuffle": False})
    records = [trainer.step() for _ in range(2)]
    assert [record.metrics["episode"] for record in records] == [6, 12]
    assert [record.metrics["optim/steps"] for record in records] == [2, 2]
    assert [[rollout.prompt for rollout in record.rollouts] for record in records] == [PROMPTS[:5]] * 2
    assert [len(record.watched) for record in records] == [4, 4]


# --- rewards -----------------------------------------------------------------------------------------------------------------------

EPISODES = Episodes(["w20 w21 ", "", "w3 "], ["w1 w2 w3 w4 w5 w6 w7 w8 w9", "w6", "w9 w10"], [True, False, True], [9, 1, 2])


def scores(component: dict[str, Any]) -> list[float]:
    scorer = build_scorer(RewardConfig.model_validate({"components": [component]}), CPU, lambda text, fraction: None)
    return scorer(EPISODES).raw.tolist()


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reward_model(tmp_path_factory.mktemp("judge"), labels=2)


def test_members_of_an_ensemble_read_as_a_reward_model_does(judge: Path) -> None:
    """Twice the same model: its mean is what the model alone gives with this setting, and not what it gives without."""
    usual = scores({"kind": "reward_model", "model": str(judge), "label": "0"})
    for settings in (
        {"label": "1"}, {"output": "probability"}, {"reads": "response"}, {"dtype": "bfloat16"}, {"max_tokens": 8}, {"append_eos": True},
    ):  # fmt: skip
        ensemble = scores({"kind": "ensemble", "models": f"{judge},{judge}", "label": "0", **settings})
        alone = scores({"kind": "reward_model", "model": str(judge), "label": "0", **settings})
        assert ensemble == pytest.approx(alone, abs=1e-6), settings
        assert ensemble != pytest.approx(usual, abs=1e-6), settings


def test_every_kind_has_a_name_and_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the component itself would say, here 1, -2 and 3."""
    monkeypatch.setattr(scorer_module, "build_source", lambda *_: lambda episodes: Answer(torch.tensor([1.0, -2.0, 3.0])))
    for kind in REWARD_KINDS:
        components = [{"kind": kind, "weight": -2.5, "name": "mine"}, {"kind": kind, "weight": 1.0}]
        found = build_scorer(RewardConfig.model_validate({"components": components}), CPU, lambda text, fraction: None)(EPISODES)
        assert {name: part.tolist() for name, part in found.parts.items()} == {"mine": [-2.5, 5.0, -7.5], kind: [1.0, -2.0, 3.0]}
        assert found.raw.tolist() == [-1.5, 3.0, -4.5], kind


def test_so_many_texts_are_scored_in_one_pass(judge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = RewardModelScorer._score_packed

    def counted(scorer: RewardModelScorer, texts: list[Any]) -> Any:
        seen.append(len(texts))
        return original(scorer, texts)

    monkeypatch.setattr(RewardModelScorer, "_score_packed", counted)
    scores({"kind": "ensemble", "batch_size": 2, "models": f"{judge},{judge}", "label": "0"})
    assert sorted(seen) == sorted([2, 1] * 2)


# --- optimizers ----------------------------------------------------------------------------------------------------------------------


class Weights(nn.Module):
    """Two weights, one of the model and one of the critic."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.model, self.critic = nn.Parameter(torch.tensor([[2.0]])), nn.Parameter(torch.tensor([[4.0]]))

    def model_parameters(self) -> list[nn.Parameter]:
        return [self.model]

    def critic_parameters(self) -> list[nn.Parameter]:
        return [self.critic]


def one_step(gradient: float, **settings: Any) -> list[float]:
    """Both weights after one step of PPO's optimizer at the full rate."""
    weights = Weights()
    optimizer = make_optimizer(weights, PPOConfig(**settings))  # type: ignore[arg-type]
    for group in optimizer.param_groups:
        group["lr"] = group["full_lr"]
    for parameter in weights.parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    optimizer.step()
    return [float(parameter.detach()) for parameter in weights.parameters()]


def test_weight_decay_shrinks_every_weight_by_its_share_of_the_rate() -> None:
    """Without a gradient w becomes w (1 - rate * decay), with each group's own rate."""
    assert one_step(0.0, learning_rate=0.1, critic_learning_rate=0.5, weight_decay=0.2) == pytest.approx([2 * 0.98, 4 * 0.9])
    assert one_step(0.0, learning_rate=0.1) == [2.0, 4.0]


def test_adams_first_step_is_the_rate_times_g_over_g_plus_epsilon() -> None:
    for gradient, epsilon, share in ((1e-3, 1e-3, 1 / 2), (1e-3, 3e-3, 1 / 4), (1.0, 1e-9, 1.0)):
        moved = one_step(gradient, learning_rate=0.1, adam_epsilon=epsilon)
        assert moved == pytest.approx([2 - 0.1 * share, 4 - 0.1 * share], rel=1e-5)


class Known(TrainingObjective[float]):
    """An objective whose gradient at every weight is the item itself."""

    def count(self, items: Sequence[float]) -> int:
        return len(items)

    def mean_of(self, items: Sequence[float], results: Sequence[float]) -> float:
        raise NotImplementedError

    def tokens(self, items: Sequence[float]) -> int:
        return len(items)

    def read(self, model: nn.Module, items: Sequence[float]) -> list[float]:
        return list(items)

    def loss_sum(self, model: nn.Module, items: Sequence[float]) -> Tensor:
        return sum(items) * sum(parameter.sum() for parameter in model.parameters())


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The gradients of the first weight that reach the optimizer."""
    seen: list[float] = []
    step = torch.optim.AdamW.step

    def noted(optimizer: torch.optim.AdamW, *arguments: Any) -> Any:
        seen.append(float(optimizer.param_groups[0]["params"][0].grad))
        return step(optimizer, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    return seen


@pytest.mark.parametrize("beta", [0.999, 0.5])
def test_supervised_training_remembers_squared_gradients_as_long_as_told(gradients: list[float], beta: float) -> None:
    """Two steps of Adam by hand with gradients a and b; without decay the first moves by the rate."""
    model = Weights()
    settings = SFTConfig(batch_size=1, learning_rate=0.1, lr_schedule="constant", adam_beta2=beta, max_grad_norm=0.0)
    run_training(model, [1.0, 3.0], Known(), settings, 0)
    a, b = gradients
    mean = (0.9 * 0.1 * a + 0.1 * b) / (1 - 0.9**2)
    square = (beta * (1 - beta) * a**2 + (1 - beta) * b**2) / (1 - beta**2)
    assert float(model.model.detach()) == pytest.approx(2 - 0.1 - 0.1 * mean / math.sqrt(square), rel=1e-5)


@pytest.mark.parametrize(("limit", "expected"), [(0.0, 3.0), (1.0, 1 / math.sqrt(2)), (100.0, 3.0)])
def test_supervised_training_clips_the_gradient_to_the_limit(gradients: list[float], limit: float, expected: float) -> None:
    """Two weights with gradient 3 have norm 3 sqrt(2)."""
    run_training(Weights(), [3.0], Known(), SFTConfig(max_grad_norm=limit), 0)
    assert gradients == [pytest.approx(expected, rel=1e-5)]
