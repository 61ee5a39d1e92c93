"""What an evaluation's lines name: runs with their checkpoints, models, files of completions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.models.files import Hub, ModelError

FIELD = "evaluation.policies"
COMPLETIONS = (".jsonl", ".jsonl.gz")
_STEP = re.compile(r"step-([0-9]{6,9})")


@dataclass
class Named:
    """What was found.

    Attributes:
        policies: how many policies answer, files of completions included.
        models: facts about every model on this machine or the hub that answers; those in checkpoints were checked when they were written.
    """

    policies: int = 0
    models: list[ModelFacts] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def named_policies(config: EvaluationRunConfig, hub: Hub | None) -> Named:
    """Look at each line of ``evaluation.policies``; without any, the policy model answers alone."""
    lines = [line.strip() for line in config.evaluation.policies.splitlines() if line.strip()]
    if not lines:
        return Named(policies=1)
    found = Named()
    for number, line in enumerate(dict.fromkeys(lines), start=1):
        try:
            count, facts = _of_line(line, hub)
        except ModelError as error:
            found.problems.append(Problem(FIELD, f"line {number}: {error}"))
            continue
        found.policies += count
        found.models += facts
    return found


def _of_line(line: str, hub: Hub | None) -> tuple[int, list[ModelFacts]]:
    """(policies, facts about their models). Raises :class:`ModelError` for a line that leads nowhere."""
    name, at, which = line.rpartition("@")
    for folder, chosen in ((line, ""), (name, which if at else "")):
        if folder and _is_run(Path(folder)):
            return _of_run(Path(folder), chosen), []
    if line.endswith(COMPLETIONS):
        if not Path(line).is_file():
            raise ModelError(f"there is no file {line}")
        return 1, []
    if at and (which in ("all", "start") or (which.isdecimal() and Path(name).exists())):
        raise ModelError(f"{name} is no run, so that it has no {which if which in ('all', 'start') else 'checkpoint'}; name a run's folder")
    model, revision = (name, which) if at and not Path(line).exists() and not Path(name).exists() else (line, "main")
    return 1, [check_causal_lm(model, revision, hub)]


def _is_run(folder: Path) -> bool:
    return (folder / "run.db").is_file() and (folder / "config.yaml").is_file()


def _of_run(run: Path, which: str) -> int:
    """How many policies of a run are meant. Raises :class:`ModelError` where there are none."""
    steps = sorted({*_kept(run / "checkpoints"), *_kept(run / "snapshots")})
    if which == "start":
        return 1
    if which == "all":
        return 1 + len(steps)
    if which and not which.isdecimal():
        raise ModelError(f"{which!r} is no step of the run {run.name}; write @STEP, @all or @start")
    if not steps:
        raise ModelError(f"the run {run.name} has no checkpoint yet; {run.name}@start is what it began with")
    if which and int(which) not in steps:
        raise ModelError(f"the run {run.name} has no checkpoint or snapshot of step {int(which)}; it has: {', '.join(map(str, steps))}")
    return 1


def _kept(place: Path) -> Iterator[int]:
    for folder in place.glob("step-*"):
        if (match := _STEP.fullmatch(folder.name)) and (folder / "policy").is_dir():
            yield int(match[1])
