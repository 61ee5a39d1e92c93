"""The table of TRL's options: complete, with settings that exist, and with the page made from it."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from pathlib import Path

import pytest

from rlhf_studio.from_trl import differences, document, groups, names_elsewhere, options, setting_of

SECTIONS = ("classic", "experimental", "arguments", "constructor")

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
    assert page.read_text(encoding="utf-8") == document(), "run: python -m rlhf_studio.from_trl > docs/from-trl.md"


@pytest.mark.parametrize("section", SECTIONS)
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
    names = names_elsewhere()
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
