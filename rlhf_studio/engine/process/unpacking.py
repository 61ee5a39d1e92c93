"""The helper that makes plain numbers of weights that were quantized before (:data:`UNPACKABLE`), started by ``inputs/models/unpacked.py``.

transformers unpacks them: FP8 and MXFP4 while it loads them, those of bitsandbytes afterwards.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, FineGrainedFP8Config
from transformers.utils.quantization_config import Mxfp4Config

from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.models.load_model import UNUSABLE, fetch, load_tokenizer
from rlhf_studio.engine.process.plain_copy import SHARD, lack_of_room, plain_config, plain_copy
from rlhf_studio.inputs.helper import answer, read_task
from rlhf_studio.inputs.models.reward_models import is_reward_model
from rlhf_studio.language import S_


def main() -> None:
    """Answer with lines about the progress, or with what is wrong."""
    task = read_task()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    name = task["name"]
    try:
        folder = fetch(name, task["revision"], lambda text, share: answer({"progress": text}), "model")
        if problem := lack_of_room(task["weights"] * getattr(torch, task["dtype"]).itemsize, Path(task["target"]), task["dtype"]):
            answer({"problem": f"{name} {problem}"})
            return
        answer({"progress": S_(f"unpacking {name}")})
        unpack(folder, Path(task["target"]), task["method"], getattr(torch, task["dtype"]))
    except ConfigError as error:
        answer({"problem": "; ".join(problem.message for problem in error.problems)})
    except (*UNUSABLE, AttributeError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:300]
        answer({"problem": S_(f"transformers {transformers.__version__} cannot unpack {name}: {reason or type(error).__name__}")})


def unpack(folder: Path, target: Path, method: str, dtype: torch.dtype) -> None:
    """Write the model in ``folder``, packed by ``method``, with weights of ``dtype``. Raises ValueError where weights are missing."""
    while_loading: dict[str, Any] = {"fp8": FineGrainedFP8Config, "mxfp4": Mxfp4Config}
    options = {"quantization_config": while_loading[method](dequantize=True)} if method in while_loading else {"device_map": "cpu"}
    kind: Any = AutoModelForSequenceClassification if is_reward_model(folder) else AutoModelForCausalLM
    loaded: Any = kind.from_pretrained(
        folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True, **options
    )
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        raise ValueError(S_(f"it has no weights for {missing[0]}"))
    if method not in while_loading:
        model = model.dequantize()
    model.to(dtype)
    config = plain_config(model)
    config.dtype = dtype
    plain_copy(model, config).save_pretrained(target, max_shard_size=SHARD)
    load_tokenizer(folder).save_pretrained(target)


if __name__ == "__main__":
    main()
