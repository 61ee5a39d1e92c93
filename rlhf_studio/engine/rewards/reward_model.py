"""Scoring texts with a sequence-classification model and its own tokenizer."""

from __future__ import annotations

import torch
from torch import Tensor

from rlhf_studio.config import RewardModelReward
from rlhf_studio.engine.device import Compute
from rlhf_studio.engine.loading import LoadedRewardModel
from rlhf_studio.engine.text import cut_left


class RewardModelScorer:
    """Gives one number per (prompt, response).

    The text is tokenised anew for this model. Batches are padded on the right with an id that does not occur in the batch,
    because decoder classifiers look for the last token that is not the pad token: with pad equal to eos they would score
    the token before the end.
    """

    def __init__(self, loaded: LoadedRewardModel, settings: RewardModelReward, compute: Compute):
        self._model = loaded.model.to(compute.device)
        self._tokenizer = loaded.tokenizer
        self._label = loaded.label
        self._settings = settings
        self._compute = compute
        positions = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None) or settings.max_tokens
        self._longest = min(settings.max_tokens, positions, loaded.tokenizer.model_max_length)

    @torch.no_grad()
    def __call__(self, prompts: list[str], responses: list[str], stopped: list[bool]) -> Tensor:
        """Scores (B,) float32 on the CPU."""
        ids = [self._encode(*row) for row in zip(prompts, responses, stopped, strict=True)]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))  # rows of equal length together: less padding
        scores = torch.empty(len(ids))
        for start in range(0, len(order), self._settings.batch_size):
            rows = order[start : start + self._settings.batch_size]
            scores[rows] = self._score_batch([ids[row] for row in rows])
        return scores

    def _encode(self, prompt: str, response: str, stopped: bool) -> list[int]:
        ids = self._tokenizer(prompt + response, truncation=False, verbose=False)["input_ids"]
        eos = self._tokenizer.eos_token_id
        if self._settings.append_eos and stopped and eos is not None and ids[-1:] != [eos]:
            ids = [*ids, eos]
        return cut_left(ids, self._longest, self._tokenizer) or [eos or 0]

    def _score_batch(self, rows: list[list[int]]) -> Tensor:
        longest = max(len(row) for row in rows)
        pad = self._unused_id(rows)
        if pad is None and len(rows) > 1:  # nothing to pad with: each text alone
            return torch.cat([self._score_batch([row]) for row in rows])
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        self._model.config.get_text_config().pad_token_id = pad
        with self._compute.autocast():
            output = self._model(input_ids=ids.to(self._compute.device), attention_mask=mask.to(self._compute.device))
        return self._pick(output.logits.float()).cpu()

    def _pick(self, logits: Tensor) -> Tensor:
        if self._settings.output == "logit":
            return logits[:, self._label]
        return logits[:, 0].sigmoid() if logits.shape[1] == 1 else logits.softmax(dim=-1)[:, self._label]

    def _unused_id(self, rows: list[list[int]]) -> int | None:
        used = {token for row in rows for token in row}
        own = self._tokenizer.pad_token_id
        if own is not None and own not in used:
            return own
        size = self._model.get_input_embeddings().weight.shape[0]
        return next((candidate for candidate in range(size) if candidate not in used), None)
