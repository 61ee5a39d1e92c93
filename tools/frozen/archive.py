"""Makes tests/old_version/0.2.0.tar.gz from a checkout of that version: a small workspace with something of everything in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import yaml

from tools.frozen.running import Checkout
from tools.frozen.serving import CLASS, RATER_HEADER, SPACE, App, served
from tools.frozen.weights import SMALL, evaluate, settings_of, train, write_inputs

NOT_NEEDED = ("reserve.bin", "engine.lock", "start.lock")  # of a run folder: made anew when they are needed
TINY = {"ppo.steps": 1, "ppo.batch_size": 8, "ppo.mini_batch_size": 8, "ppo.ppo_epochs": 1, "generation.response_length": 8}


def make(checkout: Checkout, target: Path) -> None:
    """Write the archive. It takes a minute or two."""
    root = checkout.work
    write_inputs(root)
    _configurations(checkout, root / "settings")
    for stage in ("ppo", "sft", "reward_model", "dpo"):
        train(checkout, stage, settings_of(stage, lora=True))
    _stopped(checkout)
    evaluate(checkout, "runs/ppo", "runs/evaluation", 0)
    few = ("--engine.record_samples", "1", "--engine.watch_prompts", "1", "--engine.probe_prompts", "1", "--ppo.steps", "2")
    checkout.run_well("sweep", "--config", "ppo.yaml", *few, "--vary", "ppo.kl_coef=0.05,0.2", "--workspace", ".")
    with served(checkout, root) as app:
        _feedback(app)
    with served(checkout, root, CLASS, kill=True) as app:  # an app that ends forgets who its students were
        _class(checkout, app)
    with served(checkout, root, SPACE, kill=True) as app:
        _start(checkout, app, app.visitor())
    _pack(root, target)


def _configurations(checkout: Checkout, folder: Path) -> None:
    """YAML files: whole recipes, small ones, old and odd spellings, and some that are refused."""
    folder.mkdir()
    for recipe in ("world", "world-lora", "world-sft", "world-reward", "world-dpo", "world-evaluation"):
        (folder / f"recipe-{recipe}.yaml").write_text(checkout.run("recipes", "show", recipe)[1], encoding="utf-8")
    texts = {
        "small-ppo": yaml.safe_dump(settings_of("ppo")),
        "small-dpo": yaml.safe_dump(settings_of("dpo", lora=True)),
        "only-steps": "recipe: world\nppo:\n  steps: 3\n",
        "exponents": "recipe: world\nppo:\n  learning_rate: 1e-4\n  schedule: 2 ppo.kl_coef 0.2\n",
        "bad-value": "recipe: world\nppo:\n  steps: -3\n  lam: 2\n",
        "bad-name": "recipe: world\nppo:\n  stepz: 3\n",
        "bad-section": "recipe: world\npp0:\n  steps: 3\n",
        "bad-stage": "stage: cooking\n",
        "bad-recipe": "recipe: none-such\n",
        "damaged": "ppo: {steps: 3\n",
        "no-mapping": "- ppo\n",
        "empty": "",
        "twice": "recipe: world\nppo:\n  steps: 3\n  steps: 4\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def _stopped(checkout: Checkout) -> None:
    """A run that is stopped in its second step, and has a checkpoint of it. Raises RuntimeError where that cannot be met."""
    settings = settings_of(
        "ppo",
        ppo={"batch_size": 64, "mini_batch_size": 8, "steps": 4},
        generation={"response_length": 8},
        engine={**SMALL, "record_samples": 1},
    )
    (checkout.work / "stopped.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    run = checkout.work / "runs" / "ppo-stopped"
    command = [sys.executable, "-u", "-m", "rlhf_studio", "train", "--config", "stopped.yaml", "--run-dir", str(run)]
    for delay in (0.05, 0.1, 0.2, 0.4, 0.8):
        shutil.rmtree(run, ignore_errors=True)
        process = subprocess.Popen(command, cwd=checkout.work, env=checkout.environment(), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 1/"):
                time.sleep(delay)
                process.send_signal(signal.SIGTERM)
        if process.wait() == 3 and os.listdir(run / "checkpoints") == ["step-000002"]:
            return
    raise RuntimeError("the run could not be stopped in its second step")


def _feedback(app: App) -> None:
    """Two tasks, of which one is closed; two people who vote on pairs."""
    tasks = []
    for kind in ("pair", "rating"):
        settings = {"name": f"which {kind}", "kind": kind, "guidelines": "Kind ones.", "annotators": 2}
        tasks.append(app.ask("feedback-page.manage", {"op": "create", "nonce": f"n{kind}", "settings": settings})["task"])
    lines = [{"prompt": f"w{number} w2", "chosen": f"w{number} w3", "rejected": f"w4 w{number}"} for number in range(5)]
    app.ask("feedback-page.add_items", {"task": tasks[0], "lines": "\n".join(map(json.dumps, lines))})
    app.ask("feedback-page.add_items", {"task": tasks[1], "lines": json.dumps({"prompt": "w1", "response": "w2 w3"})})
    rater = {RATER_HEADER: app.ask("feedback-page.rating_link", {})["token"]}
    for name in ("Ann", "Bob"):
        me = {"task": tasks[0], "name": name, "secret": name * 10}
        turn = app.ask("feedback-page.turn", {**me}, rater)
        for number in range(4):
            vote = {
                "id": f"{name}-{number}",
                "item": turn["item"]["id"],
                "verdict": "chosen",
                "value": number % 2,
                "seconds": 2.5,
                "confidence": 0.75,
            }
            turn = app.ask("feedback-page.vote", {**me, **(vote if number < 3 else {**vote, "verdict": "tie", "value": None})}, rater)
            if turn.get("problem"):
                raise RuntimeError(turn["problem"])
    app.ask("feedback-page.manage", {"op": "close", "task": tasks[1]})


def _class(checkout: Checkout, app: App) -> None:
    """Two students who answer two rounds, and one who starts a run."""
    students = [app.student(), app.student()]
    for number, student in enumerate(students):
        app.ask("shell-page.class_name", {"name": f"Student {number + 1}"}, student)
    for text in ("Does the KL rise?", "Does the score rise?"):
        round_ = app.ask("shell-page.class_ask", {"text": text, "options": ["yes", "no"], "right": 0})
        for number, student in enumerate(students):
            answered = app.ask("shell-page.class_answer", {"round": round_["round"], "answer": number}, student)
            if answered.get("problem"):
                raise RuntimeError(answered["problem"])
        app.ask("shell-page.class_steer", {"op": "close", "round": round_["round"]})
        app.ask("shell-page.class_steer", {"op": "reveal", "round": round_["round"]})
    _start(checkout, app, students[0])


def _start(checkout: Checkout, app: App, who: dict[str, str]) -> None:
    """A run of the bundled world that is started, works, and ends."""
    recipe = yaml.safe_load(checkout.run("recipes", "show", "world")[1])
    world = {f"{name}.{key}": value for name, part in recipe.items() if isinstance(part, dict) for key, value in part.items()}
    events = app.ask("start_run", {"values": {"name": "", **world, **TINY}, "basis": "world", "nonce": "one"}, who)
    outcome: dict[str, Any] = {}
    for line in events.splitlines():
        if "process_completed" in line:
            outcome = json.loads(json.loads(line.removeprefix("data: "))["output"]["data"][0])
    if "run_id" not in outcome:
        raise RuntimeError(f"no run was started: {events}")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        runs = json.loads(checkout.run("runs", "list", "--workspace", ".", "--json")[1])
        states = {run["run_id"]: run["state"] for run in runs}
        if states.get(outcome["run_id"]) in ("finished", "failed"):
            return
        time.sleep(2)
    raise RuntimeError(f"{outcome['run_id']} did not end: {states}")


def _pack(root: Path, target: Path) -> None:
    """Checkpoints of the bundled world are too large for it, and engines' locks are of no use."""
    for run in (root / "runs").iterdir():
        if run.name[:2] == "20":
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
        for name in NOT_NEEDED:
            (run / name).unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz", compresslevel=9) as archive:
        for path in sorted(root.iterdir()):
            if path.name in ("inputs", "runs", "settings", "feedback") or path.suffix == ".db" or ".db-" in path.name:
                archive.add(path, path.name)
