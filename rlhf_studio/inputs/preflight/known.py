"""What the check before a start knows of the model and the data, for warnings about settings."""

from __future__ import annotations

from pathlib import Path

from rlhf_studio.config import RunConfig, SFTRunConfig, StageConfig
from rlhf_studio.config.fitting import Known
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.trained import resolve, run_of_model


def of_model(config: StageConfig, facts: ModelFacts | None, device: str) -> Known:
    """What the model's files tell. ``device``: ``cpu`` or ``cuda``."""
    if facts is None:
        return Known(device=device)
    response = config.generation.response_length if isinstance(config, RunConfig) else 0
    return Known(
        weights=parameters(facts),
        width=facts.shape.hidden if facts.shape is not None else None,
        device=device,
        chat=_knows_chats(config, facts),
        most=None if facts.max_positions is None else facts.max_positions - response,
    )


def _knows_chats(config: StageConfig, facts: ModelFacts) -> bool | None:
    """Whether the tokenizer has a chat template. None for weights that are drawn anew, which know nothing, for a template that cannot be
    used, and for a model that a run has trained: another note says in which form (:mod:`.trained`)."""
    if isinstance(config, SFTRunConfig) and config.model.fresh or run_of_model(Path(resolve(config.model.policy))) is not None:
        return None
    return has_chats(facts)


def has_chats(facts: ModelFacts) -> bool | None:
    """Whether the tokenizer has a chat template; None for one that cannot be used."""
    try:
        return find_template(facts.tokenizer_files) is not None
    except ChatError:
        return None
