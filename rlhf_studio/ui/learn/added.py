"""The functions for questions and answers that people add to lessons. Everyone reads what is answered; operators and teachers add, answer
and delete; a student of a class may ask one question at a time, which the teacher sees and answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import gradio as gr

from rlhf_studio.language import _, told
from rlhf_studio.lessons.teaching.added import LONGEST, Added, Entry
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.visiting.modes import Mode

Json = dict[str, Any]


class AddedQuestions:
    """What the Learn page may call. Who asks a question is kept in memory alone, and only until it is answered."""

    def __init__(self, workspace: Workspace, access: Access) -> None:
        self._access, self._added = access, Added(workspace.root)
        self._asked: dict[str, str] = {}  # the waiting question of a student, by the key of the cookie
        self._turn = threading.Lock()

    def functions(self) -> list[Callable[..., Any]]:
        return [self.added_here, self.added_ask, self.added_change]

    @callable_by(Role.VIEWER)
    def added_here(self, data: Any, request: gr.Request) -> Json:
        """The ``entries`` of a ``place``, or of all lessons where none is named; whether the sender may ``change`` and ``ask`` here; and
        whether a question of theirs ``waits``. Only those who may change see what has no answer."""
        operator = self._access.is_operator(request, data)
        try:
            entries = self._added.entries(str(sent.member(data, "place") or "")[:60])
        except StoreError as error:
            return {"error": told(error)}
        seen = [_shown(entry) for entry in entries if operator or entry.answer]
        asks = self._asks(request, data)
        return {"entries": seen, "change": operator, "ask": asks, "waits": asks and self._waits(request), "longest": LONGEST}

    @callable_by(Role.OPERATOR, players_in={Mode.CLASSROOM}, most_bytes=10_000)
    def added_ask(self, data: Any, request: gr.Request) -> Json:
        """A student's ``question`` about a ``place``. ``problem`` says why it was not taken."""
        if not self._asks(request, data):
            return {"problem": _("Questions can be asked here by students of a class.")}
        with self._turn:
            try:
                if self._waits(request):
                    return {"problem": _("Your question waits for your teacher. Once it is answered, you can ask another one.")}
                entry = self._added.add(_text(data, "place"), _text(data, "question"), "", "student")
            except (StoreError, ValueError) as error:
                return {"problem": told(error)}
            self._asked[self._access.visitors.key_in(request.headers)] = entry.id
        return {}

    @callable_by(Role.OPERATOR)
    def added_change(self, data: Any, request: gr.Request) -> Json:
        """``op``: ``add`` a question with its answer to a ``place``; ``answer`` or word anew the one with this ``id``; ``delete`` it, and
        ``restore`` it; ``save`` all as a ``text``; ``load`` such a text. ``problem`` says why nothing was done."""
        self._access.require_operator(request, data)
        op, of = _text(data, "op"), _text(data, "id")
        try:
            if op == "add":
                answer = _text(data, "answer")
                if not answer.strip():
                    raise ValueError(_("Write an answer."))
                role = "teacher" if self._access.mode is Mode.CLASSROOM else "operator"
                return {"id": self._added.add(_text(data, "place"), _text(data, "question"), answer, role).id}
            if op == "answer":
                return {"id": self._added.answer(of, _text(data, "question"), _text(data, "answer")).id}
            if op in ("delete", "restore"):
                (self._added.delete if op == "delete" else self._added.restore)(of)
                return {"id": of}
            if op == "save":
                return {"text": self._added.exported()}
            if op == "load":
                new, known = self._added.take_in(_text(data, "text"))
                return {"new": new, "known": known}
            raise ValueError("There is no such thing to do with a question.")
        except (StoreError, ValueError) as error:
            return {"problem": told(error)}

    def _asks(self, request: Any, data: Any) -> bool:
        """Whether this is a student of a class that goes on."""
        access = self._access
        return access.mode is Mode.CLASSROOM and access.plays(request, data) and not access.is_operator(request, data)

    def _waits(self, request: Any) -> bool:
        """Whether the sender has asked something that is neither answered nor deleted."""
        asked = self._asked.get(self._access.visitors.key_in(request.headers), "")
        return bool(asked) and any(entry.id == asked and not entry.answer for entry in self._added.entries())


def _shown(entry: Entry) -> Json:
    return {key: value for key, value in asdict(entry).items() if key != "deleted_at"}


def _text(data: Any, key: str) -> str:
    value = sent.member(data, key)
    return value if isinstance(value, str) else ""
