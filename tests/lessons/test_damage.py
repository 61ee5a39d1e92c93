"""Damage to any public function of the maths breaks a claim of at least one lesson: the lessons compute with the engine's own formulas."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import rlhf_studio.ppo as ppo
from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons import parts as lesson_parts
from rlhf_studio.lessons.kit import CannotAsk
from tests.lessons.claims import claims_of

DRAWS = 6
Damage = Callable[[Callable[..., Any]], Callable[..., Any]]
FUNCTIONS = {name: getattr(ppo, name) for name in ppo.__all__ if inspect.isfunction(getattr(ppo, name))}
CLIPS = {
    "policy_loss": {"cliprange": 0.999, "cliprange_high": 1e9},
    "value_loss": {"cliprange_value": None},
}
"""What leaves the clip out."""


def of_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """``change`` for every floating tensor in what a function gave."""
    if isinstance(value, torch.Tensor):
        return change(value) if value.is_floating_point() else value
    if isinstance(value, tuple):
        parts = [of_tensors(change, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def turned(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given, **named: of_tensors(lambda x: -x, function(*given, **named))


def shifted(function: Callable[..., Any]) -> Callable[..., Any]:
    def damaged(first: torch.Tensor, *given: Any, **named: Any) -> Any:
        return function(first.roll(1, -1) if first.ndim >= 2 else first.roll(1), *given, **named)

    return damaged


def unmasked(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(function)

    def damaged(*given: Any, **named: Any) -> Any:
        bound = parameters.bind(*given, **named)
        bound.arguments["mask"] = torch.ones_like(bound.arguments["mask"])
        return function(*bound.args, **bound.kwargs)

    return damaged


def unclipped(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(function)

    def damaged(*given: Any, **named: Any) -> Any:
        bound = parameters.bind(*given, **named)
        bound.arguments |= CLIPS[function.__name__]
        return function(*bound.args, **bound.kwargs)

    return damaged


def damages() -> Iterator[Any]:
    for name, function in FUNCTIONS.items():
        yield pytest.param(name, turned, id=f"{name}-sign")
        if "mask" in inspect.signature(function).parameters:
            yield pytest.param(name, shifted, id=f"{name}-shift")
            yield pytest.param(name, unmasked, id=f"{name}-mask")
        if name in CLIPS:
            yield pytest.param(name, unclipped, id=f"{name}-clip")


def broken_claim() -> str:
    """The first claim, or sum, that does not hold; empty when all lessons hold."""
    for entry in shelf.entries():
        for name, scene in answers.scenes_of(entry.name).items():
            needed = answers.needed_by(scene)
            for seed in range(-1, DRAWS):
                try:
                    numbers = scene.compute(scene.start() if seed < 0 else answers.drawn(entry.name, name, seed), needed)
                    failed = [claim for claim, holds in claims_of(entry.name, scene).items() if not holds(numbers)]
                except (CannotAsk, ValueError, ArithmeticError, AssertionError, IndexError, RuntimeError) as error:
                    return f"{entry.name}/{name}: {type(error).__name__}"
                if failed:
                    return f"{entry.name}/{name}: {failed[0]}"
    return ""


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """What a lesson's module has remembered was computed by whole functions, or by damaged ones: it is forgotten before and after."""
    forget()
    yield
    forget()


def forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(("rlhf_studio.lessons.pages.", "rlhf_studio.lessons.parts.", "tests.lessons.claims.")):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == name:
                    value.cache_clear()


@pytest.mark.long
def test_undamaged_lessons_hold() -> None:
    assert broken_claim() == ""


@pytest.mark.long
@pytest.mark.parametrize(("name", "damage"), list(damages()))
def test_damage_breaks_a_claim(name: str, damage: Damage, monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in shelf.entries():
        for scene in answers.scenes_of(entry.name).values():
            answers.needed_by(scene)  # loaded with whole functions
    for part in pkgutil.iter_modules(lesson_parts.__path__, f"{lesson_parts.__name__}."):
        importlib.import_module(part.name)  # those that scenes import late, too
    importlib.import_module("rlhf_studio.lessons.endings")
    original = FUNCTIONS[name]
    for module in [loaded for key, loaded in sys.modules.items() if key.startswith("rlhf_studio")]:
        for attribute, value in list(vars(module).items()):
            if value is original:
                monkeypatch.setattr(module, attribute, damage(original))
    assert broken_claim(), f"no lesson notices that {name} is damaged"
