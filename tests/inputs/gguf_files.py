"""Tiny GGUF files, written with the package of llama.cpp's makers from ordinary models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, PretrainedConfig, PreTrainedModel, Qwen2Config
from transformers.convert_slow_tokenizer import bytes_to_unicode

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
    "model.layers.": "blk.", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm", "input_layernorm": "attn_norm",
}  # fmt: skip
OF_GEMMA = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
TOKENS = [*bytes_to_unicode().values(), "12", "th", "<|end|>"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def llama(*, tied: bool = True, kind: type[PretrainedConfig] = LlamaConfig, **settings: Any) -> PreTrainedModel:
    """A random model with grouped queries, its matrices rows of whole blocks; of Llama's kind, or another."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"bos_token_id": len(TOKENS) - 1, "eos_token_id": len(TOKENS) - 1, "pad_token_id": None}
    config = kind(vocab_size=len(TOKENS), tie_word_embeddings=tied, **{**sizes, **ends, **settings})
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model.eval()


def qwen() -> PreTrainedModel:
    """A model whose queries, keys and values have biases."""
    model = llama(kind=Qwen2Config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return model


def gemma() -> PreTrainedModel:
    """A model with norms that llama.cpp stores plus 1, a window, and capped scores."""
    return llama(kind=Gemma2Config, head_dim=8, sliding_window=16)


def keys_of_gemma(writer: gguf.GGUFWriter) -> None:
    """What the file of :func:`gemma` says on top."""
    writer.add_key_length(8)
    writer.add_sliding_window(16)
    writer.add_attn_logit_softcapping(50.0)
    writer.add_final_logit_softcapping(30.0)


@torch.no_grad()
def write_gguf(
    path: Path,
    model: PreTrainedModel,
    kind: gguf.GGMLQuantizationType,
    also: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    pre: str = "smollm",
) -> None:
    """Write ``model`` in the numbers ``kind``, and put what the file then holds into ``model``: the answer that a reader must give."""
    config: Any = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    of_gemma = config.model_type == "gemma2"
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, pre)
    also(writer)
    stored = dict(model.named_parameters())  # a tied output layer is not among them
    for name, parameter in stored.items():
        numbers = parameter.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2], 0)
        heads = heads if config.model_type == "llama" and parameter.ndim == 2 else 0
        if heads:  # llama.cpp turns neighbours where transformers turns halves
            numbers = numbers.reshape(heads, 2, -1, numbers.shape[1]).swapaxes(1, 2).reshape(numbers.shape)
        of_tensor = kind if parameter.ndim == 2 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(numbers + 1 if of_gemma and "norm" in name else numbers, of_tensor)
        short = name
        for ours, theirs in {**NAMES, **(OF_GEMMA if of_gemma else {})}.items():
            short = short.replace(ours, theirs)
        writer.add_tensor(short, packed, raw_dtype=of_tensor)
        plain = np.array(gguf.quants.dequantize(packed, of_tensor))
        if heads:
            plain = plain.reshape(heads, -1, 2, plain.shape[1]).swapaxes(1, 2).reshape(plain.shape)
        if parameter.ndim == 2:
            parameter.copy_(torch.from_numpy(plain))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, pre: str) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 1) + [3])
    writer.add_token_merges(["1 2", "t h"])
    writer.add_bos_token_id(len(TOKENS) - 1)
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_chat_template(TEMPLATE)
