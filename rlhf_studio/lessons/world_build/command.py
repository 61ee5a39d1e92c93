"""The command ``world``: makes what is bundled, and measures it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rlhf_studio.config.bundled import ASSETS, COLLAPSED_RUN, LESSON_RUN
from rlhf_studio.language import N_, _
from rlhf_studio.visible import HelpFormatter

ABOUT = N_(
    "``python -m rlhf_studio world build`` makes the bundled review world from seeds; ``check`` measures what it can do. "
    "``lesson-run`` trains in the world and packs the run that the lessons ask; ``recordings`` packs what else is shown as a recording. "
    "``sums`` makes the policy and the questions of the recipes with a right answer; ``sums-check`` measures them."
)
COMMANDS = ("build", "check", "lesson-run", "recordings", "sums", "sums-check")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when done and every figure holds, 1 when a figure does not, 2 for bad arguments."""
    options = _parser().parse_args(arguments)
    # Imported here, so that --help answers without loading torch.
    import torch
    import transformers

    from rlhf_studio.lessons.world_build.build import WorldSizes, build_world
    from rlhf_studio.lessons.world_build.check import check_world

    transformers.utils.logging.disable_progress_bar()
    if options.threads:
        torch.set_num_threads(options.threads)
    report = partial(print, flush=True)
    if options.command == "lesson-run":
        from rlhf_studio.lessons.world_build.lesson_run import build_lesson_run

        build_lesson_run(LESSON_RUN, report)
        return 0
    if options.command == "recordings":
        from rlhf_studio.lessons.world_build.recordings import build_collapsed_run

        build_collapsed_run(COLLAPSED_RUN, report)
        return 0
    if options.command in ("sums", "sums-check"):
        from rlhf_studio.lessons.world_build.sums import SumsSizes, build_sums, check_sums

        folder = options.dir or ASSETS / "sums"
        if options.command == "sums":
            build_sums(folder, SumsSizes(), report)
        return 0 if check_sums(folder, report) else 1
    folder = options.dir or ASSETS / "world"
    if options.command == "build":
        build_world(folder, WorldSizes(), report)
    return 0 if check_world(folder, options.samples, report) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rlhf_studio world", description=_(ABOUT), formatter_class=HelpFormatter)
    parser.add_argument("command", choices=COMMANDS, help=_("build and sums also check at the end"))
    parser.add_argument("--dir", type=Path, help=_("folder of the world; the bundled one if left out"))
    parser.add_argument("--samples", type=_positive, default=1000, help=_("responses and pairs to measure with"))
    parser.add_argument("--threads", type=_positive, default=0, help=_("CPU threads; PyTorch chooses if left out"))
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    sys.exit(main())
