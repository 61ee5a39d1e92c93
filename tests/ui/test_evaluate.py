"""The Evaluate page without a browser: what it shows of recorded answers, blind votes, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.evaluation.answers import by_policy
from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.config.bundled import EXAMPLE_ROAD_EVALUATION
from rlhf_studio.language import speaking
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import OnlyRead, StoreError
from rlhf_studio.runs.finding.recordings import Recordings
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.evaluate.arena import Arena
from rlhf_studio.ui.evaluate.page import EvaluatePage
from rlhf_studio.ui.runs_page import headline_of
from tests.runs.stage_helpers import stage_config, write_stage_run
from tests.runs.test_answers import answer
from tests.runs.test_evaluation_policies import run_with
from tests.ui.fake_stages import sft_run
from tests.ui.train_helpers import OPERATOR, VIEWER

Json = dict[str, Any]
POLICIES = ["start", "late"]


def answers(policy: str, shift: float) -> list[Any]:
    return [
        answer(
            sample=number,
            policy=policy,
            place=number,
            prompt=f"prompt {number}",
            response=f"the film is {policy}.",
            score=shift + 0.1 * number,
            gold=shift / 2 + 0.01 * number,
            kl=shift,
            judge=math.nan,
        )
        for number in range(12)
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    run = tmp_path / "runs" / "evaluation-1"
    create_run(run, stage_config("evaluation"), name="an evaluation")
    with RunWriter(run) as writer:
        rows = [*answers("start", 0.0), *answers("late", 1.0)]
        writer.commit_step(StepRecord(1, {}, [replace(row, sample=number) for number, row in enumerate(rows)]))
    run_with(tmp_path / "runs" / "ppo-1")
    return Workspace(tmp_path)


@pytest.fixture
def page(workspace: Workspace) -> EvaluatePage:
    return EvaluatePage(workspace, Access())


def report(page: EvaluatePage, run: str = "evaluation-1", first: str = "") -> Any:
    """What a page that has seen nothing yet is told of an evaluation."""
    return page.boot({"run": run, "first": first}, VIEWER)["report"]


def test_boot_lists_runs_with_policies_and_says_who_may_act(page: EvaluatePage) -> None:
    reply = page.boot({}, OPERATOR)
    assert [(run["id"], run["steps"]) for run in reply["runs"]] == [("ppo-1", [1, 2, 4])]
    assert (reply["operator"], reply["why_not"], reply["problem"]) == (True, "", "")
    assert page.boot({}, VIEWER)["operator"] is False


def test_the_report_is_that_of_the_statistics(page: EvaluatePage) -> None:
    reply = page.boot({"run": "evaluation-1"}, VIEWER)
    numbers = reply["report"]
    assert (numbers["policies"], numbers["first"], numbers["decides"], numbers["prompts"]) == (
        POLICIES,
        "start",
        "gold",
        12,
    )
    assert [(row["policy"], row["wins"], row["rate"]["value"]) for row in numbers["wins"]["gold"]] == [("late", 12, 1.0)]
    columns = [column["key"] for column in numbers["columns"]]
    late = numbers["rows"][1]["cells"]
    assert late[columns.index("difference/score")]["value"] == pytest.approx(1.0)
    assert late[columns.index("score")]["low"] < 1.55 < late[columns.index("score")]["high"]
    assert [point["root_kl"] for point in numbers["frontier"]["points"]] == [0.0, 1.0]
    assert numbers["frontier"]["over_optimised"] == []
    headline = headline_of(page._workspace.reader("evaluation-1"), "evaluation")  # the same number on Runs
    assert headline == {"label": "Win rate", "first": None, "last": 1.0, "falls": False, "percent": True}
    assert report(page, first="late")["first"] == "late"
    assert "no answers of 'nobody'" in report(page, first="nobody")["problem"]
    nothing_new = page.boot({"run": "evaluation-1", "seen": reply["seen"]}, VIEWER)
    assert "report" not in nothing_new and "report" not in page.boot({"run": "../etc"}, VIEWER)


def test_each_reader_is_answered_in_their_language(page: EvaluatePage) -> None:
    with speaking("zh"):
        chinese = report(page)
    english = report(page)
    assert [column["title"] for column in english["columns"]][:4] == ["Score", "Gold", "KL", "Length"]
    assert [column["title"] for column in chinese["columns"]][:4] == ["得分", "金标准", "KL", "长度"]


def test_a_recorded_evaluation_is_there_before_the_first_of_ones_own(tmp_path: Path) -> None:
    page = EvaluatePage(Workspace(tmp_path, Recordings(cache_folder=tmp_path / "cache")), Access())
    reply = page.boot({}, VIEWER)
    assert reply["evaluations"] == [] and "report" not in reply
    for run, policies in ((reply["example"], 7), (EXAMPLE_ROAD_EVALUATION, 2)):
        shown = page.boot({"run": run}, VIEWER)
        assert len(shown["report"]["policies"]) == policies and shown["report"]["state"] == "finished"
        assert "report" not in page.boot({"run": run, "seen": shown["seen"]}, VIEWER)
        assert len(page.answers({"run": run, "policies": shown["report"]["policies"][:2]}, VIEWER)["rows"]) == 10
        assert page.duel({"run": run, "policies": shown["report"]["policies"]}, OPERATOR) == {"problem": str(OnlyRead())}
    assert page.boot({"run": reply["example"]}, VIEWER)["report"]["frontier"]["over_optimised"]


def test_what_kl_refers_to_is_told_by_the_name_of_its_run(tmp_path: Path) -> None:
    tuned = sft_run(tmp_path, steps=2, name="my fine-tuned one")
    folders = [
        tuned.run_dir / "checkpoints" / "step-000002" / "policy",
        tmp_path / "runs" / "gone" / "checkpoints" / "step-000004" / "policy",
    ]
    references, rows = [], [replace(row, sample=number) for number, row in enumerate(answers("start", 0.0))]
    for folder in folders:
        settings = {"evaluation": {"reference": str(folder)}}
        run = write_stage_run(tmp_path, "evaluation", [{}], rollouts=rows, **settings)
        references.append(report(EvaluatePage(Workspace(tmp_path), Access()), run.run_dir.name)["reference"])
    assert references == ["my fine-tuned one, step 2", "gone@4"]


def test_the_matrix_marks_what_differs_and_comes_in_pages(page: EvaluatePage) -> None:
    matrix = page.answers({"run": "evaluation-1", "policies": POLICIES, "against": "start", "start": 0}, VIEWER)
    assert (len(matrix["rows"]), matrix["total"], matrix["draws"]) == (10, 12, 1)
    first, second = matrix["rows"][0]["answers"]
    assert (first["policy"], first["pieces"], first["judge"]) == ("start", [], None)
    assert [(piece["change"], piece["text"]) for piece in second["pieces"]] == [
        ("same", "the film is"),
        ("only first", " start"),
        ("only second", " late"),
        ("same", "."),
    ]
    later = page.answers({"run": "evaluation-1", "policies": ["late", 3, "nobody"], "start": 10}, VIEWER)
    assert [(row["prompt"], len(row["answers"])) for row in later["rows"]] == [("prompt 10", 1), ("prompt 11", 1)]


def test_files_to_take_home(page: EvaluatePage) -> None:
    csv = page.file({"run": "evaluation-1", "kind": "csv"}, VIEWER)
    assert csv["name"] == "evaluation-evaluation-1.csv" and csv["text"].startswith("policy,answers,score,score_low,score_high,gold")
    assert page.file({"run": "evaluation-1", "kind": "md"}, VIEWER)["text"].startswith("| | start | late |")
    assert page.file({"run": "evaluation-1", "kind": "jsonl"}, VIEWER)["text"].count("\n") == 24
    assert page.file({"run": "evaluation-1", "kind": "exe"}, VIEWER)["problem"]


def test_a_vote_is_blind_and_counted_once(page: EvaluatePage) -> None:
    duel = page.duel({"run": "evaluation-1", "policies": POLICIES}, OPERATOR)
    assert set(duel) == {"problem", "key", "prompt", "left", "right"}  # nobody is named
    better = "left" if "late" in duel["left"] else "right"
    duel_result = page.vote({"key": duel["key"], "choice": better}, OPERATOR)
    assert {duel_result["left"], duel_result["right"]} == set(POLICIES) and duel_result["votes"] == 1
    assert "no longer open" in page.vote({"key": duel["key"], "choice": better}, OPERATOR)["problem"]
    votes = report(page)["votes"]
    assert [(row["policy"], row["wins"], row["ties"], row["losses"]) for row in votes] == [("late", 1, 0, 0)]
    assert page.vote({"key": duel["key"], "choice": "both"}, OPERATOR)["problem"] == "Choose left, right or tie."


def test_who_only_watches_starts_nothing_and_votes_for_nothing(page: EvaluatePage) -> None:
    for ask in (page.begin, page.duel, page.vote):
        assert ask({"run": "evaluation-1", "policies": POLICIES}, VIEWER)["problem"]
        assert ask({"run": "evaluation-1", "policies": POLICIES, "view": True}, OPERATOR)["problem"]


def test_a_vote_that_cannot_be_kept_is_not_counted(tmp_path: Path) -> None:
    arena = Arena(lambda run: tmp_path / run)
    policies = list(by_policy([*answers("start", 0.0), *answers("late", 1.0)]).values())
    key, duel = arena.next("r", policies) or ("", None)
    with pytest.raises(StoreError):  # there is no such folder
        arena.vote(key, "tie")
    assert arena.votes("r", policies).votes == []
    (tmp_path / "r").mkdir()
    assert arena.vote(key, "tie") == duel and len(arena.votes("r", policies).votes) == 1  # the comparison stayed open
    assert Arena(lambda run: tmp_path / run).votes("r", policies) == arena.votes("r", policies)  # an app that starts later knows it


def record(run: Path, text: str, policies: tuple[str, ...] = ("start", "late")) -> None:
    """The evaluation from its beginning, with answers that begin with ``text``."""
    with RunWriter(run) as writer:
        writer.go_back(0)
        rows = [row for shift, name in enumerate(policies) for row in answers(name, float(shift))]
        rows = [replace(row, sample=number, response=text + row.response) for number, row in enumerate(rows)]
        writer.commit_step(StepRecord(1, {}, rows))


def test_votes_on_answers_that_are_gone_do_not_count(page: EvaluatePage, workspace: Workspace) -> None:
    run = workspace.root / "runs" / "evaluation-1"
    late_open = ""
    for _ in range(3):
        duel = page.duel({"run": "evaluation-1", "policies": POLICIES}, OPERATOR)
        page.vote({"key": duel["key"], "choice": "left" if "late" in duel["left"] else "right"}, OPERATOR)
        late_open = page.duel({"run": "evaluation-1", "policies": POLICIES}, OPERATOR)["key"]
    before = report(page)
    assert (before["votes"][0]["wins"], before["votes_left_out"]) == (3, 0)
    record(run, "other: ")  # as resume --from-start does, after a change
    for own in (page, EvaluatePage(workspace, Access())):
        votes_now = report(own)
        assert (votes_now["votes"], votes_now["votes_left_out"]) == ([], 3)
    duel_result = page.vote({"key": late_open, "choice": "tie"}, OPERATOR)  # a comparison that was open over the change
    assert (duel_result["problem"], duel_result["votes"]) == ("", 0)
    record(run, "")  # the first answers again: the votes are about them
    votes_now = report(page)
    assert (votes_now["votes"][0]["wins"], votes_now["votes"][0]["ties"], votes_now["votes_left_out"]) == (3, 1, 0)


def test_the_arena_shows_each_pair_before_it_repeats_one(tmp_path: Path) -> None:
    arena = Arena(lambda run: tmp_path)
    policies = list(by_policy([*answers("start", 0.0), *answers("late", 1.0)]).values())
    prompts_shown = []
    for _ in range(12):
        key, duel = arena.next("r", policies) or ("", None)
        assert duel is not None
        prompts_shown.append(duel.place)
        arena.vote(key, "left")
    assert sorted(prompts_shown) == list(range(12))
    assert arena.next("r", policies[:1]) is None


def test_the_form_becomes_an_evaluation(page: EvaluatePage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[tuple[EvaluationRunConfig, str]] = []
    monkeypatch.setattr(workspace, "submit", lambda config, name, memory: submitted.append((config, name)) or "new-run")
    form = {
        "policies": "ppo-1@start\nppo-1@4",
        "prompts": 20,
        "samples": 2,
        "seed": 5,
        "temperature": 0.7,
        "name": " mine ",
        "judge": " bundled/world-reward ",
    }
    assert page.begin(form, OPERATOR) == {"problem": "", "run": "new-run"}
    config, name = submitted[0]
    assert name == "mine"
    chosen = config.evaluation
    assert (chosen.prompts, chosen.samples, chosen.seed, config.generation.temperature) == (20, 2, 5, 0.7)
    assert chosen.judge == "bundled/world-reward"
    assert [Path(line).name for line in chosen.policies.splitlines()] == ["ppo-1@start", "ppo-1@4"]


WRONG_FORMS: list[tuple[Json, str]] = [
    ({}, "Choose at least one policy."),
    ({"policies": "ppo-1@3"}, "ppo-1 has no checkpoint or snapshot of step 3"),
    ({"policies": "ppo-1", "samples": 2.5}, "Samples: should be a whole number"),
    ({"policies": "ppo-1", "samples": 65}, "Samples: should be a whole number from 0 to 64"),
    ({"policies": "ppo-1", "samples": 2, "greedy": True}, "greedy answers to one prompt are all the same"),
    ({"policies": "ppo-1", "temperature": "hot"}, "Temperature: should be a number"),
    ({"policies": "./no-model", "file": "p.txt", "reward": "x"}, "Who answers: there is no folder ./no-model"),
    ({"policies": "ppo-1@start", "file": "./no-prompts.txt"}, "Prompts: there is no file ./no-prompts.txt"),
    ({"policies": "ppo-1@start", "judge": "./no-judge"}, "Judge: there is no folder ./no-judge"),
    ({"policies": "ppo-1@start", "reward": "./no-reward"}, "Reward: there is no folder ./no-reward"),
    ({"policies": "ppo-1@start", "text": "./no-text.txt"}, "Held-out text: there is no file ./no-text.txt"),
    ({"policies": "ppo-1@start", "reference": "./no-reference"}, "Reference model: there is no folder ./no-reference"),
]


def test_what_is_wrong_with_the_form_is_said(page: EvaluatePage, workspace: Workspace) -> None:
    before = sorted(folder.name for folder in (workspace.root / "runs").iterdir())
    for form, problem in WRONG_FORMS:
        assert problem in page.begin(form, OPERATOR)["problem"], form
        assert sorted(folder.name for folder in (workspace.root / "runs").iterdir()) == before, f"{form} leaves something behind"


def test_all_that_is_wrong_is_said_at_once_with_the_fields(page: EvaluatePage) -> None:
    form = {"policies": "ppo-1@start", "file": "./no-prompts.txt", "judge": "./no-judge", "reward": "./no-reward"}
    outcome = page.begin(form, OPERATOR)
    assert set(outcome["fields"]) == {"file", "judge", "reward"} and len(outcome["problem"].splitlines()) == 3
