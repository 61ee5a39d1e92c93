"""The command ``export``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from rlhf_studio.cli.options import Subcommands, add_folder_command
from rlhf_studio.config.io import ConfigError
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.language import N_, _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.units import format_bytes
from rlhf_studio.visible import say

KINDS = {
    "adapter": N_("the LoRA adapter as a folder that peft loads; PATH.zip for a zip"),
    "merged": N_("the whole model as a folder that transformers loads, an adapter added in; PATH.zip for a zip"),
    "html": N_("the report of the run as one file"),
    "replay": N_("the run played back: PATH.html for a page, PATH.gif or PATH.webp for an animated picture"),
    "csv": N_("the metrics by step, for spreadsheets"),
    "jsonl": N_("metrics and responses with every token's numbers as JSON Lines (docs/logs.md)"),
}


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    export = add_folder_command(commands, "export", _("take a run home: weights, report, tables"), _export)
    for kind, help in KINDS.items():
        export.add_argument(f"--{kind}", type=Path, metavar="PATH", help=_(help))
    export.add_argument("--at", default="", metavar="STEP|best|newest", help=_("which checkpoint (default: the newest)"))
    export.add_argument("--zip", action="store_true", help=_("a zip beside the folder, too"))
    export.add_argument("--push", default="", metavar="NAME", help=_("push the weights to the hub, with the token in HF_TOKEN; private"))
    export.add_argument("--public", action="store_true", help=_("let everyone see what is pushed"))
    export.add_argument("--replace", action="store_true", help=_("write a file anew that is there already; never a folder"))
    export.add_argument("--json", action="store_true", help=_("machine-readable, with progress"))


def _export(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch
    from rlhf_studio.jobs.export.command import ExportRequest, export

    before_torch()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    targets = {kind: path for kind in KINDS if (path := getattr(options, kind)) is not None}
    at = "" if options.at in ("newest", "latest") else options.at
    request = ExportRequest(targets, at, options.zip, options.push, options.public, options.replace)  # type: ignore[arg-type]
    report_progress = _Teller() if options.json else _only_the_upload
    try:
        made = export(options.folder, request, report_progress)
    except (ConfigError, StoreError) as error:
        if not options.json:
            raise
        _say({"error": str(error)})
        return BAD_INPUT
    if options.json:
        files = [{"path": str(path), "bytes": size} for path, size in made.files]
        _say({"result": {"files": files, "address": made.address}})
        return DONE
    for path, size in made.files:
        say(f"{path}  ({format_bytes(size) if size >= 1e6 else f'{max(1, round(size / 1000))} kB'})")
    for more in filter(None, (made.address, made.note)):
        say(more)
    return DONE


def _only_the_upload(text: str, fraction: float | None) -> None:
    """The rest is done soon, and an upload may take an hour."""
    from rlhf_studio.jobs.export.command import PUSHING

    if text.startswith(PUSHING):
        say(text, sys.stderr)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class _Teller:
    """Prints how far it is: each new sentence, and each further hundredth."""

    def __init__(self) -> None:
        self._last: tuple[str, int | None] = ("", None)

    def __call__(self, text: str, fraction: float | None) -> None:
        now = (text, None if fraction is None else int(100 * fraction))
        if now != self._last:
            self._last = now
            _say({"progress": text, "fraction": fraction})
