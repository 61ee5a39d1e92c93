"""The app: builds the pages, serves them, and starts queued runs.

No run lives in this process. Each engine is a process of its own, so the app may stop and start again while engines work.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "1000000")  # events of the queue between two tables of them, which nobody sees

import gradio as gr

from rlhf_studio.child_process.environment import NO_HUB_TOKEN
from rlhf_studio.config import NOTHING_ALLOWED, Permissions, permissions_from_flags
from rlhf_studio.exit_codes import BAD_INPUT
from rlhf_studio.language import ENGLISH, _, speaking, told
from rlhf_studio.runs.classroom.secret import VISITORS, lasting_secret
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.hosted.keeper import Keeper, keeper_of
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.queue import Dispatcher, StartEngine
from rlhf_studio.runs.visitors.janitor import Janitor
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.trl.table import name_trl_in_errors
from rlhf_studio.ui import html, sent
from rlhf_studio.ui.access import Access, Raters, serves_one_person, token_of
from rlhf_studio.ui.api.agents import agents_route
from rlhf_studio.ui.api.mcp import require_mcp, tool_prefix
from rlhf_studio.ui.api.opening import functions_for_programs, open_to_programs, programs_of
from rlhf_studio.ui.door import health_route
from rlhf_studio.ui.evaluate.page import EvaluatePage
from rlhf_studio.ui.exports.actions import Exports, has_token
from rlhf_studio.ui.exports.downloads import download_route
from rlhf_studio.ui.feedback.page import FeedbackPage
from rlhf_studio.ui.hosted.ending import say_goodbye, stops_runs, told_to_end
from rlhf_studio.ui.hosted.launching import Pages, web_app
from rlhf_studio.ui.hosted.space import duplicate_link, own_address
from rlhf_studio.ui.hosts import cookie_path, hosts_of, is_loopback
from rlhf_studio.ui.learn.added import AddedQuestions
from rlhf_studio.ui.live import page as live_page
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.news import News
from rlhf_studio.ui.picker.page import Picker
from rlhf_studio.ui.picker.roots import roots_of
from rlhf_studio.ui.road.page import RoadPage
from rlhf_studio.ui.roles import PLAYED, Role, callable_by
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.scoring.playground import RewardPlayground
from rlhf_studio.ui.scoring.try_it import TryReward
from rlhf_studio.ui.services import Context, Services, services_of
from rlhf_studio.ui.serving.server import AppServer, address_of, listening_socket
from rlhf_studio.ui.serving.spoken import words_route
from rlhf_studio.ui.talk.page import TalkPage
from rlhf_studio.ui.talk.students import StudentTalk
from rlhf_studio.ui.train_page import TrainPage
from rlhf_studio.ui.trial import Trials
from rlhf_studio.ui.visiting.allowed import budget_for
from rlhf_studio.ui.visiting.flags import parser
from rlhf_studio.ui.visiting.greeting import greeting, has_screen
from rlhf_studio.ui.visiting.identity import Visitors
from rlhf_studio.ui.visiting.modes import Mode, mode_of
from rlhf_studio.ui.visiting.owner import login_of
from rlhf_studio.ui.visiting.where import heading_functions
from rlhf_studio.visible import say

TRAIN, LIVE, RUNS, TALK, FEEDBACK, EVALUATE, ROAD, LEARN = "train", "live", "runs", "talk", "feedback", "evaluate", "road", "learn"

TURN_SECONDS = 0.0005  # see main


def build_app(context: Context, services: Services) -> gr.Blocks:
    """All pages, wired together, and the functions for programs."""
    workspace, access, wake, inspect = context.workspace, context.access, context.wake, context.inspect
    desk, class_page, replays = services.desk, services.class_page, services.replays
    exports = Exports(workspace, access, services.export, can_push=context.keep_hub_token and has_token(os.environ))
    runs_page = RunsPage(workspace, access, context.queue_problem, context.feed.insights, context.kept_problem)
    desk.opening.opened = runs_page.forget
    train_page = TrainPage(workspace, access, runs_page.waiting, inspect, context.permissions)
    try_reward = TryReward(access, services.score)
    talk_page = TalkPage(workspace, access, services.talk, StudentTalk(access, services.class_line), context.feed.insights)
    playground = RewardPlayground(workspace, access, services.score)
    opened = services.learn_page.expect
    with Pages(title="RLHF Studio", analytics_enabled=False, fill_width=True) as demo:
        html.heading(heading_functions(access, login_of(os.environ), class_page, opened, context.kept_problem, News(workspace)))
        first = RUNS if access.read_only else TRAIN  # where nothing can be started, there are runs to look at
        with gr.Tabs(selected=first, elem_id="pages") as tabs:
            with gr.Tab("Learn", id=LEARN):
                services.learn_page.build([*class_page.breaking.functions(), *AddedQuestions(workspace, access).functions()])
            with gr.Tab("Train", id=TRAIN):
                picker = Picker(workspace, access, context.roots, context.permissions)
                trials = Trials(train_page, workspace, access, wake)
                train = train_page.build([try_reward.try_reward, *picker.functions(), trials.trial, replays.replay])
            with gr.Tab("Live", id=LIVE):
                live = live_page.build(
                    workspace, context.feed, access, wake, [*exports.functions(), *desk.ending_functions(), replays.replay]
                )
            with gr.Tab("Runs", id=RUNS):
                runs = runs_page.build([*exports.functions(), *desk.functions()])
            with gr.Tab("Talk", id=TALK):
                talk = talk_page.build([*playground.functions(), replays.replay])
            with gr.Tab("Feedback", id=FEEDBACK):
                feedback = services.feedback_page.build()
            with gr.Tab("Evaluate", id=EVALUATE):
                EvaluatePage(workspace, access, wake, inspect, context.feed.insights).build()
            with gr.Tab("Road", id=ROAD):
                road = RoadPage(workspace, access, context.permissions, keep_hub_token=context.keep_hub_token).build()
        live.connect_tabs(tabs, train=TRAIN, runs=RUNS)
        _connect(tabs, live, train_page, train, runs_page, runs, wake, context.starts_through_queue)
        _connect_talk(talk, talk_page, tabs, live)
        _connect_feedback(feedback, services.feedback_page, tabs, live)
        _connect_road(road, tabs, live)
        experiments = services.desk.experiments
        programs = functions_for_programs(workspace, access, context.feed, train_page, runs_page, experiments, try_reward, wake)
        open_to_programs(demo, programs)
    built: gr.Blocks = demo
    return built


def _connect(
    tabs: gr.Tabs,
    live: live_page.LivePage,
    train_page: TrainPage,
    train: gr.HTML,
    runs_page: RunsPage,
    runs: gr.HTML,
    wake: Callable[[], None],
    through_queue: bool,
) -> None:
    """The events that lead from page to page. ``through_queue``: those that may start a run go through Gradio's queue."""
    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    asking: dict[str, Any] = {**quiet, "queue": through_queue}

    @callable_by(Role.OPERATOR, players_in=PLAYED, starts=True)
    def start_run(event: sent.Event, request: gr.Request) -> list[Any]:
        outcome = train_page.start(event.data, request)
        if "run_id" not in outcome:
            return [json.dumps(outcome), gr.skip(), gr.skip()]
        wake()
        return [json.dumps(outcome), gr.Tabs(selected=LIVE), live.open(outcome["run_id"])]

    @callable_by(Role.OPERATOR, players_in=PLAYED, starts=True)
    def start_like(event: sent.Event, request: gr.Request) -> dict[str, Any]:
        outcome = train_page.start(event.data, request)
        if "run_id" not in outcome:  # here is no form to show them in
            raise gr.Error("; ".join(problem["message"] for problem in outcome["problems"]), print_exception=False)
        wake()
        return live.open(outcome["run_id"])

    @callable_by(Role.OPERATOR)
    def measure(event: sent.Event, request: gr.Request) -> None:
        train_page.measure(event.data, request)

    @callable_by(Role.OPERATOR)
    def act_on_run(event: sent.Event, request: gr.Request) -> str:
        outcome = runs_page.act(event.data, request)
        wake()
        return json.dumps(outcome)

    @callable_by(Role.OPERATOR, players_in=PLAYED)
    def stop_from_runs(event: sent.Event, request: gr.Request) -> None:
        runs_page.stop(event.data, request)
        wake()

    @callable_by(Role.VIEWER)
    def open_run(event: sent.Event) -> list[Any]:
        return [gr.Tabs(selected=LIVE), live.open(str(sent.member(event.data, "run") or "")[:100])]

    @callable_by(Role.VIEWER)
    def go_train() -> gr.Tabs:
        return gr.Tabs(selected=TRAIN)

    train.start(start_run, outputs=[train, tabs, live.component], **asking)
    live.component.start_like(start_like, outputs=live.component, **asking)
    train.measure(measure, **quiet)
    runs.act(act_on_run, outputs=runs, **asking)
    runs.stop_run(stop_from_runs, **quiet)
    runs.open_run(open_run, outputs=[tabs, live.component], **quiet)
    runs.go_train(go_train, outputs=tabs, **quiet)


def _connect_talk(talk: gr.HTML, talk_page: TalkPage, tabs: gr.Tabs, live: live_page.LivePage) -> None:
    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}

    @callable_by(Role.VIEWER)
    def talk_train() -> gr.Tabs:
        return gr.Tabs(selected=TRAIN)

    @callable_by(Role.VIEWER)
    def open_talk(event: sent.Event) -> list[Any]:
        return [gr.Tabs(selected=TALK), talk_page.open(str(sent.member(event.data, "run") or "")[:100])]

    talk.talk_train(talk_train, outputs=tabs, **quiet)
    live.component.open_talk(open_talk, outputs=[tabs, talk], **quiet)


def _connect_road(road: gr.HTML, tabs: gr.Tabs, live: live_page.LivePage) -> None:
    @callable_by(Role.VIEWER)
    def open_road_run(event: sent.Event) -> list[Any]:
        return [gr.Tabs(selected=LIVE), live.open(str(sent.member(event.data, "run") or "")[:100])]

    road.open_road_run(open_road_run, outputs=[tabs, live.component], queue=False, show_progress="hidden", api_visibility="private")


def _connect_feedback(feedback: gr.HTML, page: FeedbackPage, tabs: gr.Tabs, live: live_page.LivePage) -> None:
    @callable_by(Role.VIEWER)
    def open_feedback(event: sent.Event) -> list[Any]:
        return [gr.Tabs(selected=FEEDBACK), page.open(f"run:{str(sent.member(event.data, 'run') or '')[:100]}")]

    @callable_by(Role.VIEWER)
    def feedback_train() -> gr.Tabs:
        return gr.Tabs(selected=TRAIN)

    quiet: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    feedback.feedback_train(feedback_train, outputs=tabs, **quiet)
    live.component.open_feedback(open_feedback, outputs=[tabs, feedback], **quiet)


# --- serving -----------------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A running app."""

    url: str
    access: Access
    demo: gr.Blocks
    workspace: Workspace
    feed: LiveFeed
    dispatcher: Dispatcher | None
    services: Services
    served: AppServer | None = None
    janitor: Janitor | None = None
    keeper: Keeper | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Return when :meth:`close` was called, or raise KeyboardInterrupt."""
        while not self._stopped.wait(0.5):
            pass

    def close(self) -> None:
        """Stop serving. Runs go on."""
        self._stopped.set()
        for thread in (self.dispatcher, self.janitor, self.keeper):
            if thread is not None:
                thread.stop()
        if self.served is not None:
            self.served.close()
        self.feed.close()
        self.services.close()


def launch(
    root: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    mode: Mode = Mode.LOCAL,
    start: StartEngine = start_engine,
    on_queued: Callable[[str], None] | None = None,
    permissions: Permissions = NOTHING_ALLOWED,
    keep_hub_token: bool = False,
    allow_hosts: Sequence[str] = (),
    prepare_lessons: bool = False,
    browse: Sequence[Path] = (),
    mcp: bool = False,
) -> Server:
    """Serve the app on the workspace ``root``, and start queued runs with ``start``. Returns when the app answers.

    A read-only app starts nothing, so it can watch the workspace of another app.

    Args:
        on_queued: as in :class:`Workspace`. With it, events that start runs go through Gradio's queue: the functions that they call can
            then see who asks (``gradio.context.LocalContext``).
        permissions: the code and servers outside the program that rewards may use; passed on to ``start``.
        keep_hub_token: whether runs may use the Hugging Face token of the person who started the app; passed on to ``start``.
        allow_hosts: further names under which people reach the app, for instance through a proxy.
        prepare_lessons: begin the process that computes lessons' numbers when somebody opens the app, so that they do not wait for it.
        browse: the folders that operators may look into; see :func:`roots_of`.
        mcp: let the functions for programs be MCP tools too, which needs ``gradio[mcp]``.

    Raises:
        OSError: the workspace or the port cannot be used.
        StoreError: the workspace's database cannot be used.
        ValueError: a token, a name or a folder cannot be used, or what MCP needs is not installed.
    """
    require_mcp(mcp)
    access = access_for(host, mode, allow_hosts, os.environ)
    root.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(root, Recordings(), on_queued or (lambda run_id: None))
    feedback = Feedback(workspace.root)
    access = replace(access, raters=Raters(feedback.known_rating_link, feedback.rating_link))
    if mode.visitors_play:
        access = replace(access, visitors=Visitors(lasting_secret(workspace.root, VISITORS)))
    given = _given_to_start(permissions, keep_hub_token)
    dispatcher = None if access.read_only else Dispatcher(workspace, partial(start, **given) if given else start)
    keeper = None if access.read_only else keeper_of(os.environ, workspace, space=mode is Mode.SPACE)
    if keeper is not None:
        workspace.deleted = keeper.forget
    roots = roots_of(mode, browse, workspace.root, alone=access.loopback and not access.token_only)
    context = Context(workspace, LiveFeed(workspace), access, dispatcher, keeper, permissions, keep_hub_token, on_queued is not None, roots)
    services = services_of(context, feedback, prepare_lessons=prepare_lessons)
    services.class_page.open()
    demo = build_app(context, services)
    served, url = _serve(demo, workspace, access, host, port, mcp)
    janitor = Janitor(workspace, access.budget.limits) if mode.visitors_play else None
    for thread in (dispatcher, janitor, keeper):
        if thread is not None:
            thread.start()
    return Server(url, access, demo, workspace, context.feed, dispatcher, services, served, janitor, keeper)


def _serve(demo: gr.Blocks, workspace: Workspace, access: Access, host: str, port: int | None, mcp: bool) -> tuple[AppServer, str]:
    """The served app and its address. Raises OSError where the port cannot be used."""
    demo.queue(default_concurrency_limit=20, max_size=100, api_open=False)
    listening = listening_socket(host, port)
    agents = agents_route(programs_of(demo), access, mcp, tool_prefix(os.environ))
    routes = [download_route(workspace), health_route(), words_route(), agents]
    served = AppServer(web_app(demo, access, workspace.root, routes, login_of(os.environ), mcp=mcp), listening)
    served.start()
    return served, address_of(host, listening.getsockname()[1])


def _given_to_start(permissions: Permissions, keep_hub_token: bool) -> dict[str, Any]:
    given: dict[str, Any] = {"permissions": permissions} if permissions != NOTHING_ALLOWED else {}
    return given | ({"keep_hub_token": True} if keep_hub_token else {})


def access_for(host: str, mode: Mode, allow_hosts: Sequence[str], environment: Mapping[str, str]) -> Access:
    """The rules of an app that listens on ``host``. Raises ValueError for a token or a name that cannot be used."""
    token = token_of(environment)
    hosts = hosts_of(host, allow_hosts, environment)
    alone = is_loopback(host) and mode is not Mode.SPACE  # there, a proxy on the same machine may lead to the app
    login = login_of(environment)
    return Access(
        mode,
        alone,
        token or secrets.token_urlsafe(24),
        token_only=bool(token),
        hosts=hosts,
        budget=budget_for(mode),
        owners=login.owners if login is not None else frozenset(),
        path=cookie_path(environment),
        duplicate=duplicate_link(environment),
        address=own_address(environment),
    )


def main(
    arguments: Sequence[str] | None = None, *, start: StartEngine = start_engine, on_queued: Callable[[str], None] | None = None
) -> int:
    """The command ``app``: serve until interrupted; returns the exit code. ``start`` and ``on_queued`` as in :func:`launch`."""
    options = parser().parse_args(arguments)
    name_trl_in_errors()
    # an answer gives up Python's lock with every packet; a thread that computes would give it back after 5 ms at the earliest
    sys.setswitchinterval(TURN_SECONDS)
    options.host = options.host or ("0.0.0.0" if options.classroom else "127.0.0.1")
    try:
        permissions = _permissions(options)
        stop_runs = stops_runs(os.environ) if options.stop_runs is None else options.stop_runs
        mode = mode_of(os.environ, read_only=options.read_only, classroom=options.classroom)
        keep_hub_token = options.share_hub_token or serves_one_person(options.host, os.environ)
        if not keep_hub_token:
            os.environ[NO_HUB_TOKEN] = "1"  # the app's own checks and previews must not use the token either
        with speaking(ENGLISH):  # the pages are translated for each reader
            server = launch(
                options.workspace,
                host=options.host,
                port=options.port,
                mode=mode,
                start=start,
                on_queued=on_queued,
                permissions=permissions,
                keep_hub_token=keep_hub_token,
                allow_hosts=options.allow_host,
                prepare_lessons=True,
                browse=options.browse,
                mcp=options.mcp,
            )
    except (OSError, StoreError, ValueError) as error:
        say("rlhf-studio: " + _("the app could not start: {error}").format(error=told(error)), sys.stderr)
        return BAD_INPUT
    for line in greeting(server.url, server.workspace.root, server.access, options.host):
        say(line)
    if options.browser and sys.stdout.isatty() and has_screen(os.environ):
        webbrowser.open(server.url)
    with told_to_end():
        try:
            server.wait()
        except KeyboardInterrupt:
            say_goodbye(server, stop_runs=stop_runs and not server.access.read_only)
        server.close()
    return 0


def _permissions(options: argparse.Namespace) -> Permissions:
    """What the flags allow. Raises ValueError: also for own code on an address that others can reach."""
    permissions = permissions_from_flags(options.allow_custom_rewards, options.reward_url, options.reward_key, notify=options.notify_url)
    if permissions.files and not is_loopback(options.host):
        raise ValueError(f"--allow-custom-rewards works only when the app listens on this machine alone, not on {options.host}")
    return permissions
