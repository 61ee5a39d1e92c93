"""The requests of the Train page's "Try it", worked on in a child process (:mod:`rlhf_studio.child_process.serving`).

A request is ``{"config", "prompt", "response", "reference", "stopped"}``: settings and a text. The event ``result`` has the scores.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import transformers

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell
from rlhf_studio.config import permissions_from_environment
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.jobs.try_reward.one_text import Text, Trial

MESSAGES = (ConfigError,)


def handler(waits: Callable[[], bool]) -> Handler:
    """Models stay loaded from one request to the next."""
    transformers.utils.logging.disable_progress_bar()
    tells: list[Tell] = []
    trial = Trial(
        permissions_from_environment(os.environ),
        lambda text, fraction: tells[-1]({"event": "progress", "text": text, "fraction": fraction}),
    )

    def score(request: Json, tell: Tell, is_cancelled: IsCancelled) -> None:
        tells[:] = [tell]
        config = parse_ppo(request["config"])
        text = Text(request["prompt"], request["response"], request["reference"], request["stopped"])
        tell({"event": "result", "result": trial.score(config, text)})

    return score
