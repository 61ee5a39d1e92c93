"""What people wrote for TRL, converted: against settings written down by hand, and against TRL's own classes."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, mapping_from_yaml, parse_config
from rlhf_studio.trl.convert import Conversion, convert
from rlhf_studio.trl.table import options

CLASSIC_PPO = {
    **{"batch_size": 128, "mini_batch_size": 128, "micro_batch_size": 0, "ppo_epochs": 4, "learning_rate": 1.41e-5},
    **{"lr_schedule": "constant", "weight_decay": 0.0, "adam_epsilon": 1e-8, "max_grad_norm": 0.0, "ratio_threshold": 10.0},
    **{"kl_coef": 0.2, "kl_controller": "adaptive", "kl_target": 6.0, "kl_horizon": 10_000, "kl_estimator": "k1", "target_kl": 0.0},
    **{"gamma": 1.0, "lam": 0.95, "cliprange": 0.2, "cliprange_value": 0.2, "vf_coef": 0.1, "whiten_rewards": False},
}
"""The defaults of TRL 0.11's PPOConfig in our terms, by hand."""
TLDR = r"""
accelerate launch --config_file examples/accelerate_configs/deepspeed_zero2.yaml --num_processes 8 \
    examples/scripts/ppo/ppo_tldr.py \
    --dataset_name trl-lib/tldr \
    --output_dir somewhere \
    --learning_rate 3e-6 \
    --per_device_train_batch_size 16 \
    --gradient_accumulation_steps 4 \
    --total_episodes 1000000 \
    --model_name_or_path EleutherAI/pythia-1b-deduped \
    --sft_model_path cleanrl/EleutherAI_pythia-1b-deduped__sft__tldr \
    --reward_model_path cleanrl/EleutherAI_pythia-1b-deduped__reward__tldr \
    --local_rollout_forward_batch_size 16 \
    --missing_eos_penalty 1.0 \
    --stop_token eos
"""


def config(done: Conversion) -> RunConfig:
    """The settings, with our defaults for those that are left to a person: their empty values are refused."""
    data = mapping_from_yaml(done.yaml)
    for section, name in (("model", "policy"), ("data", "prompts"), ("reward", "components")):
        given = data.get(section, {}).get(name, "given")
        if given in ("", []) or (isinstance(given, list) and given[0].get("model") == ""):
            del data[section][name]
    return parse_config(data)


def refusal(text: str, name: str, release: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        convert(text, name, release)
    return str(caught.value)


# --- published settings, against what they are by hand -----------------------------------------------------------------------


def test_the_summaries_script() -> None:
    done = convert(TLDR, "run.sh")
    judge = {"kind": "reward_model", "model": "cleanrl/EleutherAI_pythia-1b-deduped__reward__tldr", "append_eos": True}
    assert config(done) == parse_config(
        {
            "model": {
                **{"policy": "cleanrl/EleutherAI_pythia-1b-deduped__sft__tldr", "dtype": "bfloat16", "gradient_checkpointing": True},
            },
            "critic": {"kind": "separate", "start": "reward_model"},
            "data": {"prompts": "trl-lib/tldr", "column": "prompt", "eval_share": 0.0},
            "reward": {"components": [judge], "missing_eos_penalty": 1.0},
            "ppo": {
                **{"steps": 1954, "batch_size": 512, "mini_batch_size": 512, "micro_batch_size": 16, "ppo_epochs": 4},
                **{"learning_rate": 3e-6, "lr_schedule": "linear", "adam_epsilon": 1e-8, "max_grad_norm": 0.0, "ratio_threshold": 0.0},
                **{"kl_coef": 0.05, "kl_estimator": "k1", "cliprange": 0.2, "cliprange_value": 0.2, "vf_coef": 0.1, "lam": 0.95},
            },
            "generation": {"response_length": 53, "temperature": 0.7, "stop_token": "eos", "batch_size": 16},
            "engine": {"seed": 42, "processes": 8, "watch_every": 195, "checkpoint_every": 500},
        }
    )
    assert any(line.startswith("left out: output_dir: ") for line in done.lines)
    assert not any("engine.processes" in line for line in done.lines)
    alone = convert(TLDR.replace("--num_processes 8", ""), "run.sh")
    assert config(alone).ppo.batch_size == 64
    assert config(convert(TLDR.replace("--num_processes 8", ""), "run.sh", processes=8)) == config(done)


def test_held_out_prompts_and_rows_that_are_sampled_together() -> None:
    given = "accelerate launch ppo.py --dataset_name a/b --dataset_test_split validation --per_device_train_batch_size 32"
    done = config(convert(f"{given} --gradient_accumulation_steps 4 --local_rollout_forward_batch_size 48 --total_episodes 1280", "run.sh"))
    assert (done.data.eval, done.data.eval_split) == ("a/b", "validation")
    assert (done.ppo.batch_size, done.generation.batch_size) == (128, 48)
    alone = config(convert(f"{given} --local_rollout_forward_batch_size 48 --total_episodes 1280", "run.sh"))
    assert alone.generation.batch_size == 0  # all of a batch of 32 fit


# --- nothing that the file says is lost --------------------------------------------------------------------------------------

NO_COUNTERPART: list[tuple[dict[str, Any], str]] = [
    ({"generation_kwargs": {"repetition_penalty": 1.3}}, "left out: generation_kwargs.repetition_penalty: 1.3; "),
    ({"generation_kwargs": {"do_sample": False}}, "left out: generation_kwargs.do_sample: False; Responses are always sampled"),
    ({"generation_kwargs": {"min_new_tokens": 8}}, "differs: generation_kwargs.min_new_tokens: 8 there; "),
    ({"generation_kwargs": {"max_length": 40}}, "decide: generation.response_length: max_length 40 counted the prompt too"),
    ({"generation_kwargs": {"eos_token_id": [1, -2]}}, "decide: generation.stop_token: eos_token_id was [1, -2]; "),
    ({"reward_model": "m", "sent_kwargs": {"truncation": True}}, "left out: sent_kwargs.truncation: True; "),
]


def test_what_has_no_counterpart_is_named() -> None:
    for given, line in NO_COUNTERPART:
        done = convert(json.dumps({"ppo_epochs": 1, **given}), "x.json")
        assert len([text for text in done.lines if text.startswith(line)]) == 1, (given, done.lines)
    wrong = json.dumps({"ppo_epochs": 1, "generation_kwargs": {"top_k": "many"}})
    assert "generation_kwargs.top_k: TRL's option should be a number, not 'many'" in refusal(wrong, "x.json")


def test_what_is_left_to_a_person_is_refused_until_it_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, run_dir = tmp_path / "run.yaml", tmp_path / "run"
    file.write_text(convert("ppo_epochs: 1", "x.yaml").yaml)
    start = ["train", "--config", str(file), "--run-dir", str(run_dir)]
    assert main(start) == 2
    errors = capsys.readouterr().err
    assert all(f"{name}: needs a value" in errors for name in ("model.policy", "data.prompts"))
    assert "reward.components: needs a value" in errors and not run_dir.exists()
    given = ["--model.policy", "bundled/world-policy", "--data.prompts", str(tmp_path / "none.txt")]
    assert main([*start, *given, "--reward.components", "[{kind: length}]"]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert "prompts: ''" in convert("--num_ppo_epochs 2", "x").yaml


def test_defaults_of_trls_scripts_are_no_choice_of_anyone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = convert("num_ppo_epochs: 2", "x.yaml")
    data = mapping_from_yaml(done.yaml)
    assert (data["model"]["policy"], data["reward"]["components"][0]["model"]) == ("", "")
    decide = [line for line in done.lines if "only TRL's own script would take EleutherAI/pythia-160m" in line]
    assert [line.split(": ")[1] for line in decide] == ["model.policy", "reward.components"]
    (tmp_path / "run.yaml").write_text(done.yaml)
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--run-dir", str(tmp_path / "run")]) == 2
    errors = capsys.readouterr().err
    assert "model.policy: needs a value" in errors and "reward.components.0.model: needs a value" in errors
    named = convert("--num_ppo_epochs 2 --sft_model_path EleutherAI/pythia-160m", "x")
    assert mapping_from_yaml(named.yaml)["model"]["policy"] == "EleutherAI/pythia-160m"  # who says it means it


def test_a_file_has_no_split_for_held_out_prompts(tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text("a")
    for name in ("data/hh.jsonl", "data/hh.csv.gz", str(tmp_path / "prompts")):
        done = convert(f"--num_ppo_epochs 2 --dataset_name {name} --dataset_test_split validation", "x")
        assert (config(done).data.eval, config(done).data.eval_share) == ("", 0.0)
        assert len([line for line in done.lines if line.startswith(f"left out: dataset_test_split: {name} is a file")]) == 1
        assert len([line for line in done.lines if "dataset_test_split" in line]) == 1


# --- every way to write it -----------------------------------------------------------------------------------------------------

SAME = {
    "json.json": '{"learning_rate": 2e-6, "num_ppo_epochs": 2, "per_device_train_batch_size": 4, "total_episodes": 100}',
    "yaml.yaml": "learning_rate: 2e-6\nnum_ppo_epochs: 2\nper_device_train_batch_size: 4\ntotal_episodes: 100\nstop_token: null\n",
    "sections.yaml": "ppo_config: {learning_rate: 2e-6, num_ppo_epochs: 2, per_device_train_batch_size: 4}\nargs: {total_episodes: 100}",
    "command.sh": "python ppo.py --learning-rate=2e-6 --num_ppo_epochs 2 \\\n --per_device_train_batch_size 4 --total_episodes 100 # so",
    "README.md": "It's so:\n\n  $ ppo.py --learning_rate 2e-6 --num_ppo_epochs 2 --per_device_train_batch_size 4 --total_episodes 100\n",
    "options": "--learning_rate 2e-6 --num_ppo_epochs 2 --per_device_train_batch_size 4 --total_episodes 100 --stop_token none",
}


def test_every_form_says_the_same() -> None:
    for name, text in SAME.items():
        ppo = config(convert(text, name)).ppo
        assert (ppo.learning_rate, ppo.ppo_epochs, ppo.batch_size, ppo.steps) == (2e-6, 2, 4, 25), name
        assert config(convert(text, name)) == config(convert(SAME["json.json"], "json.json")), name


def test_text_from_the_file_stays_in_its_comment() -> None:
    odd = "evil\nppo: {steps: 7}\u2028x: 1\x07"
    done = convert(json.dumps({"num_ppo_epochs": 1, odd: 1, "sft_model_path": "1e5\nname: x"}), "x.json")
    assert config(done).ppo.steps == RunConfig().ppo.steps and config(done).model.policy == "1e5\nname: x"
    assert any("has no such option for PPO" in line for line in done.lines)


# --- values that follow from others ------------------------------------------------------------------------------------------

SIZES = ("batch_size", "mini_batch_size", "micro_batch_size")


BATCHES: list[tuple[dict[str, Any], int, tuple[int, ...]]] = [
    ({"per_device_train_batch_size": 8}, 1, (8, 8, 0)),
    ({"per_device_train_batch_size": 8, "num_mini_batches": 4}, 1, (8, 2, 0)),
    ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}, 4, (64, 64, 2)),
    ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "num_mini_batches": 4}, 1, (16, 16, 2)),
    ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_mini_batches": 2}, 1, (16, 16, 8)),
    ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_mini_batches": 4}, 1, (16, 8, 4)),
    ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_mini_batches": 8}, 1, (16, 4, 2)),
    ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_mini_batches": 8}, 2, (32, 8, 2)),
    ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3, "num_mini_batches": 2}, 1, (24, 24, 8)),
    ({"per_device_train_batch_size": 8, "num_mini_batches": 3}, 1, (8, 8, 0)),  # TRL refuses this one
]


def test_batches_of_1_12() -> None:
    """The optimizer steps that TRL really makes: under accumulation minibatches share them."""
    for given, processes, sizes in BATCHES:
        ppo = config(convert(json.dumps({"num_ppo_epochs": 1, **given}), "x.json", processes=processes)).ppo
        assert tuple(getattr(ppo, name) for name in SIZES) == sizes, given


def steps_with_accelerate(share: int, accumulated: int, parts: int, passes: int, batches: int) -> int:
    """Optimizer steps of so many batches: the loops of TRL 1.12 around accelerate's own count of what is accumulated."""
    from accelerate import Accelerator

    accelerator, batch, steps = Accelerator(gradient_accumulation_steps=accumulated, cpu=True), share * accumulated, 0
    for _ in range(batches * passes * parts):
        for _ in range(0, batch // parts, share):
            with accelerator.accumulate():
                steps += accelerator.sync_gradients
    return steps


@pytest.mark.parametrize(
    ("share", "accumulated", "parts", "passes", "batches", "theirs", "ours", "line"),
    [
        (8, 2, 2, 4, 1, 4, 4, "TRL makes 1 optimizer step per pass, not 2, and so does the converted run"),
        (8, 2, 4, 4, 1, 8, 8, "TRL makes 2 optimizer steps per pass, not 4, and so does the converted run"),
        (8, 2, 8, 4, 1, 16, 16, "TRL makes 4 optimizer steps per pass, not 8, and so does the converted run"),
        (8, 4, 2, 3, 1, 3, 3, "TRL makes 1 optimizer step per pass, not 2, and so does the converted run"),
        (8, 1, 4, 4, 1, 16, 16, ""),
        (8, 4, 1, 4, 1, 4, 4, ""),
        (8, 3, 2, 4, 3, 16, 12, "TRL makes 16 optimizer steps in every 3 batches; the converted run makes 12"),
        (8, 3, 2, 3, 1, 4, 3, "TRL makes 4 optimizer steps in every batch; the converted run makes 3"),
        (7, 2, 7, 4, 1, 14, 8, "TRL makes 14 optimizer steps in every batch; the converted run makes 8"),
    ],
)
def test_optimizer_steps_of_1_12(
    share: int, accumulated: int, parts: int, passes: int, batches: int, theirs: int, ours: int, line: str
) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    sizes = {"per_device_train_batch_size": share, "gradient_accumulation_steps": accumulated, "num_mini_batches": parts}
    done = convert(json.dumps({**sizes, "num_ppo_epochs": passes}), "x.json")
    ppo = config(done).ppo
    assert steps_with_accelerate(share, accumulated, parts, passes, batches) == theirs
    assert ppo.batch_size // ppo.mini_batch_size * ppo.ppo_epochs * batches == ours
    lines = [text for text in done.lines if "num_mini_batches:" in text]
    assert (line in lines[0]) if line else not lines


OLD_BATCHES: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"batch_size": 64, "mini_batch_size": 16}, (64, 16, 0)),
    ({"batch_size": 64, "mini_batch_size": 4, "gradient_accumulation_steps": 4}, (64, 16, 4)),
    ({"batch_size": 64, "forward_batch_size": 8}, (64, 8, 0)),
]


def test_batches_of_0_11() -> None:
    for given, sizes in OLD_BATCHES:
        ppo = config(convert(json.dumps(given), "x.json")).ppo
        assert tuple(getattr(ppo, name) for name in SIZES) == sizes, given


VALUES: list[tuple[dict[str, Any], str, Any]] = [
    ({"total_episodes": 1000, "per_device_train_batch_size": 64}, "ppo.steps", 16),
    ({"total_episodes": 1000, "per_device_train_batch_size": 10, "num_sample_generations": 7}, "engine.watch_every", 14),
    ({"num_sample_generations": 0}, "engine.watch_prompts", 0),
    ({"total_episodes": 1000, "per_device_train_batch_size": 10, "save_steps": 0.25}, "engine.checkpoint_every", 25),
    ({"save_strategy": "no"}, "engine.checkpoint_every", 0),
    ({"total_episodes": 1000, "per_device_train_batch_size": 10, "warmup_steps": 0.1}, "ppo.warmup_steps", 10),
    ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 3}, "ppo.lr_schedule", "constant"),
    ({}, "generation.stop_token", "none"),
    ({"stop_token_id": 50256}, "generation.stop_token", "50256"),
    ({"missing_eos_penalty": None}, "reward.missing_eos_penalty", 0.0),
    ({"bf16": False}, "model.dtype", "float32"),
    ({"fp16": True}, "model.dtype", "auto"),
    ({"kl_estimator": "k3"}, "ppo.kl_estimator", "k3"),
    ({"report_to": ["wandb", "mlflow"]}, "engine.report_to", "wandb"),
    ({"use_peft": True, "lora_target_modules": ["q_proj", "v_proj"]}, "lora.target_modules", "q_proj,v_proj"),
    ({"use_peft": True, "load_in_4bit": True}, "model.quantization", "4bit"),
    ({"use_cpu": True}, "engine.device", "cpu"),
]


def test_values_of_1_12() -> None:
    for given, setting, value in VALUES:
        section, name = setting.split(".")
        done = config(convert(json.dumps({"num_ppo_epochs": 1, **given}), "x.json"))
        assert getattr(getattr(done, section), name) == value, given


OLD_VALUES: list[tuple[dict[str, Any], str, Any]] = [
    ({"kl_penalty": "mse"}, "ppo.kl_estimator", "k2"),
    ({"adap_kl_ctrl": False}, "ppo.kl_controller", "fixed"),
    ({"early_stopping": True, "target_kl": 0.5}, "ppo.target_kl", 0.5),
    ({"target_kl": 0.5}, "ppo.target_kl", 0.0),
    ({"max_grad_norm": 0.5}, "ppo.max_grad_norm", 0.5),
    ({"use_score_scaling": True}, "reward.scaling", "scale"),
    ({"use_score_scaling": True, "use_score_norm": True, "score_clip": 3}, "reward.scaling", "normalise"),
    ({"steps": 1000, "batch_size": 64, "mini_batch_size": 64}, "ppo.steps", 16),
    ({"horizon": 5000.0}, "ppo.kl_horizon", 5000),
    ({"generation_kwargs": {"max_new_tokens": 20}}, "generation.response_length", 20),
    ({"generation_kwargs": {"eos_token_id": -1}}, "generation.stop_token", "none"),
    ({"generation_kwargs": {"eos_token_id": [1, 2]}}, "generation.stop_token", "1, 2"),
]


def test_values_of_0_11() -> None:
    for given, setting, value in OLD_VALUES:
        section, name = setting.split(".")
        done = config(convert(json.dumps({"ppo_epochs": 1, **given}), "x.json"))
        assert getattr(getattr(done, section), name) == value, given


# --- completeness, against TRL itself ----------------------------------------------------------------------------------------


def test_every_field_of_trls_own_classes_is_known(tmp_path: Path) -> None:
    """A configuration as TRL itself writes it down."""
    trl = pytest.importorskip("trl", reason="trl 1.12 is not installed")
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    ppo = pytest.importorskip("trl.experimental.ppo", reason="trl 1.12 is not installed").PPOConfig
    arguments = ppo(output_dir=str(tmp_path), total_episodes=512, bf16=False, use_cpu=True)
    written = {**arguments.to_dict(), **dataclasses.asdict(trl.ScriptArguments()), **dataclasses.asdict(trl.ModelConfig())}
    names = {field.name for kind in (ppo, trl.ScriptArguments, trl.ModelConfig) for field in dataclasses.fields(kind) if field.init}
    assert names - set(written) <= {"hub_token"} and len(names) > 100
    done = convert(json.dumps({**dict.fromkeys(names), **written}, default=str), "config.json", "1.12")
    assert not [line for line in done.lines if "has no such option" in line]
    assert config(done).ppo.steps == 64
    hidden = "decide: stop_token: '<STOP_TOKEN>' is not a literal; write its value"  # to_dict writes this for every option on a token
    assert [line for line in done.lines if "not a literal" in line] == [hidden]


def test_every_option_of_0_11_is_known() -> None:
    given = {option.name: option.default for option in options("classic")}
    done = convert(json.dumps(given), "x.json", "0.11")
    assert not [line for line in done.lines if "has no such option" in line]
    assert config(done).ppo == parse_config({"ppo": {**CLASSIC_PPO, "steps": 157}}).ppo


# --- what cannot be converted ------------------------------------------------------------------------------------------------


def test_which_release_it_is() -> None:
    assert "cannot tell which TRL this is for" in refusal('{"learning_rate": 1e-5}', "x.json")
    assert "ppo_epochs is of TRL 0.11 and num_ppo_epochs of 1.12" in refusal('{"ppo_epochs": 1, "num_ppo_epochs": 1}', "x.json")
    assert config(convert('{"learning_rate": 1e-5}', "x.json", "0.11")).ppo.adam_epsilon == 1e-8
    mixed = convert('{"ppo_epochs": 1, "num_ppo_epochs": 2}', "x.json", "1.12")
    assert config(mixed).ppo.ppo_epochs == 2 and "left out: ppo_epochs: TRL 1.12 has no such option for PPO" in mixed.lines


BAD: list[tuple[str, str, str]] = [
    ("", "x.txt", "holds no settings of TRL's PPO"),
    ("a: 1", "x.yaml", "holds no settings of TRL's PPO"),
    ("a: [", "x.yaml", "not valid YAML"),
    ("print('hello')", "ppo.py", "ppo.py is a program: write rlhf_studio.trl for trl in its import lines and run it"),
    ('{"cells": []}', "a.ipynb", "a.ipynb is a program"),
    ("from trl import PPOConfig\nc = PPOConfig(ppo_epochs=1)", "-", "- is a program"),
    ("python a.py --num_ppo_epochs 1\npython a.py --num_ppo_epochs 2", "x.sh", "there are 2 commands"),
    ('{"num_ppo_epochs": "two"}', "x.json", "num_ppo_epochs: TRL's option should be a number, not 'two'"),
    ('{"num_ppo_epochs": 1.5}', "x.json", "should be a whole number of at least 1, not 1.5"),
    ('{"num_ppo_epochs": 1, "whiten_rewards": 3}', "x.json", "whiten_rewards: TRL's option should be true or false, not 3"),
    ('{"num_ppo_epochs": 1, "sft_model_path": 3}', "x.json", "sft_model_path: TRL's option should be text, not 3"),
    ('{"batch_size": 100}', "x.json", "ppo.mini_batch_size: 128 is larger than batch_size 100"),
]


def test_bad_input() -> None:
    for text, name, part in BAD:
        assert part in refusal(text, name), text[:80]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.sh"
    file.write_text(TLDR)
    assert main(["from-trl", str(file)]) == 0
    captured = capsys.readouterr()
    done = convert(TLDR, "run.sh")
    assert captured.out == done.yaml and captured.err.splitlines() == done.lines
    assert all(f"# {line}\n" in captured.out for line in done.lines)
    file.write_bytes(b"\x80\x04")
    for arguments, part in (
        ([str(file)], "it is not text"),
        ([str(tmp_path / "none")], "No such file"),
        ([str(file), "--trl", "0.12"], "invalid choice"),
        ([str(file), "--processes", "-1"], "cannot read"),
    ):
        assert main(["from-trl", *arguments]) == 2
        error = capsys.readouterr().err
        assert part in error and len(error.splitlines()) == 1
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("--num_ppo_epochs 3 --learning_rate 1e-6"))
    assert main(["from-trl", "-", "--processes", "2"]) == 0
    assert mapping_from_yaml(capsys.readouterr().out)["engine"]["processes"] == 2
