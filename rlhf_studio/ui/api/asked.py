"""What programs send: texts, numbers, and settings as the text of a JSON object. Gradio checks none of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from rlhf_studio.config.recipes import Recipe, load_recipe
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.ui.form import nested, values_of
from rlhf_studio.ui.once import LONGEST
from rlhf_studio.ui.serving.bodies import RequestRefused, read_object

MOST_TEXT = 60_000  # characters of one argument
Json = dict[str, Any]


class NotAsked(ValueError):
    """An argument cannot be used; one sentence that names it."""


@cache
def parameters_of(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """What a caller gives: the parameters without ``self`` and ``request``, in order."""
    return tuple(part for part in inspect.signature(function).parameters.values() if part.name not in ("self", "request"))


def checked(function: Callable[..., Any], values: tuple[Any, ...]) -> list[Any]:
    """The values, each of its parameter's type. Raises :class:`NotAsked` for one that is not."""
    return [_checked(part, value) for part, value in zip(parameters_of(function), values, strict=True)]


def _checked(part: inspect.Parameter, value: Any) -> Any:
    if part.annotation is str:
        if not isinstance(value, str):
            what = ' of a JSON object, such as json.dumps({"ppo.steps": 20})' if part.name == "settings" else ""
            raise NotAsked(f"{part.name} must be a text{what}.")
        if len(value) > MOST_TEXT:
            raise NotAsked(f"{part.name} must be a text of at most {MOST_TEXT:,} characters.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:  # also false for NaN
        raise NotAsked(f"{part.name} must be a number.")
    if part.annotation is int:
        if int(value) != value:
            raise NotAsked(f"{part.name} must be a whole number.")
        return int(value)
    return float(value)


def settings_in(text: str) -> Json:
    """Settings by dotted name from the text of a JSON object, dotted or in sections. Raises :class:`NotAsked`, and ConfigError."""
    try:
        given = read_object((text.strip() or "{}").encode("utf-8", "replace"))
    except RequestRefused as error:
        why = error.detail.replace("The body", "It").replace("the body", "it")
        raise NotAsked(f'settings must be the text of a JSON object, such as {{"ppo.steps": 20}}. {why}') from None
    flat: Json = {}
    for section, values in nested(given).items():
        flat.update({f"{section}.{name}": value for name, value in values.items()} if isinstance(values, dict) else {section: values})
    return flat


def form_of(recipe_name: str, settings: str) -> tuple[Recipe, Json]:
    """The recipe, and what the Train page would send with these settings. Raises ConfigError for a recipe that there is not."""
    recipe, given = load_recipe(recipe_name), settings_in(settings)
    blank = {name: [] if name == "reward.components" else "" for name in recipe.asks}
    return recipe, {"basis": recipe.name, "values": {**values_of(recipe.config), **blank, **given}, "chosen": list(given)}


def nonce_in(request_id: str) -> str:
    """A name for one wish to start something. Raises :class:`NotAsked` for one that is too long to be remembered."""
    if len(request_id) > LONGEST:
        raise NotAsked(f"request_id has at most {LONGEST} characters.")
    return request_id


def run_named(run: str) -> str:
    """The id of a run. Raises StoreError where none was given; the workspace checks the rest."""
    if not run.strip():
        raise StoreError("There is no such run: name one that list_runs gives.", "missing")
    return run.strip()
