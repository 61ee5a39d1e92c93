"""Building what a reward-model run trains: a new head on a language model's trunk, or a reward model that is trained on."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import RewardModelRunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.compute.gradient_checkpointing import enable_gradient_checkpointing
from rlhf_studio.engine.models.adapters import add_lora, name_base
from rlhf_studio.engine.models.classifiers import own_pad, sum_of_outputs
from rlhf_studio.engine.models.heads import HiddenHead, draw_head, set_head_dropout
from rlhf_studio.engine.models.load_model import LoadedRewardModel, classifier_of, fetch, load_causal_lm, load_options, load_reward_model
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.models.reward_models import RewardFile, is_reward_model, read_reward_file
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.language import S_

ACTIVATION = "gelu"
"""Of a new hidden layer. Unlike tanh it has no upper bound, so a score never runs into one."""
IN_A_CHECKPOINT = ("policy", "reward_model")  # folders of a checkpoint with a model that others can use


@dataclass(frozen=True)
class BuiltRewardModel:
    """A sequence classifier with one output, ready to be trained.

    Attributes:
        model: transformers' classifier, or the same with LoRA adapters.
        trained_on: whether it was a reward model before. Then it keeps its head.
        head: what ``reward_model.json`` will say about its head.
        base_on_disk: whether the named folder holds the starting weights of the trunk. The folder of a LoRA adapter does not.
        notes: sentences for people.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    trained_on: bool
    head: RewardFile
    base_on_disk: bool = False
    notes: list[str] = field(default_factory=list)


def build_reward_model(config: RewardModelRunConfig, compute: Compute, report: OnProgress) -> BuiltRewardModel:
    """Load what the settings name and put a head on it.

    Raises :class:`ConfigError` naming the setting that cannot be used.
    """
    settings, name = config.reward_model, start_folder(config.model.policy)
    folder = fetch(name, config.model.revision, report, "model.policy")
    torch.manual_seed(config.engine.seed)
    built = _train_on(config, name, folder, report) if is_reward_model(folder) else _new_head(config, compute, name, report)
    model: Any = placed(built.model, compute.load_device)
    try:
        set_head_dropout(model, settings.head_dropout)
    except ValueError as error:
        raise ConfigError([Problem("reward_model.head_dropout", str(error))]) from error
    model.requires_grad_(True)
    model.config.get_text_config().pad_token_id = own_pad(built.tokenizer, model)
    if config.lora.enabled:
        if not hasattr(model, "score"):
            raise ConfigError(
                [Problem("lora.enabled", f"{name} has no layer named score, which LoRA needs here; train all weights instead")]
            )
        model = add_lora(model, config.lora, head="score")
        name_base(model, name if built.base_on_disk else None, config.model.revision)
    if config.model.gradient_checkpointing and not enable_gradient_checkpointing(model):
        raise ConfigError([Problem("model.gradient_checkpointing", f"{name} has no layers that can be computed again")])
    return replace(built, model=model.eval())


def start_folder(name: str) -> str:
    """If ``name`` is a checkpoint or snapshot of a run, the folder of its model; else ``name`` itself."""
    folder = Path(resolve(name))
    if any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        return name
    return next((str(folder / inner) for inner in IN_A_CHECKPOINT if os.path.isdir(folder / inner)), name)


def _new_head(config: RewardModelRunConfig, compute: Compute, name: str, report: OnProgress) -> BuiltRewardModel:
    """The trunk of a causal language model with a new random head, which depends on the seed."""
    if config.model.criteria:
        message = S_(f"{name} is a language model, which has no outputs to weigh; leave it empty")
        raise ConfigError([Problem("model.criteria", message)])
    loaded = load_causal_lm(name, config.model.revision, torch.float32, report, "model.policy", load_options(config, compute))
    model: Any = classifier_of(loaded, name, "model.policy")
    saved = RewardFile(append_eos=config.reward_model.append_eos)
    if config.reward_model.head == "hidden":
        saved = RewardFile("hidden", ACTIVATION, config.reward_model.append_eos)
        model.score = HiddenHead(model.score.in_features, ACTIVATION, device=loaded.model.device)
    draw_head(model.score, torch.Generator().manual_seed(config.engine.seed))
    return BuiltRewardModel(model, loaded.tokenizer, False, saved, not loaded.merged, list(loaded.notes))


def _train_on(config: RewardModelRunConfig, name: str, folder: Path, report: OnProgress) -> BuiltRewardModel:
    """An existing reward model, with its own head."""
    if config.model.quantization != "none":
        message = S_(f"{name} is a reward model, which is trained on without quantization; use none")
        raise ConfigError([Problem("model.quantization", message)])
    saved = read_reward_file(folder) or RewardFile()
    weights = criteria_of(config.model.criteria)
    loaded = _loaded_whole(name, config.model.revision, report)
    model: Any = loaded.model
    notes = [S_(f"{name} is a reward model: it is trained on, with the head that it has.")]
    if model.config.num_labels > 1:
        names = list(model.config.id2label.values())
        unknown = [label for label in weights if label not in names]
        if unknown or not weights:
            problem = (
                S_(f"there is no output {unknown[0]!r}") if unknown else S_("this model has several outputs, and a reward is one number")
            )
            message = S_(f"{problem}; give outputs and their weights, such as {names[0]}=1; its outputs are {', '.join(names)}")
            raise ConfigError([Problem("model.criteria", message)])
        sum_of_outputs(model, [weights.get(label, 0.0) for label in names])
        notes.append(
            S_("Its outputs were made into one score: ") + " + ".join(f"{weight:g} × {label}" for label, weight in weights.items()) + "."
        )
    elif weights:
        raise ConfigError([Problem("model.criteria", f"{name} has one output only; leave it empty")])
    if config.reward_model.head != saved.head:
        notes.append(S_(f"Its head stays {saved.head}; the setting for the head is for new ones."))
    if saved.append_eos != config.reward_model.append_eos and (folder / "reward_model.json").is_file():
        what = "with" if saved.append_eos else "without"
        message = S_(f"{name} was trained {what} an end token behind each text; use {str(saved.append_eos).lower()} here too")
        raise ConfigError([Problem("reward_model.append_eos", message)])
    head = RewardFile(saved.head, saved.activation, config.reward_model.append_eos, None, weights or saved.criteria)
    return BuiltRewardModel(model, loaded.tokenizer, True, head, notes=notes)


def _loaded_whole(name: str, revision: str, report: OnProgress) -> LoadedRewardModel:
    """The reward model with all its outputs; errors name the setting of this stage."""
    try:
        return load_reward_model(name, revision, "0", torch.float32, report, "model")
    except ConfigError as error:
        raise ConfigError([Problem("model.policy", problem.message) for problem in error.problems]) from error


def criteria_of(text: str) -> dict[str, float]:
    """``helpfulness=1, verbosity=-0.2`` as names with weights. Raises :class:`ConfigError` for anything else."""
    weights: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, weight = part.rpartition("=")
        try:
            weights[name.strip()] = float(weight) if equals and name.strip() else float("nan")
        except ValueError:
            weights[name.strip()] = float("nan")
    if bad := [name for name, weight in weights.items() if not abs(weight) <= 1e6]:
        raise ConfigError([Problem("model.criteria", f"{bad[0] or text!r} has no number; write name=weight, separated by commas")])
    return weights
