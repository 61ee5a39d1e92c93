"""Make the finished examples that Road, Evaluate and Feedback show (``python -m tools.page_examples``): assets/recordings/pages.zip.

A folder may be named in which the runs are kept: what is there already is not computed again.

Everything in them was computed: a short road through the tiny world, an evaluation of a run without a KL coefficient, and a task of
pairs from that evaluation. Only its raters are no people: each is a rule with a fixed seed, and is named so.
"""

from __future__ import annotations

import calendar
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from rlhf_studio.config.bundled import PAGE_EXAMPLES, PAGES
from rlhf_studio.inputs.world.corpus import EVAL_SEED, write_pairs
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.jobs.road.begin import begin_road
from rlhf_studio.jobs.road.drive import drive
from rlhf_studio.jobs.road.plan import SMALL
from rlhf_studio.jobs.road.state import Road, list_roads, read_road, write_road
from rlhf_studio.lessons.world_build.lesson_run import STAMP, pack
from rlhf_studio.runs.feedback.exchange import items_of
from rlhf_studio.runs.feedback.records import Item, NewItem, NewTask, NewVote, Turn
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.people import DATABASE as PEOPLE
from rlhf_studio.runs.reader import RunReader

ROAD, ROAD_EVALUATION, EVALUATION, FEEDBACK = (example.folder for example in PAGE_EXAMPLES)
COMPARED = PAGE_EXAMPLES[1].run_id
NAME = "the world's road"
RUN = "no KL"
STEPS, EVERY = 36, 6
PROMPTS, PAIRS, KNOWN = 64, 40, 10
AT = float(calendar.timegm(STAMP))
KEPT = ("config.yaml", "run.db")
WORDS = "The review that a friend of the cinema would rather read: friendly, in whole sentences, without repeating itself."


@dataclass(frozen=True)
class Rater:
    """A rule that answers in place of a person: how much better the gold reward finds a review, with some noise, and a taste."""

    name: str
    noise: float
    longer: float
    seconds: float
    indifferent: float

    def answer(self, task: str, number: int, item: Item, order: Sequence[int]) -> NewVote:
        """The vote on an item whose responses stand in this order."""
        rng = Random(f"{self.name} {item.prompt} {item.responses}")
        gold = [gold_score(item.prompt, text) for text in item.responses]
        length = [len(text) for text in item.responses]
        lead = gold[1] - gold[0] + self.longer * (length[1] - length[0]) / max(length) + rng.gauss(0, self.noise)
        sure = 1.0 if abs(lead) > 0.6 else 0.75 if abs(lead) > 0.25 else 0.5
        seconds = round(self.seconds * rng.uniform(0.6, 1.6), 1)
        name = f"{task}-{self.name}-{number}"
        if abs(lead) < self.indifferent:
            return NewVote(name, item.id, "tie", None, sure, seconds)
        return NewVote(name, item.id, "chosen", order.index(int(lead > 0)), sure, seconds)


RATERS = (
    Rater("Rule 1, careful", 0.15, 0.0, 9.0, 0.06),
    Rater("Rule 2, in a hurry", 0.6, 0.0, 3.0, 0.03),
    Rater("Rule 3, likes long ones", 0.25, 1.2, 7.0, 0.06),
    Rater("Rule 4, careful", 0.2, 0.0, 8.0, 0.06),
)


def main() -> None:
    """Compute everything and pack it."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        workspace = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(name) / "workspace"
        packed = Path(name) / "packed"
        packed.mkdir()
        make_evaluation(workspace, packed / EVALUATION)
        make_feedback(packed / EVALUATION, packed / FEEDBACK)
        make_road(workspace, packed)
        pack(packed, PAGES)
    print(f"packed {PAGES.stat().st_size / 1e6:.2f} MB into {PAGES.name} in {time.monotonic() - start:.0f} s")


def make_road(workspace: Path, packed: Path) -> None:
    """Go along a small road, and keep its file and the run that compares."""
    workspace.mkdir(exist_ok=True)
    begun = next((road for road in list_roads(workspace) if road.settings == SMALL), None) or begin_road(workspace, NAME, SMALL, AT)
    if drive(begun.folder, workspace) != 0:
        raise SystemExit("the road did not come to its end")
    road = read_road(begun.folder)
    keep_run(workspace / "runs" / road.part("evaluation").run, packed / ROAD_EVALUATION, workspace, "The world's road, compared")
    (packed / ROAD).mkdir()
    parts = [replace(part, run=COMPARED if part.key == "evaluation" else "", file=Path(part.file).name, policy="") for part in road.parts]
    write_road(Road(packed / ROAD, road.name, road.settings, parts, AT))


def make_evaluation(workspace: Path, out: Path) -> None:
    """Train without a KL coefficient, let the policy of every sixth step answer the same prompts, and keep what they said."""
    run, evaluation = workspace / "runs" / RUN, workspace / "runs" / "compared"
    settings = {"lora.r": 4, "lora.alpha": 8, "ppo.steps": STEPS, "ppo.kl_coef": 0, "engine.snapshot_every": EVERY, "engine.threads": 1}
    if not run.exists():
        studio(
            "train", "--name", RUN, "--recipe", "world-lora", *(f"--{name}={value}" for name, value in settings.items()), f"--run-dir={run}"
        )
    if not evaluation.exists():
        steps = ["start", *range(EVERY, STEPS + 1, EVERY)]
        studio("evaluate", *(f"{run}@{step}" for step in steps), f"--count={PROMPTS}", f"--run-dir={evaluation}")
    keep_run(evaluation, out, workspace, "A run without a KL coefficient, every 6 steps")


def make_feedback(evaluation: Path, out: Path) -> None:
    """Pairs of the first and the last policy of an evaluation, answered by every rater after a round with known answers."""
    out.mkdir()
    answers = RunReader(evaluation).answers()
    ends = {answers[0].policy, answers[-1].policy}
    items, _ = items_of([answer for answer in answers if answer.policy in ends], "pair")
    known = [
        NewItem(pair.prompt, (pair.chosen, pair.rejected)[:: 1 - 2 * (number % 2)], answer=number % 2, why="It is the friendlier one.")
        for number, pair in enumerate(write_pairs(EVAL_SEED, 40))
        if abs(gold_score(pair.prompt, pair.chosen) - gold_score(pair.prompt, pair.rejected)) > 0.5
    ]
    settings = NewTask("Start or end of a run?", guidelines=WORDS, criterion="better", annotators=len(RATERS), pass_mark=0.6)
    feedback = Feedback(out)
    task, _ = feedback.create(settings, [*known[:KNOWN], *items[:PAIRS]])
    for rater in RATERS:
        feedback.sign_in(rater.name, rater.name, trusted=True)
        rate(feedback, task.id, rater)
    feedback.close()
    without_times(out / PEOPLE, {"tasks": "created_at", "annotators": "created_at", "votes": "at"})
    for path in out.iterdir():
        if path.name != PEOPLE:
            path.unlink()


def rate(feedback: Feedback, task: str, rater: Rater) -> None:
    """Everything that a rater has to answer."""
    turn: Turn = feedback.turn(task, rater.name)
    number = 0
    while turn.state in ("item", "failed"):
        if turn.shown is None:  # the round with known answers is done again
            turn = feedback.begin_again(task, rater.name)
            continue
        number += 1
        turn = feedback.vote(task, rater.name, rater.answer(task, number, turn.shown.item, turn.shown.order))


def keep_run(run: Path, out: Path, workspace: Path, name: str) -> None:
    """Copy the settings and the database of a run, without times, names of folders, and what was printed."""
    out.mkdir()
    for kept in KEPT:
        shutil.copyfile(run / kept, out / kept)
    for beside in run.glob("run.db-*"):
        shutil.copyfile(beside, out / beside.name)
    config = out / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace(f"{workspace}/", ""), encoding="utf-8")
    without_times(out / "run.db", {"steps": "at", "events": "at", "heartbeat": "at"}, str(workspace), name)


def without_times(database: Path, times: dict[str, str], folder: str = "", name: str = "") -> None:
    """One plain file, without the times and folders of this machine."""
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = delete")
        for table, column in times.items():
            connection.execute(f"UPDATE {table} SET {column} = ?", (AT,))
        if folder:
            connection.execute("UPDATE run SET created_at = ?, started_at = ?, ended_at = ?, pid = NULL, name = ?", (AT, AT, AT, name))
            connection.execute("UPDATE run SET working_folder = '/', model = replace(model, ?, '')", (f"{folder}/",))
            connection.execute("DELETE FROM events")
        connection.execute("VACUUM")
    finally:
        connection.close()


def studio(*command: str) -> None:
    """One command of the program. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "rlhf_studio", *command], check=True)


if __name__ == "__main__":
    main()
