"""A chat model whose turns end with another token than the tokenizer's end token stops, in every stage, and still does after an export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.cli.main import main
from rlhf_studio.runs.reader import RunReader
from tests.cases.chat_models import greedy_answer, last_policy, save_questions, save_settings

END_OF_TEXT, END_OF_TURN = 1, 4


def ppo(policy: Path, run_dir: Path, *more: str) -> dict[str, float | None]:
    """Two PPO steps on the questions, with a reward for answers of six tokens or so. Returns the last step's metrics."""
    prompts = save_questions(run_dir.with_name("questions.jsonl"), answered=False)
    settings: dict[str, Any] = {
        "model": {"policy": str(policy)},
        "data": {"prompts": str(prompts), "column": "prompt", "chat_template": True},
        "reward": {"components": [{"kind": "length", "target": 6, "tolerance": 6}], "gold": "none"},
        "ppo": {"steps": 2, "batch_size": 16, "mini_batch_size": 8, "micro_batch_size": 8, "learning_rate": 1e-6},
        "generation": {"response_length": 16},
        "engine": {"device": "cpu"},
    }
    assert main(["train", "--run-dir", str(run_dir), "--config", str(save_settings(settings, run_dir)), *more]) == 0
    return RunReader(run_dir).metrics_since(0)[-1][1]


def test_a_run_stops_at_both_tokens_and_its_export_says_so(chat_model: Callable[[str], Path], tmp_path: Path) -> None:
    """On a model that has learned nothing; the next test shows on one that has that its answers end there."""
    ppo(chat_model("llama3"), tmp_path / "run", "--ppo.steps", "1")
    (said,) = [event for event in RunReader(tmp_path / "run").newest_events(99) if event.kind == "ends"]
    assert said.data == {"ids": [END_OF_TEXT, END_OF_TURN], "end": END_OF_TURN}
    assert main(["export", str(tmp_path / "run"), "--merged", str(tmp_path / "out")]) == 0
    sampling = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert sampling["eos_token_id"] == [END_OF_TEXT, END_OF_TURN] and "repetition_penalty" not in sampling


@pytest.mark.long
def test_answers_end_at_the_turns_end_in_training_and_after_the_export(
    taught_chat_model: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sft = taught_chat_model("llama3")
    assert RunReader(sft).watched()[-1][1].stopped
    metrics = ppo(last_policy(sft), tmp_path / "run")
    assert metrics["objective/scores"] >= 0.7 and metrics["tokens/cut_off"] <= 0.2  # 0.00 and 1.00 when the run waits for <|end_of_text|>
    (said,) = [event for event in RunReader(tmp_path / "run").newest_events(99) if event.kind == "ends"]
    assert said.data == {"ids": [END_OF_TEXT, END_OF_TURN], "end": END_OF_TURN}
    assert main(["export", str(tmp_path / "run"), "--merged", str(tmp_path / "out")]) == 0
    for folder in (tmp_path / "out", last_policy(tmp_path / "run")):
        sampling = json.loads((folder / "generation_config.json").read_text())
        assert sampling["eos_token_id"] == [END_OF_TEXT, END_OF_TURN] and "repetition_penalty" not in sampling
        assert (sampling["temperature"], sampling["top_p"], sampling["do_sample"]) == (1.0, 1.0, True)
    assert greedy_answer(tmp_path / "out") == greedy_answer(last_policy(sft))
    assert greedy_answer(tmp_path / "out")[-1] == END_OF_TURN


@pytest.mark.long
def test_a_run_that_waits_for_another_token_is_told_so(taught_chat_model: Callable[[str], Path], tmp_path: Path) -> None:
    waits = ("--generation.stop_token", "<|end_of_text|>", "--ppo.steps", "3", "--lora.enabled", "true")
    metrics = ppo(last_policy(taught_chat_model("llama3")), tmp_path / "run", *waits)
    assert metrics["tokens/cut_off"] == 1.0
    (found,) = [finding for finding in diagnose(RunReader(tmp_path / "run")).findings if finding.check == "all-cut-off"]
    assert found.changes == {"generation.stop_token": "eos"}
    assert main(["export", str(tmp_path / "run"), "--adapter", str(tmp_path / "out")]) == 0
    sampling = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert sampling["eos_token_id"] == END_OF_TEXT and "repetition_penalty" not in sampling  # as the run sampled, right or wrong
