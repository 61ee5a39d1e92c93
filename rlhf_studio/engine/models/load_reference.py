"""Which model the policy is held to: decided and loaded before LoRA changes anything."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from rlhf_studio.config import RunConfig
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.adapters import is_adapter
from rlhf_studio.engine.models.load_model import LoadedModel, adapter_base, check_same_tokens, fetch, load_causal_lm
from rlhf_studio.engine.types import OnProgress

FIELD = "model.reference"


@dataclass(frozen=True)
class LoadedReference:
    """At most one of the two is set; with neither, the reference is the policy itself before training.

    Attributes:
        model: a model of its own, to be kept frozen.
        adapter: folder of an adapter to be put beside the policy's own.
    """

    model: PreTrainedModel | None = None
    adapter: Path | None = None
    notes: list[str] = field(default_factory=list)


def load_reference(
    config: RunConfig, policy: LoadedModel, compute: Compute, report: OnProgress, options: dict[str, Any]
) -> LoadedReference:
    """What ``model.reference`` names; ``policy`` is as it was loaded, without adapters that learn.

    Raises :class:`ConfigError` naming ``model.reference`` for what cannot be loaded or does not fit the policy.
    """
    name, lora = config.model.reference, config.lora
    if not name:
        if not lora.enabled or (lora.off_is_start and not config.ppo.reference_ema):
            return LoadedReference()
        why = "it follows the policy" if config.ppo.reference_ema else "biases of the base learn too"
        why = f"the {lora.init_lora_weights} start changes the base" if lora.changes_base else why
        note = f"The reference is a frozen copy of the starting model, because {why}: this takes its memory once more."
        return LoadedReference(copy.deepcopy(policy.model), notes=[note])
    folder = fetch(name, config.model.reference_revision, report, FIELD)
    if lora.enabled and lora.off_is_start and not config.ppo.reference_ema and not policy.merged and _is_on_policy(folder, config, report):
        return LoadedReference(adapter=folder, notes=[f"The reference is the adapter {name}, on the policy's own base."])
    loaded = load_causal_lm(name, config.model.reference_revision, compute.dtype, report, FIELD, options)
    check_same_tokens(name, loaded, policy, FIELD, "so their log-probabilities cannot be compared", outputs=True)
    return LoadedReference(loaded.model, notes=[f"The reference is {name}, kept beside the policy."])


def _is_on_policy(folder: Path, config: RunConfig, report: OnProgress) -> bool:
    """Whether the folder holds a plain LoRA adapter whose base is the policy's model: then no second model is needed."""
    if not is_adapter(folder):
        return False
    base, revision = adapter_base(config.model.reference, folder, FIELD)
    settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    if settings.get("bias", "none") != "none" or settings.get("modules_to_save"):
        return False
    policy = fetch(config.model.policy, config.model.revision, report, "model.policy")
    return fetch(base, revision, report, FIELD).resolve() == policy.resolve()
