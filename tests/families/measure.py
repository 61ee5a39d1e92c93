"""Plays two PPO steps with a tiny random model of a type and compares what the run recorded with the plain transformers model.

``python -m tests.families.measure [TYPE ...]`` measures the types (all without an argument) and writes ``results.json``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.exit_codes import DONE
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord
from tests.families.tiny import save_tiny

RESULTS = Path(__file__).with_name("results.json")
STARTS = ("gaussian", "orthogonal", "pissa", "olora")  # of LoRA, beside the default one
MODES = ("full", "lora", *STARTS)
BOUND = 1e-4  # nats, and units of the value
SECONDS, BYTES = 300, 16 << 30  # what one type may take
TEMPERATURE = 0.8
PROMPTS = [
    "it", "the film was good", "a long and slow story about the sea, and more", "we liked", "the music, not the end, is fine", "is it?",
]  # fmt: skip


def run_config(policy: Path, prompts: Path, mode: str) -> RunConfig:
    """Two steps of six episodes with prompts of unequal lengths; everything is recorded, the first policy is kept."""
    return RunConfig.model_validate(
        {
            "model": {"policy": str(policy), "value_head_init": "normal"},
            "lora": {"enabled": mode != "full", "r": 4, "alpha": 8, "init_lora_weights": mode if mode in STARTS else "default"},
            "data": {"prompts": str(prompts)},
            "reward": {"components": [{"kind": "length", "target": 8}]},
            "ppo": {"steps": 2, "batch_size": 6, "mini_batch_size": 3, "ppo_epochs": 1, "learning_rate": 1e-3},
            "generation": {"response_length": 12, "temperature": TEMPERATURE},
            "engine": {"device": "cpu", "record_samples": 6, "watch_prompts": 0, "checkpoint_every": 1, "keep_checkpoints": 2},
        }
    )


def measure_type(model_type: str, mode: str, folder: Path) -> dict[str, Any]:
    """What becomes of the type: ``right``, ``refused``, ``not built``, or a defect (``wrong``, ``stopped``, ``traceback``).

    ``stopped`` is a refusal that came after the door, while the engine loaded or before its first update.
    """
    policy, prompts, run_dir = folder / "policy", folder / "prompts.txt", folder / "run"
    try:
        save_tiny(model_type, policy)
    except Exception as error:  # noqa: BLE001 - transformers raises everything for a type that needs more than sizes
        return {"outcome": "not built", "text": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    prompts.write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    config = run_config(policy, prompts, mode)
    report = inspect_run(config, folder, gpus=lambda: ())
    if report.problems:
        return {"outcome": "refused", "text": "; ".join(str(problem) for problem in report.problems).replace(str(policy), "the model")}
    create_run(run_dir, config, name=model_type, state="loading")
    code = run_engine(run_dir, "train")
    reader = RunReader(run_dir)
    if code != DONE:
        cause = reader.status().cause.replace(str(policy), "the model")
        return {"outcome": "traceback" if "full trace" in cause else "stopped", "text": cause}
    try:
        differences = compare(run_dir, policy, mode)
    except Exception as error:  # noqa: BLE001 - a model that has no plain pass to compare with
        return {"outcome": "not compared", "text": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    worst = max(differences.values())
    differences = {name: float(f"{difference:.2g}") for name, difference in differences.items()}
    return {"outcome": "right" if worst <= BOUND else "wrong", "largest": worst, "differences": differences}


def compare(run_dir: Path, policy: Path, mode: str) -> dict[str, float]:
    """Largest difference of each recorded quantity from the plain model's unpadded pass, one episode at a time.

    Step 1 was sampled by the policy as it was saved, step 2 by the checkpoint of step 1; the reference is always the first.
    """
    start = AutoModelForCausalLM.from_pretrained(policy).eval()
    first, second = (_recorded(run_dir, step) for step in (1, 2))
    found = {
        "logprobs": _largest(first, "logprobs", lambda record: plain_logprobs(start, record)),
        "values": _largest(first, "values", lambda record: plain_values(start, record)),
        "ref_logprobs": _largest(first, "ref_logprobs", lambda record: plain_logprobs(start, record)),
    }
    found["ref_logprobs of step 2"] = _largest(second, "ref_logprobs", lambda record: plain_logprobs(start, record))
    checkpoint = run_dir / "checkpoints" / "step-000001" / "policy"
    moved = AutoModelForCausalLM.from_pretrained(checkpoint) if mode == "full" else _adapted(checkpoint)
    found["logprobs of step 2"] = _largest(second, "logprobs", lambda record: plain_logprobs(moved.eval(), record))
    return found


def _adapted(checkpoint: Path) -> PeftModel:
    """The saved adapter on the base that it names: PiSSA and OLoRA have changed the first model's matrices."""
    base = json.loads((checkpoint / "adapter_config.json").read_text(encoding="utf-8"))["base_model_name_or_path"]
    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), checkpoint)


def _recorded(run_dir: Path, step: int) -> list[RolloutRecord]:
    reader = RunReader(run_dir)
    return [reader.rollout(step, record.sample) for record in reader.rollouts(step)]


def _largest(records: list[RolloutRecord], name: str, expected: Callable[[RolloutRecord], Tensor]) -> float:
    lengths = {len(record.tokens.prompt_ids) for record in records}
    assert len(records) == len(PROMPTS) and len(lengths) > 2, "the prompts must be unequal"
    gaps = [(torch.tensor(record.tokens.arrays[name]) - expected(record)).abs().max() for record in records]
    return float(torch.stack(gaps).nan_to_num(float("inf")).max())


def _ids(record: RolloutRecord) -> tuple[Tensor, slice]:
    """(1, L) tokens of prompt and response, and the positions that predict the response."""
    prompt, response = (torch.tensor(ids, dtype=torch.int64) for ids in (record.tokens.prompt_ids, record.tokens.response_ids))
    return torch.cat([prompt, response])[None], slice(len(prompt) - 1, len(prompt) + len(response) - 1)


@torch.no_grad()
def plain_logprobs(model: nn.Module, record: RolloutRecord) -> Tensor:
    """(T,) log-probabilities of the response by the model alone: no padding, no positions, no mask, no cache."""
    ids, places = _ids(record)
    logits = model(input_ids=ids, use_cache=False).logits[0, places].float()
    return torch.log_softmax(logits / TEMPERATURE, dim=-1).gather(1, ids[0, places.start + 1 :, None])[:, 0]


@torch.no_grad()
def plain_values(model: nn.Module, record: RolloutRecord) -> Tensor:
    """(T,) values of a head drawn from seed 0 with variance 1 / (H + 1), on what the output layer reads."""
    ids, places = _ids(record)
    read: list[Tensor] = []
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(input_ids=ids, use_cache=False)
    handle.remove()
    hidden = read[0][0, places]
    head = torch.randn(1, hidden.shape[1], generator=torch.Generator().manual_seed(0)) * (hidden.shape[1] + 1) ** -0.5
    return hidden @ head[0]


def guarded(model_type: str, mode: str, measure: Callable[[str, str, Path], dict[str, Any]] = measure_type) -> dict[str, Any]:
    """The same in a process of its own, with limits of time and memory: a crash or a loop ends nothing else."""
    read_end, write_end = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _measure_in_child(write_end, lambda: measure(model_type, mode, Path(folder)))
        os.close(write_end)
        with os.fdopen(read_end, "rb") as answers:
            answer = answers.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if answer:
        return json.loads(answer)
    cause = "it took too long" if status == -signal.SIGALRM else f"the process ended with {status}"
    return {"outcome": "traceback", "text": cause}


def _measure_in_child(write_end: int, measure: Callable[[], dict[str, Any]]) -> None:
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if not os.environ.get("FAMILIES_VERBOSE"):
        os.dup2(quiet, 2)
    try:
        torch.set_num_threads(1)
        result = measure()
    except BaseException as error:  # noqa: BLE001 - whatever it was is the result
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({Path(place.filename).name}, line {place.lineno})"
        result = {"outcome": "traceback", "text": text}
    with os.fdopen(write_end, "wb") as answers:
        answers.write(json.dumps(result).encode())
    os._exit(0)


def as_lines(known: dict[str, Any]) -> str:
    """The results as JSON with one line per type."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found, sort_keys=True)}" for name, found in sorted(known["types"].items()))
    return f'{{"transformers": {json.dumps(known["transformers"])}, "types": {{\n{lines}\n}}}}\n'


def main(types: list[str]) -> None:
    """Measure the types and write them into the results, the others left as they are."""
    transformers.logging.set_verbosity_error()
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"types": {}}
    for model_type in types or list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        found = {mode: guarded(model_type, mode) for mode in MODES}
        print(model_type, *(f"{mode}: {result['outcome']} {result.get('largest', result.get('text'))}" for mode, result in found.items()),
              sep=" | ", flush=True)  # fmt: skip
        known["types"][model_type] = found
        known["transformers"] = transformers.__version__
        RESULTS.write_text(as_lines(known), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
