"""A causal language model with a value head beside it, as classic programs load it; and a frozen copy to compare it with."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError
from peft import PeftConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

HEAD = "v_head.summary"
LAYERS = ("transformer.h.{layer}.", "model.decoder.layers.{layer}.", "gpt_neox.layers.{layer}.", "model.layers.{layer}.")
NOT_THERE = (EntryNotFoundError, LocalEntryNotFoundError, RepositoryNotFoundError, HFValidationError)


class ValueHead(nn.Module):
    """A linear layer from hidden states (…, H) to values (…, 1) in float32, with torch's own start. ``dropout`` stays off in PPO."""

    def __init__(self, hidden_size: int, summary_dropout_prob: float = 0.1):
        super().__init__()
        self.dropout = nn.Dropout(summary_dropout_prob)
        self.summary = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        values: Tensor = self.summary(self.dropout(hidden).to(self.summary.weight.dtype))
        return values


class PreTrainedModelWrapper(nn.Module):
    """A model of transformers with a value head.

    Attributes:
        pretrained_model: the language model, inside a ``PeftModel`` with LoRA. :class:`PPOTrainer` trains it in place.
        v_head: the value head.
    """

    def __init__(self, pretrained_model: PreTrainedModel | PeftModel, **options: Any):
        super().__init__()
        outputs: Any = pretrained_model.get_output_embeddings()
        if outputs is None:
            raise ValueError("the model has no output layer for tokens; give a causal language model")
        dropout = getattr(pretrained_model.config, "summary_dropout_prob", options.get("summary_dropout_prob", 0.1)) or 0.0
        self.pretrained_model: Any = pretrained_model
        self.v_head = ValueHead(int(outputs.weight.shape[1]), dropout).to(outputs.weight.device)
        if options.get("v_head_init_strategy") == "normal":
            nn.init.normal_(self.v_head.summary.weight, std=options.get("v_head_initializer_range", 0.2))
            nn.init.zeros_(self.v_head.summary.bias)

    @property
    def config(self) -> Any:
        """The language model's configuration."""
        return self.pretrained_model.config

    @property
    def is_peft_model(self) -> bool:
        """Whether only adapters are trained."""
        return isinstance(self.pretrained_model, PeftModel)

    @property
    def device(self) -> torch.device:
        """Where the language model lies."""
        where: torch.device = self.pretrained_model.device
        return where

    def forward(
        self, input_ids: Tensor | None = None, past_key_values: Any = None, attention_mask: Tensor | None = None, **options: Any
    ) -> tuple[Any, ...]:
        """Logits (B, L, V) float32, the loss where ``labels`` are given, and values (B, L)."""
        with_cache = options.pop("return_past_key_values", False)
        options |= {"output_hidden_states": True, "past_key_values": past_key_values}
        output = self.pretrained_model(input_ids=input_ids, attention_mask=attention_mask, **options)
        values = self.v_head(output.hidden_states[-1]).squeeze(-1)
        answer = (output.logits.float(), output.loss, values)
        return (*answer, output.past_key_values) if with_cache else answer

    def generate(self, *arguments: Any, **options: Any) -> Any:
        """As the language model's own ``generate``."""
        return self.pretrained_model.generate(*arguments, **options)

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """As the language model's own."""
        self.pretrained_model.gradient_checkpointing_enable(**options)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Write the language model (or its adapter) as transformers and peft load it, and the value head beside it."""
        self.pretrained_model.save_pretrained(str(folder), **options)
        head = {f"{HEAD}.{name}": weight.detach().cpu().contiguous() for name, weight in self.v_head.summary.state_dict().items()}
        save_file(head, Path(folder) / "value_head.safetensors")

    def push_to_hub(self, repo_id: str, **options: Any) -> Any:
        """Upload the language model, or its adapter, to the hub."""
        return self.pretrained_model.push_to_hub(repo_id, **options)

    @classmethod
    def from_pretrained(cls, model: str | Path | PreTrainedModel | PeftModel, *arguments: Any, **options: Any) -> Any:
        """A model in memory, or a folder or hub id: of a language model, of an adapter, or of what ``save_pretrained`` wrote.

        ``peft_config`` adds adapters; ``load_in_8bit`` and ``load_in_4bit`` quantize the base. The rest goes to transformers.
        """
        of_head = {name: options.pop(name) for name in HEAD_OPTIONS if name in options}
        peft_config, trainable = options.pop("peft_config", None), options.pop("is_trainable", False)
        if options.pop("reward_adapter", None) is not None:
            raise ValueError("reward_adapter is not offered here: give the scores to step, from a reward model of its own")
        options.pop("reward_adapter_name", None)
        if peft_config is not None and not isinstance(peft_config, PeftConfig):
            raise ValueError(f"peft_config is a {type(peft_config).__name__}; give a peft.LoraConfig")
        loaded = _load(str(model), arguments, options, trainable) if isinstance(model, str | Path) else model
        if not isinstance(loaded, PreTrainedModel | PeftModel):
            raise ValueError(f"from_pretrained takes a name, a folder or a model of transformers, not a {type(loaded).__name__}")
        if peft_config is not None and not isinstance(loaded, PeftModel):
            if getattr(loaded, "is_quantized", False):
                loaded = prepare_model_for_kbit_training(loaded)
            loaded = get_peft_model(loaded, peft_config)
        wrapped = cls(loaded, **of_head)
        if isinstance(model, str | Path):
            _load_head(wrapped, str(model))
        return wrapped


HEAD_OPTIONS = ("summary_dropout_prob", "v_head_initializer_range", "v_head_init_strategy")


class AutoModelForCausalLMWithValueHead(PreTrainedModelWrapper):
    """A causal language model with a value head."""


class AutoModelForSeq2SeqLMWithValueHead:
    """Encoder-decoder models are not trained here; the name is known so that the import line of a program works."""

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """Raises ValueError."""
        raise ValueError("an encoder-decoder model (T5, BART) cannot be trained here; use a causal language model")


def create_reference_model(model: Any, num_shared_layers: int | None = None, pattern: str | None = None) -> Any:
    """A frozen copy of the model, with or without value head.

    With ``num_shared_layers`` the first so many layers, and what comes before them, are frozen in the model too. ``pattern`` is how names
    of weights in a layer begin, ``transformer.h.{layer}.`` for GPT-2. Raises ValueError where it names no layer.
    """
    reference = copy.deepcopy(model).requires_grad_(False).eval()
    if num_shared_layers is None:
        return reference
    names = [name for name, _ in model.named_parameters()]
    patterns = [text.format(layer=num_shared_layers) for text in ((pattern,) if pattern else LAYERS)]
    first = next((index for index, name in enumerate(names) if any(text in name for text in patterns)), None)
    if first is None:
        raise ValueError(f"num_shared_layers is {num_shared_layers}, but no weight's name holds {' or '.join(patterns)}; give a pattern")
    for _, parameter in list(model.named_parameters())[:first]:
        parameter.requires_grad_(False)
    return reference


def _load(name: str, arguments: tuple[Any, ...], options: dict[str, Any], trainable: bool) -> PreTrainedModel | PeftModel:
    bits = {name: options.pop(name) for name in ("load_in_8bit", "load_in_4bit") if name in options}
    if any(bits.values()):
        options["quantization_config"] = BitsAndBytesConfig(**bits)
    if _file(name, "adapter_config.json") is None:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(name, *arguments, **_in_float32(options))
        return model
    base = PeftConfig.from_pretrained(name).base_model_name_or_path
    return PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, *arguments, **_in_float32(options)), name, is_trainable=trainable
    )


def _in_float32(options: dict[str, Any]) -> dict[str, Any]:
    """TRL's programs loaded in float32 unless they said otherwise; newer versions of transformers take what the file has."""
    named = {"dtype", "torch_dtype", "quantization_config"} & set(options)
    return options if named else {**options, "dtype": torch.float32}


def _load_head(wrapped: PreTrainedModelWrapper, name: str) -> None:
    """The value head that was saved with the model; one of TRL's lies among its weights."""
    for file in ("value_head.safetensors", "model.safetensors"):
        path = _file(name, file)
        if path is None:
            continue
        with safe_open(path, framework="pt") as weights:
            present = set(weights.keys())
            saved = {key: weights.get_tensor(f"{HEAD}.{key}") for key in ("weight", "bias") if f"{HEAD}.{key}" in present}
        if saved:
            wrapped.v_head.summary.load_state_dict(saved)
            return


def _file(name: str, file: str) -> Path | None:
    """A file of a model's folder, or of the hub where it is not a folder; None where there is no such file."""
    if Path(name).is_dir():
        return Path(name) / file if (Path(name) / file).is_file() else None
    try:
        return Path(hf_hub_download(name, file))
    except NOT_THERE:
        return None
