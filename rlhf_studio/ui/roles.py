"""Who may call what: the one table. :class:`~rlhf_studio.ui.door.Door` reads it, and what is not in it is refused.

A test compares it with the running app and tries every row as every role, so a new handler, server function or Gradio route fails
there until it has a row.
"""

from __future__ import annotations

from enum import IntEnum

from rlhf_studio.ui.visiting.modes import Mode


class Role(IntEnum):
    """Who sends a request. A role may do all that the roles before it may do.

    ``NOBODY`` is no person's role: a row with it is refused to everyone.
    """

    ANYONE = 0  # whoever reaches the address, another website's page included
    VIEWER = 1  # our own page, or a program: may watch runs
    PLAYER = 2  # a rater, a student or a visitor of a Space: may vote, and in a class or a Space start small runs
    OPERATOR = 3  # may start, change and delete
    NOBODY = 4


_ANYONE, _VIEWER, _PLAYER, _OPERATOR, _NOBODY = Role

# Handlers of the pages' events, by the function's name; server functions by the component's element id and the function's name.
FUNCTIONS: dict[str, Role] = {
    # above the pages
    "shell-page.where": _VIEWER,
    "shell-page.class_now": _VIEWER,
    "shell-page.class_round": _VIEWER,  # whoever watches sees what is asked
    **{f"shell-page.class_{name}": _OPERATOR for name in ("link", "change", "ready", "ask", "steer")},
    **{f"shell-page.class_{name}": _OPERATOR for name in ("answer", "name")},  # and students, see below
    # Train
    "start_run": _OPERATOR,
    "measure": _OPERATOR,
    "train-page.boot": _VIEWER,
    "train-page.check": _VIEWER,  # for viewers it looks at the settings alone, not at files or the hub
    "train-page.preview": _VIEWER,  # for viewers bundled prompts only
    "train-page.to_yaml": _VIEWER,
    "train-page.from_yaml": _OPERATOR,
    "train-page.try_reward": _OPERATOR,
    # Live
    "stop_run": _OPERATOR,
    "checkpoint_run": _OPERATOR,
    "pause_run": _OPERATOR,
    "continue_run": _OPERATOR,
    "force_stop_run": _OPERATOR,
    "resume_run": _OPERATOR,
    "discard_run": _OPERATOR,
    "step_run": _OPERATOR,
    "phase_run": _OPERATOR,
    "set_run": _OPERATOR,
    "open_compare": _VIEWER,
    "open_train": _VIEWER,
    "open_runs": _VIEWER,
    "live-page.poll": _VIEWER,
    "live-page.fetch": _VIEWER,
    "live-page.resume_question": _OPERATOR,  # it reads whole checkpoints
    # Runs
    "act_on_run": _OPERATOR,
    "stop_from_runs": _OPERATOR,
    "open_run": _VIEWER,
    "go_train": _VIEWER,
    "runs-page.runs": _VIEWER,
    "runs-page.loss": _OPERATOR,  # it measures a whole run folder
    "runs-page.settings": _VIEWER,
    "runs-page.resume_question": _OPERATOR,
    **{f"runs-page.{name}": _VIEWER for name in ("compare", "curves", "answers", "sweep", "experiment_form")},
    "runs-page.open_log": _OPERATOR,  # it reads files of this machine and makes a run
    # What to try after a run, on both pages
    **{f"{page}-page.experiment_ideas": _VIEWER for page in ("live", "runs")},
    **{f"{page}-page.experiment_start": _OPERATOR for page in ("live", "runs")},
    # Take it home, on both pages
    **{f"{page}-page.export_look": _VIEWER for page in ("live", "runs")},
    **{f"{page}-page.{name}": _OPERATOR for page in ("live", "runs") for name in ("export_start", "export_cancel")},
    # Feedback
    "open_feedback": _VIEWER,
    "feedback_train": _VIEWER,
    # Road
    "open_road_run": _VIEWER,
    "road-page.road_news": _VIEWER,
    "road-page.road_lineage": _VIEWER,
    **{f"road-page.{name}": _OPERATOR for name in ("road_start", "road_go", "road_stop")},
    "feedback-page.boot": _VIEWER,
    **{f"feedback-page.{name}": _PLAYER for name in ("join", "turn", "vote", "undo", "begin_again")},
    # results would lead raters; the others make, change and read whole tasks, also from files of this machine
    **{f"feedback-page.{name}": _OPERATOR for name in ("results", "rating_link", "add_items", "manage", "export", "train_on")},
    # Talk
    "talk_train": _VIEWER,
    "open_talk": _VIEWER,
    "talk-page.boot": _VIEWER,
    "talk-page.policies": _VIEWER,
    "talk-page.ask": _OPERATOR,  # it starts a process and loads models
    "talk-page.news": _OPERATOR,
    "talk-page.halt": _OPERATOR,
    # the reward playground, on the Talk page
    "talk-page.playground_boot": _VIEWER,
    **{f"talk-page.playground_{name}": _OPERATOR for name in ("model", "ask", "news", "halt")},
    # Learn: everyone may move what can be moved; a control has few values, and answers are kept
    **{f"learn-page.{name}": _VIEWER for name in ("learn_shelf", "learn_text", "learn_runs", "learn_ask", "learn_search")},
    **{f"learn-page.{name}": _VIEWER for name in ("learn_teach", "break_shelf", "break_news")},
    "learn-page.break_start": _OPERATOR,  # it starts runs
    # Evaluate
    **{f"evaluate-page.{name}": _VIEWER for name in ("boot", "report", "answers", "file")},
    **{f"evaluate-page.{name}": _OPERATOR for name in ("begin", "duel", "vote")},
}

# What players may call as well in these modes. The handlers hold them to their own runs and to what visitors may start.
_OWN_RUNS = (
    *("start_run", "stop_run", "discard_run", "pause_run", "continue_run", "step_run", "phase_run", "set_run", "resume_run"),
    "stop_from_runs",
)
PLAYED: dict[Mode, frozenset[str]] = {
    Mode.SPACE: frozenset({*_OWN_RUNS, "live-page.resume_question"}),
    Mode.CLASSROOM: frozenset({*_OWN_RUNS, "live-page.resume_question", "shell-page.class_answer", "shell-page.class_name"}),
}


def role_for(function: str, mode: Mode) -> Role:
    """The least role that may call a function in a mode; ``NOBODY`` for what is not in the table."""
    return Role.PLAYER if function in PLAYED.get(mode, ()) else FUNCTIONS.get(function, Role.NOBODY)


# Where a request's body names a function of the table above; that function's row decides as well.
COMPONENT_ROUTES = ("/gradio_api/component_server", "/gradio_api/component_server/")
DIRECT_ROUTES = (
    *("/gradio_api/run/{api_name}", "/gradio_api/run/{api_name}/"),
    *("/gradio_api/api/{api_name}", "/gradio_api/api/{api_name}/"),
)
QUEUE_ROUTE = "/gradio_api/queue/join"
STREAM_ROUTE = "/gradio_api/queue/data"
CANCEL_ROUTE = "/gradio_api/cancel"
RESET_ROUTES = ("/gradio_api/reset", "/gradio_api/reset/")
FILE_ROUTE = "/gradio_api/file={path_or_url:path}"
PAGE_ROUTES = ("/", "/config", "/config/")
HEALTH_ROUTE = "/health"

# Gradio's own routes, as "METHOD /path". Nobody may use those that the pages do not need.
ROUTES: dict[str, Role] = {
    # the page's document and its files, which hold nothing about runs
    **{f"{method} /": _ANYONE for method in ("GET", "HEAD")},
    **{f"{method} {FILE_ROUTE}": _ANYONE for method in ("GET", "HEAD")},  # our scripts and styles only, see the door
    "GET /assets/{path:path}": _ANYONE,
    "GET /static/{path:path}": _ANYONE,
    "GET /theme.css": _ANYONE,
    "GET /favicon.ico": _ANYONE,
    "GET /manifest.json": _ANYONE,
    "GET /robots.txt": _ANYONE,
    # whether the app serves, asked by containers and proxies; the answer tells nothing else
    **{f"{method} {HEALTH_ROUTE}": _ANYONE for method in ("GET", "HEAD")},
    # what an operator had made of a run: whoever may watch the run may have it
    **{f"{method} /exports/{{run}}/{{name}}": _VIEWER for method in ("GET", "HEAD")},
    # what the page says to the server
    **{f"POST {path}": _VIEWER for path in (*COMPONENT_ROUTES, *DIRECT_ROUTES, QUEUE_ROUTE, CANCEL_ROUTE, *RESET_ROUTES)},
    f"GET {STREAM_ROUTE}": _VIEWER,
    **{f"GET {path}": _VIEWER for path in ("/config", "/config/")},
    **{f"GET /gradio_api/app_id{slash}": _VIEWER for slash in ("", "/")},
    "GET /gradio_api/startup-events": _VIEWER,  # asked by Gradio itself when it starts
    # uploads: no page takes a file through Gradio (settings are read by the browser and sent as text)
    "POST /gradio_api/upload": _NOBODY,
    "GET /gradio_api/upload_progress": _NOBODY,
    "POST /gradio_api/process_recording": _NOBODY,
    # other ways to the same functions, for programs: everything is private
    **{f"POST /gradio_api/call/{version}{{api_name}}{slash}": _NOBODY for version in ("", "v2/") for slash in ("", "/")},
    **{f"GET /gradio_api/call/{version}{{api_name}}/{{event_id}}": _NOBODY for version in ("", "v2/")},
    **{f"GET /gradio_api/info{slash}": _NOBODY for slash in ("", "/")},
    **{f"{method} /openapi.json": _NOBODY for method in ("GET", "HEAD")},
    "GET /gradio_api/openapi.json": _NOBODY,
    "GET /gradio_api/queue/status": _NOBODY,
    # media, other servers, other parts of Gradio that the pages do not use
    **{f"{method} /gradio_api/proxy={{url_path:path}}": _NOBODY for method in ("GET", "HEAD")},
    "GET /gradio_api/file/{path:path}": _NOBODY,
    "GET /gradio_api/heartbeat/{session_hash}": _NOBODY,
    "GET /gradio_api/custom_component/{id}/{environment}/{type}/{file_name}": _NOBODY,
    "POST /gradio_api/stream/{event_id}": _NOBODY,
    "POST /gradio_api/stream/{event_id}/close": _NOBODY,
    "GET /gradio_api/stream/{session_hash}/{run}/{component_id}/playlist.m3u8": _NOBODY,
    "GET /gradio_api/stream/{session_hash}/{run}/{component_id}/{segment_id}.{ext}": _NOBODY,
    "GET /gradio_api/stream/{session_hash}/{run}/{component_id}/playlist-file": _NOBODY,
    "GET /gradio_api/deep_link": _NOBODY,
    "GET /gradio_api/theme.css": _NOBODY,
    "GET /svelte/{path:path}": _NOBODY,
    "GET /pwa_icon": _NOBODY,
    "GET /pwa_icon/{size}": _NOBODY,
    **{f"GET /gradio_api/runs{slash}": _NOBODY for slash in ("", "/")},
    # Gradio's own accounts, figures and development tools
    **{f"POST /login{slash}": _NOBODY for slash in ("", "/")},
    "GET /logout": _NOBODY,
    **{f"GET /gradio_api/{name}{slash}": _NOBODY for name in ("user", "login_check", "token") for slash in ("", "/")},
    **{f"GET /monitoring{rest}": _NOBODY for rest in ("", "/summary", "/{key}")},
    "GET /gradio_api/dev/reload": _NOBODY,
    **{f"POST /gradio_api/{name}{slash}": _NOBODY for name in ("vibe-edit", "undo-vibe-edit", "vibe-code") for slash in ("", "/")},
    **{f"POST /gradio_api/vibe-starter-queries{slash}": _NOBODY for slash in ("", "/")},
    **{f"GET /gradio_api/vibe-code{slash}": _NOBODY for slash in ("", "/")},
}

# Where the owner of a Space may log in; the provider sends the browser back from its own website.
LOGIN_ROUTES = {f"GET {path}": _ANYONE for path in ("/login/huggingface", "/login/callback", "/logout")}
