"""The command ``check``: whether this machine's device computes what a CPU computes."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rlhf_studio.cli.options import Subcommands
from rlhf_studio.config import EngineConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.check.checks import CHECKS, NAMES, NoDevice, Outcome, Task
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.language import N_, _, told
from rlhf_studio.visible import RawHelpFormatter, say

MINUTES = 10
EXIT_CODES = N_("exit code: 0 when all that was tried is right, 1 when something is wrong, 2 for a device that is not there")


def add_commands(commands: Subcommands) -> None:
    """Add ``check``."""
    about = "\n".join(f"  {check.name:13} {told(check.about)}" for check in CHECKS)
    check = commands.add_parser(
        "check",
        help=_("check that this machine's GPU (or CPU) computes what it should"),
        epilog=_("checks:") + f"\n{about}\n\n{_(EXIT_CODES)}",
        formatter_class=RawHelpFormatter,
        allow_abbrev=False,
    )
    check.add_argument("--device", default="", help=_("cpu, cuda or cuda:1 (default: a CUDA GPU where there is one, else the CPU)"))
    check.add_argument("--json", type=Path, metavar="FILE", help=_("write all that was measured into this file, too"))
    check.add_argument("--model", default="", metavar="PATH", help=_("a model of your own (folder or hub id) for the check 'model'"))
    check.add_argument("--quick", action="store_true", help=_("the least sizes, and no large models: seconds instead of minutes"))
    check.add_argument("--only", default="", metavar="NAMES", help=_("some of the checks below, separated by commas"))
    check.add_argument(
        "--minutes", type=_minutes, default=MINUTES, help=_("what begins later is not done (default: {minutes})").format(minutes=MINUTES)
    )
    check.add_argument("--keep", type=Path, metavar="DIR", help=_("keep run folders and log here (default: a temporary folder)"))
    check.set_defaults(run=_check)


def _minutes(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1440:
        raise argparse.ArgumentTypeError(_("should be minutes, above 0 and up to 1440, not {text!r}").format(text=text[:40]))
    return number


def _check(options: argparse.Namespace) -> int:
    from rlhf_studio.engine.check.driver import outcomes
    from rlhf_studio.engine.check.page import as_json, is_right, last_line, line

    if importlib.util.find_spec("torch") is None:  # each check would fail in a process of its own
        raise ModuleNotFoundError(name="torch")
    device, names = _device(options.device), _names(options.only)
    if options.json and not options.json.absolute().parent.is_dir():
        raise ConfigError([Problem("--json", f"there is no folder {options.json.absolute().parent}")])
    model = _model(options.model)
    with _folder(options.keep) as folder:
        task = Task(device, folder, options.quick, model)
        seen, interrupted = list[Outcome](), False
        try:
            for outcome in outcomes(task, names, options.minutes * 60):
                seen.append(outcome)
                say(line(outcome))
        except NoDevice as error:
            raise ConfigError([Problem("--device", str(error))]) from error
        except KeyboardInterrupt:
            say(_("interrupted; the rest was not done"))
            interrupted = True
        say(last_line(seen))
        if options.json:
            _write(options.json, json.dumps(as_json(task, seen), indent=1, allow_nan=False))
    return DONE if is_right(seen) and not interrupted else FAILED


def _device(given: str) -> str:
    """The device to check. Raises :class:`ConfigError` where it is known not to be there, before torch loads."""
    from rlhf_studio.inputs.checks.machine import device_problems
    from rlhf_studio.runs.gpus import find_gpus, has_gpu

    if not given or given == "auto":
        return "cuda" if has_gpu() else "cpu"
    if given == "mps":
        raise ConfigError(
            [Problem("--device", "the engine does not compute on Apple's GPUs: sampling needs float64, and mps has none; use cpu")]
        )
    try:
        engine = EngineConfig(device=given)
    except ValueError as error:
        raise ConfigError(
            [Problem("--device", f"should be cpu, cuda, or one GPU by its number, such as cuda:1, not {given[:40]!r}")]
        ) from error
    gpus = find_gpus()
    if problems := list(device_problems(engine, None if gpus is None else len(gpus))):
        raise ConfigError([Problem("--device", problem.message) for problem in problems])
    return given


def _names(given: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(",")) if given else NAMES
    if unknown := [name for name in names if name not in NAMES]:
        raise ConfigError([Problem("--only", f"there is no check {unknown[0][:40]!r}; there are: {', '.join(NAMES)}")])
    return ("device", *names)  # which finds out whether there is one


def _model(name: str) -> str:
    """The model that a person named, a folder in full. Raises :class:`ConfigError` for one that a run would refuse."""
    from rlhf_studio.inputs.models.facts import check_causal_lm
    from rlhf_studio.inputs.models.files import ModelError

    if not name:
        return ""
    name = str(Path(name).resolve()) if Path(name).is_dir() else name
    try:
        check_causal_lm(name)
    except ModelError as error:
        raise ConfigError([Problem("--model", str(error))]) from error
    return name


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="rlhf-studio-check-") as folder:
            yield Path(folder)
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([Problem("--keep", f"{kept} cannot be made: {error.strerror}")]) from error
    yield kept.resolve()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem("--json", f"{path} cannot be written: {error.strerror}")]) from error
