"""Watched answers and probes, token by token, against a plain forward pass of transformers over each text alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.engine.compute import lanes
from rlhf_studio.engine.loop.state import restore, training_state
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.loop.watching import probes as probes_module
from rlhf_studio.engine.loop.watching import watched as watched_module
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.saving.checkpoint import load_state, restore_policy, save_checkpoint
from rlhf_studio.exit_codes import DONE
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ProbeScore
from tests.engine.conftest import small_config

TEMPERATURE = 0.7
LORA = {"lora": {"enabled": True, "r": 4}}
PISSA = {"lora": {"enabled": True, "r": 4, "init_lora_weights": "pissa"}}
FOLLOWS = {"ppo": {"steps": 9, "learning_rate": 1e-2, "reference_ema": 0.5}}


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "ppo": {"steps": 9, "learning_rate": 1e-2},
        "generation": {"response_length": 6, "response_length_min": 3, "temperature": TEMPERATURE},
        "engine": {"watch_prompts": 3, "probe_prompts": 2, "watch_every": 2},
        **changes,
    }


def plain(model: Any, trainer: Trainer, prompt: str, pieces: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-distributions (T, V), ids (T,) and hidden states (T, H) at the tokens of one answer, without padding, mask or cache."""
    tokenizer = trainer.models.tokenizer
    words = tokenizer.convert_tokens_to_ids([piece.strip() for piece in pieces])
    prompt_ids = tokenizer(prompt)["input_ids"]
    with torch.no_grad():
        output = model(torch.tensor([prompt_ids + words]), output_hidden_states=True)
    own = slice(len(prompt_ids) - 1, -1)
    distributions = (output.logits[0, own] / TEMPERATURE).log_softmax(dim=-1)
    return distributions.numpy(), np.array(words), output.hidden_states[-1][0, own].numpy()


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("changes", "estimator"), [(LORA, "k1"), ({"critic": {"kind": "separate"}}, "full")], ids=["lora", "critic"])
def test_watched_answers_token_by_token(make_trainer: Callable[..., Trainer], changes: dict[str, Any], estimator: str) -> None:
    chosen = settings(**changes)
    trainer = make_trainer(**{**chosen, "ppo": {**chosen["ppo"], "kl_estimator": estimator}})
    trainer.step()
    watched = trainer.step().watched
    policy = trainer.models.policy
    assert [record.sample for record in watched] == [0, 1, 2]
    for record in watched:
        distributions, ids, hidden = plain(policy.model, trainer, record.prompt, record.pieces)
        with trainer.models.reference.active() as reference:
            others, _, _ = plain(reference.model, trainer, record.prompt, record.pieces)
        rows = np.arange(len(ids))
        close(record.arrays["logprobs"], distributions[rows, ids])
        close(record.arrays["ref_logprobs"], others[rows, ids])
        close(record.arrays["entropy"], -(np.exp(distributions) * distributions).sum(axis=1))
        exact = (np.exp(distributions) * (distributions - others)).sum(axis=1)
        sampled = distributions[rows, ids] - others[rows, ids]
        close(record.arrays["kl"], exact if estimator == "full" else sampled)
        assert record.kl == pytest.approx(sampled.sum(), abs=1e-4) and abs(sampled).max() > 1e-3
        if policy.critic is None:
            with torch.no_grad():
                close(record.arrays["values"], policy.value_head(torch.tensor(hidden))[:, 0].numpy())
        else:
            assert record.arrays["values"].shape == (len(ids),) and np.abs(record.arrays["values"]).max() > 0
        assert record.stopped == (record.pieces[-1].strip() == "<eos>")
        assert all(array.dtype == np.float32 and array.shape == (len(ids),) for array in record.arrays.values())


@pytest.mark.parametrize("changes", [{}, PISSA], ids=["full", "pissa"])
def test_probes_are_what_the_policies_say(make_trainer: Callable[..., Trainer], changes: dict[str, Any]) -> None:
    trainer = make_trainer(**settings(**changes))
    answers, _ = trainer.first_answers()
    assert trainer.probes is not None
    texts, at_start = trainer.probes.texts(), trainer.probes.of_start()
    assert [(probe.prompt, probe.pieces) for probe in texts] == [(answer.prompt, answer.pieces) for answer in answers[:2]]
    starts = [plain(trainer.models.policy.model, trainer, probe.prompt, probe.pieces)[0] for probe in texts]
    trainer.step()
    later = trainer.step()
    for scores, moved in ((at_start, False), (later.probes, True)):
        for probe, score, start, first in zip(texts, scores, starts, at_start, strict=True):
            model = trainer.models.policy.model
            now, ids, _ = (plain(model, trainer, probe.prompt, probe.pieces)) if moved else (start, first_ids(trainer, probe.pieces), None)
            rows = np.arange(len(ids))
            best = np.argsort(-now, axis=1)[:, :5]
            assert score.top_ids.tolist() == best.tolist()
            close(score.logprobs, now[rows, ids])
            close(score.top_logprobs, np.take_along_axis(now, best, axis=1))
            close(score.start_logprobs, np.take_along_axis(start, best, axis=1))
            close(score.logprobs_of_start, np.take_along_axis(now, first.top_ids.astype(int), axis=1))
            assert (np.abs(score.logprobs_of_start - first.top_logprobs).max() > 1e-2) == moved
    shown = {int(token) for score in (*at_start, *later.probes) for token in score.top_ids.ravel()}
    given = {**trainer.step().episodes.pieces}  # type: ignore[union-attr]
    assert not shown & given.keys(), "their texts came with earlier steps"


def first_ids(trainer: Trainer, pieces: list[str]) -> np.ndarray:
    return np.array(trainer.models.tokenizer.convert_tokens_to_ids([piece.strip() for piece in pieces]))


def same(one: list[ProbeScore], other: list[ProbeScore]) -> bool:
    pairs = [(asdict(a), asdict(b)) for a, b in zip(one, other, strict=True)]
    return bool(pairs) and all(np.array_equal(a[name], b[name]) for a, b in pairs for name in a)


@pytest.mark.parametrize(("changes", "kept"), [(LORA, False), (FOLLOWS, True)], ids=["lora", "follows"])
def test_a_resumed_run_goes_on_with_its_probes(
    make_trainer: Callable[..., Trainer], tmp_path: Path, changes: dict[str, Any], kept: bool
) -> None:
    trainer = make_trainer(**settings(**changes))
    trainer.first_answers()
    trainer.step()
    (tmp_path / "run").mkdir()
    models = trainer.models
    folder = save_checkpoint(tmp_path / "run", 1, models.policy, models.tokenizer, training_state(trainer), 5)
    assert (folder / "probes.safetensors").exists() == kept
    resumed = make_trainer(**settings(**changes))
    restore_policy(folder, resumed.models.policy)
    restore(resumed, load_state(folder, resumed.updater.optimizer))
    assert trainer.probes and resumed.probes and resumed.probes.texts() == trainer.probes.texts()
    assert same(resumed.probes.of_start(), trainer.probes.of_start())
    assert same(resumed.step().probes, trainer.step().probes)


def test_so_many_answers_become_probes(make_trainer: Callable[..., Trainer]) -> None:
    for asked, watched, expected in ((9, 3, 3), (0, 3, 0)):
        trainer = make_trainer(engine={"watch_prompts": watched, "probe_prompts": asked}, generation={"response_length": 2})
        trainer.first_answers()
        assert len(trainer.probes.texts() if trainer.probes else []) == expected == len(trainer.step().probes)


def test_probes_change_nothing_and_keep_their_temperature(make_trainer: Callable[..., Trainer]) -> None:
    rows = []
    for asked in (0, 3):
        trainer = make_trainer(**settings(engine={"watch_prompts": 3, "probe_prompts": asked}))
        trainer.first_answers()
        rows.append([trainer.step().metrics["objective/scores"] for _ in range(2)])
    assert rows[0] == rows[1]
    assert trainer.probes
    before = trainer.probes.scores()
    generation = trainer.config.generation.model_copy(update={"temperature": 2.0})
    trainer.models = replace(trainer.models, config=trainer.config.model_copy(update={"generation": generation}))
    assert same(trainer.probes.scores(), before)


def test_long_answers_are_cut(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes_module, "MOST_TOKENS", 4)
    trainer = make_trainer(generation={"response_length": 6, "response_length_min": 6, "stop_token": "none"}, engine={"watch_prompts": 2})
    answers, _ = trainer.first_answers()
    assert trainer.probes and [probe.pieces for probe in trainer.probes.texts()] == [answer.pieces[:4] for answer in answers]
    assert all(score.logprobs.shape == (4,) for score in trainer.step().probes)


def test_a_run_stores_its_probes(tmp_path: Path) -> None:
    config = small_config(tmp_path, generation={"response_length": 3}, engine={"watch_prompts": 2, "watch_every": 2})
    create_run(tmp_path / "run", config, name="run", state="loading")
    assert run_engine(tmp_path / "run", "train") == DONE
    reader = RunReader(tmp_path / "run")
    probes, scores = reader.probes()
    assert [probe.probe for probe in probes] == [0, 1]
    assert [(step, score.probe) for step, score in scores] == [(step, probe) for step in range(3) for probe in range(2)]
    assert np.array_equal(scores[0][1].start_logprobs, scores[0][1].top_logprobs)
    assert not np.array_equal(scores[4][1].start_logprobs, scores[4][1].top_logprobs)
    texts = reader.episodes(1, 2)[2].pieces
    assert all(int(token) in texts for _, score in scores for token in score.top_ids.ravel())


def test_small_models_answer_with_one_thread(make_trainer: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the step that follows has all its threads again, also when the answers failed."""
    trainer = make_trainer(**settings())
    own, calls, before = watched_module.generate, [], torch.get_num_threads()

    def generate(*arguments: Any) -> Any:
        calls.append(torch.get_num_threads())
        if len(calls) == 2:
            raise RuntimeError("no answer")
        return own(*arguments)

    monkeypatch.setattr(watched_module, "generate", generate)
    torch.set_num_threads(2)
    try:
        assert len(trainer.watched()[0]) == 3 and torch.get_num_threads() == 2
        with pytest.raises(RuntimeError, match="no answer"):
            trainer.watched()
        assert torch.get_num_threads() == 2 and calls == [1, 1]
        monkeypatch.setattr(lanes, "ONE_THREAD_BELOW", 1)  # a model that is not small
        trainer.watched()
        assert calls == [1, 1, 2]
    finally:
        torch.set_num_threads(before)
