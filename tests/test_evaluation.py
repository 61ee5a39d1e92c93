"""What an evaluation takes over from the runs that it compares: the reference, paths, and only settings that it uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.inputs.evaluation import EvaluationRequest, settings_for
from tests.runs.test_evaluation_policies import with_policies

WORLD = {"prompts": "p.txt", "reward": "bundled/world-reward"}


def evaluation_of(folder: Path, *policies: str, settings: dict[str, Any] | None = None, **named: Any) -> EvaluationRunConfig:
    return settings_for(EvaluationRequest(policies, settings=settings or {}, **named), folder)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    return with_policies(tmp_path / "sft", {"stage": "sft", "model": {"fresh": True}})


def test_a_run_that_began_with_random_weights_is_simply_evaluated(fresh: Path, tmp_path: Path) -> None:
    config = evaluation_of(tmp_path, "sft")
    assert config.evaluation.policies == str(fresh)  # its newest policy, and no start beside it
    assert (config.model.policy, config.evaluation.reference) == (f"{fresh}@4", "")
    assert config.data.prompts == "bundled/world-prompts-heldout"  # the review world's, as for its own policy


@pytest.mark.parametrize(("policies", "step"), [(("sft@2", "sft@4"), 2), (("sft@4", "sft@2"), 4), (("sft@all",), 2)])
def test_its_kl_refers_to_the_first_policy(fresh: Path, tmp_path: Path, policies: tuple[str, ...], step: int) -> None:
    """Not to the model whose shape the weights were drawn in."""
    assert evaluation_of(tmp_path, *policies).model.policy == f"{fresh}@{step}"


def test_a_file_of_completions_is_no_reference(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.jsonl").write_text("")
    assert evaluation_of(tmp_path, str(tmp_path / "theirs.jsonl"), "sft@2").model.policy == f"{fresh}@2"


def test_a_reference_keeps_its_revision_unless_another_is_named(tmp_path: Path) -> None:
    model = {"policy": "lab/policy", "revision": "v1", "reference": "lab/reference", "reference_revision": "v2"}
    with_policies(tmp_path / "ppo", {"stage": "ppo", "model": model})
    own = evaluation_of(tmp_path, "ppo@2", "ppo@4")
    assert (own.model.policy, own.model.revision) == ("lab/policy", "v1")
    assert (own.evaluation.reference, own.evaluation.reference_revision) == ("lab/reference", "v2")
    for named in ({"settings": {"reference": "other"}}, {"overrides": {"evaluation.reference": "other"}}):
        other = evaluation_of(tmp_path, "ppo@2", **named).evaluation
        assert (other.reference, other.reference_revision) == ("other", "main")


@pytest.mark.parametrize(
    "stage",
    [
        "ppo",
        "sft",
    ],
)
def test_relative_paths_are_those_of_the_runs_folder(stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    (folder / "models" / "base").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(folder)
    data = {} if stage == "ppo" else {"source": "examples.jsonl"}
    with_policies(tmp_path / stage, {"stage": stage, "model": {"policy": "models/base"}, "data": data})
    monkeypatch.chdir(elsewhere)
    assert evaluation_of(tmp_path, f"{stage}@4", **WORLD).model.policy == str(folder / "models" / "base")


def test_settings_that_only_training_uses_are_left_behind(tmp_path: Path) -> None:
    trained = {
        "model": {"gradient_checkpointing": True},
        "data": {"shuffle": False},
        "reward": {"scaling": "scale", "length_penalty": 0.1},
        "generation": {"response_length": 32, "response_length_min": 24, "temperature": 0.7},
    }
    with_policies(tmp_path / "ppo", {"stage": "ppo", **trained})
    config = evaluation_of(tmp_path, "ppo@2", "ppo@4")
    assert (config.generation.response_length, config.generation.response_length_min, config.generation.temperature) == (32, 0, 0.7)
    assert config.data.shuffle and not config.model.gradient_checkpointing


def test_what_has_no_start_says_what_to_name_instead(fresh: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name a policy that it kept: sft@2, sft@4"):
        evaluation_of(tmp_path, "sft@start", "sft@4")
