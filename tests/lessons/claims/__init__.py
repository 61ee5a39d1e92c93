"""What holds in the lessons' scenes, whatever their controls say: for each module of a lesson's scenes one here, with its ``CLAIMS``.

A claim is a sentence and a function from a scene's numbers to whether it holds. What it compares with is worked out in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from rlhf_studio.lessons.kit import Numbers, Scene

Claims = Mapping[str, Mapping[str, Callable[[Numbers], bool]]]


def claims_of(lesson: str, scene: Scene) -> Mapping[str, Callable[[Numbers], bool]]:
    """The claims about a scene: they lie in the module that is called like the one with the scene's function."""
    module = module_for(lesson, scene)
    known: Claims = import_module(f"{__name__}.{module}").CLAIMS if (Path(__file__).parent / f"{module}.py").is_file() else {}
    return known.get(scene.name, {})


def module_for(lesson: str, scene: Scene) -> str:
    """The name of the module here that is about this scene."""
    folder, _, name = scene.numbers.__module__.removeprefix("rlhf_studio.lessons.").rpartition(".")
    return f"tour_{name}" if folder == "tour" else name
