"""The command ``doctor``: what is wrong with a run, and what it came to."""

from __future__ import annotations

import argparse
import json

from rlhf_studio.cli.options import Subcommands, add_folder
from rlhf_studio.exit_codes import DONE
from rlhf_studio.language import _
from rlhf_studio.visible import say, visible


def add_commands(commands: Subcommands) -> None:
    """Add ``doctor``."""
    doctor = commands.add_parser("doctor", help=_("a verdict on a run, and what is wrong with it"), allow_abbrev=False)
    add_folder(doctor)
    doctor.add_argument("--until", type=_step, metavar="STEP", help=_("as it was after this step"))
    doctor.add_argument("--json", action="store_true", help=_("machine-readable"))
    doctor.set_defaults(run=_doctor)


def _step(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"should be a step from 1 on, not {text[:40]!r}")
    return int(text)


def _doctor(options: argparse.Namespace) -> int:
    from rlhf_studio.analysis.doctor import diagnose
    from rlhf_studio.analysis.doctor.report import diagnosis_text, diagnosis_values
    from rlhf_studio.runs.reader import RunReader

    reader = RunReader(options.folder)
    diagnosis, status = diagnose(reader, options.until), reader.status()
    if options.json:
        about = {"run_id": status.run_id, "name": status.name, "state": status.state}
        say(json.dumps({**about, **diagnosis_values(diagnosis)}, indent=1, allow_nan=False))
    else:
        folder = "" if status.origin.only_read else str(options.folder)
        text = diagnosis_text(diagnosis, folder, [checkpoint.step for checkpoint in reader.checkpoints()])
        say(
            _("{name} ({run_id}), {state}, looked at up to step {step}\n{text}").format(
                name=visible(status.name, lines=False), run_id=status.run_id, state=_(status.state), step=diagnosis.step, text=text
            )
        )
    return DONE
