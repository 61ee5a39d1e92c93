"""The command ``generate``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rlhf_studio.cli.completions import REPLACE_HELP, check_target
from rlhf_studio.cli.options import Subcommands, permissions_of
from rlhf_studio.config import DataConfig, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem, parse_ppo
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.inputs.prompts import Prompts, PromptsError, read_prompts
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.paths import CHECKPOINTS, SNAPSHOTS, checkpoint_step
from rlhf_studio.runs.reader import RunReader

MOST_PROMPTS = 10_000_000
"""Of a file; each is answered."""
SAMPLING = {"temperature": float, "top_k": int, "top_p": float, "response_length": int}


def add_commands(commands: Subcommands) -> None:
    """Add both commands."""
    about = _("let a policy answer prompts: a run's with score and KL, any model's into a file of completions")
    generate = commands.add_parser("generate", help=about, allow_abbrev=False)
    generate.add_argument(
        "folder",
        type=Path,
        metavar="CHECKPOINT",
        help=_(
            "a run folder or the id of a run in the workspace (its newest policy), or the folder of a checkpoint"
            " or snapshot; with --out also RUN@STEP, a model's folder or hub id"
        ),
    )
    generate.add_argument("--start", action="store_true", help=_("the policy as it was before training"))
    generate.add_argument("--prompt", action="append", default=[], metavar="TEXT", help=_("may be given again"))
    generate.add_argument(
        "--prompts", type=Path, metavar="FILE", help=_("a file of prompts: .txt with one in each line, or .jsonl, .csv, .parquet")
    )
    generate.add_argument("--column", default="prompt", metavar="NAME", help=_("the column of the prompts (default: prompt)"))
    generate.add_argument(
        "--out", type=Path, metavar="FILE", help=_("write prompts and completions as JSON Lines, in batches, without scores")
    )
    generate.add_argument("--replace", action="store_true", help=_(REPLACE_HELP))
    generate.add_argument("--samples", type=int, default=1, metavar="K", help=_("completions per prompt, with --out (default: 1)"))
    generate.add_argument("--greedy", action="store_true", help=_("take the likeliest token instead of drawing one, with --out"))
    generate.add_argument(
        "--as-read", action="store_true", help=_("the prompts are what the policy reads: no chat template or prompt format")
    )
    for name, kind in SAMPLING.items():
        generate.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="NUMBER", help=_("instead of the run's own setting"))
    generate.add_argument("--seed", type=int, default=0, metavar="NUMBER", help=_("of the first prompt; each further one adds 1"))
    generate.add_argument("--json", action="store_true", help=_("a line for each prompt, with every token's numbers"))
    add_permission_flags(generate)
    generate.set_defaults(run=_generate)


def _generate(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    if options.out is not None:
        return _generate_file(options)
    if options.samples != 1 or options.greedy or options.replace:
        raise ConfigError([Problem("--out", "name a file for the completions: --samples, --greedy and --replace need it")])
    prompts, permissions = _prompts(options), permissions_of(options)
    run_dir, step = _policy(options.folder.resolve(), start=options.start)
    try:
        config = as_sampled(RunReader(run_dir).config())
    except StoreError:
        raise
    except ValueError as error:
        raise ConfigError([Problem("", f"{options.folder}: {error}")]) from error
    given = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    sampling = {**config.generation.model_dump(mode="json"), "response_length_min": 0, **given}
    settings = parse_ppo({"generation": sampling, "engine": {"seed": options.seed}}).generation
    before_torch()
    from rlhf_studio.jobs.talk.command import GenerateRequest, generate_texts  # torch and transformers load here, after the cheap checks

    return generate_texts(GenerateRequest(run_dir, step, prompts, options.as_read, settings, options.seed, options.json), permissions)


def _generate_file(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.completions import write_completions

    check_target(options.out, "--out", replace=options.replace)
    given = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    return write_completions(options, _rows(options), given)


def _prompts(options: argparse.Namespace) -> list[str]:
    return [row.text for row in _rows(options).rows]


def _rows(options: argparse.Namespace) -> Prompts:
    """What ``--prompt`` and ``--prompts`` give. Raises :class:`ConfigError`."""
    try:
        read = Prompts([]) if options.prompts is None else read_prompts(_data(options))
    except PromptsError as error:
        option = "--column" if error.field == "data.column" else "--prompts"
        raise ConfigError([Problem(option, error.message)]) from error
    typed = [Prompt(0, text) for text in options.prompt]
    if not typed and not read.rows:
        raise ConfigError([Problem("", "give --prompt TEXT, or --prompts FILE with a prompt in each line")])
    if any("\ud800" <= character <= "\udfff" for prompt in typed for character in prompt.text):
        raise ConfigError([Problem("prompt", "it is not valid UTF-8 text")])
    return replace(read, rows=[*typed, *read.rows])


def _data(options: argparse.Namespace) -> DataConfig:
    """Lines of a text are prompts as they stand; in tables of a data set, dialogues lose the answer that ends them."""
    dialogue: Literal["auto", "whole"] = "whole" if options.prompts.name.endswith((".txt", ".txt.gz")) else "auto"
    return DataConfig(prompts=str(options.prompts), column=options.column, dialogue=dialogue, max_prompts=MOST_PROMPTS)


def _policy(folder: Path, *, start: bool) -> tuple[Path, int | None]:
    """The run folder and the step whose policy is wanted, None for the starting one. Raises ConfigError and StoreError."""
    step = checkpoint_step(folder.name) if folder.parent.name in (CHECKPOINTS, SNAPSHOTS) else None
    run_dir = folder if step is None else folder.parents[1]
    if not (origin := RunReader(run_dir).origin()).keeps_model:
        raise ConfigError([Problem("", f"{run_dir} was {origin.told}: it has no model that could answer")])
    if start or step is not None:
        return run_dir, None if start else step
    policies = RunReader(run_dir).policies()
    if not policies:
        raise ConfigError([Problem("", f"{run_dir} has no checkpoint yet; add --start for the policy before training")])
    return run_dir, policies[-1].step
