"""The whole engine against the known optimum of the exact tiny world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.policy import to_padded
from rlhf_studio.engine.rewards.scorer import Episodes
from rlhf_studio.engine.types import Scores, TokenBatch
from rlhf_studio.ppo.rewards import RunningMoments
from tests.engine.small_models import save_policy, save_prompts
from tests.engine.tiny_world import LONGEST, PLACE, PROMPTS, RESPONSES, WORDS, Exact, score_table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced")]

BETA = 1.0
SCALE = 2.0


class TableScorer:
    """Looks the score up; stands where reward models and rules stand."""

    def __init__(self, table: Tensor):
        self.moments = RunningMoments()
        self._table = table
        self.tokens: TokenBatch | None = None
        self.reads_tokens = False

    def __call__(self, episodes: Episodes) -> Scores:
        rows = [self._place(text, length) for text, length in zip(episodes.responses, episodes.lengths, strict=True)]
        scores = torch.stack([self._table[PROMPTS.index(prompt), row] for prompt, row in zip(episodes.prompts, rows, strict=True)])
        return Scores(scores, {"table": scores}, scores, None)

    def _place(self, text: str, length: int) -> int:
        ids = tuple(int(token) for token in text.split())
        assert len(ids) == length
        return PLACE[ids]


def make_trainer(folder: Path, seed: int, *, lora: bool = False, critic: str = "shared", **ppo: object) -> Trainer:
    # LoRA cannot change the embeddings: it needs a base whose layers do something already, and an output layer with some room.
    start = {"spread": 0.2, "scale": 0.5} if lora else {"scale": SCALE}
    save_policy(folder / "policy", "gpt2", WORDS, seed=seed, width=32, layers=1, **start)
    prompts = save_prompts(folder / "prompts.txt", PROMPTS)
    settings: dict[str, object] = {
        "batch_size": 512, "mini_batch_size": 128, "steps": 140, "learning_rate": 5e-3 if lora else 8e-3, "kl_coef": BETA, "lam": 1.0,
        "vf_coef": 0.5, "cliprange_value": 0.0, **ppo,
    }  # fmt: skip
    config = RunConfig.model_validate(
        {
            "model": {"policy": str(folder / "policy")},
            "lora": {"enabled": lora, "r": 16, "alpha": 32.0},
            "critic": {"kind": critic, "start": "policy"} if critic == "separate" else {},
            "data": {"prompts": str(prompts)},
            "reward": {"components": [{"kind": "length"}]},
            "ppo": settings,
            "generation": {"response_length": LONGEST},
            "engine": {"seed": seed, "watch_prompts": 0, "record_samples": 1, "device": "cpu"},
        }
    )
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    tokenizer = IdTokenizer(trainer.models.tokenizer)
    trainer.models = replace(trainer.models, scorer=TableScorer(score_table(seed)), tokenizer=tokenizer)
    return trainer


class IdTokenizer:
    """Decodes to the ids themselves, so that the table can look at pad and eos too."""

    def __init__(self, tokenizer: object):
        self._tokenizer = tokenizer

    def batch_decode(self, rows: list[list[int]], **_: object) -> list[str]:
        return [" ".join(str(token) for token in row) for row in rows]


@torch.no_grad()
def measure(trainer: Trainer, seed: int) -> Exact:
    """Exact response probabilities by running every response through policy and reference."""
    with trainer.models.reference.active() as reference:
        reference_tokens = torch.stack([token_table(trainer, reference, prompt) for prompt in range(len(PROMPTS))])
    policy_tokens = torch.stack([token_table(trainer, trainer.models.policy, prompt) for prompt in range(len(PROMPTS))])
    return Exact(policy_tokens.sum(-1), reference_tokens.sum(-1), policy_tokens, reference_tokens, score_table(seed), BETA)


def every_response(trainer: Trainer, prompt: int) -> TokenBatch:
    rows = trainer.prompts.batch([prompt] * len(RESPONSES))
    ids = torch.tensor([list(response) + [0] * (LONGEST - len(response)) for response in RESPONSES])
    mask = torch.tensor([[True] * len(response) + [False] * (LONGEST - len(response)) for response in RESPONSES])
    return TokenBatch(rows.ids, rows.mask, ids, mask)


def token_table(trainer: Trainer, model: torch.nn.Module, prompt: int) -> Tensor:
    batch = every_response(trainer, prompt)
    logits, _ = model(batch)
    chosen = torch.log_softmax(logits, dim=-1).gather(1, batch.response_ids[batch.mask][:, None])[:, 0]
    return to_padded(chosen, batch.mask)


def critic_error(trainer: Trainer, exact: Exact) -> float:
    """Mean squared error of the value head against the exact values, weighted by how often the policy visits each prefix."""
    values, total, weight = exact.values(), 0.0, 0.0
    for prompt in range(len(PROMPTS)):
        batch = every_response(trainer, prompt)
        with torch.no_grad():
            predicted = to_padded(trainer.models.policy.logits_and_values(batch)[1], batch.mask)
        for index, response in enumerate(RESPONSES):
            probability = float(exact.policy[prompt, index].exp())
            for start in range(len(response)):
                total += probability * (float(predicted[index, start]) - values[prompt, response[:start]]) ** 2
                weight += probability
    return total / weight


def optimal_kl(exact: Exact) -> float:
    """KL of the best policy, ref exp(score / beta) / Z, averaged over prompts."""
    best = (exact.reference + exact.scores / exact.beta).log_softmax(dim=1)
    return float((best.exp() * (best - exact.reference)).sum(dim=1).mean())


def share_of_the_optimum(exact: Exact) -> float:
    return (exact.objective() - exact.reference_objective()) / (exact.optimum() - exact.reference_objective())


def test_enumeration_is_complete(tmp_path: Path) -> None:
    exact = measure(make_trainer(tmp_path, 0), 0)
    torch.testing.assert_close(exact.policy.exp().sum(dim=1), torch.ones(2))
    torch.testing.assert_close(exact.kl(), torch.zeros(2), atol=1e-6, rtol=0)
    assert exact.optimum() > exact.reference_objective() + 0.2


def test_ppo_comes_near_the_optimum(tmp_path: Path) -> None:
    """A third of the training of the tests below, which are run by hand: four fifths of what there is to gain."""
    trainer = make_trainer(tmp_path, 0, ppo_epochs=4, steps=60, batch_size=256, mini_batch_size=128, learning_rate=1e-2)
    before = critic_error(trainer, measure(trainer, 0))
    while not trainer.finished:
        trainer.step()
    exact = measure(trainer, 0)
    assert share_of_the_optimum(exact) >= 0.8
    assert critic_error(trainer, exact) < 0.5 * before


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "lora", "critic"),
    [(0, False, "shared"), (0, True, "shared"), (0, False, "separate"), (1, False, "shared"), (2, False, "shared")],
)
def test_ppo_reaches_the_optimum(tmp_path: Path, seed: int, lora: bool, critic: str) -> None:
    trainer = make_trainer(tmp_path, seed, lora=lora, critic=critic, ppo_epochs=2 if lora else 4)
    before = critic_error(trainer, measure(trainer, seed))
    while not trainer.finished:
        trainer.step()
    exact = measure(trainer, seed)
    after, share = critic_error(trainer, exact), share_of_the_optimum(exact)
    print(f"seed {seed}, LoRA {lora}, {critic} critic: {share:.4f} of the optimum, critic error {before:.3f} -> {after:.3f}")
    assert share >= 0.97
    assert after < 0.5 * before


@pytest.mark.long
@pytest.mark.parametrize(("seed", "lora"), [(0, False), (0, True), (1, False)])
def test_rloo_reaches_the_same_optimum(tmp_path: Path, seed: int, lora: bool) -> None:
    """Comparing the responses to a prompt with each other maximises what PPO with a critic maximises: the score less β·KL."""
    settings = {"advantage": "rloo", "responses_per_prompt": 8, "lam": 0.95, "vf_coef": 0.1, "cliprange_value": 0.2}
    trainer = make_trainer(tmp_path, seed, lora=lora, ppo_epochs=2 if lora else 4, **settings)
    while not trainer.finished:
        trainer.step()
    share = share_of_the_optimum(measure(trainer, seed))
    print(f"seed {seed}, LoRA {lora}, RLOO: {share:.4f} of the optimum")
    assert share >= 0.97


@pytest.mark.long
def test_adaptive_kl_finds_the_coefficient_that_belongs_to_its_target(tmp_path: Path) -> None:
    """The target is the KL of the best policy at coefficient 1; the controller starts at half of that and must arrive."""
    seed = 1
    start = measure(make_trainer(tmp_path / "start", seed), seed)
    target = optimal_kl(start)
    trainer = make_trainer(tmp_path, seed, kl_controller="adaptive", kl_target=target, kl_coef=0.5, kl_horizon=2560)
    while not trainer.finished:
        trainer.step()
    coefficient = trainer.controller.coef
    exact = replace(measure(trainer, seed), beta=coefficient)
    reached = float(exact.kl().mean())
    print(f"target {target:.3f}, reached {reached:.3f}, coefficient {coefficient:.3f}, {share_of_the_optimum(exact):.4f} of the optimum")
    assert reached == pytest.approx(target, rel=0.1)
    assert coefficient == pytest.approx(BETA, rel=0.1)
    assert share_of_the_optimum(exact) >= 0.97
