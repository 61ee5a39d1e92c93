"""Part 2: what is read out of run folders, databases and YAML files of 0.2.0, and of the recordings that come with the program."""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

from tools.frozen.running import Checkout, shortened, write
from tools.frozen.serving import OPERATOR, App, served
from tools.frozen.weights import unpack_archive

RECORDED = ("assets/recordings/collapsed.zip", "assets/lessons/run.zip")
DETAILS = ("samples", "tokens", "watched", "answer", "scratch", "diagnosis", "learned", "scales", "moved", "measures", "settings")
Json = dict[str, Any]


def workspace_of(checkout: Checkout) -> Path:
    """The unpacked archive, with the recordings among its runs."""
    root = unpack_archive(checkout.work / "old")
    for name in RECORDED:
        with zipfile.ZipFile(checkout.root / name) as zipped:
            zipped.extractall(checkout.work / "recorded")
    for database in sorted((checkout.work / "recorded").rglob("run.db")):
        shutil.move(database.parent, root / "runs" / f"recorded-{database.parent.name}")
    return root


def collect(checkout: Checkout, out: Path) -> None:
    """Writes ``readers/RUN/...`` for each run, ``readers/settings/...`` for each YAML file, and ``readers/pages/...`` by HTTP."""
    root = workspace_of(checkout)
    there = Checkout(checkout.root, root)
    runs = sorted(path.name for path in (root / "runs").iterdir())
    _write_answer(there, out / "readers" / "list", "runs", "list", "--workspace", ".", "--json")
    _write_answer(there, out / "readers" / "list-text", "runs", "list", "--workspace", ".")
    _write_answer(there, out / "readers" / "evaluation-text", "evaluate", "runs/evaluation")
    _write_answer(there, out / "readers" / "evaluation", "evaluate", "runs/evaluation", "--json")
    for run in runs:
        folder = out / "readers" / "runs" / run
        _write_answer(there, folder / "doctor", "doctor", f"runs/{run}", "--json")
        _write_answer(there, folder / "doctor-text", "doctor", f"runs/{run}")
        _write_answer(there, folder / "show", "runs", "show", f"runs/{run}", "--json")
        _write_answer(there, folder / "config", "runs", "config", f"runs/{run}")
        _write_export(there, folder, run)
    for file in sorted((root / "settings").iterdir()):
        _write_settings(there, out / "readers" / "settings" / file.stem, file)
    with served(there, root) as app:
        _ask_pages(there, app, out / "readers" / "pages", runs)


def _write_answer(checkout: Checkout, path: Path, *command: str) -> None:
    """Exit code, output and errors of a command: JSON as values, texts as lines."""
    code, output, errors = checkout.run(*command)
    values: Any = output.splitlines()
    if output[:1] in ("{", "["):
        values = json.loads(output)
    write(path.with_suffix(".json"), checkout.tidy_values({"code": code, "output": values, "errors": errors.splitlines()}))


def _write_export(checkout: Checkout, folder: Path, run: str) -> None:
    """The tables and the report that a run's export writes. Of JSON Lines with every token's numbers, a sum for each line."""
    files = [checkout.work / f"export.{kind}" for kind in ("csv", "jsonl", "html")]
    options = [part for file in files for part in (f"--{file.suffix[1:]}", file.name)]
    code, output, errors = checkout.run("export", f"runs/{run}", *options, "--replace")
    export: dict[str, Any] = {"code": code, "output": checkout.tidy(output + errors).splitlines()}
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        export[file.suffix[1:]] = [shortened(checkout.tidy(line)) for line in lines]
        file.unlink(missing_ok=True)
    write(folder / "export.json", export)


def _write_settings(checkout: Checkout, path: Path, file: Path) -> None:
    """A YAML file as the settings of a run that is queued, or why it is refused."""
    workspace = checkout.work / "queued" / file.stem
    command = ("sweep", "--config", str(file), "--vary", "engine.seed=5,6", "--workspace", str(workspace))
    code, output, errors = checkout.run(*command)
    queued = sorted(config.read_text(encoding="utf-8") for config in workspace.rglob("config.yaml"))
    answer = {"code": code, "told": checkout.tidy(output + errors).splitlines(), "settings": [text.splitlines() for text in queued]}
    write(path.with_suffix(".json"), answer)


def questions(runs: list[str], tasks: list[str]) -> list[tuple[str, Json]]:
    """What pages ask of the server about runs, evaluations and votes: (function, what is sent with it)."""
    sweep = [run for run in runs if run.startswith("20")]
    pairs: list[tuple[str, Json]] = []
    for run in runs:
        pairs += [("live-page.fetch", {"run": run, "kind": kind, "step": 2, "sample": 0}) for kind in DETAILS]
        pairs += [("live-page.poll", {"run": run}), ("live-page.experiment_ideas", {"run": run}), ("live-page.export_look", {"run": run})]
        pairs += [("runs-page.settings", {"run": run}), ("road-page.road_lineage", {"run": run})]
    for pair in (["ppo", "ppo-stopped"], ["sft", "dpo"], [run for run in runs if run.startswith("recorded")], sweep):
        metrics = ["objective/kl", "objective/scores", "loss"]
        pairs += [("runs-page.compare", {"runs": pair}), ("runs-page.curves", {"runs": pair, "metrics": metrics})]
        pairs += [("runs-page.answers", {"runs": pair, "prompt": 0}), ("runs-page.sweep", {"runs": pair, "metric": "objective/kl"})]
    evaluation: Json = {"run": "evaluation", "policies": ["run@start", "run@4"], "against": "run@start"}
    pairs += [("evaluate-page.report", evaluation), ("evaluate-page.answers", evaluation), ("evaluate-page.boot", {})]
    pairs += [("evaluate-page.file", {**evaluation, "kind": kind}) for kind in ("csv", "md", "jsonl")]
    for task in tasks:
        pairs += [("feedback-page.results", {"task": task}), ("feedback-page.export", {"task": task})]
    pairs += [("shell-page.class_ready", {}), ("talk-page.policies", {}), ("road-page.road_news", {}), ("runs-page.runs", {})]
    pairs += [("learn-page.learn_shelf", {}), ("learn-page.learn_runs", {}), ("learn-page.learn_search", {"text": "kl penalty"})]
    return [*pairs, ("train-page.boot", {}), ("shell-page.where", {}), ("feedback-page.boot", {})]


def _ask_pages(checkout: Checkout, app: App, folder: Path, runs: list[str]) -> None:
    tasks = [task["id"] for task in app.ask("feedback-page.boot", {})["tasks"]]
    for function, data in questions(runs, tasks):
        names = [str(data[key]) for key in ("run", "kind", "task") if key in data] or data.get("runs", [])[:1]
        write(folder / f"{'.'.join([function, *names])}.json", _settled(checkout, app, function, data))


def _settled(checkout: Checkout, app: App, function: str, data: Json) -> Any:
    """The answer of a function once it is the same twice: some begin to work when they are first asked."""
    known = app.functions()
    if function not in known:
        return "not there"
    before: Any = None
    for attempt in range(12):
        status, text = app.call(known[function], data, OPERATOR)
        answer = {"status": status, "answer": checkout.tidy_values(json.loads(text) if text[:1] in ("{", "[") else text)}
        if answer == before:
            break
        before = answer
        time.sleep(0.1 if attempt == 0 else 0.5)
    return before
