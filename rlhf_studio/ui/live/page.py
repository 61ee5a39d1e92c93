"""The Live page: one component that follows a run, and the handlers of its buttons.

The page is drawn by ``assets/live/``. It learns everything through read-only server functions: ``poll``, ``fetch``
and (for operators) ``resume_question``. What changes something goes through Gradio's events. Who may call what is in
:mod:`rlhf_studio.ui.roles`; the handlers ask :class:`~rlhf_studio.ui.access.Access` as well.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.config import STAGES, StageConfig
from rlhf_studio.config.bundled import RECORDINGS, REPLAYED
from rlhf_studio.config.io import ConfigError, parse_config, walk_fields
from rlhf_studio.config.wording import shortened
from rlhf_studio.language import S_, _, language
from rlhf_studio.runs.commands import CommandKind, send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.pace import usual_start
from rlhf_studio.runs.visitors.limits import FREE, Admission
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import html, sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.form import SECTION_TITLES, describe_field
from rlhf_studio.ui.insights import KINDS, ON_DEMAND
from rlhf_studio.ui.live import charts, payloads
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.live.snapshot import Position
from rlhf_studio.ui.problems import plain
from rlhf_studio.ui.resume import question, refusal
from rlhf_studio.ui.roles import PLAYED, Role, callable_by

DETAIL_SECONDS = 15
COMMANDS: dict[str, CommandKind] = {
    "stop_run": "stop",
    "discard_run": "discard",
    "checkpoint_run": "checkpoint",
    "pause_run": "pause",
    "continue_run": "continue",
    "step_run": "step",
    "phase_run": "phase",
    "set_run": "set",
}
OPERATORS_ONLY = ("checkpoint_run", "force_stop_run")
ACTIONS = (*COMMANDS, "force_stop_run", "resume_run")
"""What the buttons do to a run. What makes another one, or gives it more steps, is asked of :mod:`rlhf_studio.ui.lab.experiments`."""
LIKE_IT = {"basis": "world", "as_it_is": True, "values": {"ppo.kl_coef": 0.0}}
"""What starts a run like :data:`REPLAYED`, as the Train page would send it: the tiny world without a price of KL."""
_counter = itertools.count(1)


def value_for(run_id: str) -> str:
    """The component value that makes the page open ``run_id``. The number makes opening the same run twice a change."""
    return f"{run_id}@{next(_counter)}"


def poll_reply(
    position: Position, body: bytes, rights: Mapping[str, Any], now: float, insight: tuple[str, bytes] = ("", b""), owns: bool = False
) -> bytes:
    """A complete reply to a poll: first what differs between viewers, then the bytes that all viewers at the same position share.

    Args:
        rights: as ``Access.rights`` gives them.
        insight: the newest verdict with its version; it is sent to a viewer who has another version.
        owns: whether it is the sender's own run.
    """
    own = {"now": round(now), "run": position.run, **rights}
    own |= {"owns": True} if owns else {}
    version, verdict = insight
    news = b"" if version == position.insight else b',"insight":' + payloads.encode_text(version) + b',"verdict":' + (verdict or b"null")
    return payloads.encode_text(own)[:-1] + news + b"," + body + b"}"


def asked_by(workspace: Workspace, access: Access, data: Any, request: gr.Request) -> str:
    """Who presses a button of a run, in words. Raises gr.Error for a viewer who did not start the run, and StoreError."""
    if not access.is_operator(request, data) and (starter := access.own_starter(request, data, workspace)) is not None:
        return S_(f"the {starter.role} who started it")
    access.require_operator(request, data)
    return S_("an operator")


def steer(workspace: Workspace, action: str, data: Any, by: str = "", admission: Admission = FREE) -> None:
    """Do what a button asks. ``data`` is what it sent: the run, ``from_start`` to resume it from step 0, ``changes`` of settings.

    ``stop_run`` on a run that still waits takes it out of the queue.

    Args:
        by: who asked, recorded with a stop.
        admission: how many runs the person may have who resumes one.

    Raises:
        gr.Error: the store refuses; the error is one sentence.
    """
    with _refusals():
        run = sent.run_id(data)
        workspace.refuse_recording(run)
        if action == "set_run":
            changes = changed_settings(workspace.reader(run).config(), sent.member(data, "changes"))
            send_command(workspace.run_dir(run), "set", {"changes": changes})
        elif action == "resume_run":
            workspace.resume(run, from_start=sent.member(data, "from_start") is True, by=admission)
        elif action == "force_stop_run":
            workspace.force_stop(run)
        elif action == "stop_run" and workspace.queue_position(run) is not None:
            workspace.cancel(run)
        else:
            send_command(workspace.run_dir(run), COMMANDS[action], {"by": by} if by and action in ("stop_run", "discard_run") else None)


def changed_settings(config: StageConfig, changes: Any) -> dict[str, float]:
    """The settings that a running engine is to change, checked as the form checks them.

    Raises StoreError for one that cannot be changed while a run goes on, and for a value that is out of its bounds.
    """
    if not isinstance(changes, dict) or not changes:
        raise StoreError(_("Nothing was changed."), "state")
    data = config.model_dump(mode="json")
    for name, value in changes.items():
        if name not in payloads.STEERED or config.stage != "ppo":
            raise StoreError(
                _("{name} cannot be changed while a run goes on; vary the run instead.").format(name=shortened(str(name))), "state"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise StoreError(_("{name} must be a number.").format(name=name), "state")
        section, _dot, setting = name.partition(".")
        data[section][setting] = value
    try:
        parse_config(data)
    except ConfigError as error:
        first = error.problems[0]
        raise StoreError(f"{first.field}: {plain(first.message)}.".replace("..", "."), "state") from error
    return {name: float(value) for name, value in changes.items()}


@contextmanager
def _refusals() -> Iterator[None]:
    """What the store refuses becomes one sentence on the page."""
    try:
        yield
    except (StoreError, ConfigError) as error:
        raise gr.Error(refusal(error), print_exception=False) from error


def about_settings() -> dict[str, Any]:
    """What the page needs of the settings: their titles by dotted name, those of their ``sections``, and the settings that can be
    ``steered``, all as the form has them."""
    fields = dict(walk_fields())
    every = {name: info for kind in reversed(STAGES.values()) for name, info in walk_fields(kind)}
    titles = {name: _(str(info.title)) for name, info in every.items() if "." in name}
    sections = {name: _(title) for name, title in SECTION_TITLES.items()}
    return {"settings": titles, "sections": sections, "steered": [describe_field(name, fields[name]) for name in payloads.STEERED]}


@cache
def _page_data(spoken: str) -> bytes:
    """What a page asks for once, in the language that is ``spoken`` now."""
    recordings = {"replay": REPLAYED, "like_it": LIKE_IT, "around": RECORDINGS[0].run_id}
    return payloads.encode_text({**charts.page_data(), **about_settings(), **recordings})


@dataclass(frozen=True)
class LivePage:
    """The built page.

    Attributes:
        component: give it ``LivePage.open(run_id)`` as an output to show a run.
    """

    component: gr.HTML

    def open(self, run_id: str) -> dict[str, Any]:
        """The update that makes the page show a run: return it for :attr:`component` from any handler."""
        return gr.update(value=value_for(run_id))

    def connect_tabs(self, tabs: gr.Tabs, *, train: str, runs: str) -> None:
        """Let the page's links lead to the Train and Runs tabs (their ids). Call inside the Blocks context."""

        @callable_by(Role.VIEWER)
        def open_train() -> gr.Tabs:
            return gr.Tabs(selected=train)

        @callable_by(Role.VIEWER)
        def open_runs() -> gr.Tabs:
            return gr.Tabs(selected=runs)

        @callable_by(Role.VIEWER)
        def open_compare() -> gr.Tabs:
            return gr.Tabs(selected=runs)

        for handler in (open_train, open_runs, open_compare):
            getattr(self.component, handler.__name__)(handler, outputs=tabs, queue=False, show_progress="hidden", api_visibility="private")


def build(
    workspace: Workspace,
    feed: LiveFeed,
    access: Access,
    on_queue_change: Callable[[], None] = lambda: None,
    functions: Sequence[Callable[..., Any]] = (),
) -> LivePage:
    """Make the page's component and wire its buttons. Call inside a Blocks context.

    ``on_queue_change`` is called after a run was resumed or taken out of the queue, so that a dispatcher need not wait.
    ``functions``: what else the page's script may ask the server.
    """
    insights = feed.insights

    @callable_by(Role.VIEWER, most_bytes=4_000)
    async def poll(data: Any, request: gr.Request) -> Response:
        position = Position.parse(data)
        rights = access.rights(request, data)
        body, progress = feed.poll(position), feed.progress(position.run)
        owns = not rights["operator"] and progress is not None and access.owns(request, data, progress.starter)
        rights["starts"] = access.may_start(request, data)
        insight = insights.watch(position.run, progress)
        return sent.as_json(poll_reply(position, body, rights, time.time(), insight, owns))

    @callable_by(Role.VIEWER, most_bytes=4_000)
    async def fetch(data: Any) -> Response:
        kind = sent.member(data, "kind")
        if kind == "page":
            return sent.as_json(_page_data(language()))
        if kind == "starting":
            usual = await asyncio.to_thread(usual_start, workspace.root, str(sent.member(data, "stage")))
            return sent.as_json(payloads.encode_text({"usual": usual}))
        position = Position.parse(data)
        if kind in (*KINDS, *ON_DEMAND):
            reading = insights.detail(position.run, str(kind), feed.progress(position.run))
        else:
            reading = feed.detail(position.run, str(kind), position.step, position.sample)
        answer = asyncio.wrap_future(reading)
        await asyncio.wait([answer], timeout=DETAIL_SECONDS)
        return sent.as_json(
            answer.result() if answer.done() else payloads.encode_text({"problem": _("This takes longer than usual. It is tried again.")})
        )

    @callable_by(Role.OPERATOR, players_in=PLAYED)
    def resume_question(data: Any, request: gr.Request) -> dict[str, Any]:
        return question(workspace, access, data, request)

    gr.set_static_paths(html.static_paths())
    events = [*ACTIONS, "open_train", "open_runs", "open_compare", "open_talk", "open_feedback", "start_like"]  # the last three: see app.py
    component = html.panel("live", events, [poll, fetch, resume_question, *functions])
    for action in ACTIONS:
        getattr(component, action)(
            _handler(workspace, access, action, on_queue_change),
            queue=False,
            show_progress="hidden",
            api_visibility="private",
            api_name=action,
        )
    return LivePage(component)


def _handler(workspace: Workspace, access: Access, action: str, on_queue_change: Callable[[], None]) -> Callable[..., None]:
    @callable_by(Role.OPERATOR, players_in=() if action in OPERATORS_ONLY else PLAYED)
    def handle(event: sent.Event, request: gr.Request) -> None:
        with _refusals():
            by = asked_by(workspace, access, event.data, request)
            admission = access.admission(request, event.data) if action == "resume_run" else FREE
        steer(workspace, action, event.data, by, admission)
        on_queue_change()

    handle.__name__ = action
    return handle
