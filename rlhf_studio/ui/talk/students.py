"""What students of a class can ask on the Talk page. A student is told of the own question alone: the cookie says whose it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.language import S_, told
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import QuestionRefused
from rlhf_studio.ui.talk.line import GONE, OFF, Line
from rlhf_studio.ui.visiting.modes import Mode

NOT_A_STUDENT = S_("This is for students who have opened the class link.")
MOST_BYTES = 8_000  # of a question: its longest text, each character written as an escape
Json = dict[str, Any]


class StudentTalk:
    """The functions of one app, over the ``line`` of its class."""

    def __init__(self, access: Access, line: Line) -> None:
        self._access, self._line = access, line

    def functions(self) -> list[Callable[..., Any]]:
        """The server functions."""

        @callable_by(Role.OPERATOR, players_in={Mode.CLASSROOM}, most_bytes=1_000)
        async def student_news(data: Any, request: gr.Request) -> Response:
            return sent.as_json(self.news(data, request))

        return [self.student_ask, student_news, self.student_halt]

    def offer(self, data: Any, request: Any) -> Json:
        """What the page of a student shows, as ``students``; nothing for everybody else."""
        if not self._person(data, request):
            return {}
        limits, run = self._line.limits, self._line.run
        return {"students": {"run": run, "why": "" if run else told(OFF), "longest": limits.prompt, "tokens": limits.tokens}}

    @callable_by(Role.OPERATOR, players_in={Mode.CLASSROOM}, most_bytes=MOST_BYTES)
    def student_ask(self, data: Any, request: gr.Request) -> Json:
        """Ask both policies of the class's run. Gives the question's ``key``, the trained policy's ``step``, and the most
        ``tokens`` and the ``seed`` of its answers; or an ``error``."""
        person = self._person(data, request)
        if not person:
            return {"error": told(NOT_A_STUDENT)}
        try:
            question = self._line.ask(person, sent.member(data, "prompt"))
        except QuestionRefused as error:
            return {"error": told(error)}
        side = question.request["sides"][0]
        return {"key": question.key, "step": question.step, "tokens": side["settings"]["response_length"], "seed": side["seed"]}

    def news(self, data: Any, request: Any) -> Json:
        """As :meth:`Line.news`, for the sender's own question."""
        person = self._person(data, request)
        return self._line.news(person, sent.member(data, "key"), sent.member(data, "since")) if person else {"error": told(GONE)}

    @callable_by(Role.OPERATOR, players_in={Mode.CLASSROOM}, most_bytes=1_000)
    def student_halt(self, data: Any, request: gr.Request) -> Json:
        """Take the own question back."""
        if person := self._person(data, request):
            self._line.take_back(person, sent.member(data, "key"))
        return {}

    def _person(self, data: Any, request: Any) -> str:
        """The key by which a student is known; empty for everybody else."""
        access = self._access
        if access.mode is not Mode.CLASSROOM or not access.plays(request, data) or access.is_operator(request, data):
            return ""
        return access.starter(request, data).key
