"""Checks what the Talk page sends: the policies, the prompt, and how to sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlhf_studio.config.io import ConfigError, parse_config
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.language import told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.sent import QuestionRefused

LONGEST_PROMPT = 100_000  # characters
MOST_TOKENS = 512  # of a response
SAMPLING = ("temperature", "top_k", "top_p", "response_length")
Json = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """A policy: a run, and the step of its checkpoint; None is the starting policy."""

    run_id: str
    step: int | None


def sides_of(sent: Json) -> list[Side]:
    """The one or two policies that are named. Raises :class:`QuestionRefused`."""
    sides = sent.get("sides")
    if not isinstance(sides, list) or not 1 <= len(sides) <= 2:
        raise QuestionRefused("Choose one or two policies.")
    return [_side(side) for side in sides]


def _side(side: Any) -> Side:
    run, step = (side.get("run"), side.get("step")) if isinstance(side, dict) else (None, None)
    if not isinstance(run, str) or not run or not (step is None or (type(step) is int and 0 <= step <= 10**9)):
        raise QuestionRefused("Choose a run and one of its checkpoints.")
    return Side(run, step)


def request_of(sent: Json, workspace: Workspace) -> Json:
    """The request to the process, without its number. Raises :class:`QuestionRefused`."""
    sides = sides_of(sent)
    prompt = sent.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise QuestionRefused("The prompt must be a text.")
    if prompt is not None and len(prompt) > LONGEST_PROMPT:
        raise QuestionRefused(f"The prompt has {len(prompt):,} characters; use at most {LONGEST_PROMPT:,}.")
    same, seed = sent.get("same_seed") is not False, _seed(sent.get("seed", 0))
    settings = _settings(sent.get("settings"))
    requests = []
    for number, side in enumerate(sides):
        try:
            config = as_sampled(workspace.reader(side.run_id).config())
            run_dir = workspace.run_dir(side.run_id)
        except (StoreError, ValueError) as error:
            raise QuestionRefused(told(error)) from None
        generation = {**config.generation.model_dump(mode="json"), "response_length_min": 0, **settings}
        own_seed = seed if same else (seed + number) % 2**31
        requests.append({"run": str(run_dir), "step": side.step, "seed": own_seed, "settings": generation})
    text = None if prompt is None else prompt.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be encoded
    return {"op": "ask", "prompt": text, "as_read": sent.get("as_read") is True, "sides": requests}


def _seed(seed: Any) -> int:
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise QuestionRefused(f"The seed must be a whole number from 0 to {2**31 - 1:,}.", "seed")
    return seed


def _settings(sent: Any) -> Json:
    settings = {name: sent[name] for name in SAMPLING if isinstance(sent, dict) and sent.get(name) is not None}
    try:
        parse_config({"generation": settings})
    except ConfigError as error:
        problem = error.problems[0]
        field = problem.field.rpartition(".")[2]
        raise QuestionRefused(f"{LABELS.get(field, field)}: {told(problem.message)}.", field) from None
    if settings.get("response_length", 1) > MOST_TOKENS:
        raise QuestionRefused(f"Response length: use at most {MOST_TOKENS} tokens here.", "response_length")
    return settings


LABELS = {"temperature": "Temperature", "top_k": "Top-k", "top_p": "Top-p", "response_length": "Response length"}
