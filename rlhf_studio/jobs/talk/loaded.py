"""From a run folder and a step to a policy that can be talked to, with its reference and the run's rewards.

Two policies of one run share what is equal: the frozen base under LoRA, the reference, and a starting policy that is the reference.
Nothing changes the weights of a :class:`Start`; a policy with other weights gets a copy.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from rlhf_studio.config import Permissions, RunConfig, SFTRunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.engine.compute.device import Compute, choose_compute, placed, round_products
from rlhf_studio.engine.compute.lanes import better_with_one_thread
from rlhf_studio.engine.ends import model_ends, stop_ids
from rlhf_studio.engine.loop.build import pad_id, with_lora
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.models.adapters import merge_adapter, sharing
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.load_model import LoadedModel, load_causal_lm, load_options
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.models.reference import LoadedReference, Reference, load_reference
from rlhf_studio.engine.rewards.scorer import Scorer, build_scorer
from rlhf_studio.engine.saving.checkpoint import restore_language_model, restore_reference
from rlhf_studio.engine.stages.supervised.loading import draw_model
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.language import S_
from rlhf_studio.regular import read_regular
from rlhf_studio.runs.checkpoints import CheckpointError, only_named, require_whole
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.paths import checkpoint_dir, snapshot_dir
from rlhf_studio.runs.reader import RunReader

THREADS = torch.get_num_threads()

MOVED_REFERENCE = S_("A snapshot holds no reference, which moved in this run: KL is measured from the reference as it was at the start.")


class CannotTalk(Exception):
    """There is nothing to talk to; the message is one sentence for people."""


@dataclass(frozen=True)
class Start:
    """A run as it was before training.

    Attributes:
        loaded: the policy's model, whose weights stay as they are.
        reference: what ``model.reference`` names.
        scorer: the run's rewards; without components where they cannot be loaded.
        no_score: one sentence why there is no score; empty when there is one.
        max_positions: most tokens of prompt and response together; None when the model names no limit.
    """

    run_dir: Path
    config: RunConfig
    compute: Compute
    loaded: LoadedModel
    reference: LoadedReference
    scorer: Scorer
    no_score: str
    max_positions: int | None


@dataclass(frozen=True)
class Talker:
    """A policy that can be talked to.

    Attributes:
        models: the policy, its reference, and the run's rewards.
        step: of its checkpoint; None is the starting policy.
        kl_coef: β at this step, for the rewards of tokens; 0 where the loss charges the KL.
        has_values: whether the value head that shares the policy's trunk was loaded.
        threads: of a CPU, for one operation.
        notes: what people should know of its answers.
    """

    models: Models
    step: int | None
    kl_coef: float
    has_values: bool
    no_score: str = ""
    max_positions: int | None = None
    threads: int = 1
    notes: tuple[str, ...] = ()


def settings_of(run_dir: Path) -> RunConfig:
    """The run's settings, for one process on the device that this process is to use.

    Raises StoreError, and :class:`CannotTalk` for a run without a policy.
    """
    try:
        config = as_sampled(RunReader(run_dir).config())
    except StoreError:
        raise
    except ValueError as error:
        raise CannotTalk(f"There is nothing to talk to: {error}.") from error
    changes = {"processes": 1, "accelerate_config": "", "threads": 0}
    if not torch.cuda.is_available() or (config.engine.gpu_index or 0) >= torch.cuda.device_count():
        changes["device"] = "cpu"  # a run on a GPU is talked to on the CPU when there is no GPU, or when it is not for us
    elif config.engine.device == "cuda":
        changes["device"] = "auto"
    return config.model_copy(update={"engine": config.engine.model_copy(update=changes)})


def load_start(run_dir: Path, config: RunConfig, permissions: Permissions, report: OnProgress) -> Start:
    """Load the run's models as they were before training. Raises :class:`ConfigError` and StoreError for what cannot be loaded."""
    compute = choose_compute(config)
    with _where_it_began(run_dir):
        dtype, options = compute.dtype if config.lora.enabled else torch.float32, load_options(config, compute)
        loaded = _starting_policy(run_dir, config, dtype, options, report)
        # Rounded once, not for every token: autocast keeps its copies of weights that are trained, but not of frozen ones.
        loaded = replace(loaded, model=placed(round_products(loaded.model.requires_grad_(False), compute.dtype), compute.device))
        reference = load_reference(config, loaded, report, options)
        no_score = ""
        try:
            if RunReader(run_dir).status().stage != "ppo":
                raise ConfigError([Problem("", "the run learned from examples, not from a reward")])
            scorer = build_scorer(config.reward, compute, report, permissions)
        except ConfigError as error:
            gold = config.reward.gold if RunReader(run_dir).status().stage == "ppo" else "none"
            scorer = Scorer(config.reward.model_copy(update={"gold": gold}), [])
            no_score = S_(f"There is no score: {error.problems[0].message}.")
    limit = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    return Start(run_dir, config, compute, loaded, reference, scorer, no_score, limit if isinstance(limit, int) else None)


def _starting_policy(run_dir: Path, config: RunConfig, dtype: torch.dtype, options: dict[str, Any], report: OnProgress) -> LoadedModel:
    """The policy's model as the run began with it. For an untrained start the same new weights are drawn again."""
    own = RunReader(run_dir).config()
    if isinstance(own, SFTRunConfig) and own.model.fresh:
        return draw_model(own.model.policy, own.model.revision, own.engine.seed, dtype, report)
    return load_causal_lm(config.model.policy, config.model.revision, dtype, report, options=options)


def load_talker(start: Start, step: int | None) -> Talker:
    """The policy of a step. Raises :class:`CannotTalk`, :class:`CheckpointError` and StoreError when there is none."""
    config, compute = start.config, start.compute
    folder = None if step is None else weights_folder(start.run_dir, step)
    if folder is not None:
        require_whole(folder)
    with _where_it_began(start.run_dir):
        model = with_lora(_starting_model(start, folder), config, start.loaded, replace(start.reference, adapter=None))
        head = make_value_head(start.loaded.model.get_output_embeddings().weight.shape[1], "zero", 0)
        policy = Policy(model, head).to(compute.device)
        reference = Reference(policy, compute.dtype, _reference_model(start, folder))
    has_values, notes = False, []
    is_checkpoint = folder is not None and folder == checkpoint_dir(start.run_dir, step or 0)  # a snapshot has the policy's weights alone
    if folder is not None:
        restore_language_model(folder, policy)
        has_head = (folder / "value_head.safetensors").is_file()  # only PPO trains one
        has_values = is_checkpoint and has_head and config.critic.kind == "shared" and _restore_value_head(folder, policy)
        if config.ppo.reference_ema and is_checkpoint:
            restore_reference(folder, reference)
        elif config.ppo.reference_ema:
            notes.append(MOVED_REFERENCE)
    tokenizer = start.loaded.tokenizer
    ends = model_ends(policy.model, tokenizer, chat=config.data.chat_template)
    models = Models(
        policy=policy.requires_grad_(False),
        reference=reference,
        scorer=start.scorer,
        tokenizer=tokenizer,
        config=config,
        compute=compute,
        stop_ids=stop_ids(config.generation, ends, policy.model),
        ends=ends,
        pad_id=pad_id(tokenizer, policy.model),
    )
    charged = config.ppo.kl_placement == "reward" and RunReader(start.run_dir).status().stage == "ppo"
    if not charged:
        coefficient = 0.0
    elif folder is None:
        coefficient = config.ppo.kl_coef
    else:
        coefficient = _kl_coef(folder) if is_checkpoint else _recorded_kl_coef(start.run_dir, step or 0)
    threads = 1 if better_with_one_thread(policy) else THREADS
    return Talker(models, step, coefficient, has_values, start.no_score, start.max_positions, threads, tuple(notes))


def weights_folder(run_dir: Path, step: int) -> Path:
    """Where the weights of a step lie: its checkpoint, else its snapshot. Raises :class:`CannotTalk` when there is neither."""
    for folder in (checkpoint_dir(run_dir, step), snapshot_dir(run_dir, step)):
        if folder.is_dir():
            return folder
    raise CannotTalk(f"The checkpoint of step {step} is no longer there; choose another one.")


def _starting_model(start: Start, folder: Path | None) -> Any:
    lora = start.config.lora
    written = folder is not None and (not lora.enabled or lora.bias != "none")  # the saved weights are copied into the model's own
    return copy.deepcopy(start.loaded.model) if written or (lora.enabled and lora.changes_base) else sharing(start.loaded.model)


def _reference_model(start: Start, folder: Path | None) -> Any:
    """Always a model of its own, so that it can be read while adapters are merged into the policy; it shares what it can."""
    if start.reference.adapter is not None:
        return merge_adapter(copy.deepcopy(start.loaded.model), start.reference.adapter, start.config.model.reference, "model.reference")
    model = start.reference.model or start.loaded.model
    return copy.deepcopy(model) if folder is not None and start.config.ppo.reference_ema else sharing(model)


def _restore_value_head(folder: Path, policy: Policy) -> bool:
    try:
        with only_named(folder) as named:
            assert policy.value_head is not None  # load_talker gives every policy one
            policy.value_head.load_state_dict(load_file(named / "value_head.safetensors"))
    except (OSError, SafetensorError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{folder.name}: {error}") from error
    return True


def _kl_coef(folder: Path) -> float:
    """β at the checkpoint; it differs from the setting where a controller or a person has changed it."""
    try:
        return float(json.loads(read_regular(folder / "state.json"))["controller"]["coef"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder.name}: state.json cannot be read ({error})") from error


def _recorded_kl_coef(run_dir: Path, step: int) -> float:
    """β of a step as it is recorded with its metrics: a snapshot does not hold it."""
    recorded = dict(RunReader(run_dir).metrics_since(step - 1, 1)).get(step, {}).get("objective/kl_coef")
    if recorded is None:
        raise CheckpointError(f"the KL coefficient of step {step} is not recorded")
    return recorded


@contextlib.contextmanager
def _where_it_began(run_dir: Path) -> Iterator[None]:
    """Inside, the working folder is that from which the run was started: relative paths in its settings start there."""
    folder = RunReader(run_dir).working_folder()
    with contextlib.chdir(folder) if folder.is_dir() else contextlib.nullcontext():
        yield
