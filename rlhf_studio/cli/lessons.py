"""The commands of the lessons, for teachers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlhf_studio.cli.completions import REPLACE_HELP, check_target
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.exit_codes import BAD_INPUT, DONE
from rlhf_studio.language import N_, _, language
from rlhf_studio.visible import say

SHOWN = {"first": N_("right at the first try"), "second": N_("right at the second try"), "not": N_("not right"), "open": N_("not answered")}


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    lessons = commands.add_parser("lessons", help=_("for teachers: sheets of questions, and the results of a quiz"), allow_abbrev=False)
    actions = lessons.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_sheet(actions)
    check = actions.add_parser("check", help=_("what the result codes of a quiz say"), allow_abbrev=False)
    check.add_argument("codes", nargs="+", metavar="CODE", help=_("as students copied it; 'Ana PPO-...' in quotes puts a name before it"))
    check.add_argument("--json", action="store_true", help=_("machine-readable"))
    check.set_defaults(run=_check)


def _add_sheet(actions: Any) -> None:
    sheet = actions.add_parser("sheet", help=_("a sheet of questions to print; equal seeds give equal sheets"), allow_abbrev=False)
    sheet.add_argument("--lessons", required=True, metavar="NAMES", help=_("names with commas, such as clip,gae"))
    sheet.add_argument("--seed", type=int, required=True, metavar="S", help=_("picks the questions and draws their numbers"))
    sheet.add_argument("--each", type=int, default=3, metavar="N", help=_("questions of each lesson (default: 3)"))
    sheet.add_argument("--answers", action="store_true", help=_("the answers to the same sheet, with explanations"))
    sheet.add_argument("--out", type=Path, required=True, metavar="FILE", help=_("a page (HTML) that needs no network"))
    sheet.add_argument("--replace", action="store_true", help=_(REPLACE_HELP))
    sheet.set_defaults(run=_sheet)


def _sheet(options: argparse.Namespace) -> int:
    from rlhf_studio.lessons.shelf import NoLesson, entries
    from rlhf_studio.lessons.teaching.questions import Selection

    check_target(options.out, "--out", replace=options.replace)
    names = [name.strip() for name in options.lessons.split(",") if name.strip()]
    try:
        selection = Selection.of(names, options.each, options.seed)
    except NoLesson as error:
        known = ", ".join(entry.name for entry in entries())
        raise ConfigError([Problem("--lessons", f"{error} There are {known}.")]) from None
    except ValueError as error:
        raise ConfigError([Problem("", str(error))]) from None
    from rlhf_studio.cli.engine import before_torch

    before_torch()
    from rlhf_studio.lessons.teaching.sheets import sheet
    from rlhf_studio.ui.learn.sheet_file import page_of

    made = sheet(selection.lessons, selection.each, selection.seed, with_answers=options.answers, language=language())
    try:
        options.out.write_text(page_of(made), encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem("--out", f"{options.out} cannot be written: {error.strerror}")]) from None
    say(
        _("{out}: {len} {value}, seed {seed}").format(
            out=options.out,
            len=len(made["questions"]),
            value=_("questions with answers") if options.answers else _("questions"),
            seed=selection.seed,
        )
    )
    return DONE


def _check(options: argparse.Namespace) -> int:
    from rlhf_studio.lessons.teaching.codes import checked

    rows = checked(options.codes)
    say(json.dumps(rows, indent=1) if options.json else "\n".join(line for row in rows for line in _result_lines(row)))
    return BAD_INPUT if any("problem" in row for row in rows) else DONE


def _result_lines(row: dict[str, Any]) -> Sequence[str]:
    who = f"{row['who']}: " if row["who"] else ""
    if "problem" in row:
        return [f"{who}{row['problem']}"]
    outcomes = row["outcomes"]
    right = _("{count} of {outcomes} right at the first try").format(count=outcomes.count("first"), outcomes=len(outcomes))
    lines = [f"{who}{row['code']}", _("  {join}, seed {row}: {right}").format(join=", ".join(row["lessons"]), row=row["seed"], right=right)]
    answered = zip(row["questions"], outcomes, strict=True)
    return [
        *lines,
        *(
            f"  {number:>3}  {question['lesson']}, {question['scene']}: {_(SHOWN[outcome])}"
            for number, (question, outcome) in enumerate(answered, 1)
        ),
    ]
