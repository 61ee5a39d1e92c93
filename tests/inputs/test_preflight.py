"""The check before a start: one problem per setting that is wrong, none for what works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.estimate.disk import OnDisk, disk_bytes
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import ModelShape
from rlhf_studio.inputs.preflight import check_run, inspect_run
from rlhf_studio.inputs.prompts.lengths import PromptTokens
from rlhf_studio.runs.gpus import Gpu

ROOMY = 10**12
BATCH = 64  # episodes a step, 60 steps, responses of 32 tokens, 6 watched prompts every 5 steps: the settings' defaults
RECORDED = 60 * (16 * 32 * 240 + BATCH * (32 * 20 + 24)) + 61 * 4 * 32 * 84 + 14 * 6 * 32 * 40
"""Bytes of 60 steps: recorded tokens; all episodes, one component; probes, at step 0 too; answers at the start, 12 times, at the end."""


def problems(config: Any, tmp_path: Path) -> list[Problem]:
    return inspect_run(config, tmp_path, free_bytes=lambda _: ROOMY).problems


def the_problem(config: Any, tmp_path: Path) -> Problem:
    all_problems = problems(config, tmp_path)
    assert len(all_problems) == 1, all_problems
    return all_problems[0]


def test_a_good_configuration_has_no_problems(make_config: Any, tmp_path: Path) -> None:
    report = inspect_run(make_config(), tmp_path)
    assert (report.problems, report.notes, report.prompts) == ([], [], 100)
    assert check_run(make_config(), tmp_path) == []


def test_every_input_is_checked_even_when_another_is_wrong(make_config: Any, tmp_path: Path) -> None:
    config = make_config(
        model__policy="no/such/folder",
        data__prompts="none.csv",
        reward__components=[{"kind": "reward_model", "model": "./none"}, {"kind": "regex", "pattern": "("}],
    )
    assert [problem.field for problem in problems(config, tmp_path)] == [
        "model.policy",
        "reward.components.0.model",
        "reward.components.1.pattern",
        "data.prompts",
    ]


def test_pad_equal_to_eos_is_a_note(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    make_model("padded", tokenizer={"pad_token": "<end>"})
    report = inspect_run(make_config(model__policy=str(tmp_path / "padded")), tmp_path)
    assert report.problems == []
    assert "pads with its end token" in report.notes[0]


@pytest.mark.parametrize(
    ("named", "token_map", "refused", "noted"),
    [
        ({"eos_token": None}, {}, True, False),
        ({"eos_token": None}, {"eos_token": "<end>"}, False, False),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {}, True, False),
        ({"tokenizer_class": "GPT2Tokenizer"}, {}, False, True),  # whose own end token is <|endoftext|>
        ({}, {}, False, True),
    ],
)
def test_a_tokenizer_without_an_end_token(
    named: dict[str, Any], token_map: dict[str, Any], refused: bool, noted: bool, make_config: Any, make_model: Any, tmp_path: Path
) -> None:
    folder = make_model("endless")
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "special_tokens_map.json").write_text(json.dumps(token_map))
    report = inspect_run(make_config(model__policy=str(folder)), tmp_path, free_bytes=lambda _: ROOMY)
    problem = Problem("generation.stop_token", "the tokenizer has no end token; use none or a token id")
    assert report.problems == ([problem] if refused else [])
    assert any("files name no end token" in note for note in report.notes) == noted
    endless = inspect_run(make_config(model__policy=str(folder), generation__stop_token="none"), tmp_path, free_bytes=lambda _: ROOMY)
    assert endless.problems == [] and not any("end token" in note for note in endless.notes)


def test_prompts_that_are_held_out_from_themselves(make_config: Any, tmp_path: Path) -> None:
    def warned(**data: Any) -> bool:
        report = inspect_run(make_config(**data), tmp_path, free_bytes=lambda _: ROOMY)
        assert report.problems == []
        return any("nothing is held out" in note for note in report.notes)

    make_config()
    same = str(tmp_path / "prompts.txt")
    (tmp_path / "other.txt").write_text("the film was\n")
    (tmp_path / "link.txt").symlink_to(same)
    assert warned(data__eval=same) and warned(data__eval=same, data__eval_split="validation")
    assert warned(data__eval=str(tmp_path / "link.txt")) and warned(data__eval=f"{tmp_path}/./prompts.txt")
    assert not warned(data__eval=str(tmp_path / "other.txt")) and not warned()


@pytest.mark.parametrize(
    ("overrides", "field", "message"),
    [
        ({"generation__stop_token": "8"}, "generation.stop_token", "there is no token 8; the model has tokens 0 to 7"),
        ({"generation__response_length": 62}, "generation.response_length", "the longest prompt has 3 tokens, so prompt and"),
        (
            {"generation__response_length": 64, "reward__components": [{"kind": "length"}]},
            "generation.response_length",
            "the model has only 64 positions, prompt included",
        ),
        ({"lora__enabled": True, "lora__target_modules": "c_attn, q_proj"}, "lora.target_modules", "this model has: c_attn, wte"),
        ({"lora__enabled": True, "lora__target_modules": "lm_head"}, "lora.target_modules", "lm_head is tied to the embedding"),
        ({"lora__enabled": True, "lora__init_lora_weights": "olora"}, "lora.init_lora_weights", "use pissa or default"),
        ({"lora__enabled": True, "lora__init_lora_weights": "orthogonal", "lora__r": 3}, "lora.r", "an even rank, not 3"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_the_model(overrides: dict[str, Any], field: str, message: str, make_config: Any, tmp_path: Path) -> None:
    problem = the_problem(make_config(**overrides), tmp_path)
    assert problem.field == field
    assert message in problem.message


def test_the_reference(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    make_model("other")
    make_model("wider", vocab_size=9)
    other = make_config(model__reference=str(tmp_path / "other"))
    assert problems(other, tmp_path) == []
    parameters = 8 * 4 + 4 * 12 + 12
    memory = inspect_run(other, tmp_path).memory_estimate
    assert memory is not None
    assert [part.parameters for part in memory.parts if part.name == "Reference"] == [parameters]
    problem = the_problem(make_config(model__reference=str(tmp_path / "wider")), tmp_path)
    assert problem == Problem("model.reference", f"{tmp_path / 'wider'} knows 9 tokens and the policy 8; they must be the same")
    assert the_problem(make_config(model__reference="./none"), tmp_path).field == "model.reference"


def test_an_adapter_as_the_policy(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    from tests.inputs.test_models import make_adapter

    config = make_config()
    adapter = make_adapter(tmp_path / "adapter", tmp_path / "policy")
    settings = {"model__policy": str(adapter), "lora__enabled": True}
    report = inspect_run(make_config(**settings), tmp_path)
    assert report.problems == []
    assert report.notes == [f"{adapter} is a LoRA adapter: it is merged into its base, {tmp_path / 'policy'}, before the run starts."]
    plain = inspect_run(make_config(lora__enabled=True), tmp_path)
    assert report.disk_bytes == plain.disk_bytes + 4 * (8 * 4 + 4 * 12 + 12)  # the merged base is kept
    quantized = inspect_run(make_config(**settings, model__quantization="4bit"), tmp_path, gpus=lambda: (Gpu(0, "A"),)).problems
    assert "cannot be merged into a quantized base" in quantized[-1].message
    assert config.model.policy != str(adapter)


def test_lora_options_count_in_the_estimates(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    """Matrices of 8 x 4 and 4 x 12, 12 biases; 12 bytes for each value that learns in a checkpoint, 3 checkpoints, and tokens."""
    recorded, rank = RECORDED, 16

    def values(**options: Any) -> float:
        config = make_config(lora__enabled=True, **{f"lora__{name}": value for name, value in options.items()})
        return (inspect_run(config, tmp_path).disk_bytes - recorded) / 36

    assert values() == rank * (12 + 16)
    assert values(target_modules="c_attn") == rank * 16
    assert values(use_dora=True) == rank * (12 + 16) + 8 + 12
    assert values(bias="all") == rank * (12 + 16) + 12
    assert values(bias="lora_only", target_modules="c_attn") == rank * 16 + 12
    assert values(bias="lora_only", target_modules="wte") == rank * 12
    all_weights = 4 * (8 * 4 + 4 * 12 + 12)
    assert values(init_lora_weights="pissa") == rank * (12 + 16) + all_weights / 36
    copied = inspect_run(make_config(lora__enabled=True, lora__init_lora_weights="pissa"), tmp_path)
    assert "frozen copy of the starting model" in copied.notes[0]


def test_positions_when_prompts_cannot_be_measured(make_config: Any, make_model: Any, tmp_path: Path) -> None:
    folder = make_model("plain")
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    tight = make_config(model__policy=str(folder), data__max_prompt_tokens=50)
    assert "prompts may have 50 tokens" in the_problem(tight, tmp_path).message
    over = make_config(model__policy=str(folder), data__max_prompt_tokens=90)
    assert the_problem(over, tmp_path) == Problem(
        "data.max_prompt_tokens", "prompts may have 90 tokens, but the model has 64 positions; use at most 32"
    )


def test_reward_components(make_config: Any, tmp_path: Path) -> None:
    components = [
        {"kind": "length"},
        {"kind": "keywords", "words": " , ,"},
        {"kind": "repetition", "name": "length"},
        {"kind": "regex", "pattern": "(unclosed"},
        {"kind": "regex", "name": "other", "pattern": r"^\p{Lu}"},
    ]
    fields = problems(make_config(reward__components=components), tmp_path)
    assert [problem.field for problem in fields] == ["reward.components.1.words", "reward.components.2.name", "reward.components.3.pattern"]
    assert "component 1 is called length too" in fields[1].message
    assert "is not a valid regular expression" in fields[2].message


# --- disk ------------------------------------------------------------------------------------------------------------------


def test_no_disk_space(make_config: Any, tmp_path: Path) -> None:
    config = make_config()
    needed = inspect_run(config, tmp_path, free_bytes=lambda _: ROOMY).disk_bytes
    assert inspect_run(config, tmp_path, free_bytes=lambda _: needed).problems == []
    disk_problems = inspect_run(config, tmp_path, free_bytes=lambda _: needed - 1).problems
    assert [problem.field for problem in disk_problems] == ["engine.keep_checkpoints"]
    assert "do not fit" in disk_problems[0].message and str(tmp_path) in disk_problems[0].message


def test_the_disk_estimate_counts_the_starting_policy_at_the_probes(make_config: Any) -> None:
    """Four probes of 32 tokens, 50 numbers at each, in all three checkpoints; nothing where adapters are switched off instead."""
    shape = ModelShape(layers=1, hidden=4, cached=8, inner=16, gated=False, vocabulary=50, tied=True)
    facts = ModelFacts(path=None, architecture="GPT2LMHeadModel", shape=shape)
    assert disk_bytes(make_config(), facts) == 3 * 4 * 32 * 50 * 4 + RECORDED
    assert disk_bytes(make_config(lora__enabled=True), facts) == RECORDED
    longer = make_config(generation__response_length=100)
    assert disk_bytes(longer, facts) - disk_bytes(longer, None) == 3 * 4 * 64 * 50 * 4
    assert disk_bytes(make_config(engine__watch_prompts=0), facts) == 60 * (16 * 32 * 240 + BATCH * (32 * 20 + 24))


def test_the_disk_estimate_counts_kept_checkpoints_and_recorded_tokens(make_config: Any, tmp_path: Path) -> None:
    parameters = 8 * 4 + 4 * 12 + 12
    assert inspect_run(make_config(), tmp_path).disk_bytes == 3 * parameters * 12 + RECORDED
    assert inspect_run(make_config(engine__checkpoint_every=0), tmp_path).disk_bytes == parameters * 12 + RECORDED
    with_lora = inspect_run(make_config(lora__enabled=True), tmp_path)
    assert with_lora.disk_bytes == 3 * 12 * 16 * (8 + 4 + 4 + 12) + RECORDED


def test_a_run_that_goes_on_counts_only_what_is_added(make_config: Any, tmp_path: Path) -> None:
    """From 60 to 80 steps, with two checkpoints kept: 20 steps, five times watched answers, two snapshots, and the one checkpoint that is
    written before an older one makes room."""
    parameters = 8 * 4 + 4 * 12 + 12
    longer = make_config(ppo__steps=80, engine__snapshot_every=10)
    added = 20 * (16 * 32 * 240 + BATCH * (32 * 20 + 24) + 4 * 32 * 84) + 5 * 6 * 32 * 40 + parameters * 12 + 2 * parameters * 4
    on_disk = OnDisk(steps=60, checkpoints=2)
    assert inspect_run(longer, tmp_path, on_disk=on_disk).disk_bytes == added
    assert check_run(longer, tmp_path, on_disk=on_disk) == []
    assert inspect_run(longer, tmp_path, on_disk=on_disk, free_bytes=lambda _: added).problems == []
    assert [problem.field for problem in inspect_run(longer, tmp_path, on_disk=on_disk, free_bytes=lambda _: added - 1).problems] == [
        "engine.keep_checkpoints"
    ]
    assert inspect_run(longer, tmp_path, free_bytes=lambda _: added).problems, "a new run of 80 steps needs more"
    more_room = make_config(ppo__steps=80, engine__keep_checkpoints=9, engine__checkpoint_every=10)  # written at 70 and 80: none makes room
    without = disk_bytes(more_room, None, on_disk)
    assert inspect_run(more_room, tmp_path, on_disk=on_disk).disk_bytes - without == 2 * parameters * 12
    assert disk_bytes(make_config(), None, OnDisk(60, 2)) == 6 * 32 * 40, "at most the last answers once more"


def test_the_report_plans_the_memory(make_config: Any, tmp_path: Path) -> None:
    parameters = 8 * 4 + 4 * 12 + 12
    memory = inspect_run(make_config(), tmp_path).memory_estimate
    assert memory is not None
    assert {part.name: part.parameters for part in memory.parts if part.name in ("Policy", "Reward models")} == {
        "Policy": parameters,
        "Reward models": parameters,
    }
    assert inspect_run(make_config(model__policy="./none"), tmp_path).memory_estimate is None
    component = {"kind": "reward_model", "model": "./none"}
    assert inspect_run(make_config(reward__components=[component]), tmp_path).memory_estimate is None
    assert inspect_run(make_config(critic__kind="separate", critic__start="model"), tmp_path).memory_estimate is None
    own = inspect_run(make_config(critic__kind="separate", critic__start="policy"), tmp_path).memory_estimate
    assert own is not None and [part.parameters for part in own.parts if part.name == "Critic"] == [parameters]  # no width is told


def test_prompts_are_counted_as_the_policy_reads_them(make_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(data__max_prompt_tokens=4)
    (tmp_path / "prompts.txt").write_text("the\nthe film\nthe film was good bad good\n")
    cut = inspect_run(config, tmp_path).prompt_tokens
    # (1 + 2 + 4) / 3, rounded up; rewards read (1 + 2 + 6) / 3
    assert cut == PromptTokens(usual=3, longest=(4, 4), count=3, usual_text=3, longest_text=6)
    without_end = inspect_run(make_config(data__max_prompt_tokens=4, data__overlong="cut_right"), tmp_path).prompt_tokens
    assert without_end == PromptTokens(usual=3, longest=(4, 4), count=3, usual_text=3, longest_text=4)
    monkeypatch.setattr("rlhf_studio.inputs.prompts.preview.MEASURED_ROWS", 2)
    (tmp_path / "prompts.txt").write_text("the\nthe film was\nthe film was good bad good\n")
    others_may_be_longer = PromptTokens(usual=2, longest=(3, 4), count=3, usual_text=2)
    assert inspect_run(config, tmp_path).prompt_tokens == others_may_be_longer
    assert inspect_run(make_config(data__prompts="none.txt"), tmp_path).prompt_tokens is None


def test_sizes_of_a_model_only_on_the_hub_are_not_guessed(make_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = ModelFacts(path=None, architecture="GPT2LMHeadModel", download_bytes=500)
    monkeypatch.setattr("rlhf_studio.inputs.models.learner.check_causal_lm", lambda *_: facts)
    for lora in (False, True):
        report = inspect_run(make_config(lora__enabled=lora), tmp_path)
        assert (report.download_bytes, report.disk_bytes) == (500, RECORDED)
        assert report.memory_estimate is not None and report.memory_estimate.high is None and report.memory_estimate.unknown


def test_a_workspace_that_does_not_exist_yet_is_measured_at_its_parent(make_config: Any, tmp_path: Path) -> None:
    measured: list[Path] = []

    def free(folder: Path) -> int:
        measured.append(folder)
        return ROOMY

    inspect_run(make_config(), tmp_path / "a" / "b", free_bytes=free)
    assert measured == [tmp_path]


def test_a_workspace_that_cannot_be_used(make_config: Any, tmp_path: Path) -> None:
    def fail(_: Path) -> int:
        raise OSError(5, "Input/output error")

    workspace_problems = inspect_run(make_config(), tmp_path, free_bytes=fail).problems
    assert workspace_problems == [Problem("", f"the workspace {tmp_path} cannot be used: Input/output error")]


# --- numbers, refused by the configuration itself ------------------------------------------------------------------------------


def test_checking_loads_neither_torch_nor_transformers(make_config: Any, tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import json, sys; from pathlib import Path; from rlhf_studio.config.io import parse_config; "
        "from rlhf_studio.inputs.preflight import check_run; "
        "assert check_run(parse_config(json.load(sys.stdin)), Path('.')) == []; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], input=json.dumps(make_config().model_dump()), text=True, check=True)


def test_the_gpus_that_are_given_decide_the_memory_estimate(make_config: Any, tmp_path: Path) -> None:
    """Once for everything: the GPUs are listed one time, and both the checks and the estimate follow that list."""
    calls: list[int] = []

    def gpus() -> tuple[Gpu, ...]:
        calls.append(1)
        return (Gpu(0, "small", free=7, total=8), Gpu(1, "large", free=9 * 10**11, total=10**12, bfloat16=True))

    for device, (name, free) in {"cuda:1": ("large", 9 * 10**11), "cuda:0": ("small", 7), "auto": ("small", 7)}.items():
        calls.clear()
        memory = inspect_run(make_config(engine__device=device), tmp_path, gpus=gpus).memory_estimate
        assert memory is not None and calls == [1]
        assert (memory.device.kind, memory.device.name, memory.device.free) == ("cuda", name, free), device
    none = inspect_run(make_config(), tmp_path, gpus=lambda: ()).memory_estimate
    assert none is not None and none.device.kind == "cpu"
