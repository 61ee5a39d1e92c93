"""The command ``generate``: a run's policy answers prompts, with score and KL."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers

from rlhf_studio.config import GenerationConfig, Permissions
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.jobs.talk.answer import Question, answer
from rlhf_studio.jobs.talk.held import Held
from rlhf_studio.jobs.talk.server import MESSAGES
from rlhf_studio.visible import say

Json = dict[str, Any]


@dataclass(frozen=True)
class Wanted:
    """Whose answers are wanted, and how.

    Attributes:
        step: of the checkpoint; None is the starting policy.
        settings: how to sample; of each prompt, the seed is ``seed`` plus its place in the list.
        as_json: a line of JSON for each prompt, with every token's numbers.
    """

    run_dir: Path
    step: int | None
    prompts: Sequence[str]
    as_read: bool
    settings: GenerationConfig
    seed: int
    as_json: bool


def generate_texts(wanted: Wanted, permissions: Permissions, write: Callable[[str], Any] = say) -> int:
    """Write the answers; returns the exit code."""
    transformers.utils.logging.disable_progress_bar()
    held = Held(permissions, lambda text, fraction: say(text, sys.stderr))
    try:
        talker = held.get(wanted.run_dir, wanted.step)
        for place, prompt in enumerate(wanted.prompts):
            events = answer(talker, Question(prompt, wanted.as_read, wanted.settings, wanted.seed + place))
            row = _row(prompt, list(events))
            write(json.dumps(row, allow_nan=False) if wanted.as_json else as_text(row))
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
    """An answer for people: the text, then its figures, and below what there is to know."""
    figures = [f"{name} {round(row[name], 4) + 0.0:.4f}" for name in ("score", "gold", "kl") if row[name] is not None]
    ending = "" if row["stopped"] else ", cut at the limit"
    lines = [f"{row['prompt']}{row['response']}", f"  {', '.join(figures)}, {row['length']} tokens{ending}"]
    return "\n".join([*lines, *(f"  {note}" for note in [*row["notes"], row["no_score"], row["cut"]] if note)])
