"""Our engine against TRL 1.12's PPOTrainer run as a whole: same model, prompts and responses.

Where both mean the same, the first update must agree. Where we differ on purpose, TRL's way is put in by hand, and then it must
agree too: so the difference listed in docs/from-trl.md is the only one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.learning_rate import learning_rate_factor
from rlhf_studio.engine.loop import generate as generate_module
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.generate import decode_responses
from rlhf_studio.engine.loop.prompts import PromptBatch
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.models.policy import to_padded
from rlhf_studio.engine.types import Rollout, TokenBatch
from rlhf_studio.ppo import gae, masked_mean, shape_rewards, value_loss, whiten
from tests.engine.conftest import collect, small_config
from tests.engine.trl_run import TrlRun, run_trl

pytest.importorskip("trl.experimental.ppo.ppo_trainer", reason="trl 1.12 is not installed")

pytestmark = pytest.mark.slow
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
BETA = 0.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved policy (which stays the reference) and reward model."""
    path = tmp_path_factory.mktemp("parity")
    small_config(path)
    return path


def our_trainer(folder: Path, *, append_eos: bool = False, **changes: dict[str, Any]) -> Trainer:
    """Our trainer, its policy moved away from the saved one so that the KL is not 0, its values not 0 either."""
    settings = {"batch_size": 8, "mini_batch_size": 8, "ppo_epochs": 1, "learning_rate": 1e-3, "kl_coef": BETA, "max_grad_norm": 0.0}
    changes["ppo"] = {**settings, "lr_schedule": "constant", **changes.get("ppo", {})}
    changes["model"] = {"value_head_init": "normal"}
    changes["reward"] = {"components": [{"kind": "reward_model", "model": str(folder / "reward"), "append_eos": append_eos}]}
    config = small_config(folder, **changes)
    trainer = build_trainer(config, choose_compute(config), lambda text, fraction: None)[0]
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in trainer.models.policy.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    return trainer


def our_rollout(trainer: Trainer, tokens: TokenBatch) -> Rollout:
    """Our rollout of the same prompts, with the same responses in place of sampling."""
    texts = trainer.models.tokenizer.batch_decode([row[keep] for row, keep in zip(tokens.prompt_ids, tokens.prompt_mask, strict=True)])
    policy, reader = trainer.models.policy, trainer.models.forward_pass
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            generate_module, "sample_responses", lambda *_, top_rows, **__: (tokens, reader.run(policy, tokens, top_rows, critic=policy))
        )
        prompts = PromptBatch(tokens.prompt_ids, tokens.prompt_mask, texts)
        return collect(trainer.models, prompts, trainer.config.ppo.kl_coef, torch.Generator())


def update(trainer: Trainer, rollout: Rollout) -> Any:
    return trainer.updater.update(rollout, 0, torch.Generator().manual_seed(0))


def both(folder: Path, *, short: bool = False, ours: dict[str, Any] | None = None, **theirs: Any) -> tuple[TrlRun, Trainer, Rollout]:
    """TRL's run, our trainer before its update, and our rollout of TRL's first batch."""
    trainer = our_trainer(folder, append_eos=short, **(ours or {}))
    run = run_trl(folder, trainer.models.policy, short=short, **theirs)
    return run, trainer, our_rollout(trainer, run.tokens())


def close(ours: Tensor, theirs: Tensor, **tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, **(tolerance or CLOSE))


# --- where both mean the same ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("estimator", "temperature", "whiten_rewards"), [("k3", 1.0, False), ("k1", 0.7, True)], ids=str)
def test_first_update_agrees(folder: Path, estimator: str, temperature: float, whiten_rewards: bool) -> None:
    """Responses of full length: rewards, KL, scores, values, advantages, returns and both losses."""
    shared = {"kl_estimator": estimator, "whiten_rewards": whiten_rewards}
    ours = {"ppo": {**shared, "gamma": 0.9, "lam": 0.8}, "generation": {"temperature": temperature, "stop_token": "none"}}
    run, trainer, rollout = both(folder, ours=ours, **shared, gamma=0.9, lam=0.8, temperature=temperature)
    first = run.rollouts[0]
    assert float(rollout.kl.abs().min()) > 1e-6 and float(rollout.values.std()) > 0.1  # nothing is compared with zeros
    for our_name, trl_name in [
        *[(name, name) for name in ("logprobs", "ref_logprobs", "kl", "rewards", "values", "advantages", "returns")],
        ("whitened_advantages", "whitened"),
    ]:
        close(getattr(rollout, our_name), first[trl_name])
    close(rollout.scores.shaped, first["scores"])
    stats = update(trainer, rollout)
    logged = run.metrics[0]
    assert logged["objective/kl"] == pytest.approx(float(rollout.kl.sum(dim=1).mean()), abs=1e-5)
    assert logged["objective/entropy"] == pytest.approx(float(-rollout.logprobs.sum(dim=1).mean()), rel=1e-5)
    assert stats.sums.mean_policy_loss == pytest.approx(logged["loss/policy_avg"], abs=1e-5)
    assert stats.sums.mean_value_loss == pytest.approx(logged["loss/value_avg"], rel=1e-5)
    assert stats.sums.value_clip_fraction == pytest.approx(logged["val/clipfrac_avg"], abs=1e-6)
    assert stats.sums.mean_entropy == pytest.approx(logged["policy/entropy_avg"], rel=1e-5)


def test_a_whole_update_with_a_critic_of_its_own(folder: Path) -> None:
    """Four passes, both losses: policy and critic must end in the same weights. TRL's value head has no bias: ours is held at 0."""
    passes = {"learning_rate": 3e-3, "kl_estimator": "k3", "vf_coef": 0.3}
    ours = {"ppo": {**passes, "ppo_epochs": 4}, "critic": {"kind": "separate", "start": "policy"}, "generation": {"stop_token": "none"}}
    run, trainer, rollout = both(folder, ours=ours, **passes, num_ppo_epochs=4)
    close(rollout.values, run.rollouts[0]["values"])
    close(rollout.whitened_advantages, run.rollouts[0]["whitened"])
    policy = trainer.models.policy
    policy.value_head.bias.requires_grad_(False)
    stats, logged = update(trainer, rollout), run.metrics[0]
    assert logged["val/clipfrac_avg"] > 0.05 and logged["policy/clipfrac_avg"] > 0.05
    assert stats.sums.mean_policy_loss == pytest.approx(logged["loss/policy_avg"], abs=1e-5)
    assert stats.sums.mean_value_loss == pytest.approx(logged["loss/value_avg"], rel=1e-4)
    assert stats.sums.value_clip_fraction == pytest.approx(logged["val/clipfrac_avg"], abs=1e-6)
    for name, tensor in policy.model.state_dict().items():
        close(tensor, run.weights[name], rtol=1e-4, atol=1e-5)
    for name, tensor in policy.critic.model.state_dict().items():
        close(tensor, run.critic[f"transformer.{name}"], rtol=1e-4, atol=1e-5)
    close(policy.value_head.weight.detach(), run.critic["score.weight"], rtol=1e-4, atol=1e-5)


# --- where we differ, with TRL's way put in by hand ----------------------------------------------------------------------------


def one_slot_more(tokens: TokenBatch) -> TokenBatch:
    """The batch with the slot after a response's end counted in, where there is room: what TRL calls the mask "p1"."""
    indices = torch.arange(tokens.mask.shape[1])
    return TokenBatch(tokens.prompt_ids, tokens.prompt_mask, tokens.response_ids, indices <= tokens.lengths[:, None])


def with_trl_slot(trainer: Trainer, rollout: Rollout) -> tuple[Tensor, ...]:
    """Rewards, values, advantages, returns and mask of TRL's way, by our functions."""
    wide = one_slot_more(rollout.tokens)
    with torch.no_grad():
        values = to_padded(trainer.models.policy.logits_and_values(wide)[1], wide.mask)
    rewards = shape_rewards(rollout.kl, rollout.scores.shaped, wide.mask, BETA)
    settings = trainer.config.ppo
    advantages, returns, _ = gae(rewards, values, wide.mask, settings.gamma, settings.lam)
    return rewards, values, advantages, returns, wide.mask


def test_score_one_past_the_end(folder: Path) -> None:
    run, trainer, rollout = both(folder, short=True)
    first, mask = run.rollouts[0], rollout.tokens.mask
    close(rollout.scores.shaped, first["scores"])
    rewards, values, advantages, _, wide = with_trl_slot(trainer, rollout)
    close(rewards, first["rewards"])
    close(values[wide], first["values"][wide])
    close(advantages[wide], first["advantages"][wide])
    close(whiten(advantages, mask), first["whitened"] * mask)
    ended = ~mask.all(dim=1)
    assert not torch.allclose(rollout.advantages[ended], first["advantages"][ended] * mask[ended], atol=1e-2)
    close(rollout.kl, first["kl"])  # the KL does not depend on it


def test_value_loss_covers_one_slot_more(folder: Path) -> None:
    run, trainer, rollout = both(folder, short=True)
    _, values, _, returns, wide = with_trl_slot(trainer, rollout)
    by_hand = value_loss(values, values, returns, wide, trainer.config.ppo.cliprange_value)
    close(by_hand.loss_sum / by_hand.tokens, run.micro_batches[0]["vf_loss"])
    assert update(trainer, rollout).sums.mean_value_loss != pytest.approx(float(run.micro_batches[0]["vf_loss"]), rel=1e-2)


@pytest.mark.long
def test_whitening_with_the_other_variance_would_differ(folder: Path) -> None:
    run, _, rollout = both(folder, ours={"generation": {"stop_token": "none"}})
    raw, count = rollout.advantages, rollout.advantages.numel()
    over_n = (raw - raw.mean()) / raw.var(unbiased=False).sqrt()
    close(over_n * ((count - 1) / count) ** 0.5, run.rollouts[0]["whitened"])
    assert not torch.allclose(over_n, run.rollouts[0]["whitened"], atol=1e-3)


@pytest.mark.long
def test_means_over_padding(folder: Path) -> None:
    run, _, rollout = both(folder, short=True, num_ppo_epochs=2)
    mask, second, logged = rollout.tokens.mask, run.micro_batches[1], run.metrics[0]
    order = second["mb_logprobs"]  # shuffled rows: their own mask is where the sentinel is not
    real = order != 1.0
    assert int(real.sum()) == int(mask.sum())
    change, share = (second["new_logprobs"] - order)[real], float(real.float().mean())
    ours = change.square().mean() / 2
    assert share < 0.8
    assert logged["policy/approxkl_avg"] * 2 == pytest.approx(float(ours) * share, rel=1e-4)  # the first pass changes nothing
    ratio = masked_mean(second["ratio"], real)
    assert logged["val/ratio"] * 2 - 1 == pytest.approx(float(ratio) * share + 1 - share, rel=1e-5)


ACCUMULATED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "num_mini_batches": 2}


@pytest.mark.long
def test_optimizer_steps_under_accumulation(folder: Path) -> None:
    run, trainer, rollout = both(folder, ours={"ppo": {"mini_batch_size": 4, "micro_batch_size": 2}}, **ACCUMULATED)
    assert len(run.micro_batches) == 4 and run.optimizer_steps == 1
    assert update(trainer, rollout).optimizer_steps == 2


@pytest.mark.long
def test_last_batch_of_a_round_steps_more_often(folder: Path) -> None:
    run, trainer, rollout = both(folder, ours={"ppo": {"micro_batch_size": 2}}, rows=8, **{**ACCUMULATED, "num_mini_batches": 1})
    assert len(run.micro_batches) == 4 and run.optimizer_steps == 4
    assert update(trainer, rollout).optimizer_steps == 1


def episode_of(logprobs: Tensor, rollout: Rollout) -> int:
    ours = torch.where(rollout.tokens.mask, rollout.logprobs, 1.0)
    return int((ours - logprobs).abs().sum(dim=1).argmin())


@pytest.mark.long
def test_mean_of_micro_batch_means(folder: Path) -> None:
    """The first pass: the ratio is 1, so the loss is the mean of −A."""
    run, trainer, rollout = both(folder, short=True, ours={"ppo": {"micro_batch_size": 2}}, **{**ACCUMULATED, "num_mini_batches": 1})
    _, _, advantages, _, _ = with_trl_slot(trainer, rollout)
    mask = rollout.tokens.mask
    whitened = whiten(advantages, mask)
    # TRL shuffles; each micro-batch's episodes are found again by their log-probabilities (TRL writes 1 behind the mask).
    actual = [[episode_of(row, rollout) for row in part["mb_logprobs"]] for part in run.micro_batches]
    assert sorted(sum(actual, [])) == list(range(8))
    means = [float(masked_mean(-whitened[index], mask[index])) for index in actual]
    assert [float(part["pg_loss"]) for part in run.micro_batches] == pytest.approx(means, abs=1e-5)
    over_tokens = float(masked_mean(-whitened, mask))
    assert abs(over_tokens) < 1e-5 < 1e-3 < abs(sum(means) / 4)
    assert update(trainer, rollout).sums.mean_policy_loss == pytest.approx(0, abs=1e-5)  # ours, over its own advantages


@pytest.mark.long
def test_statistics_of_unfilled_places(folder: Path) -> None:
    run, _, _ = both(folder, **ACCUMULATED)
    mean = sum(float(part["vf_loss"]) for part in run.micro_batches) / 4
    assert mean > 0.01
    assert run.metrics[0]["loss/value_avg"] == pytest.approx(mean * 4 / 8, rel=1e-5)  # 2 mini-batches × 4 places, half of them empty


@pytest.mark.long
def test_temperature(folder: Path) -> None:
    """At an extreme temperature the 1e-7 is large enough to be seen."""
    run, trainer, rollout = both(folder, ours={"generation": {"temperature": 1e-5, "stop_token": "none"}}, temperature=1e-5)
    theirs = run.rollouts[0]["logprobs"]
    by_hand = our_rollout(our_trainer(folder, generation={"temperature": 1e-5 + 1e-7, "stop_token": "none"}), run.tokens())
    close(by_hand.logprobs, theirs, rtol=1e-4, atol=1.0)
    assert float((rollout.logprobs / theirs).median()) == pytest.approx(1.01, rel=1e-4)
    assert trainer.config.generation.temperature == 1e-5


@pytest.mark.long
def test_gradients_are_never_clipped(folder: Path) -> None:
    ours = {"ppo": {"vf_coef": 0.0, "max_grad_norm": 1e-6}, "generation": {"stop_token": "none"}}
    run, clipping, rollout = both(folder, ours=ours, vf_coef=0.0, max_grad_norm=1e-6)
    free = our_trainer(folder, ppo={"vf_coef": 0.0, "max_grad_norm": 0.0}, generation={"stop_token": "none"})
    update(clipping, rollout)
    update(free, rollout)
    name = "transformer.h.0.attn.c_attn.weight"
    close(free.models.policy.model.state_dict()[name], run.weights[name])
    assert not torch.allclose(clipping.models.policy.model.state_dict()[name], run.weights[name], atol=1e-4)


def test_reward_model_reads_the_end_token(folder: Path) -> None:
    run, trainer, rollout = both(folder, short=True)
    ended = rollout.stopped
    plain = our_rollout(our_trainer(folder), run.tokens())
    assert decode_responses(trainer.models, run.tokens()) == plain.responses
    close(rollout.scores.shaped, run.rollouts[0]["scores"])
    difference = (plain.scores.shaped - run.rollouts[0]["scores"]).abs()
    assert float(difference[ended].min()) > 1e-3 and float(difference[~ended].max()) < 1e-5


@pytest.mark.long
def test_warmup(folder: Path) -> None:
    run, _, _ = both(folder, lr_scheduler_type="linear", warmup_steps=2, updates=3, learning_rate=1.0)
    assert [logged["lr"] for logged in run.metrics] == pytest.approx([0.0, 0.5, 1.0])
    schedule = (3, 2, "linear")
    assert [learning_rate_factor(step, *schedule) for step in range(3)] == pytest.approx([1 / 3, 2 / 3, 1.0])
