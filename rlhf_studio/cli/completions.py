"""Files of completions from the command line: ``generate --out`` writes one, ``label`` makes preference pairs of one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlhf_studio.cli.options import Subcommands, default_workspace, permissions_of
from rlhf_studio.config import RunConfig, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.config.stages import PROMPT_WRITING, as_sampled
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.inputs.completions import read_completions
from rlhf_studio.inputs.prompts import Prompts, PromptsError
from rlhf_studio.inputs.relative_paths import run_in_full
from rlhf_studio.language import N_, _, told
from rlhf_studio.runs.evaluation.policies import PolicySource, source_at
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.units import percent
from rlhf_studio.visible import say

LONGEST_PROMPT = 1024
"""Tokens that a model reads of a prompt where no run says how many."""

HOW_IT_READS = (*PROMPT_WRITING, "max_prompt_tokens", "overlong")
"""Settings of a run's data that say how its policy reads prompts; the others are about the run's own."""
HOW_IT_COMPUTES = ("dtype", "quantization", "attention")

REPLACE_HELP = N_("write the file of --out anew where it is there already")


def add_commands(commands: Subcommands) -> None:
    """Add ``label``."""
    about = _("make preference pairs of a file with several completions per prompt")
    label = commands.add_parser("label", help=about, allow_abbrev=False)
    label.add_argument("file", type=Path, metavar="FILE", help=_("JSON Lines with prompt and completion, as generate --out writes them"))
    label.add_argument("--judge", required=True, metavar="JUDGE", help=_("world: the review world's noisy raters; else a reward model"))
    label.add_argument("--seed", type=int, default=0, metavar="S", help=_("of the world's raters (default: 0)"))
    label.add_argument("--out", type=Path, required=True, metavar="PAIRS", help=_("the file of pairs: prompt, chosen, rejected"))
    label.add_argument("--replace", action="store_true", help=_(REPLACE_HELP))
    add_permission_flags(label)
    label.set_defaults(run=_label)


def check_target(file: Path, option: str, *, replace: bool) -> None:
    """Raises :class:`ConfigError` for a file that cannot be written, or is there already, before anything is computed.

    With ``replace`` a file may be there.
    """
    if file.is_dir() or not file.resolve().parent.is_dir():
        raise ConfigError(
            [Problem(option, f"{file} cannot be written: {'it is a folder' if file.is_dir() else 'there is no such folder'}")]
        )
    if os.path.lexists(file) and not replace and not _is_a_stream(file):
        raise ConfigError([Problem(option, f"{file} is there already; name another file, or add --replace to write it anew")])


def _is_a_stream(file: Path) -> bool:
    """Whether it is there to be written to as it is. ``/dev/stdout`` may lead to an ordinary file, and must not be replaced by one."""
    return os.path.exists(file) and (not os.path.isfile(file) or file.absolute().parts[1:2] in (("dev",), ("proc",)))


def write_lines(file: Path, lines: Iterable[str], option: str) -> int:
    """Write the lines into a file that appears whole or not at all. Returns how many. Raises :class:`ConfigError`.

    What is there and no ordinary file (a pipe, ``/dev/stdout``) is written to as it is: nothing may take its place.
    """
    direct = _is_a_stream(file)
    part, count = file if direct else file.with_name(f".{file.name}.part"), 0
    try:
        with part.open("w", encoding="utf-8") as target:
            for line in lines:
                target.write(f"{line}\n")
                count += 1
        if not direct:
            part.replace(file)
    except OSError as error:
        raise ConfigError([Problem(option, f"{file} cannot be written: {error}")]) from error
    finally:
        if not direct:
            part.unlink(missing_ok=True)
    return count


def _say_progress(text: str, fraction: float | None) -> None:
    done = "" if fraction is None else f" ({percent(fraction)})"
    say(f"{text}{done}", sys.stderr)


def write_completions(options: argparse.Namespace, prompts: Prompts, sampling: dict[str, Any]) -> int:
    """``generate --out``: completions in batches, from any model. Returns the exit code."""
    from rlhf_studio.cli.engine import before_torch

    source = source_at(f"{options.folder}@start" if options.start else str(options.folder), default_workspace() / "runs")
    config = _config(source, options, sampling)
    before_torch()
    import transformers

    from rlhf_studio.engine.stages.evaluating.completing import complete  # torch loads here, after the cheap checks
    from rlhf_studio.engine.types import NonFiniteError

    transformers.utils.logging.disable_progress_bar()
    try:
        completions = complete(
            source, prompts, config, _say_progress, samples=options.samples, greedy=options.greedy, as_read=options.as_read
        )
        count = write_lines(options.out, (json.dumps(vars(row), ensure_ascii=True) for row in completions.rows), "--out")
    except PromptsError as error:
        raise ConfigError([Problem(error.field, error.message)]) from error
    except NonFiniteError as error:
        say(f"rlhf-studio: {told(error)}", sys.stderr)
        return FAILED
    say(_("{count:,} completions in {out}").format(count=count, out=options.out))
    for note in completions.notes:
        say(note)
    return DONE


def _config(source: PolicySource, options: argparse.Namespace, sampling: dict[str, Any]) -> RunConfig:
    """Settings that let a policy answer: model, data, sampling and device are those of its own run, unless the command line changes
    them.
    """
    from rlhf_studio.config.io import parse_ppo

    if options.samples < 1:
        raise ConfigError([Problem("--samples", f"should be at least 1, not {options.samples}")])
    if options.greedy and options.samples > 1:
        raise ConfigError([Problem("--samples", "greedy completions of one prompt are all the same; use 1")])
    data: dict[str, Any] = {"max_prompt_tokens": LONGEST_PROMPT}
    generation: dict[str, Any] = {}
    engine: dict[str, Any] = {"seed": options.seed}
    model: dict[str, Any] = {"policy": source.path, "revision": source.revision}
    if source.run_folder:
        plain = as_sampled(RunReader(Path(source.run_folder)).config()).model_dump(mode="json")
        model |= {name: plain["model"][name] for name in HOW_IT_COMPUTES}
        data = {name: plain["data"][name] for name in HOW_IT_READS}
        generation = plain["generation"] | {"response_length_min": 0}  # nobody's answer is held to a shortest length
        engine |= {name: plain["engine"][name] for name in ("device", "threads")}
    return parse_ppo({"model": model, "data": data | {"eval_share": 0}, "generation": generation | sampling, "engine": engine})


def _label(options: argparse.Namespace) -> int:
    check_target(options.out, "--out", replace=options.replace)
    try:
        completions = read_completions(options.file, "FILE")
    except PromptsError as error:
        raise ConfigError([Problem("", error.message)]) from error
    if not any(len(responses) > 1 for responses in completions.values()):
        raise ConfigError(
            [Problem("", f"{options.file} has a single completion for each prompt; generate --samples 2 gives two to compare")]
        )
    if options.judge == "world":
        from rlhf_studio.lessons.world_build.labels import label_by_world

        labelled = label_by_world(completions, options.seed)
    else:
        from rlhf_studio.cli.engine import before_torch

        permissions = permissions_of(options)
        before_torch()
        import transformers

        from rlhf_studio.engine.compute.device import choose_compute
        from rlhf_studio.engine.rewards.errors import RewardError
        from rlhf_studio.engine.stages.evaluating.labelling import label_by_model

        transformers.utils.logging.disable_progress_bar()
        try:
            judge = run_in_full(options.judge, default_workspace() / "runs")
            labelled = label_by_model(completions, judge, choose_compute(RunConfig()), _say_progress, permissions)
        except ConfigError as error:
            raise ConfigError([Problem("--judge", problem.message) for problem in error.problems]) from error
        except RewardError as error:
            say(f"rlhf-studio: {told(error)}", sys.stderr)
            return FAILED
    write_lines(options.out, labelled.lines(), "--out")
    say(labelled.notes())
    return DONE
