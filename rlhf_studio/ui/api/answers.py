"""What the functions for programs answer, as plain data without arrays: one function for each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.config.glossary import glossary_of
from rlhf_studio.config.io import walk_fields
from rlhf_studio.config.recipes import Recipe
from rlhf_studio.runs.pace import STEP_TIME, seconds_left, step_seconds
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, RunStatus
from rlhf_studio.ui.form import describe_field, values_of
from rlhf_studio.ui.live.payloads import Series, finite

ROW = (
    *("id", "name", "recipe", "stage", "state", "note", "step", "total", "queue_position", "parent", "parent_step", "tags", "starter"),
    *("score_first", "score_last", "gold_first", "gold_last", "kl_last", "verdict"),
)
"""What list_runs gives of each run, of what the Runs page shows."""
AS_ELSEWHERE = {"id": "run", "total": "total_steps"}
"""What all functions for programs call what the Runs page calls otherwise."""
Json = dict[str, Any]


def listed(row: Json) -> Json:
    """A run as list_runs gives it; ``row`` is the Runs page's."""
    named = {AS_ELSEWHERE.get(name, name): row.get(name) for name in ROW}
    return named | {"total_steps": named["total_steps"] or None, "recording": bool(row["recording"])}  # 0: not known


def recipe_row(card: Json) -> Json:
    """A recipe as list_recipes gives it; ``card`` is the Train page's."""
    return {name: card[name] for name in ("name", "title", "stage", "summary", "tags")}


def recipe_settings(recipe: Recipe) -> Json:
    """A recipe's settings: each one's value, title, help and bounds."""
    fields = dict(walk_fields(type(recipe.config)))
    described = {}
    for name, value in values_of(recipe.config).items():
        about = describe_field(name, fields[name], recipe.stage)
        keys = ("title", "help", "unit", "kind", "minimum", "maximum", "choices", "max_length")
        described[name] = {"value": value, **{key: about[key] for key in keys if about.get(key) not in (None, "")}}
    return {"recipe": recipe.name, "stage": recipe.stage, "asks": list(recipe.asks), "settings": described}


def status_of(run: RunStatus, reader: RunReader | None) -> Json:
    """How a run is; ``reader`` is None for one that cannot be read."""
    seconds = step_seconds(reader.columns([STEP_TIME])[1][STEP_TIME]) if reader is not None else None
    left = None if run.state in ENDED else seconds_left(seconds, run.step, run.total_steps)
    return {
        "run": run.run_id,
        "name": run.name or run.run_id,
        "recipe": run.recipe,
        "stage": run.stage,
        "state": run.state,
        "ended": run.state in ENDED,
        "phase": run.phase,
        "step": run.step,
        "total_steps": run.total_steps or None,
        "seconds_per_step": seconds,
        "seconds_left": None if left is None else round(left, 1),
        "device": run.device,
        "cause": without_secrets(run.cause),
        "queue_position": run.queue_position,
        "parent": run.origin.parent,
        "only_read": run.origin.only_read,
        "checkpoints": [checkpoint.step for checkpoint in reader.checkpoints()] if reader is not None else [],
    }


def metrics_of(series: Series, names: Sequence[str], points: int, unit: str = "tokens") -> Json:
    """Metrics by name: ``meaning``, ``steps`` and ``values``, and the ``last`` value; thinned to ``points`` of each.

    ``unit`` is what the run's lengths count.
    """
    payload = series.payload(limit=points, accepts=lambda name: name in names)
    rows = {}
    for name, at, values in zip(payload["names"], payload["at"], payload["y"], strict=True):
        column = [finite(float(value)) for value in values]
        term = glossary_of(unit).get(name)
        rows[name] = {
            "meaning": f"{term.title}: {term.meaning}" if term else "",
            "unit": term.unit if term else "",
            "steps": [int(step) for step in payload["x"][at]],
            "values": column,
            "last": next((value for value in reversed(column) if value is not None), None),
        }
    return rows


def samples_of(table: Mapping[str, Any]) -> Json:
    """The responses of a step, without their tokens."""
    return {"step": table["step"], "pairs": table["pairs"], "samples": [_named_parts(row) for row in table["rows"]]}


def tokens_of(response: Mapping[str, Any]) -> Json:
    """One response with every number of its tokens: equally long lists by the quantity's name."""
    tokens = response.get("tokens")
    texts = {name: value for name, value in _named_parts(response).items() if name != "tokens"}
    if not tokens:
        return {**texts, "tokens": None}
    words = {int(token): piece for token, piece in tokens["pieces"]}
    numbers = {**tokens["arrays"], "probability": tokens["chances"].get("logprobs")}
    return {
        **texts,
        "prompt_tokens": tokens["prompt_pieces"],
        "tokens": {
            "text": tokens["response_pieces"],
            "id": tokens["response_ids"],
            **{name: values for name, values in numbers.items() if values is not None},
            "likeliest": [[words.get(int(token), "") for token in row] for row in tokens["top_ids"]],
        },
    }


def _named_parts(row: Mapping[str, Any]) -> Json:
    return {**row, "parts": dict(row["parts"])}


def advised(finding: Json, checkpoints: Sequence[int], trains: bool) -> Json:
    """A finding of the doctor, with ``fork``: what fork_run would take to follow its advice; None where no setting helps, and where not
    ``trains``: only others can train the run."""
    if not finding["changes"] or not trains:
        return {**finding, "fork": None}
    latest = finding["fork_step"]
    step = max((step for step in checkpoints if latest is not None and step <= latest), default=-1)
    return {**finding, "fork": {"step": step, "settings": finding["changes"]}}


def refusal_of(problems: Sequence[Mapping[str, str]]) -> str:
    """What is wrong with settings, in one text."""
    return " ".join(
        f"{row['field']}: {row['message'].rstrip('.')}." if row["field"] else f"{row['message'].rstrip('.')}." for row in problems
    )
