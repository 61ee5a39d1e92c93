"""Who may call what in each mode, written by hand from docs/access.md: nothing here is read from the program.

A function or an address that the app has and this page does not name is one that nobody may use: the tests fail until somebody has decided.
"""

from __future__ import annotations

LOCAL, CLASS, SPACE, READ_ONLY = "local", "classroom", "space", "read-only"
MODES = (LOCAL, CLASS, SPACE, READ_ONLY)


def words(text: str) -> frozenset[str]:
    """The names in a text; ``page: a b`` stands for ``page-page.a`` and ``page-page.b``, and ``buttons: a b`` for ``a`` and ``b``.

    So does ``programs: a b``.
    """
    functions = set()
    for line in filter(None, (line.strip() for line in text.splitlines())):
        pages, _, names = line.partition(":")
        for page in pages.split(","):
            functions |= {name if page in ("buttons", "programs") else f"{page.strip()}-page.{name}" for name in names.split()}
    return frozenset(functions)


WATCH = words(
    """
    shell: where words news class_now
    train: first boot check preview to_yaml
    live: poll fetch
    runs: runs settings compare curves answers sweep
    live, runs: experiment_ideas experiment_form export_look
    train, live, talk: replay
    feedback: boot example
    road: road_news road_lineage road_examples
    talk: boot policies playground_boot
    learn: learn_gallery learn_shelf learn_text learn_runs learn_ask learn_search learn_teach break_shelf break_news added_here
    learn: help_shelf help_text
    evaluate: boot answers file
    programs: list_recipes check_settings list_runs run_status wait_for_run run_metrics run_samples run_diagnosis
    buttons: open_compare open_train open_runs open_run go_train open_feedback feedback_train open_road_run open_talk talk_train
    """
)
"""For everybody who opens the page: it changes nothing."""

VOTE = words("feedback: join turn vote undo begin_again")
"""For raters, students, visitors and operators."""

ANSWER = words("shell: class_answer class_name\n talk: student_ask student_news student_halt\n learn: added_ask")
"""For students: what the teacher asks, and what they ask a model where the teacher lets them."""

OWN_RUNS = words(
    """
    buttons: start_run start_like stop_from_runs stop_run discard_run pause_run continue_run step_run phase_run set_run resume_run
    live: resume_question
    programs: start_training stop_training
    """
)
"""For operators; for students and visitors where it is their own run."""

OPERATE = words(
    """
    shell: class_link class_change class_ready class_ask class_steer
    buttons: measure checkpoint_run force_stop_run act_on_run
    train: from_yaml trial try_reward pick_choices pick_model pick_folder pick_upload pick_search
    runs: loss resume_question open_log
    live, runs: experiment_start export_start export_cancel
    road: road_look road_start road_go road_stop
    feedback: results rating_link add_items from_run manage export train_on
    talk: ask news halt playground_model playground_ask playground_news playground_halt
    learn: break_start added_change
    evaluate: begin duel vote
    programs: fork_run score_text
    """
)
"""For operators alone."""

PROGRAMS = words(
    """
    programs: list_recipes check_settings list_runs run_status wait_for_run run_metrics run_samples run_diagnosis
    programs: start_training stop_training fork_run score_text
    """
)
"""Of these, what is for programs: no page sends it, so none says that it was opened to watch."""

GROUPS = (WATCH, VOTE, ANSWER, OWN_RUNS, OPERATE)
EVERYTHING = frozenset().union(*GROUPS)

# Who there is in each mode, and which of these groups they may call.
FOREIGN, VIEWER, RATER, STUDENT, VISITOR, OPERATOR = "a foreign page", "a viewer", "a rater", "a student", "a visitor", "an operator"
_ALL = {FOREIGN: (), VIEWER: (WATCH,), OPERATOR: GROUPS}
MAY: dict[str, dict[str, tuple[frozenset[str], ...]]] = {
    LOCAL: {**_ALL, RATER: (WATCH, VOTE)},
    CLASS: {**_ALL, RATER: (WATCH, VOTE), STUDENT: (WATCH, VOTE, ANSWER, OWN_RUNS)},
    SPACE: {FOREIGN: (), VISITOR: (WATCH, VOTE, OWN_RUNS), OPERATOR: _ALL[OPERATOR]},
    READ_ONLY: {FOREIGN: (), VIEWER: (WATCH,), OPERATOR: (WATCH,)},  # the token that makes an operator elsewhere
}


def may(mode: str, who: str, function: str) -> bool:
    """Whether this person may call a function in this mode."""
    return any(function in group for group in MAY[mode][who])


# Addresses: without a person's role they give the page's own files, and say whether the app serves.
_READ = ("/", "/gradio_api/file={path_or_url:path}", "/health", "/words/{language}.json")
PUBLIC = frozenset(f"{method} {path}" for method in ("GET", "HEAD") for path in _READ) | {
    f"GET {path}" for path in ("/assets/{path:path}", "/static/{path:path}", "/theme.css", "/favicon.ico", "/manifest.json", "/robots.txt")
}
_ASKED = ("component_server", "run/{api_name}", "api/{api_name}", "reset", "call/{api_name}", "call/v2/{api_name}")
WATCHED = (
    frozenset(f"POST /gradio_api/{path}{slash}" for path in _ASKED for slash in ("", "/"))
    | {"POST /gradio_api/queue/join", "POST /gradio_api/cancel", "GET /gradio_api/queue/data", "GET /gradio_api/startup-events"}
    | {f"GET {path}{slash}" for path in ("/config", "/gradio_api/app_id", "/gradio_api/info") for slash in ("", "/")}
    | {f"GET /gradio_api/call/{version}{{api_name}}/{{event_id}}" for version in ("", "v2/")}
    | {"GET /agents.md", "HEAD /agents.md"}
    | {f"{method} /exports/{{run}}/{{name}}" for method in ("GET", "HEAD")}
)
