"""The command ``generate``: a run's policy answers prompts, with score and KL."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from rlhf_studio.config import GenerationConfig, Permissions
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.jobs.talk.answer import TypedPrompt, answer
from rlhf_studio.jobs.talk.loaded_policies import LoadedPolicies
from rlhf_studio.jobs.talk.server import MESSAGES
from rlhf_studio.visible import say

Json = dict[str, Any]


@dataclass(frozen=True)
class GenerateRequest:
    """A request for answers: of which policy, and how it samples.

    Attributes:
        step: of the checkpoint; None is the starting policy.
        settings: how to sample; of each prompt, the seed is ``seed`` plus its position in the list.
        as_json: a line of JSON for each prompt, with every token's numbers.
    """

    run_dir: Path
    step: int | None
    prompts: Sequence[str]
    as_read: bool
    settings: GenerationConfig
    seed: int
    as_json: bool


def generate_texts(request: GenerateRequest, permissions: Permissions) -> int:
    """Write the answers; returns the exit code."""
    transformers.utils.logging.disable_progress_bar()
    policies = LoadedPolicies(permissions, lambda text, fraction: say(text, sys.stderr))
    try:
        talker = policies.get(request.run_dir, request.step)
        for index, prompt in enumerate(request.prompts):
            events = answer(talker, TypedPrompt(prompt, request.as_read, request.settings, request.seed + index))
            row = _row(prompt, list(events))
            say(json.dumps(row, allow_nan=False) if request.as_json else as_text(row))
    except MESSAGES as error:
        say(f"rlhf-studio: {error}", sys.stderr)
        return FAILED
    return DONE


def _row(prompt: str, events: list[Json]) -> Json:
    begin, *tokens, end = events
    own = [{key: value for key, value in token.items() if key != "event"} for token in tokens]
    return {"typed": prompt, **_without(begin), **_without(end), "tokens": own}


def _without(event: Json) -> Json:
    return {key: value for key, value in event.items() if key != "event"}


def as_text(row: Json) -> str:
    """An answer for people: the text, then its figures, then notes."""
    figures = [f"{name} {round(row[name], 4) + 0.0:.4f}" for name in ("score", "gold", "kl") if row[name] is not None]
    ending = "" if row["stopped"] else ", cut at the limit"
    lines = [f"{row['prompt']}{row['response']}", f"  {', '.join(figures)}, {row['length']} tokens{ending}"]
    return "\n".join([*lines, *(f"  {note}" for note in [*row["notes"], row["no_score"], row["cut"]] if note)])
