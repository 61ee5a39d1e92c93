"""Kill one run again and again, spoil and litter its checkpoints in between, and see by hand that nothing is lost.

``python -m tests.engine.kill_checkpoints --kills 40`` prints one line per kill. The run folder is read here with sqlite3, json and
hashlib alone, before and after every life of the engine: not with the code that is under test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from rlhf_studio.runs.create import create_run
from tests.engine.conftest import small_config
from tests.engine.kill_loop import exit_code, fork_engine

PPO = {"steps": 100_000, "batch_size": 8, "mini_batch_size": 4, "ppo_epochs": 1}
KEEP = 3
STRAY = [".DS_Store", "._x", "state.json~", "policy/._config.json", "policy/#model#", "an empty folder/"]


@dataclass(frozen=True)
class Disk:
    """What is on the disk: per recorded step a digest of its rows, the run's step, and per checkpoint folder whether it is whole."""

    steps: dict[int, str]
    step: int
    whole: dict[int, str]
    folders: frozenset[str]


def look(run_dir: Path) -> Disk:
    """Read everything by hand."""
    connection = sqlite3.connect(run_dir / "run.db")  # may take up a log that was left, as the next engine will
    digests: dict[int, str] = {}
    for (step,) in connection.execute("SELECT step FROM steps ORDER BY step").fetchall():
        rows = [
            sorted(connection.execute(f"SELECT * FROM {table} WHERE step = ?", (step,)).fetchall(), key=repr)
            for table in ("steps", "metrics", "rollouts", "token_texts", "token_arrays", "watched", "step_arrays", "changes")
        ]
        digests[step] = hashlib.sha256(repr(rows).encode()).hexdigest()
    present = connection.execute("SELECT step FROM run").fetchone()[0]
    ends = {step for (step,) in connection.execute("SELECT step FROM steps")}
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert set(range(1, present + 1)) <= ends, "a step before the present one is missing"
    connection.close()
    whole = {}
    folders = list((run_dir / "checkpoints").iterdir()) if (run_dir / "checkpoints").exists() else []
    for folder in folders:
        digits = folder.name.removeprefix(".").removesuffix(".old").removeprefix("step-")
        if digits.isdigit() and (sound := digest(folder)):
            whole[int(digits)] = sound
    return Disk(digests, present, whole, frozenset(folder.name for folder in folders if not folder.name.startswith(".")))


def digest(folder: Path) -> str:
    """A digest of a checkpoint that is whole by its manifest, or an empty text."""
    try:
        files = json.loads((folder / "manifest.json").read_text())["files"]
        found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
    except (OSError, ValueError, KeyError):
        return ""
    return repr(sorted(found.items())) if all(found[name] == files[name]["sha256"] for name in files) else ""


def spoil(run_dir: Path, draw: random.Random, disk: Disk) -> list[str]:
    """Litter every checkpoint; damage the newest one sometimes, while another good one is left."""
    done = []
    for folder in (run_dir / "checkpoints").glob("step-*"):
        for name in draw.sample(STRAY, 2):
            if name.endswith("/"):
                (folder / name).mkdir(exist_ok=True)
            elif (folder / name).parent.exists():
                (folder / name).write_bytes(b"stray")
    usable = sorted(step for step in disk.whole if 0 < step <= disk.step)
    if len(usable) >= 2 and draw.random() < 0.5:
        folder = run_dir / "checkpoints" / f"step-{usable[-1]:06d}"
        if folder.exists():
            path = folder / draw.choice(["optimizer.safetensors", "policy/model.safetensors", "state.json", "manifest.json"])
            data = bytearray(path.read_bytes())
            if draw.random() < 0.5:
                data = data[: len(data) // 2]
            else:
                data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
            done.append(f"{folder.name}/{path.name}")
    return done


def resumed_from(run_dir: Path, after: int) -> tuple[int | None, int]:
    """(step, event id) of the last resume that the run's diary tells of after the event ``after``."""
    connection = sqlite3.connect(run_dir / "run.db")
    found = connection.execute(
        "SELECT id, text FROM events WHERE kind = 'resume' AND level = 'info' AND id > ? ORDER BY id", (after,)
    ).fetchall()
    connection.close()
    if not found:
        return None, after
    words = found[-1][1].split("checkpoint of step ")
    return (int(words[1].split(".")[0].split(";")[0]) if len(words) > 1 else 0), found[-1][0]


def check(before: Disk, after: Disk, wanted: int, found: int | None) -> list[str]:
    """What was lost in one life of the engine; nothing, if all is well."""
    lost = [f"recorded step {step} is gone" for step in before.steps if step not in after.steps]
    if found is None:  # killed before it went on: nothing may have changed
        lost += [f"step {step} changed" for step in before.steps if after.steps.get(step) != before.steps[step]]
        start = before.step
    else:
        start = found
        lost += [f"went on from {found}, not from {wanted}"] if found != wanted else []
    changed = [step for step, rows in before.steps.items() if after.steps.get(step) != rows]
    lost += [f"step {step} changed though it was not played again" for step in changed if not start < step <= after.step]
    kept = sorted((step for step in after.whole if step <= after.step), reverse=True)
    for step, sound in before.whole.items():
        replaced = start < step <= after.step  # played again, and saved again
        newer = [other for other in kept if other > step]
        if after.whole.get(step) != sound and not replaced and len(newer) < KEEP:
            lost.append(f"the good checkpoint of step {step} is gone, with {len(newer)} good ones after it")
    return lost


def run_loop(folder: Path, kills: int, seed: int, longest: float = 3.0) -> list[dict[str, object]]:
    """Kill one run ``kills`` times; each result says what was lost."""
    torch.set_num_threads(1)
    config = small_config(folder, ppo=PPO, engine={"checkpoint_every": 2, "keep_checkpoints": KEEP, "seed": seed})
    run_dir, draw, results, diary = folder / "run", random.Random(seed), [], 0
    create_run(run_dir, config, name="killed", state="loading")
    child = fork_engine(run_dir, "train")
    while len(look(run_dir).whole) < KEEP:
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    exit_code(child)
    for number in range(kills):
        damaged = spoil(run_dir, draw, look(run_dir))
        before = look(run_dir)
        usable = [step for step in before.whole if 0 < step <= before.step and belongs(run_dir, step)]
        child = fork_engine(run_dir, "resume")
        time.sleep(draw.uniform(0.0, longest))
        ended = os.waitpid(child, os.WNOHANG)[0]  # a refusal, which must not happen: there is always a good one
        if not ended:
            os.kill(child, signal.SIGKILL)
            exit_code(child)
        found, diary = resumed_from(run_dir, diary)
        after = look(run_dir)
        lost = check(before, after, max(usable), found) + (["the engine ended by itself"] if ended else [])
        steps = {"from": found, "step": after.step, "recorded": max(after.steps), "good": sorted(after.whole)}
        results.append({"kill": number + 1, "damaged": damaged, **steps, "lost": lost})
        print(json.dumps(results[-1]), flush=True)
    return results


def belongs(run_dir: Path, step: int) -> bool:
    """Whether the step is still the one that was recorded when the checkpoint was written."""
    folders = [run_dir / "checkpoints" / name for name in (f"step-{step:06d}", f".step-{step:06d}.old")]
    at = json.loads((next(path for path in folders if path.exists()) / "manifest.json").read_text()).get("recorded_at")
    connection = sqlite3.connect(run_dir / "run.db")
    row = connection.execute("SELECT at FROM steps WHERE step = ?", (step,)).fetchone()
    connection.close()
    return row is not None and at in (row[0], None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run_loop(Path(folder), options.kills, options.seed)
    bad = [row for row in results if row["lost"]]
    resumes = sum(row["from"] is not None for row in results)
    spoiled = sum(bool(row["damaged"]) for row in results)
    print(f"{len(results)} kills, {resumes} of them after the run had gone on, {spoiled} after damage: something was lost in {len(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
