"""A trial from the command line and from the page, on a very small run; and a run that begins again because it was not stable."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.cli.main import main
from rlhf_studio.config.io import config_from_file, config_to_yaml
from rlhf_studio.engine.process import control, worker
from rlhf_studio.runs import paths
from rlhf_studio.runs.checkpoints import NoCheckpoint, where_to_resume
from rlhf_studio.runs.lab.trial import note_of
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.form import values_of
from rlhf_studio.ui.train_page import TrainPage
from rlhf_studio.ui.trial import Trials
from tests.engine.conftest import small_config
from tests.runs.stage_helpers import stage_config
from tests.runs.store_helpers import new_run
from tests.ui.train_helpers import OPERATOR, VIEWER

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The usual workspace, and in it the settings of a run of nine steps that will not fit into the night."""
    monkeypatch.setenv("RLHF_STUDIO_WORKSPACE", str(tmp_path / "workspace"))
    config = small_config(tmp_path, ppo={"steps": 9, "warmup_steps": 4}, engine={"checkpoint_every": 1})
    (tmp_path / "run.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    return tmp_path / "workspace"


def test_a_trial(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The clock goes on by 25 seconds at each look, and a look is before each step: 75 seconds are over after the second step."""
    monkeypatch.setattr(control, "monotonic", itertools.count(step=25).__next__)
    better = tmp_path / "better.yaml"
    (tmp_path / "my reward.py").write_text("", encoding="utf-8")
    flags = ["--allow-custom-rewards", str(tmp_path / "my reward.py"), "--reward-url", "mine=http://me:secret@localhost"]
    asked = ["try", "--config", str(tmp_path / "run.yaml"), "--minutes", "1", "--output", str(better), *flags]
    assert main(asked) == 0
    printed = capsys.readouterr().out
    assert "stopped: the trial's time of 1 minute is over\n" in printed
    assert "steps fit until 07:00" in printed and f"Written: {better}" in printed
    assert f"train --config {better} --allow-custom-rewards '{flags[1]}' --reward-url mine=URL\n" in printed  # no address: it may be secret

    (run,) = Workspace(workspace).runs()
    assert (run.name, run.step, run.marks.archived, run.marks.tags) == ("Trial of a run", 2, True, ("trial",))
    assert not RunReader(workspace / "runs" / run.run_id).checkpoints()
    tried = config_from_file(tmp_path / "run.yaml")
    assert config_from_file(better).ppo.learning_rate == tried.ppo.learning_rate and config_from_file(better).engine == tried.engine

    assert main(asked) == 2 and "exists already; name another file" in capsys.readouterr().err
    assert main(["try", "--config", str(tmp_path / "run.yaml"), "--until", "25:00"]) == 2
    assert "--until: should be a time of the day such as 07:00" in capsys.readouterr().err

    access = Access()
    trials = Trials(TrainPage(Workspace(workspace), access), Workspace(workspace), access, lambda: None)
    asked_for = {"op": "look", "run": run.run_id, "seconds": 1e-3, "until": "until 06:30"}
    answer = trials.trial(asked_for, OPERATOR)
    assert (answer["state"], answer["headline"]) == ("done", "Not one step would be done until 06:30.")
    assert trials.trial({**asked_for, "seconds": -1}, OPERATOR)["state"] == "failed"
    assert trials.trial(asked_for, VIEWER)["state"] == "failed"
    assert trials.trial({"op": "delete", "run": run.run_id}, OPERATOR)["state"] == "deleted" and not Workspace(workspace).runs()


def test_the_page_starts_a_trial_and_stops_it(workspace: Path, tmp_path: Path) -> None:
    access, runs, woken = Access(), Workspace(workspace), list[bool]()
    trials = Trials(TrainPage(runs, access), runs, access, lambda: woken.append(True))
    config = config_from_file(tmp_path / "run.yaml")
    started = trials.trial({"op": "start", "basis": "world", "values": values_of(config)}, OPERATOR)
    own = runs.reader(started["run"]).config()
    assert woken and (started["state"], runs.status(started["run"]).state) == ("working", "queued")
    assert (own.engine.max_minutes, own.engine.checkpoint_every, own.ppo.warmup_steps, own.ppo.steps) == (2.0, 0, 1, 9)
    asked = {"op": "look", "run": started["run"], "seconds": 3600.0, "until": "until 07:00"}
    assert trials.trial(asked, OPERATOR)["progress"] == "Waiting to start"
    assert trials.trial({**asked, "op": "stop"}, OPERATOR)["progress"] == "Stopping"
    ended = trials.trial(asked, OPERATOR)["error"]
    assert ended.startswith("The trial ended without a result") and not ended.endswith("..")
    wrong = {**values_of(config), "data.prompts": "nowhere.txt"}
    answer = trials.trial({"op": "start", "basis": "world", "values": wrong}, OPERATOR)
    assert (answer["state"], answer["problems"][0]["field"]) == ("failed", "data.prompts") and len(woken) == 1
    other = runs.submit(config)
    assert trials.trial({**asked, "op": "delete", "run": other}, OPERATOR)["error"] == f"The run {other} is not a trial."
    (runs.run_dir(other) / paths.TRIAL).write_bytes(note_of(stage_config("evaluation"))[paths.TRIAL])
    assert "tries an evaluation, which trains nothing" in trials.trial({**asked, "run": other}, OPERATOR)["error"]


def test_a_start_that_is_sent_again_starts_one_trial_and_each_waits_for_those_before_it(workspace: Path, tmp_path: Path) -> None:
    access, runs = Access(), Workspace(workspace)
    trials = Trials(TrainPage(runs, access), runs, access, lambda: None)
    asked = {"op": "start", "basis": "world", "values": values_of(config_from_file(tmp_path / "run.yaml"))}
    started = [trials.trial({**asked, "nonce": nonce}, OPERATOR)["run"] for nonce in ("a", "a", "b", "c")]
    assert started[0] == started[1] and len(runs.runs()) == len(set(started)) == 3

    def progress() -> list[str]:
        return [trials.trial({"op": "look", "run": run}, OPERATOR)["progress"] for run in started[1:]]

    assert progress() == ["Waiting to start", "Waiting: 1 run comes first", "Waiting: 2 runs come first"]
    other = new_run(workspace / "runs" / "20200101-000000-abcdef")
    with EngineLock(other), RunWriter(other) as writer:
        writer.set_state("running")
        assert progress() == ["Waiting: 1 run comes first", "Waiting: 2 runs come first", "Waiting: 3 runs come first"]


def test_a_slow_trial_says_what_it_does_and_that_it_is_not_over(workspace: Path, tmp_path: Path) -> None:
    """Its time was over in the first of two steps, which it takes at least: half of it is done, and a quarter as long as it has time."""
    access, runs = Access(), Workspace(workspace)
    trials = Trials(TrainPage(runs, access), runs, access, lambda: None)
    values = values_of(config_from_file(tmp_path / "run.yaml"))
    for seconds, share in ((194.0, 0.5), (30.0, 0.25)):
        run = trials.trial({"op": "start", "basis": "world", "values": values}, OPERATOR)["run"]
        with EngineLock(workspace / "runs" / run), RunWriter(workspace / "runs" / run) as writer:
            writer.commit_step(StepRecord(1, {"time/elapsed": seconds}, []))
            writer.set_state("running", phase="Sampling: 12/24 tokens")
            answer = trials.trial({"op": "look", "run": run, "seconds": 3600.0, "until": "until 07:00"}, OPERATOR)
        assert answer["progress"] == "Step 2 of the trial, of at least 2. Sampling: 12/24 tokens"
        assert answer["fraction"] == pytest.approx(share)


def test_an_unstable_run_begins_again_with_a_lower_rate(workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rate of 1 is far too high; the usual 0.002 and a third of it pass so low a target too. Then it goes on and says so."""
    run_dir = tmp_path / "run"
    given = {"learning_rate": "1", "warmup_steps": "0", "steps": "2", "kl_controller": "adaptive", "kl_target": "0.05"}
    own = [word for name, value in given.items() for word in (f"--ppo.{name}", value)] + ["--engine.restart_if_unstable", "2"]
    assert main(["train", "--config", str(tmp_path / "run.yaml"), "--run-dir", str(run_dir), *own]) == 0
    reader = RunReader(run_dir)
    config = reader.config()
    assert (config.ppo.learning_rate, config.engine.restart_if_unstable) == (0.00067, 0)
    assert [config_from_file(run_dir / f"config-{number}.yaml").ppo.learning_rate for number in (1, 2)] == [1.0, 0.002]
    restarts = [event.text for event in reader.newest_events() if event.kind == "restart"]
    assert len(restarts) == 2 and restarts[0].endswith(
        "It begins again with ppo.learning_rate 0.002 in place of 1, as engine.restart_if_unstable allows; once more after that."
    )
    assert reader.status().state == "finished" and [step for step, _ in reader.metrics_since(0)] == [1, 2]
    assert f"fork {run_dir} --ppo.learning_rate 0.00022" in capsys.readouterr().out
    finding = next(finding for finding in diagnose(reader).findings if finding.check == "unstable-start")
    assert (finding.level, finding.changes, finding.fork_step) == ("alarm", {"ppo.learning_rate": 0.00022}, None)


def test_an_end_while_an_unstable_run_loads_again_brings_nothing_of_it_back(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints are of the start that was given up: a resume does not take them."""
    run_dir, build, calls = tmp_path / "run", worker.build_stage, itertools.count()
    monkeypatch.setattr(worker, "build_stage", lambda *given: build(*given) if next(calls) == 0 else pytest.fail("ended here"))
    own = {"ppo.learning_rate": "1", "ppo.warmup_steps": "0", "ppo.kl_controller": "adaptive", "ppo.kl_target": "0.05"}
    changes = [word for name, value in own.items() for word in (f"--{name}", value)]
    with pytest.raises(pytest.fail.Exception):
        main(["train", "--config", str(tmp_path / "run.yaml"), "--run-dir", str(run_dir), *changes, "--engine.restart_if_unstable", "1"])
    assert [path.name for path in (run_dir / "checkpoints").iterdir()] != []
    with pytest.raises(NoCheckpoint, match="none of its checkpoints can be used"):
        where_to_resume(run_dir)
