"""The flags of the command ``app``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rlhf_studio.config import add_permission_flags
from rlhf_studio.language import _
from rlhf_studio.ui.hosted.ending import VARIABLE as STOP_RUNS_VARIABLE
from rlhf_studio.ui.hosts import HOSTS_VARIABLE
from rlhf_studio.visible import HelpFormatter


def parser() -> argparse.ArgumentParser:
    """Reads the command line; what is not given comes from the environment, as containers and Spaces set it."""
    about = _("RLHF Studio in the browser.")
    made = argparse.ArgumentParser(prog="rlhf-studio app", description=about, allow_abbrev=False, formatter_class=HelpFormatter)
    port = os.environ.get("GRADIO_SERVER_PORT")
    made.add_argument(
        "--host",
        default=os.environ.get("GRADIO_SERVER_NAME"),
        help=_("address to listen on (default: this machine only; with --classroom all)"),
    )
    made.add_argument("--port", type=int, default=port, help=_("port (default: the first free one from 7860)"))
    made.add_argument(
        "--workspace",
        type=Path,
        default=Path(os.environ.get("RLHF_STUDIO_WORKSPACE", "workspace")),
        help=_("folder that holds the runs (default: ./workspace)"),
    )
    made.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help=_(
            "a further name under which the app is reached, for instance through a proxy; may be given again (also: {hosts_variable})"
        ).format(hosts_variable=HOSTS_VARIABLE),
    )
    made.add_argument(
        "--browser", action="store_true", help=_("open the page in the browser of this machine, where a person sits before it")
    )
    _add_ways(made)
    add_permission_flags(made)
    return made


def _add_ways(made: argparse.ArgumentParser) -> None:
    """Adds who may do what, and what runs may use."""
    made.add_argument("--classroom", action="store_true", help=_("a class: students watch, learn and start small runs of their own"))
    made.add_argument("--read-only", action="store_true", help=_("let people watch runs, not start or change them"))
    made.add_argument(
        "--stop-runs",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=_(
            "when the app is told to end (Ctrl-C, SIGTERM), let runs save a checkpoint and stop first, for"
            " machines that go with the app (default: on a Space yes, elsewhere no; also: {stop_runs_variable}=1)"
        ).format(stop_runs_variable=STOP_RUNS_VARIABLE),
    )
    made.add_argument(
        "--share-hub-token",
        action="store_true",
        help=_("let runs use your Hugging Face token although others can reach the app (they may use it by default on this machine alone)"),
    )
    made.add_argument(
        "--browse",
        action="append",
        type=Path,
        default=[],
        metavar="FOLDER",
        help=_(
            "a folder below which operators may look for models and data on the Train page; may be given again"
            " (default: where one person uses the app alone their home, this folder and the workspace; else none)"
        ),
    )
    made.add_argument(
        "--mcp",
        action="store_true",
        default=os.environ.get("GRADIO_MCP_SERVER", "").lower() == "true",
        help=_(
            "let agents use the app as an MCP server, with the rights that the token gives (docs/api.md); needs"
            " gradio[mcp] (also: GRADIO_MCP_SERVER=True)"
        ),
    )
