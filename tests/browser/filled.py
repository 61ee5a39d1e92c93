"""An app with something on every page: finished runs of every stage, two evaluations, a road, and a lesson's own run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_studio.config import permissions_from_flags
from rlhf_studio.config.bundled import LESSON_RUN, RECORDED
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.lessons.run import unpacked
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.records import EventRecord, StartMode
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.app import Server, launch
from tests.analysis.test_evaluation import over_optimised
from tests.runs.stage_helpers import write_stage_run
from tests.ui import scoring_stand_in, talk_stand_in
from tests.ui.fake_run import FakeRun
from tests.ui.fake_stages import pairs_run, sft_run
from tests.ui.test_evaluate import answers
from tests.ui.test_stages import give_model
from tests.ui.train_helpers import start_stand_in
from tests.waiting import wait_until

NAMES = ("second of all", "first of all", "<img src=x onerror='window.__pwned=1'> ${window.__pwned=2} {{x}}")
LESSON = "20261101-120000-ownrun"


@dataclass
class Studio:
    """The served app and the ids of what is in it."""

    server: Server
    runs: dict[str, str]

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def workspace(self) -> Workspace:
        return self.server.workspace

    def submit(self, name: str, steps: int = 2) -> str:
        """A run for the queue; one of more than three steps waits to be stopped."""
        config = load_recipe("world").config
        run_id = self.workspace.submit(config.model_copy(update={"ppo": config.ppo.model_copy(update={"steps": steps})}), name)
        assert self.server.dispatcher is not None
        self.server.dispatcher.wake()
        return run_id

    def wait_for(self, run_id: str, state: str) -> None:
        wait_until(lambda: self.workspace.status(run_id).state == state, 60)

    def newest(self) -> str:
        """The id of the run that was started last."""
        return max(run.run_id for run in self.workspace.runs() if run.run_id not in self.runs.values())

    def clear(self) -> None:
        """Take away what is not one of its own runs."""
        for run in self.workspace.runs():
            if run.run_id in self.runs.values():
                continue
            if run.state in ("loading", "running"):
                send_command(self.workspace.run_dir(run.run_id), "stop")
                wait_until(lambda run=run: self.workspace.status(run.run_id).state in ("stopped", "finished"), 60)
            elif run.state == "queued":
                self.workspace.cancel(run.run_id)
            self.workspace.delete(run.run_id)


def fill(root: Path) -> dict[str, str]:
    """Write the runs; their ids by what they are."""
    made: dict[str, str] = {}
    for number, name in enumerate(NAMES):
        run = FakeRun(root, steps=20, hostile=number == 2, seed=number, name=name, kl_coef=0.05 * (number + 1))
        run.load()
        run.run()
        run.step(20)
        run.finish()
        Workspace(root).mark(run.run_id, tags=[NAMES[2][:36], f"tag-{number}"], note=NAMES[2])
        made[("second", "first", "hostile")[number]] = run.run_id
    sft = sft_run(root, steps=20)
    made["sft"] = sft.run_dir.name
    give_model(sft, "policy")
    with RunWriter(sft.run_dir) as writer:
        writer.event(EventRecord("info", "start", "Before training.", {"sft/eval_loss": 6.0, "sft/eval_perplexity": 403.4}))
        writer.set_state("finished", "")
    for stage in ("reward_model", "dpo"):
        made[stage] = pairs_run(root, stage, steps=20, name=f"judge of {stage}").run_dir.name
    give_model(Workspace(root).reader(made["reward_model"]), "reward_model")
    made["evaluation"] = _evaluation(root, [*answers("start", 0.0), *answers(NAMES[2], 1.0)], "who is better")
    made["exploited"] = _evaluation(root, over_optimised(), "over-optimised")
    checkpoint = root / "runs" / made["evaluation"] / "checkpoints" / "step-000002"
    checkpoint.mkdir(parents=True)  # from which it would be resumed, and no model
    (checkpoint / "manifest.json").write_text('{"step": 2}')
    shutil.copytree(unpacked(LESSON_RUN, root / "cache") / RECORDED, root / "runs" / LESSON)
    made["lesson"] = LESSON
    return made


def _evaluation(root: Path, rows: list[Any], name: str) -> str:
    samples = [replace(row, sample=place) for place, row in enumerate(rows)]
    return write_stage_run(root, "evaluation", [{"time/total": 1.0}] * 2, rollouts=samples, name=name).run_dir.name


@contextmanager
def served_studio(root: Path) -> Iterator[Studio]:
    """The filled app, where nothing loads a model: engines, the talker and the scorer are stand-ins."""
    (root / "mine.py").write_text("def score(prompts, responses, **extra): return [0.0] * len(responses)")
    permissions = permissions_from_flags([str(root / "mine.py")], ["judge=http://127.0.0.1:9/s3cret"])

    def start(run_dir: Path, mode: StartMode = "train", *, ticket: Any, permissions: Any) -> Any:
        return start_stand_in(run_dir, mode, ticket=ticket)

    runs = fill(root)
    server = launch(root, start=start, permissions=permissions)
    server.services.talk._command = talk_stand_in.COMMAND
    server.services.score._command = scoring_stand_in.COMMAND
    yield Studio(server, runs)
    server.close()
