"""The watched prompts: answered again and again while the policy changes."""

from __future__ import annotations

import torch

from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop, generate
from rlhf_studio.engine.loop.models import Models
from rlhf_studio.engine.loop.phases import episodes_of
from rlhf_studio.engine.loop.prompts import PromptStream
from rlhf_studio.runs.records import WatchRecord


def answer_watched(models: Models, prompts: PromptStream) -> list[WatchRecord]:
    """Answer the watched prompts, always with the same random numbers, so that differences come from the policy alone.

    Rank 0 alone has the answers scored and returns them. Raises :class:`RewardError`.
    """
    engine = models.config.engine
    batch = prompts.watched(engine.watch_prompts)
    if batch is None:
        return []
    generator = torch.Generator(device=models.compute.device).manual_seed(engine.seed + 2)
    tokens, _ = generate(models, batch, models.config.generation, generator)
    if not models.compute.ranks.is_main:
        return []
    responses = decode_responses(models, tokens)
    episodes = episodes_of(batch, tokens, responses, ends_with_stop(tokens, models.stop_id))
    scores = torch.stack(list(models.scorer.parts(episodes).values())).sum(dim=0).tolist()
    gold = models.scorer.gold(episodes)
    return [
        WatchRecord(row, batch.texts[row], responses[row], scores[row], float(gold[row]) if gold is not None else None)
        for row in range(len(responses))
    ]
