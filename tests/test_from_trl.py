"""The table of TRL's options: complete, with settings that exist, and with the page made from it."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from rlhf_studio.cli.main import main
from rlhf_studio.config import Component
from rlhf_studio.config.io import ConfigError, apply_overrides, config_from_yaml, parse_config, walk_fields
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.kit.code import excerpt
from rlhf_studio.trl.names import answers
from rlhf_studio.trl.table import SECTIONS, answer, groups, names, options
from tools.from_trl_page import PAGE, document

COMPONENT = "reward.components.0."

# The fields of trl 0.11.4's PPOConfig, written down from its source: that release does not install beside today's transformers.
CLASSIC = """
exp_name seed log_with task_name model_name query_dataset reward_model remove_unused_columns tracker_kwargs accelerator_kwargs
project_kwargs tracker_project_name push_to_hub_if_best_kwargs steps learning_rate adap_kl_ctrl init_kl_coef kl_penalty target
horizon gamma lam cliprange cliprange_value vf_coef batch_size forward_batch_size mini_batch_size gradient_accumulation_steps
world_size ppo_epochs max_grad_norm optimize_cuda_cache optimize_device_cache early_stopping target_kl compare_steps ratio_threshold
use_score_scaling use_score_norm score_clip whiten_rewards gradient_checkpointing is_encoder_decoder is_peft_model
backward_batch_size global_backward_batch_size global_batch_size dataset_num_proc
"""


def setting_of(name: str) -> FieldInfo:
    """The definition of one of our settings; of those that several components have, the first one's. Raises KeyError for any other."""
    if name.startswith(COMPONENT):
        fields = {key: field for kind in reversed(Component.__subclasses__()) for key, field in kind.model_fields.items()}
        return fields[name.removeprefix(COMPONENT)]
    return dict(walk_fields())[name]


def test_the_page_is_made_from_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "run: python -m tools.from_trl_page"


def test_every_setting_exists_and_every_option_has_an_answer() -> None:
    for option in [option for section in SECTIONS for option in options(section.name)]:
        assert option.ours or option.note, f"{option.name} has neither a setting nor a reason"
        assert not option.note or option.note.endswith("."), option.name
        for name in option.ours:
            assert setting_of(name).title, name
    for name in ("ppo.no_such", "reward.components.0.no_such"):
        with pytest.raises(KeyError):
            setting_of(name)


def test_a_name_of_trls_source_is_answered_by_code_and_pages_that_exist() -> None:
    for row in names():
        assert row.what.endswith(".") and (not row.note or row.note.endswith(".")), row.names
        for symbol in row.symbols:
            assert excerpt(symbol).path.startswith("rlhf_studio/"), symbol
        kind, _, rest = row.see.partition(":")
        lesson, _, scene = rest.partition("/")
        if kind == "tour":
            assert f"tour.{rest}" in [entry.name for entry in shelf.entries(shelf=shelf.TOUR)], row.names
        elif kind:
            assert kind == "lesson" and scene in ("", *(existing.name for existing in shelf.text_of(lesson).scenes)), row.names
    every = [name for row in names() for name in row.names]
    assert len(every) == len(set(every))


def test_what_differs_between_releases_is_told_of_each() -> None:
    for name in ("whiten_rewards", "batch_size", "mini_batch_size", "gradient_accumulation_steps", "max_grad_norm"):
        old, new = answers()[name].note.split("TRL 1.12: ")
        assert old.startswith("PPOConfig of TRL 0.11: ") and new and answers()[name].releases == ("0.11", "1.12"), name
    assert "Per process" in answers()["batch_size"].note and "× processes" in answers()["batch_size"].note
    assert {"ppo.micro_batch_size", "ppo.batch_size"} <= set(answers()["gradient_accumulation_steps"].settings)
    assert answers()["gamma"].note == "" and answers()["num_train_epochs"].settings


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


# --- a name of TRL where a setting is expected -------------------------------------------------------------------------------


def message_of(action: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        action()
    return str(caught.value)


def test_a_name_of_trl_is_answered_with_ours_wherever_settings_come_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "num_ppo_epochs is TRL's name; here it is ppo.ppo_epochs"
    assert message_of(lambda: config_from_yaml("ppo: {num_ppo_epochs: 1}")) == f"ppo.num_ppo_epochs: {sentence}"
    assert message_of(lambda: config_from_yaml("num_ppo_epochs: 1")) == f"num_ppo_epochs: {sentence}"
    assert message_of(lambda: parse_config(apply_overrides({}, {"ppo.num_ppo_epochs": "1"}))) == f"ppo.num_ppo_epochs: {sentence}"
    component = "reward: {components: [{kind: reward_model, function_to_apply: none}]}"
    assert message_of(lambda: config_from_yaml(component)).endswith("here it is reward.components.0.output")
    assert message_of(lambda: config_from_yaml("ppo: {nothing: 1}")) == "ppo.nothing: there is no such setting"
    for flag in ("--num_ppo_epochs", "--num-ppo-epochs"):
        assert main(["train", "--recipe", "world", flag, "1"]) == 2
        assert sentence in capsys.readouterr().err


def test_a_file_for_trl_is_recognised_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ppo.yaml"
    file.write_text("num_ppo_epochs: 1\nlam: 0.9\ncliprange: 0.2\ntotal_episodes: 10\nkl_coef: 0.1\nnothing: 1\n")
    assert main(["train", "--config", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "TRL" in line] == lines[:1] and len(lines) == 2
    assert "this looks like settings for TRL (5 of its names): python -m rlhf_studio from-trl FILE converts them" in lines[0]
    assert "nothing: there is no such setting" in lines[1]


ANSWERS = {
    "target": "here it is ppo.kl_target",
    "mini_batch_size": "here it is ppo.mini_batch_size",
    "gradient_accumulation_steps": "ppo.mini_batch_size (TRL 0.11), or ppo.batch_size (TRL 1.12)",
    "lora_alpha": "here it is lora.alpha",
    "dataset_name": "here it is data.prompts",
    "push_to_hub": "there is no such setting here (A run never uploads anything",
}


def test_answers() -> None:
    for name, part in ANSWERS.items():
        assert part in answer(name), name


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
