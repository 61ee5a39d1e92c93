"""Several kinds of runs on a GPU that pretends, in a child of this process, because it is changed for good."""

from __future__ import annotations

import json
import os
import traceback
from pathlib import Path
from typing import Any

import torch

from rlhf_studio.config import NOTHING_ALLOWED, GenerationConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.compute import allocator
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.engine.stages.evaluating.loading import Policies
from rlhf_studio.jobs.talk.answer import TypedPrompt, answer
from rlhf_studio.jobs.talk.loaded_policies import LoadedPolicies
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from tests.engine import pretend_cuda
from tests.engine.conftest import small_config
from tests.engine.stage_settings import settings

ON_GPU = {"device": "cuda", "checkpoint_every": 1, "watch_prompts": 0, "record_samples": 2}
SHORT = {"response_length": 3}
PPO: dict[str, dict[str, Any]] = {
    "full": {"ppo": {"steps": 1, "kl_estimator": "full"}, "model": {"gradient_checkpointing": True}},
    "lora": {
        "ppo": {"steps": 1},
        "lora": {"enabled": True, "r": 2},
        "critic": {"kind": "separate", "start": "policy"},
        "generation": {**SHORT, "top_p": 0.9},
    },
    "rloo": {"ppo": {"steps": 1, "advantage": "rloo", "responses_per_prompt": 2, "reference_ema": 0.1}, "model": {"dtype": "float32"}},
}


def play_on_pretend_cuda(folder: Path) -> dict[str, Any]:
    """What :func:`play_all` has seen."""
    child = os.fork()
    if not child:
        try:
            (folder / "seen.json").write_text(json.dumps(play_all(folder)), encoding="utf-8")
        except BaseException:  # noqa: BLE001 - else this copy of the process would go on above
            (folder / "seen.json").write_text(json.dumps({"failure": traceback.format_exc()}), encoding="utf-8")
        os._exit(0)
    os.waitpid(child, 0)
    return json.loads((folder / "seen.json").read_text(encoding="utf-8"))


def play_all(folder: Path) -> dict[str, Any]:
    """Run what there is, in this process."""
    for name in allocator.ALLOCATOR_VARIABLES:
        os.environ.pop(name, None)
    torch.set_float32_matmul_precision("high")  # as a variable of the environment may have set it
    pretend_cuda.install()
    torch.set_num_threads(1)
    kept: list[dict[str, Any]] = []
    keep = Policies._keep

    def look(policies: Policies, source: Any, weights: Any) -> None:
        keep(policies, source, weights)
        kept.extend({"model": str(next(iter(weights.values())).device), "copy": str(copy.device)}
                    for waiting in policies._waiting.values() for copy in list(waiting.values())[:1])  # fmt: skip

    Policies._keep = look  # type: ignore[method-assign]
    given = {"engine": {**ON_GPU, "probe_prompts": 0}, "generation": SHORT}
    config = small_config(folder, "llama", **given)
    choose_compute(config)
    ppo = {name: small_config(folder, "llama", **{**given, **own}).model_dump() for name, own in PPO.items()}
    found: dict[str, Any] = {
        "float32 products": torch.get_float32_matmul_precision(),
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        "runs": {name: play(folder, name, values) for name, values in ppo.items()},
    }
    (folder / "examples").mkdir()
    values = settings(folder / "examples", "sft", epochs=1, batch_size=16)
    found["runs"]["sft"] = play(folder, "sft", values | {"engine": values["engine"] | ON_GPU})
    policies = "\n".join([str(folder / "policy"), str(folder / "full/checkpoints/step-000001/policy"), str(folder / "examples/policy")])
    questions = {"stage": "evaluation", "evaluation": {"policies": policies, "batch_size": 3, "samples": 1}, "engine": {"device": "cuda"}}
    same = config.model_dump(include={"model": {"policy"}, "data": {"prompts"}, "reward": True, "generation": True})
    found["runs"]["evaluation"] = play(folder, "evaluation", questions | same)
    found["kept"] = kept
    talker = LoadedPolicies(NOTHING_ALLOWED, lambda text, share: None).get(folder / "full", 1)
    question = TypedPrompt("w1 w2", True, GenerationConfig(response_length=3), seed=0)
    found["told"] = [event["event"] for event in answer(talker, question)]
    return found


def play(folder: Path, name: str, values: dict[str, Any]) -> dict[str, Any]:
    """One run to its end: its state, and why it ended otherwise."""
    create_run(folder / name, parse_config(values), name=name, state="loading")
    run_engine(folder / name)
    status = RunReader(folder / name).status()
    return {"state": status.state, "device": status.device, "cause": status.cause}
