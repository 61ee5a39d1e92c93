"""Small random models with a word tokenizer, saved as ordinary folders, for engine tests."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BloomConfig,
    DistilBertConfig,
    FalconConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

WORDS = [f"w{number}" for number in range(28)]


def config_of(family: str, vocabulary: int, width: int = 32, layers: int = 2, positions: int = 64) -> PretrainedConfig:
    """A small configuration of the family, with dropout where the family has it."""
    common = {"vocab_size": vocabulary, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    if family == "gpt2":
        return GPT2Config(n_embd=width, n_layer=layers, n_head=4, n_positions=positions, **common)
    if family == "bloom":
        return BloomConfig(hidden_size=width, n_layer=layers, n_head=4, hidden_dropout=0.1, attention_dropout=0.1, **common)
    if family == "distilbert":
        return DistilBertConfig(dim=width, n_layers=layers, n_heads=4, hidden_dim=2 * width, max_position_embeddings=positions, **common)
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "max_position_embeddings": positions,
        **common,
    }
    if family == "falcon":
        return FalconConfig(alibi=True, new_decoder_architecture=False, hidden_dropout=0.1, attention_dropout=0.1, **sizes)
    if family == "opt":
        return OPTConfig(ffn_dim=2 * width, word_embed_proj_dim=width // 2, dropout=0.1, **sizes)
    if family == "gpt_neox":
        return GPTNeoXConfig(hidden_dropout=0.1, attention_dropout=0.1, intermediate_size=2 * width, **sizes)
    gated = {"intermediate_size": 2 * width, "num_key_value_heads": 2, "attention_dropout": 0.1, **sizes}
    window = {"sliding_window": 4}  # shorter than the longest prompt of the tests
    if family == "gemma2":
        layer_types = ["sliding_attention", "full_attention"] * layers
        return Gemma2Config(head_dim=8, final_logit_softcapping=2.0, layer_types=layer_types[:layers], **window, **gated)
    if family == "qwen3":
        return Qwen3Config(head_dim=8, **gated)
    if family == "phi3":
        return Phi3Config(resid_pdrop=0.1, **window, **gated)
    if family == "mistral":
        return MistralConfig(**window, **gated)
    return {"llama": LlamaConfig, "qwen2": Qwen2Config}[family](**gated)


def save_tokenizer(folder: Path, words: list[str] = WORDS, *, pad: str = "<pad>") -> PreTrainedTokenizerFast:
    """One id per word; <pad> is 0, <eos> is 1."""
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", *words])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token=pad, eos_token="<eos>", padding_side="left")
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_policy(
    folder: Path, family: str = "gpt2", words: list[str] = WORDS, *, seed: int = 0, scale: float = 1.0, spread: float = 0.02, **sizes: int
) -> Path:
    """A random causal LM with its tokenizer.

    ``scale`` sharpens its next-token distribution. ``spread`` is the standard deviation of its weights: at 0.02 attention hardly
    matters in so small a model, at 0.2 the order of the words does.
    """
    torch.manual_seed(seed)
    config = config_of(family, len(words) + 2, **sizes)
    setattr(config, "init_std" if family == "opt" else "initializer_range", spread)
    model = AutoModelForCausalLM.from_config(config)
    if scale != 1.0:
        with torch.no_grad():
            model.get_output_embeddings().weight.mul_(scale)
    model.save_pretrained(folder)
    save_tokenizer(folder, words)
    return folder


def save_reward_model(
    folder: Path, family: str = "gpt2", words: list[str] = WORDS, *, labels: int = 1, seed: int = 1, **sizes: int
) -> Path:
    """A random sequence classifier with its tokenizer."""
    torch.manual_seed(seed)
    config = config_of(family, len(words) + 2, **sizes)
    config.num_labels = labels
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    save_tokenizer(folder, words)
    return folder


def save_prompts(path: Path, prompts: list[str]) -> Path:
    """One prompt per line."""
    path.write_text("\n".join(prompts) + "\n", encoding="utf-8")
    return path
