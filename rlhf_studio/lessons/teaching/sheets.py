"""Sheets of questions with numbers that a seed draws: the question, the text and pictures before it, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.kit.controls import Choice, Control, Slider
from rlhf_studio.lessons.kit.text import SceneText
from rlhf_studio.lessons.teaching.questions import Question, Selection, two_back

Json = dict[str, Any]


def sheet(lessons: Sequence[str], each: int, seed: int, *, with_answers: bool = True, language: str = "en") -> Json:
    """``{"seed", "each", "lessons", "titles", "with_answers", "questions"}``; see :func:`question_data` for a question.

    Equal arguments give equal sheets. Raises ValueError and :class:`~rlhf_studio.lessons.shelf.NoLesson` for what does not fit.
    """
    selection = Selection.of(lessons, each, seed)
    questions = [question_data(question, seed, with_answers=with_answers, language=language) for question in selection.picked(language)]
    titles = [shelf.text_of(lesson, language).title for lesson in selection.lessons]
    what = {"seed": seed, "each": each, "lessons": list(selection.lessons), "titles": titles}
    return {**what, "with_answers": with_answers, "questions": questions}


def opening(lesson: str, seed: int, language: str = "en") -> Json | None:
    """A question of the lesson that stands two places before this one; None for the first two."""
    question = two_back(lesson, seed, language)
    return question_data(question, seed, language=language) if question else None


def question_data(question: Question, seed: int, *, with_answers: bool = True, language: str = "en") -> Json:
    """A question with the numbers of a seed.

    Returns ``lesson``, ``title``, ``scene``; ``blocks``, the text and pictures before the question; ``settings``, labels and values of the
    controls; ``slot``, ``question`` and ``choices``, its answers with their explanations; ``shown``, what
    :func:`~rlhf_studio.lessons.answers.computed` gives; ``words``; and ``answer``. Without answers, nothing in it shows an answer.
    """
    scene, text = answers.find(question.lesson, question.scene), shelf.text_of(question.lesson, language)
    values = answers.drawn(question.lesson, question.scene, seed)
    content = answers.computed(question.lesson, question.scene, values, language)
    scene_text = next(candidate for candidate in text.scenes if candidate.name == question.scene)
    blocks, ask = _until_question(scene_text)
    labels = {item["name"]: item["label"] for block in scene_text.blocks if block["kind"] == "controls" for item in block["items"]}
    pictures = {block["name"] for block in blocks if block["kind"] == "picture"}
    data = {
        **{"lesson": question.lesson, "title": question.title, "scene": question.scene, "seed": seed, "blocks": blocks},
        "settings": [
            {"label": labels[control.name], "text": _text_of(control, value)}
            for control, value in scene.made(values, answers.needed_by(scene))
            if value is not None
        ],
        **{"slot": question.slot, "question": ask["question"], "choices": ask["answers"], "words": text.words},
        "shown": {**content, "pictures": {name: content["pictures"][name] for name in pictures}},
        "answer": content["slots"][question.slot].removeprefix("@"),
    }
    return data if with_answers else _without_answer(data)


def _until_question(scene: SceneText) -> tuple[list[Json], Json]:
    """The blocks before the scene's question, without its controls; and the question."""
    index = next(index for index, block in enumerate(scene.blocks) if block["kind"] == "predict")
    return [block for block in scene.blocks[:index] if block["kind"] not in ("controls", "code")], scene.blocks[index]


def _text_of(control: Control, value: Any) -> str:
    if isinstance(control, Slider):
        return f"{value:.{control.digits}f} {control.unit}".strip().replace("-", "−")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"@{value}" if isinstance(control, Choice) else str(value).replace("-", "−")


def _without_answer(data: Json) -> Json:
    used = set(_slots_in([data["blocks"], data["question"]]))
    content = {**data["shown"], "slots": {key: text for key, text in data["shown"]["slots"].items() if key in used}}
    choices = [[key, []] for key, _ in data["choices"]]
    return {**{key: value for key, value in data.items() if key != "answer"}, "shown": content, "choices": choices}


def _slots_in(piece: Any) -> Iterator[str]:
    if isinstance(piece, list):
        for part in piece:
            yield from _slots_in(part)
    elif isinstance(piece, dict):
        if piece.get("kind") == "slot":
            yield piece["key"]
        for value in piece.values():
            yield from _slots_in(value)
