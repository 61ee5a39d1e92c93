"""Runs that were really trained, kept as text: what the doctor reads of them, and the run folder made from it again.

A file has one line for the run (settings, state, watched answers of the starting policy), then one for each step.

    python -m tests.analysis.doctor.stored_runs RUN_FOLDER NAME    # keeps a run
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter

STORES = Path(__file__).parents[1] / "stores"
DIGITS = 6
MOST_EVENTS = 2000


def names() -> list[str]:
    """The runs that are kept."""
    return sorted(path.stem for path in STORES.glob("*.jsonl"))


def keep(folder: Path, name: str) -> None:
    """Write a run into :data:`STORES`. Models made for a trial are named, not where they lie."""
    reader = RunReader(folder)
    status, config = reader.status(), reader.config().model_dump(mode="json", exclude_defaults=True)
    config["reward"]["components"] = reader.config().model_dump(mode="json")["reward"]["components"]
    for holder, field in ((config.get("model", {}), "policy"), *((record, "model") for record in config["reward"]["components"])):
        if "/" in holder.get(field, "") and not holder[field].startswith("bundled/"):
            holder[field] = Path(holder[field]).name
    watched: dict[int, list[Any]] = {}
    for step, record in reader.watched():
        watched.setdefault(step, []).append([record.prompt, record.response, _short(record.score), _short(record.gold)])
    events: dict[int, list[Any]] = {}
    for event in reader.events_since(0, MOST_EVENTS):
        if event.kind in ("health", "early_stop", "skipped"):
            events.setdefault(event.step, []).append([event.level, event.kind, event.text, event.data])
    about = {"config": config, "state": status.state, "cause": status.cause, "device": status.device, "watched": watched.get(0, [])}
    lines: list[dict[str, Any]] = [about]
    for step, metrics in reader.metrics_since(0, limit=1000):
        rows = [
            [record.prompt, record.response, _short(record.score), _short(record.gold), _short(record.kl), record.length, record.stopped]
            for record in reader.rollouts(step)
        ]
        values: dict[str, Any] = {metric: _short(value) for metric, value in metrics.items()}
        values |= {metric: repr(value) for at, metric, value in reader.non_finite() if at == step}  # "nan", "inf"
        lines.append({"metrics": values, "responses": rows, "watched": watched.get(step, []), "events": events.get(step, [])})
    STORES.mkdir(exist_ok=True)
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    (STORES / f"{name}.jsonl").write_text(text, encoding="utf-8")


def stored(name: str, folder: Path) -> RunReader:
    """Make the run folder of a kept run."""
    about, *steps = map(json.loads, (STORES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    create_run(folder, RunConfig.model_validate(about["config"]), name=name)
    with RunWriter(folder) as writer:
        writer.plan(len(steps))
        writer.set_state("running", device=about["device"])
        if about["watched"]:
            writer.watched(0, _watched(about["watched"]))
        for number, step in enumerate(steps, 1):
            metrics = {metric: float(value) for metric, value in step["metrics"].items() if value is not None}
            events = [EventRecord(*event) for event in step["events"]]
            writer.commit_step(StepRecord(number, metrics, _responses(step["responses"]), _watched(step["watched"]), events))
        writer.set_state(about["state"], cause=about["cause"])
    return RunReader(folder)


def _responses(rows: list[list[Any]]) -> list[RolloutRecord]:
    return [
        RolloutRecord(sample, prompt, response, score, {}, gold, kl, length, stopped, None)
        for sample, (prompt, response, score, gold, kl, length, stopped) in enumerate(rows)
    ]


def _watched(rows: list[list[Any]]) -> list[WatchRecord]:
    return [WatchRecord(sample, *row) for sample, row in enumerate(rows)]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2])
