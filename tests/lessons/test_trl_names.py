"""Every name of TRL's PPO trainers is on the list, has an answer, and the answer names code of ours that exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.from_trl.table import SECTIONS, groups, options
from rlhf_studio.lessons import answers as lesson_answers
from rlhf_studio.lessons import shelf
from rlhf_studio.lessons.kit.code import excerpt
from rlhf_studio.lessons.trl_names import answers, identifiers, option_purposes, written_answers
from tools.from_trl_page import setting_of
from tools.trl_identifiers import INSTALLED, installed_folder
from tools.trl_identifiers import identifiers as taken

OPTIONS = {name for section in SECTIONS for option in options(section.name) for name in option.names}
OPTIONS |= {name for group in groups() for name in group.names}
NAMES = {name for kinds in identifiers().values() for names in kinds.values() for name in names}


def test_the_list_is_that_of_the_installed_trl() -> None:
    pytest.importorskip("trl", reason="trl 1.12 is not installed")
    assert taken(installed_folder(), INSTALLED) == identifiers()[INSTALLED], "run: python -m tools.trl_identifiers, with both releases"


def test_what_counts_as_a_name(tmp_path: Path) -> None:
    ppo = tmp_path / "experimental" / "ppo"
    ppo.mkdir(parents=True)
    (tmp_path / "helpers.py").write_text("def helped(first):\n    inside = first\n    return inside\n")
    (ppo / "ppo_config.py").write_text("class PPOConfig:\n    gamma: float = 1.0\n")
    (ppo / "modeling_value_head.py").write_text("def head(width):\n    hidden = width\n    return hidden\n")
    source = "from os import sep\nfrom ...helpers import helped\nLIMIT = 1\nclass T:\n    def train(self, start, *args):\n"
    source += "        self.kept = start\n        for a, (b, c) in start:\n            d = a\n"
    source += "        with open(a) as file:\n            print(file)\n"
    source += "        metrics['lr'] = 1\n        return [e for e in d], {'x/y': 1, 'plain': 2}\n"
    (ppo / "ppo_trainer.py").write_text(source)
    assert taken(tmp_path, "1.12.0") == {
        "argument": ["first", "start", "width"],
        "attribute": ["gamma", "kept"],
        "class": ["PPOConfig", "T"],
        "constant": ["LIMIT"],
        "function": ["head", "helped", "train"],
        "imported": ["helped", "sep"],
        "local": ["a", "b", "c", "d", "e", "file"],
        "metric": ["lr", "x/y"],
    }


def test_both_trainers_are_on_the_list_as_a_reader_meets_them() -> None:
    old, new = ({name for names in kinds.values() for name in names} for kinds in (identifiers()["0.11.4"], identifiers()["1.12.0"]))
    assert {
        "PolicyAndValueWrapper",
        "generate_completions",
        "DataCollatorWithPadding",
        "OnlineTrainerState",
        "padding_mask_p1",
    } <= old & new
    assert {"null_ref_context", "logr", "selective_log_softmax"} <= new - old
    assert {"AdaptiveKLController", "batched_forward_pass", "ratio_threshold", "new_all_logprobs", "PPOv2Trainer"} <= old - new
    assert "objective/rlhf_reward" in new and "lastgaelam" in new and "self" not in old | new


def test_every_name_has_one_answer() -> None:
    assert set(answers()) == NAMES | OPTIONS
    named = [name for entry in written_answers() for name in entry["names"].split()]
    assert sorted(named) == sorted(set(named)) and set(named) <= NAMES
    for name, answer in answers().items():
        assert bool(answer.not_needed) != bool(answer.symbols or answer.settings), name
        for sentence in (answer.what, answer.note, answer.not_needed):
            assert not sentence or sentence.endswith("."), f"{name}: {sentence}"


@pytest.mark.parametrize("name", ["num_train_epochs", "lr_scheduler_type", "lora_r", "save_steps"])
def test_an_inherited_option_has_a_card_with_its_setting(name: str) -> None:
    answer = answers()[name]
    assert answer.what and answer.settings and answer.see and answer.kinds == ("option",) and answer.releases == ("1.12.0",)


def test_entries_have_known_members() -> None:
    for entry in written_answers():
        assert entry.keys() <= {"names", "also", "what", "here", "note", "not_needed", "see"} and entry["what"], entry["names"]


@pytest.mark.parametrize("symbol", sorted({symbol for answer in answers().values() for symbol in answer.symbols}))
def test_every_symbol_exists(symbol: str) -> None:
    assert excerpt(symbol).path.startswith("rlhf_studio/")


def test_every_setting_and_every_place_exists() -> None:
    for name, answer in answers().items():
        for setting in answer.settings:
            assert setting == "reward.components" or setting_of(setting).title, name
        kind, _, rest = answer.see.partition(":")
        if kind == "tour":
            assert f"tour.{rest}" in [entry.name for entry in shelf.entries(shelf=shelf.TOUR)], name
        elif kind:
            lesson, _, scene = rest.partition("/")
            assert kind == "lesson" and shelf.text_of(lesson).title, name
            assert not scene or scene in lesson_answers.scenes_of(lesson), name


def test_every_card_says_what_the_name_is_or_leads_on() -> None:
    assert [name for name, answer in answers().items() if not answer.what and not answer.see] == []
    for name, purpose in option_purposes().items():
        assert (answers()[name].what, answers()[name].see) == (purpose["what"], purpose["see"]) and purpose["see"], name
        assert answers()[name].settings or answers()[name].not_needed, f"{name} is no option"


def test_what_differs_between_releases_is_told_of_each() -> None:
    said = {name: answer.note.split("TRL 1.12: ") for name, answer in answers().items()}
    for name in ("whiten_rewards", "batch_size", "mini_batch_size", "gradient_accumulation_steps", "max_grad_norm"):
        old, new = said[name]
        assert old.startswith("PPOConfig of TRL 0.11: ") and new and answers()[name].releases == ("0.11.4", "1.12.0"), name
    old, new = said["whiten_rewards"]
    assert "every place after the end earns" in old and "sets the padding to 0" in new
    assert "Per process" in said["batch_size"][0] and "× processes" in said["batch_size"][1]
    assert "batch_size / num_mini_batches" in said["mini_batch_size"][1]
    assert {"ppo.micro_batch_size", "ppo.batch_size"} <= set(answers()["gradient_accumulation_steps"].settings)
    assert said["gamma"] == [""]


@pytest.mark.parametrize("name", ["per_device_train_batch_size", "AutoModelForCausalLMWithValueHead", "ValueHead", "seed"])
def test_a_name_that_both_releases_have_is_labelled_so(name: str) -> None:
    assert answers()[name].releases == ("0.11.4", "1.12.0")


def test_metrics_that_trl_takes_over_padding_are_told_apart() -> None:
    masked, unmasked, ratio, variance = (
        answers()[name] for name in ("loss/policy_avg", "policy/approxkl_avg", "val/ratio", "val/ratio_var")
    )
    assert set(masked.family) == {"policy/clipfrac_avg", "loss/value_avg", "val/clipfrac_avg"} and "real tokens" in masked.what
    assert "padding" in unmasked.what and "padding" in ratio.what and "padded" in answers()["policy/entropy_avg"].what
    assert not variance.family and "Another quantity" in variance.note
