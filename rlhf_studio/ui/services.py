"""What all pages of one app share, and the services behind them: made once for an app, closed with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rlhf_studio.child_process.service import Service
from rlhf_studio.config import NOTHING_ALLOWED, Permissions
from rlhf_studio.inputs.choices.browsing import NOWHERE, Roots
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.gpus import find_gpus
from rlhf_studio.runs.hosted.keeper import Keeper
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.records import ALIVE
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.classroom.page import ClassPage
from rlhf_studio.ui.feedback.page import FeedbackPage
from rlhf_studio.ui.lab.desk import Desk
from rlhf_studio.ui.learn.breaking import Breaking
from rlhf_studio.ui.learn.page import LearnPage
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.replay import Replays
from rlhf_studio.ui.talk.line import Line


@dataclass(frozen=True)
class Context:
    """What all pages of one app share.

    Attributes:
        dispatcher: starts queued runs; None where nothing is started.
        keeper: copies runs into a bucket; None where there is none.
        permissions: which code and servers outside the program rewards may use.
        keep_hub_token: whether what the app starts may use the Hugging Face token of the person who started the app.
        starts_through_queue: whether the events that start runs go through Gradio's queue.
        roots: the folders that operators may look into.
    """

    workspace: Workspace
    feed: LiveFeed
    access: Access
    dispatcher: Dispatcher | None = None
    keeper: Keeper | None = None
    permissions: Permissions = NOTHING_ALLOWED
    keep_hub_token: bool = False
    starts_through_queue: bool = False
    roots: Roots = NOWHERE

    def wake(self) -> None:
        """Tell the dispatcher that the queue has changed."""
        if self.dispatcher is not None:
            self.dispatcher.wake()

    @property
    def inspect(self) -> Callable[..., Preflight]:
        """All checks of a run's settings with its estimate, as :func:`inspect_run`."""
        return partial(inspect_run, permissions=self.permissions)

    def queue_problem(self) -> str:
        """Why queued runs do not start; empty when all is well."""
        return self.dispatcher.problem if self.dispatcher is not None else ""

    def kept_problem(self) -> str:
        """Why runs are not copied into the bucket; empty when all is well."""
        return self.keeper.problem if self.keeper is not None else ""


@dataclass(frozen=True)
class Services:
    """What answers the pages with threads and processes of its own."""

    score: Service
    export: Service
    class_line: Line
    talk: Service
    desk: Desk
    feedback_page: FeedbackPage
    learn_page: LearnPage
    class_page: ClassPage
    replays: Replays

    def close(self) -> None:
        """End all of them, with the app."""
        for service in vars(self).values():
            service.close()


def services_of(context: Context, feedback: Feedback, *, prepare_lessons: bool = False) -> Services:
    """The services of an app. None of them has started anything yet. Arguments as :func:`rlhf_studio.ui.app.launch`."""
    workspace, access, token = context.workspace, context.access, context.keep_hub_token
    gpu, busy = gpu_is_free(workspace), runs_alive(workspace)
    learn_page = LearnPage(workspace=workspace, prepares=prepare_lessons, busy=busy)
    talk = Service("talk", context.permissions, keep_hub_token=token, gpu=gpu)
    line = Line(workspace, access.room, talk, busy)
    return Services(
        score=Service("score", context.permissions, keep_hub_token=token, gpu=gpu, idle=600.0),
        export=Service("export", keep_hub_token=token, idle=0.0, patience=3600.0, most_waiting=0, stops=False),
        class_line=line,
        talk=talk,
        desk=Desk(workspace, access, context.feed.insights, context.inspect, context.wake),
        feedback_page=FeedbackPage(workspace, access, feedback, context.feed.insights),
        learn_page=learn_page,
        class_page=ClassPage(access, workspace, Breaking(workspace, access, context.wake), learn_page.computed, line),
        replays=Replays(workspace),
    )


def runs_alive(workspace: Workspace) -> Callable[[], bool]:
    """Whether any run of the workspace is alive or waits for its turn. A workspace that cannot be read counts as busy."""

    def alive() -> bool:
        try:
            return any(run.state in ALIVE or run.state == "queued" for run in workspace.runs())
        except StoreError:
            return True

    return alive


def gpu_is_free(workspace: Workspace) -> Callable[[], bool]:
    """Whether a process beside the app may use a GPU: there is one, and no run needs it."""
    alive = runs_alive(workspace)
    return lambda: bool(find_gpus()) and not alive()
