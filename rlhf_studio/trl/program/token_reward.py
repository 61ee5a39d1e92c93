"""Scores of a reward model in memory, which reads the policy's own tokens, as TRL's later trainer lets it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.padding import pad_right
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.types import StepSoFar, TokenBatch


class TokenReward:
    """A sequence classifier with one label: its score at the last token of query and response.

    A response ends before its first pad token, so where the pad token is the end token, that is not read. Source: ``get_reward`` of TRL.

    Attributes:
        compute: where to compute; set before the first scores.
        tokens: of the batch that is scored next; whoever asks for scores sets it.
    """

    compute: Compute

    def __init__(self, model: Any, pad: int, together: int):
        self._model, self._pad, self._together = model.eval(), pad, together
        self.tokens: TokenBatch | None = None

    def after_phase(self, phase: str, so_far: StepSoFar) -> None:
        """Take the tokens of a step's samples, and forget them when they are scored."""
        self.tokens = so_far.samples.tokens if phase == "rollout" else None

    def work_on(self, compute: Compute) -> None:
        """Move the model to where the others are."""
        self.compute = compute
        self._model.to(compute.device)

    def __call__(self, episodes: Episodes) -> Answer:
        """Raises :class:`ComponentError` for a token that the reward model does not know."""
        assert self.tokens is not None
        return Answer(self.scores(self.tokens))

    @torch.no_grad()
    def scores(self, tokens: TokenBatch) -> Tensor:
        """(B,) float32 on the CPU."""
        rows = [self._read(tokens, row) for row in range(len(tokens))]
        known = self._model.get_input_embeddings().weight.shape[0]
        if (largest := max(max(row) for row in rows)) >= known:
            raise ComponentError(f"it knows tokens 0 to {known - 1}, and the policy wrote token {largest}: they have different tokenizers")
        return torch.cat([self._of_some(rows[start : start + self._together]) for start in range(0, len(rows), self._together)])

    def _read(self, tokens: TokenBatch, row: int) -> list[int]:
        prompt: list[int] = tokens.prompt_ids[row][tokens.prompt_mask[row]].tolist()
        response: list[int] = tokens.response_ids[row][tokens.mask[row]].tolist()
        return prompt + (response[: response.index(self._pad)] if self._pad in response else response)

    def _of_some(self, rows: list[list[int]]) -> Tensor:
        device = self.compute.device
        ids, lengths = pad_right(rows, 0, device), torch.tensor([len(row) for row in rows], device=device)
        places = torch.arange(ids.shape[1], device=device)
        with self.compute.autocast():
            mask = (places < lengths[:, None]).long()
            positions = places.expand_as(ids)
            hidden = self._model.base_model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).last_hidden_state
            scores: Tensor = self._model.score(hidden[torch.arange(len(rows), device=device), lengths - 1])
        return scores[:, 0].float().cpu()


def head_of(model: Any, argument: str) -> nn.Linear:
    """The score head of a reward or value model. Raises ValueError for a model without one, or with several labels."""
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear) or head.out_features != 1:
        way = "load it with AutoModelForSequenceClassification.from_pretrained(NAME, num_labels=1)"
        raise ValueError(f"PPOTrainer: {argument} is a {type(model).__name__} without a score head of one label; {way}")
    return head
