"""Weights split over processes (FSDP): two real processes on the CPU beside one, and the parts without processes."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, GPT2LMHeadModel

from rlhf_studio.cli.main import main
from rlhf_studio.config import EngineConfig, LoraConfig, RunConfig
from rlhf_studio.config.io import ConfigError, config_from_file, parse_config
from rlhf_studio.engine.compute.device import Compute, choose_compute
from rlhf_studio.engine.compute.ranks import Ranks
from rlhf_studio.engine.compute.sharding import (
    LAYERS_VARIABLE,
    _block_precision,
    clip_gradients,
    full_state_dict,
    gradient_norm,
    is_sharded,
    local_part,
    shard,
    shard_like,
    unsharded_class,
)
from rlhf_studio.engine.models.adapters import add_lora, name_base, save_model, saves_everything
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.inputs.checks.accelerate_settings import launch_in_file
from rlhf_studio.inputs.checks.machine import machine_problems
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.processes import COORDINATED, launcher_command
from rlhf_studio.runs.reader import RunReader
from tests.engine.small_models import config_of
from tests.engine.test_processes import check_metrics, check_records, checkpoints, write_config
from tests.engine.test_sampling import PAD, TableModel, draw

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def accelerate_file(folder: Path) -> Path:
    """The file that docs/many-gpus.md tells people to save."""
    text = (ROOT / "docs" / "many-gpus.md").read_text(encoding="utf-8")
    path = folder / "fsdp.yaml"
    path.write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0], encoding="utf-8")
    return path


def in_two_processes(folder: Path, *runs: str | Path) -> None:
    """``runs``: train or resume, and a prepared folder; again and again. One launch for all, since starting takes most of the time."""
    engine = EngineConfig(accelerate_config=str(accelerate_file(folder)))
    command = [*launcher_command(folder, engine, "train")[:-4], "-m", "tests.engine.sharded_runs", *map(str, runs)]
    environment = {**os.environ, COORDINATED: "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def assert_same_course(run: Path, other: Path) -> None:
    """Every number of every step to 1e-5, every text, and what the last checkpoints hold."""
    check_metrics(run, other, steps=2)
    check_records(run, other, steps=2)
    for step in (1, 2):
        pairs = zip(RunReader(run).rollouts(step), RunReader(other).rollouts(step), strict=True)
        assert all((a.prompt, a.response) == (b.prompt, b.response) for a, b in pairs)
    answers = [[(step, answer.response) for step, answer in RunReader(folder).watched()] for folder in (run, other)]
    assert answers[0] == answers[1] and {step for step, _ in answers[0]} == {0, 1, 2}
    saved, expected_files = (
        {path.relative_to(folder): path for path in folder.rglob("*") if path.is_file()}
        for folder in (checkpoints(run)[-1], checkpoints(other)[-1])
    )
    assert set(saved) == set(expected_files)
    for name in saved:
        if name.suffix == ".safetensors" and name.stem != "random":
            weights, expected_weights = load_file(saved[name]), load_file(expected_files[name])
            assert set(weights) == set(expected_weights)
            for key, tensor in expected_weights.items():
                torch.testing.assert_close(weights[key], tensor, atol=1e-5, rtol=1e-4)


@pytest.mark.long
def test_two_processes_with_half_the_weights_each_are_one(tmp_path: Path) -> None:
    """All that can be split, from the start; LoRA from a checkpoint of one process; then one process from a checkpoint of the two."""
    engine, ppo = {"threads": 1, "checkpoint_every": 1, "watch_prompts": 2}, {"steps": 2}
    full_settings = {"lora": {"enabled": False}, "critic": {"kind": "separate", "start": "policy"}, "ppo": {**ppo, "reference_ema": 0.1}}
    alone = {}
    for kind, settings in (("full", full_settings), ("lora", {"ppo": ppo})):
        file = write_config(tmp_path, kind, engine=engine, **settings)  # type: ignore[arg-type]
        alone[kind] = tmp_path / f"alone-{kind}"
        assert main(["train", "--config", str(file), "--run-dir", str(alone[kind])]) == 0
    full, lora_run = tmp_path / "split-full", tmp_path / "split-lora"
    config = config_from_file(tmp_path / "full.yaml")
    few = config.generation.model_copy(update={"batch_size": 3})  # of each process's four: everyone goes along for each part
    create_run(full, config.model_copy(update={"generation": few}), name="full", memory=(123, 4567))
    shutil.copytree(alone["lora"], lora_run)
    shutil.rmtree(checkpoints(lora_run)[-1])
    in_two_processes(tmp_path, "train", full, "resume", lora_run)

    assert "weights split by FSDP" in RunReader(full).status().device
    assert_same_course(full, alone["full"])
    (measured,) = (event for event in RunReader(full).events_since(0) if event.kind == "memory")
    assert (measured.data["low"], measured.data["high"]) == (123, 4567)  # what was said at the start, though nobody could ask again
    assert any("checkpoint of step 1" in event.text for event in RunReader(lora_run).events_since(0))
    assert_same_course(lora_run, alone["lora"])

    merged, expected = (AutoModelForCausalLM.from_pretrained(checkpoints(run)[-1] / "policy") for run in (full, alone["full"]))
    assert type(merged) is GPT2LMHeadModel and merged.config.architectures == ["GPT2LMHeadModel"]
    ids = torch.arange(8)[None]
    torch.testing.assert_close(merged(ids).logits, expected(ids).logits, atol=1e-4, rtol=1e-4)

    again = tmp_path / "again"
    shutil.copytree(full, again)
    shutil.rmtree(checkpoints(again)[-1])
    assert main(["resume", str(again)]) == 0
    assert_same_course(again, alone["full"])


# --- parts, without processes ------------------------------------------------------------------------------------------------------


class SecondOfTwo(Ranks):
    """The other process has nothing of its own but ``elsewhere``, which it adds to every sum."""

    rank, size, sharded, elsewhere = 1, 2, True, 0.0

    def all_reduce_sum(self, numbers: Any) -> list[float]:
        return [number + self.elsewhere for number in numbers]


@pytest.fixture
def second_of_two() -> Iterator[Compute]:
    """The second process of two; what the first would send never comes, which splitting does not need."""
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        yield Compute(torch.device("cpu"), torch.float32, SecondOfTwo())
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_each_process_holds_its_rows(second_of_two: Compute, family: str) -> None:
    model = AutoModelForCausalLM.from_config(config_of(family, 29))
    expected = copy.deepcopy(model)
    shard(model, second_of_two.ranks, second_of_two.device, second_of_two.dtype)
    for name, parameter in model.named_parameters():
        whole = expected.get_parameter(name)
        rows = whole.chunk(2)
        mine = rows[1] if len(rows) == 2 else whole[:0]
        assert is_sharded(parameter) and torch.equal(local_part(parameter), mine), name
        assert local_part(parameter).untyped_storage().nbytes() <= rows[0].numel() * 4, name  # the rest is not kept beside it
        assert torch.equal(local_part(shard_like(whole.detach(), parameter)), mine), name
    split_on_their_own = [module for module in model.modules() if type(module).__name__.startswith("FSDP")]
    assert len(split_on_their_own) == 3  # two blocks, and the rest
    assert unsharded_class(model) is type(expected) and unsharded_class(expected) is type(expected)
    ties = model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert ties == (expected.get_input_embeddings().weight is expected.get_output_embeddings().weight)


def test_a_person_may_name_the_layers(second_of_two: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    model = AutoModelForCausalLM.from_config(config_of("gpt2", 29))
    monkeypatch.setenv(LAYERS_VARIABLE, "GPT2MLP, LayerNorm")
    shard(model, second_of_two.ranks, second_of_two.device, second_of_two.dtype)
    assert sorted({type(module).__name__ for module in model.modules() if type(module).__name__.startswith("FSDP")}) == [
        "FSDPGPT2LMHeadModel",
        "FSDPGPT2MLP",
        "FSDPLayerNorm",
    ]


def test_an_adapters_base_is_written_from_weights_put_together(tmp_path: Path) -> None:
    """A base that is nowhere else: the same files, whether the model holds its weights itself or they are handed over."""
    model = add_lora(AutoModelForCausalLM.from_config(config_of("gpt2", 29)), LoraConfig(enabled=True, r=2))
    files = []
    for name, weights in (("own", None), ("handed", full_state_dict(model))):
        name_base(model, None, "")
        assert saves_everything(model, tmp_path / name / "base")
        save_model(model, tmp_path / name, tmp_path / name / "base", weights)
        assert not saves_everything(model, tmp_path / name / "base")
        files.append({path.relative_to(tmp_path / name): path for path in (tmp_path / name).rglob("*.safetensors")})
    assert set(files[0]) == set(files[1]) == {Path("adapter_model.safetensors"), Path("base/model.safetensors")}
    for name, path in files[0].items():
        own, handed = load_file(path), load_file(files[1][name])
        assert set(own) == set(handed) and all(torch.equal(own[key], handed[key]) for key in own)


def test_blocks_travel_in_the_format_they_compute_in() -> None:
    assert _block_precision(torch.float32).param_dtype is None
    half = _block_precision(torch.bfloat16)
    assert (half.param_dtype, half.reduce_dtype, half.cast_forward_inputs) == (torch.bfloat16, torch.float32, False)


def test_the_norm_counts_everyones_parts(second_of_two: Compute) -> None:
    layer = torch.nn.Linear(1, 4, bias=False)
    shard(layer, second_of_two.ranks, second_of_two.device, second_of_two.dtype)
    split = shard_like(torch.tensor([[100.0], [100.0], [3.0], [4.0]]), layer.weight)  # 3 and 4 are here
    second_of_two.ranks.elsewhere = 11.0  # type: ignore[attr-defined] - sum of squares on rank 0
    gradients = [split, torch.tensor([8.0])]
    norm = gradient_norm(gradients, second_of_two.ranks)
    assert norm == pytest.approx((9 + 16 + 11 + 64) ** 0.5)
    clip_gradients(gradients, 5.0, norm)
    assert local_part(split).flatten().tolist() == pytest.approx([1.5, 2.0]) and float(gradients[1]) == pytest.approx(4.0)
    clip_gradients(gradients, 100.0, norm)
    assert float(gradients[1]) == pytest.approx(4.0)


class Slow(Ranks):
    """The other process needs ``steps`` tokens."""

    sharded = True

    def __init__(self, steps: int):
        self._left = steps

    def all_reduce_max(self, number: float) -> float:
        self._left -= 1
        return max(number, self._left)


def test_who_is_done_goes_along_until_all_are() -> None:
    settings = {"response_length": 6}
    limits = torch.tensor([1, 2, 2, 1])
    alone = draw(TableModel(), 4, settings, limits=limits)
    model = TableModel(shrinks=True)
    tokens = draw(model, 4, settings, limits=limits, ranks=Slow(5))
    assert len(model.calls) == 5 and torch.equal(tokens.mask, alone.mask)
    assert torch.equal(tokens.response_ids[alone.mask], alone.response_ids[alone.mask])


def test_a_broken_policy_is_told_when_all_are_done() -> None:
    model = TableModel([[float("nan")] * 5] * 5)
    with pytest.raises(NonFiniteError, match="response token 0"):
        draw(model, 2, {"response_length": 6}, ranks=Slow(4))
    assert len(model.calls) == 4
    assert PAD == 4


# --- settings ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "changes", "problem"),
    [
        ("distributed_type: DEEPSPEED", {}, "engine.accelerate_config: DeepSpeed is not supported; use distributed_type: FSDP"),
        ("distributed_type: MEGATRON_LM", {}, "engine.accelerate_config: Megatron-LM is not supported"),
        ("{distributed_type: FSDP, fsdp_config: {fsdp_offload_params: true}}", {}, "engine.accelerate_config: fsdp_offload_params"),
        ("distributed_type: FSDP", {"model": {"quantization": "4bit"}}, "model.quantization: 4bit weights cannot be split by FSDP"),
        (
            "distributed_type: FSDP",
            {"ppo": {"reference_ema": 0.1}, "lora": {"enabled": True}},
            "ppo.reference_ema: a reference",
        ),
        ("{distributed_type: FSDP, num_processes: 3}", {}, "ppo.batch_size: 64 episodes cannot be shared by 3 processes"),
        ("{distributed_type: FSDP, num_processes: 2}", {}, ""),
        ("distributed_type: MULTI_GPU", {"ppo": {"reference_ema": 0.1}, "lora": {"enabled": True}}, ""),
        ("- a list", {}, "engine.accelerate_config: .* holds no settings of accelerate"),
        ("{", {}, "engine.accelerate_config: .* cannot be read as YAML"),
        (None, {}, "engine.accelerate_config: there is no file"),
    ],
)
def test_what_cannot_be_split_is_refused(tmp_path: Path, text: str | None, changes: dict[str, Any], problem: str) -> None:
    path = tmp_path / "accelerate.yaml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    config = RunConfig.model_validate({"engine": {"accelerate_config": str(path)}, **changes})
    actual = [str(problem) for problem in machine_problems(config, True) if "bitsandbytes" not in str(problem)]
    assert not actual if not problem else any(re.match(problem, text) for text in actual), actual


@pytest.mark.parametrize("stage", ["sft", "reward_model", "dpo"])
def test_the_other_stages_do_not_split_weights_and_say_so(tmp_path: Path, stage: str) -> None:
    path = tmp_path / "accelerate.yaml"
    for kind, split in (("FSDP", True), ("MULTI_GPU", False)):
        path.write_text(f"distributed_type: {kind}", encoding="utf-8")
        config = parse_config({"stage": stage, "engine": {"accelerate_config": str(path)}})
        actual = [problem.message for problem in machine_problems(config, True) if problem.field == "engine.accelerate_config"]
        assert bool(actual) is split and all(f"in the stage {stage} every process would hold the whole model" in text for text in actual)


def test_the_launchers_word_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started by hand with ``accelerate launch``, without a file."""
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ConfigError, match="DeepSpeed is not supported"):
        choose_compute(RunConfig())


def test_the_file_of_the_docs(tmp_path: Path) -> None:
    launch = launch_in_file(str(accelerate_file(tmp_path)))
    assert launch.shards and launch.processes == 2 and not launch.offload
