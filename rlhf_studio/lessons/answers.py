"""The numbers of a scene for values of its controls, as plain data: texts for the slots, answers to the questions, pictures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlhf_studio.language import told
from rlhf_studio.lessons.kit.controls import Control, FromRun
from rlhf_studio.lessons.kit.pictures import Picture
from rlhf_studio.lessons.kit.scene import CannotAsk, Numbers, Scene, Word
from rlhf_studio.lessons.shelf import module_of, text_of

Json = dict[str, Any]


@dataclass(frozen=True)
class ChosenRun:
    """The run that a scene shows: its folder, and a text that changes whenever the run does. Without a folder it is the bundled run."""

    folder: str = ""
    as_of: str = ""


BUNDLED = ChosenRun()


def _world(_: ChosenRun) -> Any:
    from rlhf_studio.lessons.world import load_world  # loads torch and the bundled models

    return load_world()


def _run(_: ChosenRun) -> Any:
    from rlhf_studio.lessons.run import lesson_run  # the same, and the recorded run

    return lesson_run()


def _record(run: ChosenRun) -> Any:
    from rlhf_studio.lessons.record import bundled_record, opened

    return opened(Path(run.folder), run.as_of) if run.folder else bundled_record()


LOADERS: dict[str, Callable[[ChosenRun], Any]] = {"run": _run, "world": _world, "record": _record}
"""What a scene may need, by name; each is loaded once, when it is first needed. A record is of the run that the reader has chosen."""


class NoScene(LookupError):
    """The lesson has no such scene, or the scene no such control."""


def beginning(lesson: str, values: Mapping[str, Any], language: str = "en", run: ChosenRun = BUNDLED) -> Json:
    """The controls of every scene of a lesson and what each shows at the start, by the scenes' names.

    Slow scenes show nothing yet. Neither do scenes for which something must be loaded first: the page asks for them afterwards.

    ``values``: of the controls that the scenes share. ``problem`` is a sentence where no scene can be shown.
    """
    scenes = {}
    for name, scene in scenes_of(lesson).items():
        known = {control.name: values.get(control.name) for control in scene.controls if isinstance(control, FromRun) and control.shared}
        start = {**scene.start(), **known}
        from_run = any(isinstance(control, FromRun) for control in scene.controls)
        at_once = not scene.slow and (from_run or ready(scene))  # what a run makes cannot be described before it is read
        if at_once or from_run:
            content = _computed(scene, start, slots_of(lesson, name, language), run, show=at_once)
        else:
            content = {"made": [control.described() for control in scene.controls if not isinstance(control, FromRun)]}
        scenes[name] = {"controls": content.pop("made"), "slow": scene.slow, "shown": content if at_once else None}
    problems = {str((scene["shown"] or {}).get("problem", "")) for scene in scenes.values()}
    return {"scenes": scenes, **({"problem": problems.pop()} if len(problems) == 1 and problems != {""} else {})}


def computed(lesson: str, scene: str, values: Mapping[str, Any], language: str = "en", run: ChosenRun = BUNDLED) -> Json:
    """What the page shows for these values. Raises :class:`NoScene`, and ValueError for a value that a control cannot have.

    Beside ``slots`` and ``pictures`` there are the ``controls`` that are made from a run, as they are now. Where there are no numbers,
    ``problem`` is a sentence that says why.
    """
    answer = _computed(find(lesson, scene), values, slots_of(lesson, scene, language), run)
    del answer["made"]
    return answer


def swept(lesson: str, scene: str, control: str, values: Mapping[str, Any], language: str = "en", run: ChosenRun = BUNDLED) -> list[Json]:
    """What the page shows for each value of one control, in order. The other controls keep their values."""
    target = find(lesson, scene)
    of = next((candidate for candidate, _ in target.made(values, needed_by(target, run)) if candidate.name == control), None)
    if of is None:
        raise NoScene(f"The scene {scene} has no control {control!r}.")
    if not of.described().get("swept", True):
        raise ValueError(f"{control} is not swept")
    return [computed(lesson, scene, {**values, control: value}, language, run) for value in of.values()]


def drawn(lesson: str, scene: str, seed: int, run: ChosenRun = BUNDLED) -> Json:
    """Values of the controls that are drawn at random, for another question: the same seed, the same values."""
    draw, target, values = random.Random(f"{lesson} {scene} {seed}"), find(lesson, scene), dict[str, Any]()
    needed = needed_by(target, run)
    for declared in target.controls:
        control = declared.make(needed, values) if isinstance(declared, FromRun) else declared
        values[declared.name] = draw.choice(control.values())
    return values


# --- what these are made of --------------------------------------------------------------------------------------------------


def _computed(scene: Scene, values: Mapping[str, Any], slots: Mapping[str, tuple[str, str]], run: ChosenRun, *, show: bool = True) -> Json:
    """As :func:`computed`, with all controls in ``made``."""
    made: list[tuple[Control, Any]] = []
    from_run = {control.name: control for control in scene.controls if isinstance(control, FromRun)}
    answer: Json = {}
    try:
        needed = needed_by(scene, run)
        made = scene.made(values, needed)
        if show:
            chosen = {control.name: value for control, value in made}
            answer = scene_content(scene, {**chosen, **scene.numbers(**{name: needed[name] for name in scene.needs}, **chosen)}, slots)
    except CannotAsk as error:
        answer = {"problem": told(error)}
    if from_run and made:
        answer["controls"] = [_described(*pair, from_run[pair[0].name], again=True) for pair in made if pair[0].name in from_run]
    return {**answer, "made": [_described(*pair, from_run.get(pair[0].name)) for pair in made]}


def _described(control: Control, value: Any, made_by: FromRun | None, *, again: bool = False) -> Json:
    """A control for the page. When it is sent ``again``, what never changes is left out."""
    if made_by is None:
        return control.described()
    description = {} if again and made_by.fixed else control.described()
    return {**description, "name": control.name, "value": value, "shared": made_by.shared, "own": made_by.own, "made": True}


@cache
def scenes_of(lesson: str) -> dict[str, Scene]:
    """The scenes of a lesson by name. Raises :class:`~rlhf_studio.lessons.shelf.NoLesson`."""
    return {scene.name: scene for scene in module_of(lesson).SCENES}


def find(lesson: str, scene: str) -> Scene:
    """A scene. Raises :class:`NoScene`."""
    match = scenes_of(lesson).get(scene)
    if match is None:
        raise NoScene(f"The lesson {lesson} has no scene {scene!r}.")
    return match


def needed_by(scene: Scene, run: ChosenRun = BUNDLED) -> dict[str, Any]:
    """What a scene needs, loaded. Raises StoreError where a run cannot be read."""
    return {name: _loaded(name, run if name == "record" else BUNDLED) for name in scene.needs}


def ready(scene: Scene) -> bool:
    """Whether all that a scene needs has been loaded before."""
    return all(name in _LOADED for name in scene.needs)


def _loaded(name: str, run: ChosenRun) -> Any:
    if run.folder:
        return LOADERS[name](run)
    if name not in _LOADED:
        _LOADED[name] = LOADERS[name](run)
    return _LOADED[name]


_LOADED: dict[str, Any] = {}


def slots_of(lesson: str, scene: str, language: str) -> Mapping[str, tuple[str, str]]:
    """The slots that a lesson's text has in a scene: the number and the format of each."""
    return next((text.slots for text in text_of(lesson, language).scenes if text.name == scene), {})


def scene_content(scene: Scene, numbers: Numbers, slots: Mapping[str, tuple[str, str]]) -> Json:
    """Numbers as the page shows them. Raises ValueError when a slot or a picture has a number that is not finite."""
    return {
        "slots": {key: slot_text(numbers, name, form) for key, (name, form) in slots.items()},
        "pictures": {name: picture_data(draw(numbers)) for name, draw in scene.pictures.items()},
    }


def slot_text(numbers: Numbers, name: str, form: str) -> str:
    """The text of a slot: a number in its format, or a text as :func:`marked` gives it. True and false are the words yes and no."""
    if name not in numbers:
        raise ValueError(f"there is no number {name!r}; there are {', '.join(numbers)}")
    value = numbers[name]
    if isinstance(value, bool):
        return marked(Word("yes" if value else "no"))
    if isinstance(value, str):
        return marked(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}: a slot shows a finite number, yes or no, or a word")
    text = format(value, form)
    if text.startswith("-") and not text.strip("-0.,% "):
        text = text[1:]  # what is 0 when it is rounded has no sign
    return text.replace("-", "−")


def marked(text: str) -> str:
    """``@`` and the name of a word; any other text as it is, except that an ``@`` at its beginning is doubled."""
    return f"@{text}" if isinstance(text, Word) or text.startswith("@") else text


def picture_data(picture: Picture) -> Json:
    """A picture as plain data; words are marked. Raises ValueError for a number that is not finite."""
    data: Json = _plain(picture.data)
    return {"kind": picture.kind, **data}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return marked(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a picture has {value}: leave the number out (None) where there is none")
    if not isinstance(value, int | float | bool | None):
        raise ValueError(f"a picture has {type(value).__name__}: only numbers and texts can be drawn")
    return value
