"""The command ``generate``, and ``talk-server``, which the app starts to answer prompts for its Talk page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rlhf_studio.cli.options import permissions_of
from rlhf_studio.config import add_permission_flags, permissions_from_environment
from rlhf_studio.config_io import ConfigError, Problem, parse_config
from rlhf_studio.runs.paths import CHECKPOINTS, SNAPSHOTS, checkpoint_step
from rlhf_studio.runs.reader import RunReader

SAMPLING = {"temperature": float, "top_k": int, "top_p": float, "response_length": int}


def add_commands(commands: argparse._SubParsersAction) -> None:
    """Add both commands."""
    generate = commands.add_parser("generate", help="let a run's policy answer prompts, with score and KL", allow_abbrev=False)
    generate.add_argument(
        "folder",
        type=Path,
        metavar="RUN",
        help="a run folder or the id of a run in the workspace (its newest policy), or the folder of a checkpoint or snapshot",
    )
    generate.add_argument("--start", action="store_true", help="the policy as it was before training")
    generate.add_argument("--prompt", action="append", default=[], metavar="TEXT", help="may be given again")
    generate.add_argument("--prompts", type=Path, metavar="FILE", help="a text file with a prompt in each line")
    generate.add_argument("--as-read", action="store_true", help="the prompts are what the policy reads: no chat template")
    for name, kind in SAMPLING.items():
        generate.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="NUMBER", help="instead of the run's own setting")
    generate.add_argument("--seed", type=int, default=0, metavar="NUMBER", help="of the first prompt; each further one adds 1")
    generate.add_argument("--json", action="store_true", help="a line for each prompt, with every token's numbers")
    add_permission_flags(generate)
    generate.set_defaults(run=_generate)
    server = commands.add_parser("talk-server", allow_abbrev=False)  # without help: people have no use for it
    server.set_defaults(run=_talk_server)


def _generate(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    prompts, permissions = _prompts(options), permissions_of(options)
    run_dir, step = _policy(options.folder.resolve(), start=options.start)
    config = RunReader(run_dir).config()
    given = {name: getattr(options, name) for name in SAMPLING if getattr(options, name) is not None}
    sampling = {**config.generation.model_dump(mode="json"), "response_length_min": 0, **given}
    settings = parse_config({"generation": sampling, "engine": {"seed": options.seed}}).generation
    before_torch()
    from rlhf_studio.engine.talk.command import Wanted, generate_texts  # torch and transformers load here, after the cheap checks

    return generate_texts(Wanted(run_dir, step, prompts, options.as_read, settings, options.seed, options.json), permissions)


def _talk_server(options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import before_torch

    before_torch()
    from rlhf_studio.engine.talk.server import serve

    return serve(permissions_from_environment(os.environ))


def _prompts(options: argparse.Namespace) -> list[str]:
    lines: list[str] = []
    if options.prompts is not None:
        try:
            lines = options.prompts.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([Problem("prompts", f"{options.prompts} cannot be read as text: {error}")]) from error
    prompts = [*options.prompt, *(line for line in lines if line)]
    if not prompts:
        raise ConfigError([Problem("", "give --prompt TEXT, or --prompts FILE with a prompt in each line")])
    if any("\ud800" <= character <= "\udfff" for prompt in prompts for character in prompt):
        raise ConfigError([Problem("prompt", "it is not valid UTF-8 text")])
    return prompts


def _policy(folder: Path, *, start: bool) -> tuple[Path, int | None]:
    """The run folder and the step whose policy is wanted, None for the starting one. Raises ConfigError and StoreError."""
    step = checkpoint_step(folder.name) if folder.parent.name in (CHECKPOINTS, SNAPSHOTS) else None
    run_dir = folder if step is None else folder.parents[1]
    if source := RunReader(run_dir).origin().imported:
        raise ConfigError([Problem("", f"{run_dir} was read from {source}: it has no model that could answer")])
    if start or step is not None:
        return run_dir, None if start else step
    policies = RunReader(run_dir).policies()
    if not policies:
        raise ConfigError([Problem("", f"{run_dir} has no checkpoint yet; add --start for the policy before training")])
    return run_dir, policies[-1].step
