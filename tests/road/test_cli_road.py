"""The command ``road``: what it prints, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED
from rlhf_studio.jobs.road.plan import SMALL, RoadSettings
from rlhf_studio.jobs.road.state import driven, list_roads, read_road, write_road
from tests.road.stand_ins import CAUSE, behave, journal, new_road, stand_in


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in(monkeypatch)
    return tmp_path / "my workspace"


def test_what_is_wrong_begins_nothing(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace_option = ["--workspace", str(workspace)]
    for arguments, words in (
        (["world", "--rounds", "0", *workspace_option], "--rounds: should be from 1 to 9, not 0"),
        (["world", "--seed", "-1", *workspace_option], "--seed: should be at least 0 and below 2^31, not -1"),
        (["world", "--workspace", "/dev/null"], "--workspace: no road can be begun in /dev/null: "),
        (["go", "nowhere", *workspace_option], "nowhere is not the folder of a road: "),
    ):
        assert main(["road", *arguments]) == BAD_INPUT, arguments
        out, err = capsys.readouterr()
        assert err.startswith(f"rlhf-studio: {words}") and err.count("\n") == 1 and out == "", arguments
    assert not workspace.exists()


@pytest.mark.slow
def test_a_new_road_says_where_it_is_and_how_to_go_on(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workspace.mkdir()
    behave(workspace, sft="failing")
    assert main(["road", "world", "--small", "--rounds", "2", "--seed", "5", "--workspace", str(workspace)]) == FAILED
    (road,) = list_roads(workspace)
    assert road.settings == replace(SMALL, rounds=2, seed=5)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"road: {road.folder}",
        "Fine-tune a new policy …",
        f"failed: Fine-tune a new policy: {CAUSE}",
        f"put that right, then go on with: python -m rlhf_studio road go '{road.folder}'",
    ]
    assert main(["road", "go", str(road.folder)]) == FAILED  # the workspace is that of the folder, wherever it is typed
    assert journal(workspace) == ["train sft", "resume --from-start sft"] and len(list_roads(workspace)) == 1
    capsys.readouterr()
    assert main(["road", "list", "--workspace", str(workspace)]) == DONE
    listed = capsys.readouterr().out.splitlines()
    assert listed[0] == str(road.folder) and listed[1] == f"  failed   Fine-tune a new policy ({CAUSE})"
    assert len(listed) == 9 and listed[2].startswith("  waiting  ")


@pytest.mark.slow
def test_a_full_road_has_the_usual_length(workspace: Path) -> None:
    workspace.mkdir()
    behave(workspace, sft="failing")
    assert main(["road", "world", "--workspace", str(workspace)]) == FAILED
    assert list_roads(workspace)[0].settings == RoadSettings()


def test_a_road_that_another_process_goes_along_is_refused(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = new_road(workspace)
    with driven(folder):
        assert main(["road", "go", str(folder)]) == BAD_INPUT
    assert capsys.readouterr().err == (
        f"rlhf-studio: another process goes along the road {folder} already; wait for its end, or stop it first\n"
    )
    assert journal(workspace) == []


@pytest.mark.slow
def test_a_road_outside_a_workspace_asks_for_one(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = new_road(workspace).rename(workspace / "copied")
    assert main(["road", "go", str(folder)]) == BAD_INPUT
    assert capsys.readouterr().err == f"rlhf-studio: --workspace: {folder} lies in no workspace; say in which one its runs are\n"
    behave(workspace, sft="failing")
    assert main(["road", "go", str(folder), "--workspace", str(workspace)]) == FAILED
    assert capsys.readouterr().out.endswith(f"road go '{folder}' --workspace '{workspace}'\n")


def test_a_road_that_is_done_has_nothing_left(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    road = read_road(new_road(workspace))
    for part in road.parts:
        road = road.with_part(part.key, state="done", headline=f"{part.key} is done.")
    write_road(road)
    assert main(["road", "go", str(road.folder)]) == DONE and journal(workspace) == []
    assert capsys.readouterr().out == "every part of this road is done already\n"
    main(["road", "list", "--workspace", str(workspace)])
    assert "  done     Train a reward model: reward_model is done.\n" in capsys.readouterr().out


def test_an_empty_workspace_says_how_to_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["road", "list", "--workspace", str(tmp_path)]) == DONE
    assert capsys.readouterr().out == f"No roads in {tmp_path} yet. Start one with: python -m rlhf_studio road world\n"
