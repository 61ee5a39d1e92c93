"""The table of TRL's options: complete, with settings that exist, and with the page made from it."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config_io import ConfigError, apply_overrides, config_from_yaml, parse_config
from rlhf_studio.from_trl.table import SECTIONS, answer, groups, options
from tools.from_trl_page import differences, document, names_elsewhere, setting_of

# The fields of trl 0.11.4's PPOConfig, written down from its source: that release does not install beside today's transformers.
CLASSIC = """
exp_name seed log_with task_name model_name query_dataset reward_model remove_unused_columns tracker_kwargs accelerator_kwargs
project_kwargs tracker_project_name push_to_hub_if_best_kwargs steps learning_rate adap_kl_ctrl init_kl_coef kl_penalty target
horizon gamma lam cliprange cliprange_value vf_coef batch_size forward_batch_size mini_batch_size gradient_accumulation_steps
world_size ppo_epochs max_grad_norm optimize_cuda_cache optimize_device_cache early_stopping target_kl compare_steps ratio_threshold
use_score_scaling use_score_norm score_clip whiten_rewards gradient_checkpointing is_encoder_decoder is_peft_model
backward_batch_size global_backward_batch_size global_batch_size dataset_num_proc
"""


def test_the_page_is_made_from_the_table() -> None:
    page = Path(__file__).parents[1] / "docs" / "from-trl.md"
    assert page.read_text(encoding="utf-8") == document(), "run: python -m tools.from_trl_page > docs/from-trl.md"


@pytest.mark.parametrize("section", [section.name for section in SECTIONS])
def test_every_setting_exists_and_every_option_has_an_answer(section: str) -> None:
    for option in options(section):
        assert option.ours or option.note, f"{option.name} has neither a setting nor a reason"
        assert not option.note or option.note.endswith("."), option.name
        for name in option.ours:
            assert setting_of(name).title, name


def test_an_unknown_setting_is_noticed() -> None:
    for name in ("ppo.no_such", "reward.components.0.no_such"):
        with pytest.raises(KeyError):
            setting_of(name)


def test_the_names_elsewhere_are_settings() -> None:
    names = [row[0] for row in names_elsewhere()]
    assert all(setting_of(name).title for name in names)
    assert len(names) == len(set(names))


def test_all_of_trl_0_11() -> None:
    assert [option.name for option in options("classic")] == CLASSIC.split()


def test_all_of_trl_1_12_with_its_defaults() -> None:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    config = pytest.importorskip("trl.experimental.ppo", reason="trl 1.12 is not installed").PPOConfig
    fields = {field.name: field for field in dataclasses.fields(config)}
    rows = [*options("experimental"), *options("arguments")]
    grouped = [name for group in groups() for name in group.names]
    covered = Counter([row.name for row in rows] + grouped)
    assert set(covered) == set(fields)
    assert {name for name, count in covered.items() if count > 1} == set()  # one answer for each
    for row in rows:
        assert row.default == fields[row.name].default, row.name


def test_each_difference_is_shown_by_a_test() -> None:
    source = (Path(__file__).parent / "engine" / "test_trl_parity.py").read_text(encoding="utf-8")
    for difference in differences():
        assert f"def {difference.test}(" in source, difference.name


# --- a name of TRL where a setting is expected -------------------------------------------------------------------------------


def told(action: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        action()
    return str(caught.value)


def test_a_name_of_trl_is_answered_with_ours_wherever_settings_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = "num_ppo_epochs is TRL's name; here it is ppo.ppo_epochs"
    assert told(lambda: config_from_yaml("ppo: {num_ppo_epochs: 1}")) == f"ppo.num_ppo_epochs: {here}"
    assert told(lambda: config_from_yaml("num_ppo_epochs: 1")) == f"num_ppo_epochs: {here}"
    assert told(lambda: parse_config(apply_overrides({}, {"ppo.num_ppo_epochs": "1"}))) == f"ppo.num_ppo_epochs: {here}"
    component = "reward: {components: [{kind: reward_model, function_to_apply: none}]}"
    assert told(lambda: config_from_yaml(component)).endswith("here it is reward.components.0.output")
    assert told(lambda: config_from_yaml("ppo: {nothing: 1}")) == "ppo.nothing: there is no such setting"
    for flag in ("--num_ppo_epochs", "--num-ppo-epochs"):
        assert main(["train", "--recipe", "world", flag, "1"]) == 2
        assert here in capsys.readouterr().err


def test_a_file_for_trl_is_recognised_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ppo.yaml"
    file.write_text("num_ppo_epochs: 1\nlam: 0.9\ncliprange: 0.2\ntotal_episodes: 10\nkl_coef: 0.1\nnothing: 1\n")
    assert main(["train", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "TRL" in line] == lines[:1] and len(lines) == 2
    assert "this looks like settings for TRL (5 of its names): python -m rlhf_studio from-trl FILE converts them" in lines[0]
    assert "nothing: there is no such setting" in lines[1]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("target", "here it is ppo.kl_target"),
        ("mini_batch_size", "here it is ppo.mini_batch_size"),
        ("gradient_accumulation_steps", "ppo.mini_batch_size (TRL 0.11), or ppo.batch_size (TRL 1.12)"),
        ("lora_alpha", "here it is lora.alpha"),
        ("dataset_name", "here it is data.prompts"),
        ("push_to_hub", "there is no such setting here (A run never uploads anything"),
    ],
)
def test_answers(name: str, part: str) -> None:
    assert part in answer(name)


def test_every_field_of_trls_three_classes_has_an_answer() -> None:
    trl = pytest.importorskip("trl", reason="trl 1.12 is not installed")
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    config = pytest.importorskip("trl.experimental.ppo", reason="trl 1.12 is not installed").PPOConfig
    for kind in (config, trl.ScriptArguments, trl.ModelConfig):
        for field in dataclasses.fields(kind):
            assert answer(field.name), field.name
    for section, kind in (("script", trl.ScriptArguments), ("model", trl.ModelConfig)):
        fields = {field.name: field.default for field in dataclasses.fields(kind)}
        assert {option.name: option.default for option in options(section)} == fields
    for name in CLASSIC.split():
        assert answer(name), name
