"""What 0.2.0 has left goes on opening: run folders, their checkpoints, votes, and a class. The numbers are those that 0.2.0 showed.

The archive was made by a checkout of that version: a small run of each stage, one that was stopped, a sweep, the runs of a student and of a
visitor, votes, and a class.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.runs.classroom.store import ClassStore
from rlhf_studio.runs.feedback.store import Feedback

RUNS = {  # state, step, a number of the last step, the doctor's verdict, what it noticed
    "ppo": (
        "finished",
        4,
        ("objective/scores", -0.5257153511047363),
        "too early",
        ["settings-held-out", "settings-batch", "settings-steps"],
    ),
    "ppo-stopped": (
        "stopped",
        2,
        ("objective/scores", 0.12120556831359863),
        "too early",
        ["settings-held-out", "settings-steps"],
    ),
    "sft": ("finished", 4, ("sft/loss", 3.2840805053710938), "learned", []),
    "reward_model": ("finished", 4, ("reward_model/loss", 0.4620387554168701), "learned", []),
    "dpo": ("finished", 4, ("dpo/loss", 0.6588846445083618), "too early", ["settings-learning-rate"]),
    "evaluation": ("finished", 1, ("evaluation/score/run@start", -0.2709188386797905), "evaluated", ["settings-prompts"]),
}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(Path(__file__).with_name("0.2.0.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)  # the folder in which the runs were made is gone
    return tmp_path


def test_runs_show_what_they_showed(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every stage; those of a student and of a visitor know whose they are, and those of a sweep belong together."""
    shown = {}
    for name in RUNS:
        assert main(["runs", "show", f"runs/{name}", "--json"]) == 0
        run = json.loads(capsys.readouterr().out)
        assert main(["doctor", f"runs/{name}", "--json"]) == 0
        diagnosis = json.loads(capsys.readouterr().out)
        metric = RUNS[name][2][0]
        verdict, checks = diagnosis["verdict"]["kind"], [finding["check"] for finding in diagnosis["findings"]]
        shown[name] = run["state"], run["step"], (metric, run["metrics"][metric]), verdict, checks
        assert [Path(kept["path"]).is_dir() for kept in run["checkpoints"]] == [True]
    assert shown == RUNS
    assert main(["runs", "list", "--workspace", str(workspace), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == 10
    assert sorted((run["starter"]["role"], run["starter"]["name"]) for run in listed if run["starter"]["role"]) == [
        ("student", "Student 1"),
        ("visitor", ""),
    ]
    assert sum(run["origin"]["sweep"].startswith("sweep-") for run in listed) == 2


def test_a_stopped_run_goes_on_to_the_numbers_it_would_have_had(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", "runs/ppo-stopped"]) == 0
    assert main(["runs", "show", "runs/ppo-stopped", "--json"]) == 0
    output = capsys.readouterr().out  # with the lines of the steps first
    run = json.loads(output[output.index("{\n") :])
    assert (run["state"], run["step"]) == ("finished", 4)
    assert run["metrics"]["objective/scores"] == pytest.approx(0.21975642442703247, abs=1e-6)


def test_votes_and_the_answers_of_a_class_are_there(workspace: Path) -> None:
    feedback = Feedback(workspace)
    tasks = {task.settings.name: task for task in feedback.tasks()}
    assert {name: task.open for name, task in tasks.items()} == {"which pair": True, "which rating": False}
    votes = [(vote.annotator, vote.verdict, vote.value) for vote in feedback.votes(tasks["which pair"].id)]
    first, last = ("chosen", 0), ("tie", None)
    assert votes == [("Ann", *first), ("Ann", *first), ("Ann", "chosen", 1), ("Ann", *last), *[("Bob", *first)] * 3, ("Bob", *last)]
    feedback.close()
    lesson = ClassStore(workspace)
    asked = [(one.question.text, one.question.options, one.state, one.answered) for one in lesson.rounds()]
    assert asked == [("Does the score rise?", ("yes", "no"), "revealed", 2), ("Does the KL rise?", ("yes", "no"), "over", 2)]
    assert sorted(lesson.names().values()) == ["Student 1", "Student 2"]
    lesson.close()
