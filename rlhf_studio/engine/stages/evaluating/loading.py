"""The policies of an evaluation in memory: what they share is loaded once.

Adapters of one shape on one base share a model: their few weights are exchanged before each turn. Whole models of one architecture share
one too: the weights of each are copied into it before its turn, from memory where there is room, else from the disk. A model that is also
the base of adapters lies in the same memory as that base.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.device import Compute, placed
from rlhf_studio.engine.ends import model_ends, stop_ids
from rlhf_studio.engine.loop.build import pad_id
from rlhf_studio.engine.loop.models import Models, traced
from rlhf_studio.engine.loop.prompts import TokenizerEncoder
from rlhf_studio.engine.models.adapters import adapter_weights, is_adapter, load_adapter, sharing
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.forward import ForwardPass
from rlhf_studio.engine.models.load_model import LoadedModel, adapter_base, check_same_tokens, fetch, load_causal_lm, load_options
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.models.reference import Reference
from rlhf_studio.engine.rewards.scorer import Scorer
from rlhf_studio.engine.stages.evaluating.answering import TextReader
from rlhf_studio.engine.types import OnProgress
from rlhf_studio.inputs.estimate.device import processor
from rlhf_studio.language import S_
from rlhf_studio.runs.checkpoints import CheckpointError, require_whole
from rlhf_studio.runs.evaluation.policies import FIELD, PolicySource

REFERENCE_FIELD = "evaluation.reference"
NO_LIMIT = 2**31
WAITING_SHARE = 0.25  # of the free memory may hold weights that wait for their turn


@dataclass
class Loaded:
    """A model that one or several policies take turns in.

    Attributes:
        models: the policy with the reference beside it.
        reads_alike: whether its tokens are the reference's, so that their log-probabilities can be compared.
        longest: most tokens of a row that it reads.
        holds: the key (:func:`_weights_key`) of the policy whose weights the model has now.
    """

    models: Models
    reads_alike: bool
    longest: int
    holds: str


class Policies:
    """Loads the policies, and puts the weights of one after the other into the models that they share.

    Attributes:
        reference: the model that KL and perplexity refer to.
        reader: the same model, for answers of which only the text is known.
        compute, scorer: of the run.
    """

    def __init__(self, config: RunConfig, reference: tuple[str, str], compute: Compute, scorer: Scorer, report: OnProgress):
        self._config, self._report = config, report
        self.compute, self.scorer = compute, scorer
        self._options = load_options(config, compute)
        self._bases: dict[Path, LoadedModel] = {}
        self._loaded: dict[str, Loaded] = {}
        self._keys: dict[str, str] = {}
        self._waiting: dict[str, dict[str, Tensor]] = {}
        self._room = int((processor().free or 0) * WAITING_SHARE)
        self.reference = self._base(*reference, REFERENCE_FIELD)
        forward = ForwardPass(compute, config.generation.temperature, config.ppo.micro_batch)
        model = ResponseModel(sharing(self.reference.model)).eval()
        self.reader = TextReader(model, TokenizerEncoder(self.reference.tokenizer), forward, longest(self.reference))

    def load_all(self, sources: Sequence[PolicySource], longest_prompt: int) -> None:
        """Load every policy once, so that errors come before the first step. Raises :class:`ConfigError`."""
        needed = longest_prompt + self._config.generation.response_length
        for source in sources:
            if is_adapter(folder := self._folder(source)) and folder not in self._bases:
                self._base(*adapter_base(source.path, folder, FIELD), FIELD, folder)
        for number, source in enumerate(sources, start=1):
            self._report(f"Loading {source.name} ({number} of {len(sources)})", None)
            if (limit := self.get(source).longest) < needed:
                needs = S_(f"a prompt and its answer may have {needed:,} (data.max_prompt_tokens, generation.response_length)")
                raise ConfigError([Problem(FIELD, f"{source.name} reads at most {limit:,} tokens, and {needs}")])

    def get(self, source: PolicySource) -> Loaded:
        """The policy, ready to answer: the model has its weights. Raises :class:`ConfigError` for what cannot be loaded."""
        folder = self._folder(source)
        weights_key = _weights_key(source)
        if weights_key not in self._keys:
            _check(source)
            self._keys[weights_key] = self._key(source, folder)
        key = self._keys[weights_key]
        loaded = self._loaded.get(key)
        if loaded is None:
            loaded = self._loaded[key] = self._load(source, folder)
        elif loaded.holds != weights_key:
            self._take_turn(loaded, source, folder)
        return loaded

    def _folder(self, source: PolicySource) -> Path:
        return fetch(source.path, source.revision, self._report, FIELD).resolve()

    def _base(self, name: str, revision: str, field: str, adapter: Path | None = None) -> LoadedModel:
        """A model whose weights are never written to; loaded once. ``adapter``: the folder that the base of a run has its tokenizer in."""
        folder = fetch(name, revision, self._report, field).resolve()
        if folder not in self._bases:
            loaded = load_causal_lm(name, revision, self.compute.dtype, self._report, field, self._options, adapter)
            self._bases[folder] = replace(loaded, model=placed(loaded.model.requires_grad_(False), self.compute.device))
        return self._bases[folder]

    def _key(self, source: PolicySource, folder: Path) -> str:
        """Policies with the same key take turns in one model."""
        if folder in self._bases or self._config.model.quantization != "none":
            return str(folder)
        if not is_adapter(folder):
            return _digest(_settings(folder / "config.json"), (folder / "tokenizer.json"))
        base, revision = adapter_base(source.path, folder, FIELD)
        on = fetch(base, revision, self._report, FIELD).resolve()
        return _digest({**_settings(folder / "adapter_config.json"), "base": str(on)}, folder / "tokenizer.json")

    def _load(self, source: PolicySource, folder: Path) -> Loaded:
        if folder in self._bases:
            base = self._bases[folder]
            return self._ready(replace(base, model=sharing(base.model)), source)
        if not is_adapter(folder) or is_adapter(fetch(*adapter_base(source.path, folder, FIELD), self._report, FIELD)):
            loaded = load_causal_lm(source.path, source.revision, self.compute.dtype, self._report, FIELD, self._options)
            loaded = replace(loaded, model=placed(loaded.model.requires_grad_(False), self.compute.device))
            self._keep(source, loaded.model.state_dict())
            return self._ready(loaded, source)
        base = self._base(*adapter_base(source.path, folder, FIELD), FIELD, folder)
        return self._ready(base, source, load_adapter(sharing(base.model), folder, source.name, FIELD))

    def _ready(self, loaded: LoadedModel, source: PolicySource, adapted: PeftModel | None = None) -> Loaded:
        head = make_value_head(loaded.model.get_output_embeddings().weight.shape[1], "zero", 0)
        policy = Policy(adapted or loaded.model, head).to(self.compute.device).requires_grad_(False)
        reference = Reference(policy, self.compute.dtype, sharing(self.reference.model))
        if self.compute.device.type == "cpu":
            policy.enable_packing()
            reference.enable_packing()
        ends = model_ends(policy.model, loaded.tokenizer, chat=self._config.data.chat_template)
        models = Models(
            policy=policy,
            reference=reference,
            scorer=self.scorer,
            tokenizer=loaded.tokenizer,
            config=self._config,
            compute=self.compute,
            stop_ids=stop_ids(self._config.generation, ends, policy.model),
            ends=ends,
            pad_id=pad_id(loaded.tokenizer, policy.model),
            traced_step=traced(policy, self._config, self.compute)[0],
        )
        return Loaded(models, self._reads_alike(loaded), longest(loaded), _weights_key(source))

    def _reads_alike(self, loaded: LoadedModel) -> bool:
        try:
            check_same_tokens("the reference", self.reference, loaded, FIELD, "", outputs=True)
        except ConfigError:
            return False
        return True

    def _take_turn(self, loaded: Loaded, source: PolicySource, folder: Path) -> None:
        """Copy the weights of ``source`` into the model that it shares with others."""
        model = loaded.models.policy.model
        weights = self._waiting.get(_weights_key(source)) or self._read(source, folder)
        target = adapter_weights(model) if isinstance(model, PeftModel) else model.state_dict()
        if set(weights) != set(target) or any(weights[name].shape != target[name].shape for name in weights):
            raise ConfigError([Problem(FIELD, f"the weights of {source.name} do not fit its own settings")])
        loaded.holds = ""  # until all of them are there
        with torch.no_grad():
            for name, tensor in weights.items():
                target[name].copy_(tensor)
        loaded.holds = _weights_key(source)

    def _read(self, source: PolicySource, folder: Path) -> dict[str, Tensor]:
        if is_adapter(folder):
            return load_file(folder / "adapter_model.safetensors")
        loaded = load_causal_lm(source.path, source.revision, self.compute.dtype, self._report, FIELD, self._options)
        weights = dict(loaded.model.state_dict())
        self._keep(source, weights)
        return weights

    def _keep(self, source: PolicySource, weights: dict[str, Tensor]) -> None:
        """Keep copies in the computer's main memory, if there is room: the GPU's memory is needed for other things."""
        size = sum(tensor.nbytes for tensor in weights.values())
        if size <= self._room:
            self._room -= size
            self._waiting[_weights_key(source)] = {name: tensor.to("cpu", copy=True) for name, tensor in weights.items()}


def _weights_key(source: PolicySource) -> str:
    """Names a policy's weights: its path or hub id, with the revision."""
    return f"{source.path}@{source.revision}"


def longest(loaded: LoadedModel) -> int:
    """Most tokens of a row that a model reads; a huge number where it names no limit."""
    limit = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    return limit if isinstance(limit, int) else NO_LIMIT


def _check(source: PolicySource) -> None:
    if not source.checkpoint:
        return
    try:
        require_whole(Path(source.checkpoint))
    except CheckpointError as error:
        raise ConfigError([Problem(FIELD, f"{source.name} cannot be read: {error}")]) from error


NAMES_ONLY = ("_name_or_path", "transformers_version", "base_model_name_or_path", "revision", "inference_mode")
"""What config.json and adapter_config.json say that does not change what is computed."""


def _settings(file: Path) -> dict[str, object]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError([Problem(FIELD, f"{file} cannot be read: {error}")]) from error
    return {name: value for name, value in settings.items() if name not in NAMES_ONLY}


def _digest(settings: dict[str, object], tokenizer: Path) -> str:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    if tokenizer.is_file():
        digest.update(tokenizer.read_bytes())
    return digest.hexdigest()
