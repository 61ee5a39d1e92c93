"""The loop around rollout and update: what is refused, what is told, what the KL controller hears."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from rlhf_studio.config import PythonReward, RewardConfig, permissions_from_flags
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop import trainer as trainer_module
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.state import restore, training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.loop.update import Updater
from rlhf_studio.engine.models.classifiers import own_pad, unused_id
from rlhf_studio.engine.recording.skips import MOST_SKIPS
from rlhf_studio.engine.rewards.scorer import build_scorer
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.ppo.kl_control import AdaptiveKL
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.engine.conftest import small_config
from tests.engine.small_models import save_tokenizer

SKIP = {"engine": {"non_finite": "skip"}, "ppo": {"kl_controller": "adaptive", "kl_target": 0.1, "kl_horizon": 100}}


def test_what_libraries_draw_depends_on_the_seed_alone(make_trainer: Callable[..., Trainer]) -> None:
    """The global sources of random numbers are the same after building, whatever was drawn before: in full fine-tuning too."""

    def drawn(seed: int) -> tuple[float, float, float]:
        random.random(), np.random.rand(), torch.rand(1)
        make_trainer(engine={"seed": seed})
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    first = drawn(3)
    assert drawn(3) == first and all(one != other for one, other in zip(drawn(4), first, strict=True))


def spoil_reference(trainer: Trainer) -> None:
    """The reference gives NaN from here on, and with it every KL is NaN."""
    with trainer.models.reference.active() as reference, torch.no_grad():
        reference.model.get_output_embeddings().weight.fill_(math.nan)


def spoil_values(trainer: Trainer) -> None:
    with torch.no_grad():
        trainer.models.policy.value_head.bias.fill_(math.inf)


# --- bad numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "name", "kl_is_known"), [(spoil_reference, "ref_logprobs", False), (spoil_values, "values", True)], ids=["kl", "values"]
)
def test_a_refused_rollout_leaves_a_storable_step_and_a_sane_controller(
    make_trainer: Callable[..., Trainer], tmp_path: Path, spoil: Callable[[Trainer], None], name: str, kl_is_known: bool
) -> None:
    trainer = make_trainer(**SKIP)
    create_run(tmp_path / "run", trainer.config, name="run", state="loading")
    with RunWriter(tmp_path / "run") as writer:
        writer.commit_step(trainer.step())
        coefficient = trainer.controller.coef
        before = {key: tensor.clone() for key, tensor in trainer.models.policy.model.state_dict().items()}
        spoil(trainer)
        record = trainer.step()
        writer.commit_step(record)
    assert math.isfinite(record.metrics["objective/kl"]) == kl_is_known
    assert (trainer.controller.coef == coefficient) == (not kl_is_known)
    assert math.isfinite(trainer.controller.coef)
    assert all(torch.equal(tensor, before[key]) for key, tensor in trainer.models.policy.model.state_dict().items())
    assert trainer.progress.step == 2 and trainer.skips.count == 1
    (event,) = (event for event in record.events if event.kind == "skip")
    assert event.text.startswith(f"This update was left out: {name} is not finite in episode 0, prompt ")
    assert not {"loss/policy_avg", "lr"} & record.metrics.keys()
    training_state(trainer)  # a checkpoint can still be taken
    reader = RunReader(tmp_path / "run")
    (_, first), (_, second) = reader.metrics_since(0)
    assert first["objective/kl"] is not None
    assert (second["objective/kl"] is not None) == kl_is_known
    assert len(reader.rollouts(2)) == 3


def test_a_refused_rollout_ends_the_run_unless_told_otherwise(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    spoil_reference(trainer)
    with pytest.raises(NonFiniteError, match="ref_logprobs is not finite in episode 0"):
        trainer.step()


def test_skipping_ends_after_too_many(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(engine={"non_finite": "skip", "watch_prompts": 0}, generation={"response_length": 1})
    spoil_values(trainer)
    for number in range(1, MOST_SKIPS + 1):
        trainer.step()
        assert trainer.skips.count == number
    with pytest.raises(NonFiniteError, match="values is not finite"):
        trainer.step()


# --- the KL controller -------------------------------------------------------------------------------------------------------


def test_the_controller_hears_every_steps_kl(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(ppo={"steps": 3, "kl_controller": "adaptive", "kl_target": 0.05, "kl_horizon": 40, "kl_coef": 0.5})
    assert isinstance(trainer.controller, AdaptiveKL)
    expected = 0.5
    for _ in range(3):
        metrics = trainer.step().metrics
        assert metrics["objective/kl_coef"] == pytest.approx(expected)
        error = min(max(metrics["objective/kl"] / 0.05 - 1, -0.2), 0.2)
        expected *= 1 + error * 8 / 40
    assert trainer.controller.coef == pytest.approx(expected)
    assert expected != 0.5


# --- what a person is told -----------------------------------------------------------------------------------------------------


def test_health_warnings_are_given_once(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probabilities that are off by 0.01 in the update, and a KL that reads -2."""
    trainer = make_trainer()
    original = trainer_module.objective_metrics

    def negative(*arguments: Any, **options: Any) -> dict[str, float]:
        return {**original(*arguments, **options), "objective/kl": -2.0}

    monkeypatch.setattr(trainer_module, "objective_metrics", negative)
    update = Updater.update
    monkeypatch.setattr(Updater, "update", lambda self, *arguments: replace(update(self, *arguments), first_log_ratio=0.01))
    texts = [event.text for event in trainer.step().events]
    assert [text[:24] for text in texts] == ["Before the first update ", "The KL is clearly negati"]
    assert "off by 0.01" in texts[0]
    assert trainer.step().events == []
    assert training_state(trainer).numbers["told"] == ["negative_kl", "ratio"]


def test_a_ratio_that_is_off_is_expected_in_bfloat16(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(model={"dtype": "bfloat16"})
    update = Updater.update
    monkeypatch.setattr(Updater, "update", lambda self, *arguments: replace(update(self, *arguments), first_log_ratio=0.01))
    assert trainer.step().events == []


def test_costs_add_up(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    first, second = trainer.step().metrics, trainer.step().metrics
    phases = [second[f"time/{phase}"] for phase in ("rollout", "score", "reference", "update", "record")]
    assert second["time/total"] == pytest.approx(sum(phases)) and min(phases) > 0
    assert second["time/elapsed"] == pytest.approx(first["time/total"] + second["time/total"])
    assert (first["episode"], second["episode"]) == (8.0, 16.0)
    assert second["speed/episodes_per_second"] == pytest.approx(8 / second["time/total"])
    assert second["speed/tokens_per_second"] == pytest.approx(8 * second["tokens/response_length"] / second["time/total"], rel=1e-5)
    assert second["memory/peak"] > 0


# --- watched prompts -----------------------------------------------------------------------------------------------------------


def test_watched_prompts_are_answered_with_the_same_random_numbers(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(reward={"gold": "world"}, engine={"watch_prompts": 2})
    first = trainer.watched()[0]
    for answer, again in zip(first, trainer.watched()[0], strict=True):  # while the policy is the same, so are the answers
        assert replace(answer, arrays={}) == replace(again, arrays={})
        assert all(np.array_equal(array, again.arrays[name]) for name, array in answer.arrays.items())
    assert [record.prompt for record in first] == ["w1 w2 w3", "w2 w11"]
    assert all(record.gold is not None for record in first)
    assert trainer.models.scorer.moments.count == 0


def test_watching_does_not_disturb_the_run(make_trainer: Callable[..., Trainer]) -> None:
    actual = []
    for watch in (0, 4):
        trainer = make_trainer(engine={"watch_prompts": watch, "watch_every": 1})
        actual.append([trainer.step().metrics["objective/scores"] for _ in range(2)])
    assert actual[0] == actual[1]


def test_when_watched_prompts_are_answered(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer(
        ppo={"steps": 5, "ppo_epochs": 1}, engine={"watch_prompts": 2, "watch_every": 2}, generation={"response_length": 1}
    )
    assert [record.step for record in (trainer.step() for _ in range(5)) if record.watched] == [2, 4, 5]


# --- building ------------------------------------------------------------------------------------------------------------------


def build(folder: Path, **changes: Any) -> tuple[Trainer, list[str]]:
    config = small_config(folder, **changes)
    return build_trainer(config, choose_compute(config), lambda text, fraction: None)


def test_stop_tokens(tmp_path: Path) -> None:
    for wanted, expected in (("eos", (1,)), ("none", ()), ("29, 5, 0", (0, 5, 29))):
        trainer, _ = build(tmp_path, generation={"stop_token": wanted})
        assert trainer.models.stop_ids == expected


def test_a_stop_token_outside_the_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="generation.stop_token: there is no token 30; the model has tokens 0 to 29"):
        build(tmp_path, generation={"stop_token": "30"})


def test_a_tokenizer_without_an_end(tmp_path: Path) -> None:
    small_config(tmp_path)
    tokenizer = save_tokenizer(tmp_path / "policy")
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "policy")
    assert build(tmp_path)[0].models.stop_ids == (1,)  # config.json names it
    for file in ("config.json", "generation_config.json"):
        settings = json.loads((tmp_path / "policy" / file).read_text())
        (tmp_path / "policy" / file).write_text(json.dumps({**settings, "eos_token_id": None}))
    with pytest.raises(ConfigError, match="generation.stop_token: the tokenizer has no end token; use none or a token id"):
        build(tmp_path)
    trainer, _ = build(tmp_path, generation={"stop_token": "none"})
    assert trainer.step().metrics["tokens/cut_off"] == 0.0


def save_qwen2(folder: Path) -> None:
    """A Qwen 2 whose tokenizer.json names no pad token: transformers' own class for it adds one, behind the model's last row."""
    words, own = ["<eos>", *sorted(ByteLevel.alphabet())], Qwen2Tokenizer().backend_tokenizer
    backend = Tokenizer(BPE(vocab={token: number for number, token in enumerate(words)}, merges=[]))
    backend.normalizer, backend.pre_tokenizer, backend.decoder = own.normalizer, own.pre_tokenizer, own.decoder
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>").save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def test_a_pad_token_that_the_model_has_no_row_for(tmp_path: Path) -> None:
    small_config(tmp_path)
    shutil.rmtree(tmp_path / "policy")
    save_qwen2(tmp_path / "policy")
    reward = {"components": [{"kind": "length", "target": 3}]}
    trainer, _ = build(tmp_path, reward=reward, generation={"response_length": 3})
    tokenizer, model = trainer.models.tokenizer, trainer.models.policy.model
    rows = model.config.vocab_size
    assert tokenizer.pad_token_id is not None and tokenizer.pad_token_id >= rows  # else this test guards nothing
    assert 0 <= trainer.models.pad_id < rows
    for _ in range(2):
        assert math.isfinite(trainer.step().metrics["objective/scores"])
    assert own_pad(tokenizer, model) is None
    assert unused_id(model, [[0, 1]], tokenizer.pad_token_id) == 2 and unused_id(model, [[0, 1]], 5) == 5


def test_a_run_does_not_care_which_token_pads(tmp_path: Path) -> None:
    """Without a pad token, which is then the end token: the same run, number for number, as with one of its own."""
    small_config(tmp_path)
    actual = []
    for choice in ("<pad>", None):
        for folder in ("policy", "reward"):
            save_tokenizer(tmp_path / folder, pad=choice)  # type: ignore[arg-type]
        # A rule, since a reward model's text would show a <pad> that is not special.
        reward = {"components": [{"kind": "length", "target": 3}]}
        trainer, notes = build(tmp_path, generation={"response_length": 6, "temperature": 1.5}, reward=reward)
        rows = [trainer.step().metrics for _ in range(2)]
        actual.append([{name: value for name, value in row.items() if not name.startswith(("time/", "speed/", "memory/"))} for row in rows])
    assert any("pad token" in note for note in notes)
    assert actual[0] == actual[1]


def test_two_runs_of_one_seed_are_the_same_run(make_trainer: Callable[..., Trainer]) -> None:
    def run(seed: int) -> list[float]:
        trainer = make_trainer(engine={"seed": seed})
        return [value for name, value in trainer.step().metrics.items() if name.startswith(("objective/", "loss/"))]

    assert run(3) == run(3)
    assert run(3) != run(4)


# --- prompts -----------------------------------------------------------------------------------------------------------------


def test_a_resumed_run_says_that_the_prompts_have_changed(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    state = training_state(make_trainer())
    assert not [change for change in restore(make_trainer(), state) if "prompts" in change]
    (tmp_path / "prompts.txt").write_text("w1\nw2\n")
    assert "the prompts have changed since: there were 6 and now there are 2" in restore(make_trainer(), state)


def test_scores_of_steps_reach_the_rewards_of_their_tokens(make_trainer: Callable[..., Trainer], tmp_path: Path) -> None:
    """A person's function that gives the first token 1 and every other 0, in a run: what the record holds, less the KL."""
    file = tmp_path / "steps.py"
    file.write_text("def score(prompts, responses, tokens):\n    return [[1.0] + [0.0] * (len(row) - 1) for row in tokens]\n")
    trainer = make_trainer()
    component = PythonReward(file=str(file))
    scorer = build_scorer(
        RewardConfig(components=[component]), trainer.models.compute, lambda text, fraction: None, permissions_from_flags([str(file)], [])
    )
    trainer.models = replace(trainer.models, scorer=scorer)
    rollouts = []
    trainer.after_phase = lambda phase, so_far: rollouts.append(so_far.rollout) if phase == "advantages" else None
    trainer.step()
    (rollout,) = rollouts
    assert rollout is not None and rollout.scores.shaped.tolist() == [1.0] * len(rollout.rewards)
    earned = rollout.rewards + rollout.kl_coef * rollout.kl  # (B, T)
    expected = torch.zeros_like(earned)
    expected[:, 0] = 1.0
    torch.testing.assert_close(earned * rollout.tokens.mask, expected)
