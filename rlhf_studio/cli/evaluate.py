"""The command ``evaluate``: several policies answer the same prompts, and what comes out is one table."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import sys
from pathlib import Path

from rlhf_studio.cli.completions import check_target, write_lines
from rlhf_studio.cli.options import Subcommands, default_workspace, permissions_of, print_notes
from rlhf_studio.config import EvaluationRunConfig, add_permission_flags
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.inputs.evaluation import EvaluationRequest, refers_to, settings_for
from rlhf_studio.language import N_, _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.evaluation.policies import run_named
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.visible import cells, padded, say

OPTIONS = {name: name for name in ("samples", "seed", "judge", "reference", "text")} | {"prompts": "count"}
"""Settings of ``evaluation`` that have an option of their own."""
FILES = ("csv", "md", "jsonl")
POLICY_HELP = N_(
    "RUN (its newest policy), RUN@STEP, RUN@start, RUN@all, a model's folder or hub id, or a .jsonl file of completions; a run is a folder "
    "or the id of one in the workspace. The first is what the others are compared with; a single run is compared with its start, if "
    "that was no random weights. The folder of a finished evaluation shows its table again."
)
REWARD_HELP = N_(
    "what scores the answers: a rule such as lexicon, refusal (whether an answer refuses), FILE.py, or a reward model (default: the first "
    "run's rewards; without any, answers have no score)"
)
JUDGE_HELP = N_("a second opinion, named as for --reward, that no policy learned from; for win rates")
REFERENCE_HELP = N_(
    "what KL and perplexity refer to (default: what the first run began with; if that was random weights, the first policy)"
)


def add_commands(commands: Subcommands) -> None:
    """Add the command."""
    evaluate = commands.add_parser(
        "evaluate",
        help=_("let several policies answer the same held-out prompts, and compare them"),
        description=_("Settings such as --generation.temperature 0.7 may be given too."),
        allow_abbrev=False,
    )
    evaluate.add_argument("policies", nargs="+", metavar="POLICY", help=_(POLICY_HELP))
    evaluate.add_argument("--prompts", metavar="FILE", help=_("a file or dataset of prompts (default: what the first run held out)"))
    evaluate.add_argument("--count", type=int, metavar="N", help=_("so many of the prompts (default: 128; 0: all)"))
    evaluate.add_argument("--samples", type=int, metavar="N", help=_("answers per prompt and policy (default: 1)"))
    evaluate.add_argument("--greedy", action="store_true", help=_("take the likeliest token instead of drawing one"))
    evaluate.add_argument("--seed", type=int, metavar="S", help=_("of the answers (default: 0)"))
    evaluate.add_argument("--reward", metavar="KIND|MODEL", help=_(REWARD_HELP))
    evaluate.add_argument("--judge", metavar="KIND|MODEL", help=_(JUDGE_HELP))
    evaluate.add_argument("--reference", metavar="MODEL", help=_(REFERENCE_HELP))
    evaluate.add_argument("--text", metavar="FILE", help=_("texts whose perplexity shows what a policy has forgotten"))
    evaluate.add_argument("--run-dir", type=Path, metavar="DIR", help=_("where to keep the run (default: a new folder in the workspace)"))
    evaluate.add_argument("--csv", type=Path, metavar="FILE", help=_("also write the table as CSV"))
    evaluate.add_argument("--md", type=Path, metavar="FILE", help=_("also write the table as Markdown"))
    evaluate.add_argument("--jsonl", type=Path, metavar="FILE", help=_("also write the answers as JSON Lines"))
    evaluate.add_argument("--replace", action="store_true", help=_("write a file of --csv, --md or --jsonl anew where it is there already"))
    evaluate.add_argument("--json", action="store_true", help=_("print all numbers as JSON instead of the table"))
    add_permission_flags(evaluate)
    evaluate.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    _check_targets(options)
    named = [run_named(policy, default_workspace() / "runs") for policy in options.policies]
    if len(named) == 1 and named[0] is not None and not named[0][1] and RunReader(named[0][0]).answers():
        return _show(named[0][0], options)
    config = evaluation_of(options)
    run_dir = options.run_dir or default_workspace() / "runs" / _new_id()
    code = _run(run_dir, config, options)
    return code or _show(run_dir, options)


def _check_targets(options: argparse.Namespace) -> None:
    """Raises :class:`ConfigError` for a file that cannot be written, or that two options name: the second would replace the first."""
    option_of: dict[Path, str] = {}
    for option in FILES:
        if (file := getattr(options, option)) is None:
            continue
        check_target(file, f"--{option}", replace=options.replace)
        path = file.resolve()
        if path in option_of:
            raise ConfigError([Problem(f"--{option}", f"{file} is the file of --{option_of[path]} as well; name another one")])
        option_of[path] = option


def _new_id() -> str:
    from rlhf_studio.runs.paths import new_run_id

    return new_run_id()


def _run(run_dir: Path, config: EvaluationRunConfig, options: argparse.Namespace) -> int:
    from rlhf_studio.cli.engine import run_folder
    from rlhf_studio.inputs.preflight import inspect_run
    from rlhf_studio.runs.create import create_run, remove_unstarted

    permissions = permissions_of(options)
    checked = inspect_run(config, run_dir.parent, permissions=permissions)
    if checked.problems:
        raise ConfigError(checked.problems)
    try:
        create_run(run_dir, config, name=config.name or "evaluation", state="loading", memory=checked.expected_peak)
    except StoreError as error:
        raise ConfigError([Problem("--run-dir", str(error))]) from error
    print_notes(config, checked)
    say(_("run folder: {run_dir}").format(run_dir=run_dir), sys.stderr)
    code = run_folder(run_dir, "train", permissions)
    if code == BAD_INPUT and remove_unstarted(run_dir):
        say(_("nothing was evaluated: {run_dir} was removed again").format(run_dir=run_dir), sys.stderr)
    return code


def evaluation_of(options: argparse.Namespace) -> EvaluationRunConfig:
    """The configuration that the options ask for. Raises :class:`ConfigError` and StoreError."""
    settings = {name: getattr(options, option) for name, option in OPTIONS.items()}
    request = EvaluationRequest(
        tuple(options.policies),
        prompts=options.prompts,
        reward=options.reward,
        settings={name: value for name, value in settings.items() if value is not None} | ({"greedy": True} if options.greedy else {}),
        overrides=options.overrides,
    )
    return settings_for(request, default_workspace() / "runs")


def _show(run_dir: Path, options: argparse.Namespace) -> int:
    from rlhf_studio.analysis.evaluation.report import report_of
    from rlhf_studio.jobs.export.evaluation import answer_lines, as_markdown, write_csv

    reader = RunReader(run_dir)
    report = report_of(reader)
    if options.csv is not None:
        table = io.StringIO()
        write_csv(report, table)
        write_lines(options.csv, table.getvalue().removesuffix("\n").split("\n"), "--csv")
    if options.md is not None:
        write_lines(options.md, as_markdown(report, refers_to(reader.config())).removesuffix("\n").split("\n"), "--md")
    if options.jsonl is not None:
        write_lines(options.jsonl, answer_lines(reader.answers()), "--jsonl")
    say(json.dumps(dataclasses.asdict(report), indent=1, allow_nan=False) if options.json else as_text(run_dir))
    return DONE


def as_text(run_dir: Path) -> str:
    """The table for a terminal: a line for each number, a column for each policy."""
    from rlhf_studio.analysis.evaluation.report import report_of
    from rlhf_studio.analysis.evaluation.table import table_of
    from rlhf_studio.jobs.export.evaluation import cell_text, explained
    from rlhf_studio.jobs.export.text import readable

    reader = RunReader(run_dir)
    report, status = report_of(reader), reader.status()
    table = table_of(report)
    lines = [["", *(readable(name, 40) for name, _ in table.rows)]]
    lines += [[column.title, *(cell_text(row[index], column) for _, row in table.rows)] for index, column in enumerate(table.columns)]
    widths = [max(cells(line[index]) for line in lines) for index in range(len(lines[0]))]
    drawn = []
    for first, *others in lines:
        figures = (padded(text, width, right=True) for text, width in zip(others, widths[1:], strict=True))
        drawn.append("  ".join([padded(first, widths[0]), *figures]))
    left = (
        _(" Step {step} of {total_steps} so far.").format(step=status.step, total_steps=status.total_steps)
        if status.step < status.total_steps
        else ""
    )
    about = explained(report, refers_to(reader.config()), readable, left)
    return "\n".join([*drawn, "", about, *filter(None, [report.frontier.sentence])])
