"""The numbers of a scene for values of its controls, as plain data: texts for the slots, answers to the questions, pictures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rlhf_studio.lessons.kit.controls import Control
from rlhf_studio.lessons.kit.pictures import Picture
from rlhf_studio.lessons.kit.scene import Numbers, Scene, Word
from rlhf_studio.lessons.shelf import module_of, text_of

Json = dict[str, Any]


def _world() -> Any:
    from rlhf_studio.lessons.world import load_world  # loads torch and the bundled models

    return load_world()


def _run() -> Any:
    from rlhf_studio.lessons.run import lesson_run  # the same, and the recorded run

    return lesson_run()


LOADERS: dict[str, Callable[[], Any]] = {"run": _run, "world": _world}
"""What a scene may need, by name; each is loaded once, when it is first needed."""


class NoScene(LookupError):
    """The lesson has no such scene, or the scene no such control."""


def described(lesson: str) -> Json:
    """The controls of every scene of a lesson, by the scenes' names, and whether it is slow."""
    return {
        name: {"controls": [control.described() for control in scene.controls], "slow": scene.slow}
        for name, scene in scenes_of(lesson).items()
    }


def computed(lesson: str, scene: str, values: Mapping[str, Any], language: str = "en") -> Json:
    """What the page shows for these values. Raises :class:`NoScene`, and ValueError for a value that a control cannot have."""
    found = find(lesson, scene)
    return shown(found, found.compute(values, needed_by(found)), slots_of(lesson, scene, language))


def swept(lesson: str, scene: str, control: str, values: Mapping[str, Any], language: str = "en") -> list[Json]:
    """What the page shows for each value of one control, in order, the others being as they are."""
    found = find(lesson, scene)
    return [computed(lesson, scene, {**values, control: value}, language) for value in _control(found, control).values()]


def drawn(lesson: str, scene: str, seed: int) -> Json:
    """Values of the controls that are drawn at random, for another question: the same seed, the same values."""
    draw = random.Random(f"{lesson} {scene} {seed}")
    return {control.name: draw.choice(control.values()) for control in find(lesson, scene).controls}


# --- what these are made of --------------------------------------------------------------------------------------------------


@cache
def scenes_of(lesson: str) -> dict[str, Scene]:
    """The scenes of a lesson by name. Raises :class:`~rlhf_studio.lessons.shelf.NoLesson`."""
    return {scene.name: scene for scene in module_of(lesson).SCENES}


def find(lesson: str, scene: str) -> Scene:
    """A scene. Raises :class:`NoScene`."""
    found = scenes_of(lesson).get(scene)
    if found is None:
        raise NoScene(f"The lesson {lesson} has no scene {scene!r}.")
    return found


def needed_by(scene: Scene) -> dict[str, Any]:
    """What a scene needs, loaded."""
    return {name: _loaded(name) for name in scene.needs}


def ready(scene: Scene) -> bool:
    """Whether all that a scene needs has been loaded before."""
    return all(name in _LOADED for name in scene.needs)


_LOADED: dict[str, Any] = {}


def _loaded(name: str) -> Any:
    if name not in _LOADED:
        _LOADED[name] = LOADERS[name]()
    return _LOADED[name]


def slots_of(lesson: str, scene: str, language: str) -> Mapping[str, tuple[str, str]]:
    """The slots that a lesson's text has in a scene: the number and the format of each."""
    return next((found.slots for found in text_of(lesson, language).scenes if found.name == scene), {})


def shown(scene: Scene, numbers: Numbers, slots: Mapping[str, tuple[str, str]]) -> Json:
    """Numbers as the page shows them. Raises ValueError when a slot or a picture has a number that is not finite."""
    return {
        "slots": {key: slot_text(numbers, name, form) for key, (name, form) in slots.items()},
        "pictures": {name: picture_data(draw(numbers)) for name, draw in scene.pictures.items()},
    }


def slot_text(numbers: Numbers, name: str, form: str) -> str:
    """What stands in a slot: a number in its format, yes or no, or ``@`` and the name of a word."""
    if name not in numbers:
        raise ValueError(f"there is no number {name!r}; there are {', '.join(numbers)}")
    value = numbers[name]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return f"@{value}" if isinstance(value, Word) else value
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}: a slot shows a finite number, yes or no, or a word")
    text = format(value, form)
    if text.startswith("-") and not text.strip("-0.,% "):
        text = text[1:]  # what is 0 when it is rounded has no sign
    return text.replace("-", "−")


def picture_data(picture: Picture) -> Json:
    """A picture as plain data; words are marked. Raises ValueError for a number that is not finite."""
    data: Json = _plain(picture.data)
    return {"kind": picture.kind, **data}


def _plain(value: Any) -> Any:
    if isinstance(value, Word):
        return f"@{value}"
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a picture has {value}: leave the number out (None) where there is none")
    if not isinstance(value, str | int | float | bool | None):
        raise ValueError(f"a picture has {type(value).__name__}: only numbers and texts can be drawn")
    return value


def _control(scene: Scene, name: str) -> Control:
    found = next((control for control in scene.controls if control.name == name), None)
    if found is None:
        raise NoScene(f"The scene {scene.name} has no control {name!r}.")
    return found
