"""What the Feedback page sends, checked: JSON that anyone may have written."""

from __future__ import annotations

from typing import Any

from rlhf_studio.language import S_, _, told
from rlhf_studio.runs.feedback.records import Kind, NewTask, NewVote
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.ui.sent import member, number, text, whole_number
from rlhf_studio.visible import refuse_hidden

LONGEST_SECRET = 200


def task_id(data: Any) -> str:
    """The task that was named. Raises NotPossible when none was."""
    task = text(data, "task", 200)
    if not task:
        raise NotPossible(_("There is no such task."))
    return task


def new_task(data: Any) -> NewTask:
    """A task as the form has it. Raises NotPossible with what is wrong."""
    settings = member(data, "settings")
    kind: Kind = text(settings, "kind", 20) or "pair"  # type: ignore[assignment]
    name, criterion = (text(settings, key, 1000).strip() for key in ("name", "criterion"))
    try:
        refuse_hidden(name, S_("its name"))
        refuse_hidden(criterion, S_("its criterion"))
        return NewTask(
            name=name,
            kind=kind,
            guidelines=text(settings, "guidelines", 100_000),
            warning=text(settings, "warning", 100_000).strip(),
            criterion=criterion,
            annotators=whole_number(settings, "annotators", 1),
            points=whole_number(settings, "points", 5),
            pass_mark=number(settings, "pass_mark", 0.8),
            order=text(settings, "order", 20) or "random",  # type: ignore[arg-type]
            ask_confidence=member(settings, "ask_confidence") is not False,
        )
    except ValueError as error:
        raise NotPossible(_("This task cannot be made: {error}.").format(error=told(error))) from error


def new_vote(data: Any) -> NewVote:
    """An answer. Raises NotPossible; whether it fits the item is checked where it is stored."""
    verdict: Any = text(data, "verdict", 20)
    value = member(data, "value")
    if isinstance(value, list) and len(value) > 20:
        raise NotPossible(_("This answer is too long."))
    item, seconds = whole_number(data, "item", 0), number(data, "seconds", 0.0)
    confidence = None if member(data, "confidence") is None else number(data, "confidence", 1.0)
    try:
        return NewVote(text(data, "id", 80), item, verdict, value, confidence, seconds)
    except ValueError as error:
        raise NotPossible(_("This answer cannot be stored: {error}.").format(error=told(error))) from error
