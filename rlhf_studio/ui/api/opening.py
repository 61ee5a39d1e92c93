"""Gives the functions for programs to Gradio: in "Use via API", for ``gradio_client``, for MCP, and in ``/agents.md``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import gradio as gr

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.api.acting import Acting
from rlhf_studio.ui.api.asked import parameters_of
from rlhf_studio.ui.api.calling import Calls
from rlhf_studio.ui.api.watching import Watching
from rlhf_studio.ui.lab.experiments import Experiments
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.scoring.try_it import TryReward
from rlhf_studio.ui.train_page import TrainPage

Program = Callable[..., Any]
EXAMPLES = {"recipe": "world", "run": "recording-improves", "prompt": "The film was", "response": " a masterpiece."}
"""What "Use via API" shows for the arguments that must be given."""


def functions_for_programs(
    workspace: Workspace,
    access: Access,
    feed: LiveFeed,
    train_page: TrainPage,
    runs_page: RunsPage,
    experiments: Experiments,
    try_reward: TryReward,
    wake: Callable[[], None],
) -> list[Program]:
    """All of them, in the order in which a program needs them."""
    calls = Calls(access)
    watch = Watching(calls, workspace, feed, train_page, runs_page, experiments)
    act = Acting(calls, workspace, train_page, runs_page, experiments, try_reward, wake)
    before = [watch.list_recipes, watch.check_settings, act.start_training, watch.wait_for_run, watch.run_status, watch.list_runs]
    return [*before, watch.run_metrics, watch.run_samples, watch.run_diagnosis, act.fork_run, act.stop_training, act.score_text]


def open_to_programs(demo: gr.Blocks, functions: Sequence[Program]) -> None:
    """Make each function an endpoint of its name. Call inside the context of ``demo``.

    None of them goes through Gradio's queue of its own will: MCP then calls them in this process, with the caller's own request.
    """
    for function in functions:
        gr.api(function, api_name=function.__name__, api_description=about(function), queue=False, concurrency_limit=None)
    for event in demo.fns.values():
        if event.fn is not None and event.fn in functions:
            texts, answer = arguments_of(event.fn), cast(Any, event.outputs[0])
            for part, argument in zip(parameters_of(event.fn), event.inputs, strict=True):
                _describe(argument, part.name, texts[part.name])
            answer.label = "answer"


def _describe(argument: Any, name: str, text: str) -> None:
    """Have "Use via API" say what an argument is. Of a function Gradio takes only the types: its name would be "1st"."""
    argument.label = name
    argument.api_info()["additional_description"] = text
    if argument.value is None:
        argument.example_payload = lambda: EXAMPLES[name]


def programs_of(demo: gr.Blocks) -> list[Program]:
    """The functions of an app that are for programs."""
    return [event.fn for event in demo.fns.values() if event.fn is not None and event.api_visibility == "public"]


def about(function: Program) -> str:
    """What a function does: its docstring up to the arguments, as one paragraph."""
    return " ".join((inspect.getdoc(function) or "").partition("Args:")[0].split())


def arguments_of(function: Program) -> dict[str, str]:
    """What the docstring says of each argument."""
    lines = [line.strip() for line in (inspect.getdoc(function) or "").partition("Args:")[2].splitlines()]
    pairs = (line.partition(": ") for line in lines if line)
    return {name: text for name, _, text in pairs}
