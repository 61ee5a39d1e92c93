"""The command ``job-server``: the child processes that the app starts for its pages. People have no use for it."""

from __future__ import annotations

import argparse
import os

from rlhf_studio.child_process.serving import serve

KINDS = {
    "talk": "rlhf_studio.jobs.talk.server",
    "score": "rlhf_studio.jobs.scoring.server",
    "lessons": "rlhf_studio.lessons.server",
    "export": "rlhf_studio.jobs.export.server",
    "check": "rlhf_studio.engine.check.server",
}
"""What can be served: the name of the kind, and the module (see :func:`serve`)."""


def job_server(arguments: list[str]) -> int:
    """Serve the kind that is named."""
    from rlhf_studio.cli.engine import before_torch

    parser = argparse.ArgumentParser(prog="rlhf-studio job-server", allow_abbrev=False)
    parser.add_argument("kind", choices=KINDS)
    kind = parser.parse_args(arguments).kind
    before_torch()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    return serve(KINDS[kind])
