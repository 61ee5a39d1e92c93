"""A scoring server: texts out, scores in, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlhf_studio.config import HttpReward, Permissions
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.outside.replies import checked_scores, most_bytes
from rlhf_studio.engine.rewards.registry import BuildContext, scorer


class ScoringServer:
    """Asks a server for the scores of each batch: ``{"prompts", "responses"}`` to ``{"scores"}``."""

    def __init__(self, settings: HttpReward, permissions: Permissions, field: str, sleep: Callable[[float], object] | None = None):
        """Raises :class:`ConfigError` when no server of that name was given at the start."""
        from rlhf_studio.engine.rewards.outside.http_client import connect  # here, because only runs that ask a server need httpx

        self._settings = settings
        self._client = connect(settings, permissions, field, sleep=sleep)

    def __call__(self, episodes: Episodes) -> Answer:
        """The server's scores. Raises :class:`ComponentError`."""
        scores: list[float] = []
        for start in range(0, len(episodes.responses), self._settings.batch_size):
            part = slice(start, start + self._settings.batch_size)
            message: dict[str, Any] = {"prompts": episodes.prompts[part], "responses": episodes.responses[part]}
            if episodes.references is not None:
                message["references"] = episodes.references[part]
            if episodes.chats is not None:
                message["messages"] = episodes.chats[part]
            count = len(message["responses"])
            try:
                scores += checked_scores(self._client.post(message, most_bytes(count)), count)
            except ComponentError as error:
                row = None if error.row is None else start + error.row
                raise ComponentError(f"the server {self._settings.server}: {error}", row) from error
        return Answer(torch.tensor(scores, dtype=torch.float32))


@scorer(HttpReward)
def build(settings: HttpReward, context: BuildContext) -> ScoringServer:
    """Nothing is asked before the first batch."""
    return ScoringServer(settings, context.permissions, context.field)
