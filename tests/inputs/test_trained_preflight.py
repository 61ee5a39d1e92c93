"""What the check before a start says of models that another run has trained."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import config_to_yaml, parse_config
from rlhf_studio.inputs.models.files import ModelError, find_model
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.runs.create import create_run

MakeModel = Any
ROOMY = 10**15


def config(stage: str, /, **sections: dict[str, Any]) -> StageConfig:
    few = {"max_rows": 50} if stage in ("sft", "reward_model", "dpo") else {}
    return parse_config({"stage": stage, **sections, "data": {**few, **sections.get("data", {})}})


def trained(folder: Path, make: MakeModel, stage: str = "sft", **data: Any) -> Path:
    """A run of this stage with such data, whose model lies in its checkpoint of step 3."""
    create_run(folder, config(stage, data=data), name=folder.name, state="finished")
    checkpoint = folder / "checkpoints" / "step-000003"
    checkpoint.mkdir(parents=True)
    model: Path = make(f"of-{folder.name}")
    model.rename(checkpoint / ("reward_model" if stage == "reward_model" else "policy"))
    (checkpoint / "manifest.json").write_text("{}", encoding="utf-8")
    return folder


def warnings(made: StageConfig, workspace: Path) -> list[str]:
    notes = inspect_run(made, workspace, free_bytes=lambda _: ROOMY, gpus=lambda: ()).notes
    return [note for note in notes if "prompts" in note and "trained" in note]


def test_another_prompt_form_than_the_policys_run_is_told(make_model: MakeModel, tmp_path: Path) -> None:
    run = trained(tmp_path / "chats", make_model, chat_template=True, system_text="Be kind.")
    for name in (run, f"{run}@3", run / "checkpoints" / "step-000003" / "policy"):
        assert warnings(config("ppo", model={"policy": str(name)}), tmp_path) == [
            "Warning: the run chats, which trained model.policy, wrote its prompts in another form: data.chat_template was true there and "
            "is false here, data.system_text was 'Be kind.' there and is empty here. The same form would be: data.chat_template true, "
            "data.system_text 'Be kind.'."
        ], name
        same = {"chat_template": True, "system_text": "Be kind."}
        assert warnings(config("ppo", model={"policy": str(name)}, data=same), tmp_path) == []
    assert warnings(config("ppo", model={"policy": str(make_model("a-folder"))}), tmp_path) == []


@pytest.mark.parametrize("stage", ["sft", "dpo", "evaluation"])
def test_every_stage_compares(stage: str, make_model: MakeModel, tmp_path: Path) -> None:
    run = trained(tmp_path / "dialogues", make_model, prompt_format="Human: {prompt}")
    (note,) = warnings(config(stage, model={"policy": str(run)}), tmp_path)
    assert "data.prompt_format was 'Human: {prompt}' there and is empty here" in note
    assert warnings(config(stage, model={"policy": str(run)}, data={"prompt_format": "Human: {prompt}"}), tmp_path) == []


def test_weights_that_are_drawn_anew_know_no_form(make_model: MakeModel, tmp_path: Path) -> None:
    run = trained(tmp_path / "chats", make_model, chat_template=True)
    assert warnings(config("sft", model={"policy": str(run), "fresh": True}), tmp_path) == []


def test_policies_of_an_evaluation_and_reward_models(make_model: MakeModel, make_reward: MakeModel, tmp_path: Path) -> None:
    policy = trained(tmp_path / "chats", make_model, chat_template=True)
    judge = trained(tmp_path / "judge", make_reward, "reward_model", chat_template=True)
    saved = policy / "checkpoints" / "step-000003" / "policy"
    shutil.copytree(saved, saved.parents[1] / "step-000004" / "policy")
    lines = f"{saved}\n{saved.parents[1] / 'step-000004' / 'policy'}\n{make_model('a-folder')}"
    (note,) = warnings(config("evaluation", evaluation={"policies": lines}), tmp_path)
    assert "run chats, which trained evaluation.policies" in note, "once for each run"

    def scored(chat_template: str, reads: str = "both", model: Path = judge) -> list[str]:
        component = {"kind": "reward_model", "model": str(model), "chat_template": chat_template, "reads": reads}
        return warnings(config("ppo", reward={"components": [component]}), tmp_path)

    (note,) = scored("policy")
    assert note.startswith("Warning: the run judge, which trained reward.components.0, wrote its prompts in another form: data.chat_")
    assert scored("own") == [] and scored("policy", "response") == []
    plain = trained(tmp_path / "plain", make_reward, "reward_model")
    assert scored("policy", model=plain) == []
    (note,) = scored("own", model=plain)
    assert note.endswith("reward.components.0.chat_template is own here. The same form would be: policy.")


def test_a_run_whose_settings_are_damaged_is_told(make_model: MakeModel, tmp_path: Path) -> None:
    run = trained(tmp_path / "broken", make_model)
    (run / "config.yaml").write_text("nonsense", encoding="utf-8")
    (note,) = warnings(config("ppo", model={"policy": str(run)}), tmp_path)
    assert note.startswith("Whether this run writes its prompts as the run broken did")


def judged(workspace: Path, judge: str, policies: str = "bundled/world-policy", reward: str = "bundled/world-reward") -> list[str]:
    """What the check of an evaluation says of its judge."""
    components = [{"kind": "reward_model", "model": reward}]
    made = config("evaluation", evaluation={"policies": policies, "judge": judge}, reward={"components": components})
    notes = inspect_run(made, workspace, free_bytes=lambda _: ROOMY, gpus=lambda: ()).notes
    return [note for note in notes if "evaluation.judge" in note]


def test_a_judge_that_a_policy_learned_from_is_no_independent_one(
    make_model: MakeModel, make_reward: MakeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the model is named, there and here; a judge that nobody learned from is not spoken of."""
    judge = trained(tmp_path / "judge", make_reward, "reward_model")
    monkeypatch.chdir(tmp_path)
    reward = {"components": [{"kind": "ensemble", "models": "judge@3,bundled/world-reward"}]}
    run = trained(tmp_path / "policy", make_model, "ppo")
    (run / "config.yaml").write_text(config_to_yaml(config("ppo", reward=reward)), encoding="utf-8")
    monkeypatch.chdir("/")
    names = (str(judge), f"{judge}@3", str(judge / "checkpoints" / "step-000003" / "reward_model"), "bundled/world-reward")
    saved = str(run / "checkpoints" / "step-000003" / "policy")
    for name in names:
        (note,) = judged(tmp_path, name, policies=f"bundled/world-policy\n{saved if name == names[0] else f'{run}@start'}")
        assert note.startswith("Warning: evaluation.judge is the reward that the run policy was trained with. It is no independent")
    assert judged(tmp_path, str(make_reward("another")), policies=saved) == []
    (note,) = judged(tmp_path, str(judge), reward=f"{judge}@3")
    assert note.endswith("only says again what the score says.")
    assert judged(tmp_path, str(judge)) == [] == judged(tmp_path, "")
    later = judge / "checkpoints" / "step-000007"  # another step of the same reward model
    shutil.copytree(judge / "checkpoints" / "step-000003", later)
    (note,) = judged(tmp_path, f"{judge}@7", policies=saved)
    assert note.startswith("Warning: evaluation.judge is another step of the reward model that the run policy was trained with.")
    (note,) = judged(tmp_path, str(later / "reward_model"), reward=f"{judge}@3")
    assert note.startswith("Warning: evaluation.judge is another step of a reward model of this evaluation's own reward")
    shutil.rmtree(later)
    (run / "config.yaml").write_text("nonsense", encoding="utf-8")
    (note,) = judged(tmp_path, str(judge), policies=saved)
    assert note.startswith("Whether the run policy learned from evaluation.judge is not known: ")


def test_the_id_of_a_run_is_never_asked_of_the_hub() -> None:
    """It is a folder's name: what would be right is said instead."""
    for name in ("20261121-025433-k3f9xa", "20261121-025433-k3f9xa@40"):
        with pytest.raises(ModelError) as refused:
            find_model(name)
        message = (
            f"there is no folder {name} here. It looks like the id of a run: name the run's folder instead, such as WORKSPACE/runs/{name}"
        )
        assert str(refused.value) == message
