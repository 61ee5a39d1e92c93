"""What a stage learns from a file, as text: read with the functions that training uses."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.engine.models.load_model import load_tokenizer
from rlhf_studio.engine.stages.supervised.examples import load_demonstrations, load_pairs

tokenizer_of = cache(load_tokenizer)
"""The tokenizer of a model folder, read once: tests of this folder do not write there."""


def learned_demonstrations(model: Path, file: Path, **settings: Any) -> tuple[list[str], list[list[str]], list[str]]:
    """(texts, the tokens that the loss counts in each, notes for people)."""
    tokenizer = tokenizer_of(model)
    config = DemonstrationsConfig(source=str(file), eval_share=0, **settings)
    stage = load_demonstrations(config, "response", tokenizer, 0, lambda *_: None, end=tokenizer.eos_token_id)
    texts = [tokenizer.decode(item.ids) for item in stage.training.items]
    counted = [
        [tokenizer.decode([token]) for token, label in zip(item.ids, item.labels, strict=True) if label != -100]
        for item in stage.training.items
    ]
    return texts, counted, stage.notes


def learned_pairs(model: Path, file: Path, **settings: Any) -> tuple[list[tuple[str, str, str]], list[str]]:
    """((prompt, chosen, rejected) of each pair, notes for people)."""
    tokenizer = tokenizer_of(model)
    config = PairsConfig(source=str(file), eval_share=0, **settings)
    stage = load_pairs(config, tokenizer, 0, lambda *_: None, whole_texts=False, ties=True, end=tokenizer.eos_token_id)
    rows = [
        (tokenizer.decode(item.prompt), tokenizer.decode(item.chosen), tokenizer.decode(item.rejected)) for item in stage.training.items
    ]
    return rows, stage.notes
