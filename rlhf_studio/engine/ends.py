"""Which tokens end a response, and how a saved model tells other programs to sample."""

from __future__ import annotations

from typing import Any

from transformers import GenerationConfig as SavedSampling
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import GenerationConfig
from rlhf_studio.engine.text import chat_template
from rlhf_studio.inputs.ends import Ends, find_ends, saved_sampling
from rlhf_studio.inputs.models.facts import END_LISTS


def model_ends(model: Any, tokenizer: PreTrainedTokenizerBase, *, chat: bool) -> Ends:
    """The end tokens of a language model or classifier; ``chat``: its chat template is in use."""
    sampling = getattr(model, "generation_config", None)
    configs = (sampling, model.config.get_text_config())
    lists = {name: getattr(config, "eos_token_id", None) for name, config in zip(END_LISTS, configs, strict=True)}
    if sampling is not None and sampling._from_model_config:  # there is no such file
        lists[END_LISTS[0]] = None
    end = tokenizer.eos_token_id
    return find_ends(tokenizer.added_tokens_encoder, None if end is None else int(end), lists, chat_template(tokenizer) if chat else None)


def stop_ids(settings: GenerationConfig, ends: Ends, model: Any) -> tuple[int, ...]:
    """The tokens at which the model's responses end. Raises :class:`ConfigError` for a token that the model does not have."""
    return ends.chosen(settings, len(model.get_input_embeddings().weight))


def sample_as(model: Any, settings: GenerationConfig, stops: tuple[int, ...]) -> None:
    """Set the sampling that is saved with the model, so that a person who loads it with transformers samples as the run did."""
    known = model.generation_config
    if known is not None:
        model.generation_config = SavedSampling.from_dict(saved_sampling(known.to_dict(), settings, stops))
