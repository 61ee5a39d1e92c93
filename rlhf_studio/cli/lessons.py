"""The command ``lessons-server``, which the app starts to compute the numbers of its Learn page."""

from __future__ import annotations

import argparse
from typing import Any


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    server = commands.add_parser("lessons-server", allow_abbrev=False)  # without help: people have no use for it
    server.set_defaults(run=_lessons_server)


def _lessons_server(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    before_torch()
    from rlhf_studio.lessons.server import serve

    return serve()
