"""A tiny random model of any type in transformers' causal-LM mapping, saved with a tokenizer as an ordinary folder.

The configuration is the type's own with every size made small, so that each kind of layer occurs once or more. The weights are
drawn anew and wide: with the usual 0.02 attention hardly matters in so small a model, and a wrong mask would not show.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

TEXTS = ["the film was good", "a long and slow story about the sea", "we liked the music, not the end", "it is fine"] * 4
VOCABULARY = 300
SPREAD = 1.5  # standard deviation of what a matrix makes of unit inputs
LARGEST = 8_000_000  # weights; more than this is a size that nobody made small

WINDOW, POSITIONS, WIDTH, INNER, HEADS, HEAD = 5, 128, 32, 48, 4, 8
SMALL = {
    "layers": (2, """
        num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_encoder_layers num_decoder_layers num_blocks
        num_layers_per_stack"""),
    "widths": (WIDTH, """
        hidden_size n_embd d_model dim emb_dim embedding_dim embedding_size word_embed_proj_dim input_embedding_size output_embedding_size
        lru_width shape_embed_dim pronunciation_embed_dim attention_hidden_size router_hidden_size dim_model_base ple_embed_dim"""),
    "inner widths": (INNER, """
        intermediate_size ffn_dim decoder_ffn_dim encoder_ffn_dim n_inner dff dim_ff d_inner moe_intermediate_size ffn_hidden_size
        shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size intermediate_size_mlp dense_intermediate_size
        feed_forward_size moe_shared_expert_intermediate_size shared_experts_intermediate_size"""),
    "heads": (HEADS, """
        num_attention_heads n_head n_heads num_heads attention_heads decoder_attention_heads encoder_attention_heads index_n_heads
        num_encoder_attention_heads num_decoder_attention_heads swa_num_attention_heads linear_num_value_heads linear_num_heads"""),
    "heads for keys": (2, "num_key_value_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads num_query_groups o_groups"),
    "size of a head": (HEAD, """
        head_dim d_head dim_head kv_channels swa_head_dim attention_head_size global_head_dim index_head_dim linear_key_head_dim
        linear_value_head_dim linear_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim rotary_dim attention_head_dim"""),
    "two sizes of a head": (2 * HEAD, "qk_head_dim"),
    "ranks": (16, "q_lora_rank kv_lora_rank o_lora_rank hc_lowrank d_rel adapter_rank gated_norm_rank hidden_size_per_layer_input"),
    "experts": (4, "num_experts n_routed_experts num_local_experts moe_num_experts"),
    "experts at work": (2, "num_experts_per_tok num_experts_per_token moe_topk moe_k split_ngram_parts"),
    "one of each": (1, """
        n_group topk_group num_expert_group n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace
        num_dense_layers zero_expert_num n_groups mamba_n_groups mamba_ngroups"""),
    "states": (8, "mamba_d_state state_size ssm_state_size mamba_chunk_size chunk_size"),
    "heads of a state": (4, "mamba_n_heads n_mamba_heads mamba_num_heads time_step_rank mamba_dt_rank"),
    "size of a state's head": (16, "mamba_d_head mamba_head_dim mamba_headdim"),
    "width of a state": (64, "mamba_d_ssm"),
    "windows": (WINDOW, """
        sliding_window window_size attention_window_size local_attention sliding_window_size attention_chunk_size
        local_attention_window_len"""),
    "positions": (POSITIONS, """
        max_position_embeddings n_positions n_ctx max_seq_len model_max_length max_target_positions context_length rel_extent
        original_max_position_embeddings max_source_positions"""),
    "tokens of sparse attention": (64, "index_topk keep_window_size"),  # as many as a text has: in longer ones ties decide
    "vocabularies": (VOCABULARY, """
        vocab_size vocab_size_per_layer_input decoder_vocab_size unpadded_vocab_size shape_vocab_size pronunciation_vocab_size
        ngram_vocab_size_base encoder_hash_byte_group_vocab"""),
}  # fmt: skip
SIZES = {name: value for value, names in SMALL.values() for name in names.split()}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "decoder_start_token_id": 1}
KINDS = ("layer_types", "mlp_layer_types", "layers_block_type", "block_types", "attn_layers", "indexer_types", "mtp_layers_block_type")
OFTEN_LEFT_OUT = ("head_dim", "num_key_value_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers", "num_blocks")

ALTERNATING = ["linear_attention", "full_attention"]
GEMMA4 = {
    "layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2, "global_head_dim": 16, "num_global_key_value_heads": 2,
}  # fmt: skip
GEMMA4_ASSISTANT = {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
SWA = {f"swa_{name}": value for name, value in {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "q_lora_rank": 16,
    "kv_lora_rank": 16, "head_dim": 2 * HEAD, "qk_nope_head_dim": HEAD, "v_head_dim": HEAD}.items()}  # fmt: skip
GEMMA3N = {
    "layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4, "num_kv_shared_layers": 2,
    "intermediate_size": INNER, "activation_sparsity_pattern": None,
}  # fmt: skip
QWEN4 = {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": HEAD, "indexer_budget": 8, "indexer_compress_ratio": 2}

# What the rules cannot know about one type. None leaves a setting to the type itself.
SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"logit_scale": 1.0},
    "cohere2_moe": {"logit_scale": 1.0},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "num_hidden_layers": 2,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("sliding_attention", "full_attention")},
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"hidden_size": WIDTH, "ffn_hidden_size": INNER, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "dots3_note_vision_encoder": {"adapter_in_dim": WIDTH, "adapter_out_dim": WIDTH},
    "dots3_note_audio_encoder": {"adapter_input_size": WIDTH, "adapter_out_dim": WIDTH},
    "dots3_note_text": {"layer_types": ["indexed_attention", "sliding_attention"], "head_dim": 2 * HEAD, **SWA},
    "gemma3n_text": GEMMA3N,
    "gemma4_text": GEMMA4,
    "gemma4_unified_text": GEMMA4,
    "gemma4_assistant": {"text_config": GEMMA4_ASSISTANT},
    "gemma4_unified_assistant": {"text_config": {**GEMMA4_ASSISTANT, "model_type": "gemma4_unified_text"}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "attention_layers": None},
    "granitemoehybrid": {"layer_types": ALTERNATING},
    "hrm_text": {"num_layers_per_stack": None},
    "inkling_text": {"logits_mup_width_multiplier": 1.0},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "layer_types": None, "layers_block_type": None},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "qwen4_exp_text": QWEN4,
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "attn_layers": ["local", "lsh"], "num_buckets": 4},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "attention_hidden_size": 2 * WIDTH,
        "attention_head_dim": 2 * HEAD,
        "n_mamba_heads": 2,
    },
    "zamba2": {"num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2, "attention_hidden_size": 2 * WIDTH},
    "zaya": {"num_experts_per_tok": 1},
}


def save_tiny(model_type: str, folder: Path, seed: int = 0) -> PreTrainedModel:
    """Build the type's tiny model and save it with its tokenizer. Raises what transformers raises for a type that cannot be built so."""
    model = tiny_model(model_type, seed)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model


def tiny_model(model_type: str, seed: int = 0) -> PreTrainedModel:
    """The type's tiny model with wide random weights, in evaluation mode."""
    torch.manual_seed(seed)
    config, model_class = tiny_config(model_type), getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])
    if not isinstance(config, model_class.config_class):  # the type's configuration has more parts than this class
        config = next((part for part in parts_of(config).values() if isinstance(part, model_class.config_class)), config)
    with torch.device("meta"):
        weights = sum(parameter.numel() for parameter in model_class(config).parameters())
    if weights > LARGEST:
        raise ValueError(f"its tiny configuration still has {weights:,} weights")
    model = model_class(config).eval()
    spread_weights(model, seed)
    return model


def tiny_config(model_type: str) -> PretrainedConfig:
    """The type's configuration with every size that is known made small."""
    config_class = CONFIG_MAPPING[model_type]
    if model_type.endswith("_assistant"):  # their default configurations are not valid
        text = SPECIAL[model_type]["text_config"]
        values = tiny_values(CONFIG_MAPPING[text["model_type"]](), text["model_type"])
        return config_class(text_config={**values, **text}, backbone_hidden_size=WIDTH)
    return config_class(**tiny_values(config_class(), model_type))


def parts_of(config: PretrainedConfig) -> dict[str, PretrainedConfig]:
    """A configuration's sub-configurations by name."""
    return {name: part for name, part in vars(config).items() if isinstance(part, PretrainedConfig)}


def tiny_values(default: PretrainedConfig, model_type: str) -> dict[str, Any]:
    """What to change of a type's default configuration, its sub-configurations included."""
    settings = default.to_dict()
    kinds = {name: list(dict.fromkeys(settings[name])) for name in KINDS if isinstance(settings.get(name), list) and settings[name]}
    layers = max([2, *(len(found) for found in kinds.values())])
    values: dict[str, Any] = {
        name: {**tiny_values(part, part.model_type), "model_type": part.model_type} for name, part in parts_of(default).items()
    }
    for name, value in settings.items():
        if name in values:
            continue
        if name in kinds:
            values[name] = [kinds[name][place % len(kinds[name])] for place in range(layers)]
        elif name in LAYERS and type(value) is int:
            values[name] = layers
        elif name in SIZES and (type(value) in (int, float) or (value is None and name in OFTEN_LEFT_OUT)):
            values[name] = SIZES[name]
        elif name in TOKENS:
            values[name] = TOKENS[name]
        elif name == "is_decoder":
            values[name] = True
    if "kv_lora_rank" in values:
        values["num_key_value_heads"] = HEADS
    values |= SPECIAL.get(model_type, {})
    return {name: value for name, value in values.items() if value is not None}


@torch.no_grad()
def spread_weights(model: PreTrainedModel, seed: int) -> None:
    """Draw every matrix anew, wide enough that the order of the tokens matters; shake norms and biases a little."""
    generator = torch.Generator().manual_seed(seed + 1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if any(part in name for part in ("A_log", "dt_", "recurrent_param", "time_decay", "time_first")) or name.endswith(".D"):
            continue  # rates of a state: other values than the type's own would let it explode
        if parameter.dim() >= 2:
            parameter.copy_(noise * SPREAD * parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(0.1 * noise)


def save_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of at most :data:`VOCABULARY` tokens; <pad> is 0, <eos> is 1."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<pad>", "<eos>"], initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", padding_side="left")
    tokenizer.save_pretrained(folder)
    return tokenizer
