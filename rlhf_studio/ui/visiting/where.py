"""What the visitor may do: the line above the pages says it, and the Train page offers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from rlhf_studio import __version__
from rlhf_studio.config.bundled import RECORDINGS, REPLAYED
from rlhf_studio.config.glossary import GLOSSARY, explained
from rlhf_studio.language import N_, _, told
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.classroom.page import ClassPage
from rlhf_studio.ui.news import News
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.visiting.allowed import RECIPES
from rlhf_studio.ui.visiting.modes import Mode
from rlhf_studio.ui.visiting.owner import LOGIN, LOGOUT, Login

Json = dict[str, Any]
ELSEWHERE = {Mode.SPACE: N_("needs a copy of this Space"), Mode.CLASSROOM: N_("only the teacher starts it")}
TITLES = {
    Mode.LOCAL: N_("This computer"),
    Mode.CLASSROOM: N_("Class"),
    Mode.SPACE: N_("Space"),
    Mode.READ_ONLY: N_("Read-only"),
}

NO_COOKIES = N_(
    "Your browser keeps no cookies for this page. You can learn, watch and start runs; but all people "
    "behind your network address count as one visitor, who has one run, and each of you may stop it."
)

STRANGER = N_(
    "You are logged in at Hugging Face as {}, but this Space belongs to somebody else. Learning, "
    "watching and small runs need no login. In a copy of your own, you are the owner."
)


def heading_functions(
    access: Access,
    login: Login | None,
    class_page: ClassPage,
    opened: Callable[[], None],
    kept_problem: Callable[[], str] = lambda: "",
    news: News | None = None,
) -> list[Callable[..., Any]]:
    """What the line above the pages asks the server. Arguments as :func:`where`, the functions of a class, and what the bell tells."""
    return [where(access, login, opened, kept_problem), words, *([news.news] if news else []), *class_page.functions()]


@callable_by(Role.VIEWER, most_bytes=4_000)
async def words(data: Any) -> Json:
    """The glossary, for tips on pages that have none of their own."""
    return explained(GLOSSARY)


def where(
    access: Access,
    login: Login | None = None,
    opened: Callable[[], None] = lambda: None,
    kept_problem: Callable[[], str] = lambda: "",
) -> Callable[..., Any]:
    """The server function of the line.

    With a ``login``, owners are led to it. ``opened`` is called whenever somebody opens the app; ``kept_problem`` says why runs
    are not copied into the bucket.
    """

    @callable_by(Role.VIEWER)
    def where(data: Any, request: gr.Request) -> Json:
        opened()
        role = access.role_of(request, data)
        plays = role < Role.OPERATOR and access.plays(request, data)
        facts: Json = {"version": __version__, "mode": access.mode.value, "title": _(TITLES[access.mode]), "pace": access.mode.pace}
        facts |= {"starts": access.may_start(request, data), "plays": plays, "limit": access.budget.limits.seconds if plays else 0}
        facts["line"] = line_of(access, request, data)
        facts["teaches"] = access.mode is Mode.CLASSROOM and role >= Role.OPERATOR
        if role < Role.OPERATOR and access.mode in (Mode.SPACE, Mode.READ_ONLY):
            facts["recording"] = RECORDINGS[0].run_id
        if role < Role.OPERATOR and access.duplicate:
            facts["duplicate"] = access.duplicate
        person = access.person(request)
        if access.mode is Mode.SPACE and login is not None:
            facts |= {
                "login": login.address + (LOGOUT if person else LOGIN),
                "login_word": _("Log out") if person else _("Log in as the owner"),
            }
        if role >= Role.OPERATOR and (problem := kept_problem()):
            facts["notice"] = problem
        if access.mode is Mode.SPACE and plays and not access.visitors.key_in(request.headers):
            facts |= {"notice": _(NO_COOKIES), "alone": access.address}
        if person and person.lower() not in access.owners:
            facts["notice"] = _(STRANGER).format(person)
        return facts

    return where


def line_of(access: Access, request: Any, data: Any) -> str:
    """One or two sentences; empty where somebody uses the app alone, and may do everything."""
    limits, most = access.budget.limits, access.budget.most
    small = _("up to {steps:g} steps and {minutes:g} minutes, one at a time").format(steps=most["ppo.steps"], minutes=limits.seconds / 60)
    if access.is_operator(request, data):
        owner = {Mode.SPACE: _("You are the owner of this Space: everything is possible."), Mode.CLASSROOM: _("You are the teacher.")}
        return owner.get(access.mode, "")
    plays = access.plays(request, data)
    if plays and access.mode is Mode.SPACE:
        return _(
            "You are a visitor. Learn and watch recorded runs, or start runs of the tiny world ({small}; kept for {hours:g} hours)."
        ).format(small=small, hours=limits.hours)
    if plays:
        if access.may_start(request, data):
            return _("You are in a class. You may start runs of the tiny world ({small}).").format(small=small)
        return _("You are in a class. Here you watch, and answer what your teacher asks.")
    return access.why_not(request, data)


def offered(access: Access, data: Any, request: gr.Request) -> Json:
    """Who this is, as members of the Train page's first answer.

    ``here`` are the recipes that can start, where not all of them can, and ``elsewhere`` says what the others need. ``recordings`` are
    offered above the recipes: as buttons to those who came to look (``looks``), in a quiet line to operators. ``why_not`` is empty where
    the line above the pages says it already. ``replay`` is the recording that plays on the first screen.
    """
    operator = access.is_operator(request, data)
    starts = access.may_start(request, data)
    looks = not operator and access.mode in (Mode.SPACE, Mode.READ_ONLY)
    return {
        "operator": operator,
        "starts": starts,
        "why_not": "" if access.read_only else access.why_not(request, data),
        "here": list(RECIPES) if starts and not operator else [],
        "elsewhere": _(ELSEWHERE.get(access.mode, "")),
        "looks": looks,
        "replay": REPLAYED,
        "recordings": [{"run": recording.run_id, "name": told(recording.name)} for recording in RECORDINGS] if looks or operator else [],
    }
