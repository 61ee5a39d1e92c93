"""The functions of the Learn page; ``assets/learn/`` draws it. Everyone may read, and may move the controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.config.glossary import GLOSSARY, explained
from rlhf_studio.language import told
from rlhf_studio.lessons import shelf
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import html, sent
from rlhf_studio.ui.help.page import help_shelf, help_text
from rlhf_studio.ui.learn.computing import Computer, NotComputed, lessons_service
from rlhf_studio.ui.learn.gallery import learn_gallery
from rlhf_studio.ui.learn.runs import RunsOnRecord
from rlhf_studio.ui.learn.search import learn_search, prepare
from rlhf_studio.ui.learn.teaching import Teaching
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy

OPS = ("describe", "compute", "sweep", "draw")
LONGEST_NAME, MOST_CONTROLS = 60, 8
THREADS = {"quick": (4, 60), "slow": (1, 10), "teach": (2, 20)}  # threads, and questions that may wait for them
Json = dict[str, Any]


class LearnPage:
    """The functions of the page.

    Args:
        computer: answers at once; ``slow_computer`` measures what takes longer.
        workspace: whose runs some lessons can look at; without it there is the bundled run alone.
        prepares: whether the numbers are prepared as soon as somebody opens the app, whatever its page; ``busy`` tells when they are not.
    """

    def __init__(
        self,
        computer: Computer | None = None,
        slow_computer: Computer | None = None,
        workspace: Workspace | None = None,
        *,
        prepares: bool = False,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._runs = RunsOnRecord(workspace)
        self._prepares, self._busy = prepares, busy
        self._computer = computer or Computer()
        self._slow = slow_computer or Computer(lessons_service(patience=300.0))
        self.teaching = Teaching(self._computer, self._slow)
        # threads of their own: whoever waits for a measurement or a sheet delays no slider and no other page
        self._few = {name: Bounded(f"learn-{name}", threads, waiting) for name, (threads, waiting) in THREADS.items()}

    def build(self, more: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
        """The component of the page. ``more``: what its further places may call."""

        @callable_by(Role.VIEWER)
        async def learn_ask(data: Any, request: gr.Request) -> Response:
            threads = self._few["slow" if sent.member(data, "slow") is True else "quick"]
            return await _bounded(threads, partial(self.learn_ask, data, request))

        @callable_by(Role.VIEWER)
        async def learn_teach(data: Any, request: gr.Request) -> Response:
            return await _bounded(self._few["teach"], partial(self.teaching.learn_teach, data, request))

        own = (learn_gallery, help_shelf, help_text)
        return html.panel(
            "learn", [], [self.learn_shelf, self.learn_text, self.learn_runs, learn_ask, learn_search, learn_teach, *own, *more]
        )

    def expect(self) -> None:
        """Somebody has opened the app, and may open this page next. So the process that computes loads what it needs, unless a run
        works."""
        if self._prepares and not self._computer.has_begun and not self._busy():
            self._computer.begin()

    @callable_by(Role.VIEWER)
    def learn_shelf(self, data: Any, request: gr.Request) -> Json:
        """All lessons and all stations of the tour, in order, and the glossary."""
        self._computer.begin()
        language = sent.language_of(data)
        prepare(language)
        return {
            "lessons": [asdict(entry) for entry in shelf.entries(language)],
            "stations": [asdict(entry) for entry in shelf.entries(language, shelf.TOUR)],
            "glossary": explained(GLOSSARY),
        }

    @callable_by(Role.VIEWER)
    def learn_text(self, data: Any, request: gr.Request) -> Json:
        """The text of a lesson as a tree, with what it shows at the start as ``prepared``; ``error`` where there is no such lesson."""
        lesson, language = str(sent.member(data, "lesson"))[:LONGEST_NAME], sent.language_of(data)
        try:
            return {**shelf.text_of(lesson, language).as_data(), "prepared": shelf.prepared(lesson, language)}
        except shelf.NoLesson as error:
            return {"error": told(error)}

    @callable_by(Role.VIEWER)
    def learn_runs(self, data: Any, request: gr.Request) -> Json:
        """The runs that a lesson can look at beside the bundled one, newest first; ``error`` where they cannot be listed."""
        try:
            return {"runs": self._runs.listed()}
        except StoreError as error:
            return {"runs": [], "error": told(error)}

    def learn_ask(self, data: Any, request: gr.Request) -> Response:
        """Numbers: what the data asks of :mod:`rlhf_studio.lessons.server`. Gives ``answer``, or ``error``."""
        try:
            question = {**_question(data), **self._runs.of_question(sent.member(data, "run"))}
            computer = self._slow if sent.member(data, "slow") is True else self._computer
            return sent.as_json({"answer": computer.ask(question)})
        except (NotComputed, StoreError, ValueError) as error:
            return sent.as_json({"error": told(error)})

    def computed(self, question: Json) -> Any:
        """What :mod:`rlhf_studio.lessons.server` answers, for other pages. Raises NotComputed."""
        return self._computer.ask(question)

    def close(self) -> None:
        """End the processes."""
        for threads in self._few.values():
            threads.close()
        for computer in (self._computer, self._slow):
            computer.close()


def _question(data: Any) -> Json:
    """A question with the members that it needs, of plain kinds. Raises ValueError."""
    op = sent.member(data, "op")
    if op not in OPS:
        raise ValueError(f"op must be one of {', '.join(OPS)}")
    names = {name: sent.member(data, name) for name in ("lesson", *(() if op == "describe" else ("scene",)))}
    if op == "sweep":
        names["control"] = sent.member(data, "control")
    for name, value in names.items():
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
            raise ValueError(f"{name} must be a name")
    question: Json = {"op": op, "language": sent.language_of(data), **names}
    if op == "draw":
        seed = sent.member(data, "seed")
        if type(seed) is not int or not 0 <= seed < 1_000_000:
            raise ValueError("seed must be a whole number from 0 to 999,999")
        question["seed"] = seed
    else:
        values = sent.member(data, "values")
        if op != "describe" or values is not None:
            question["values"] = _values(values)
    return question


def _values(values: Any) -> Json:
    if not isinstance(values, dict) or len(values) > MOST_CONTROLS:
        raise ValueError("values must be an object with a value for each control")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool | None) or len(str(value)) > LONGEST_NAME:
            raise ValueError("each value must be a number, a name, or yes or no")
    return values


async def _bounded(threads: Bounded, work: Callable[[], Response]) -> Response:
    try:
        return await threads.run(work)
    except TooBusy as error:
        return sent.as_json({"error": told(error)})
