"""Going along a road on own files with stand-ins for the engines: held up, gone on with anyway, and parts that their time ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhf_studio.cli.main import main
from rlhf_studio.config import Permissions
from rlhf_studio.exit_codes import BAD_INPUT, DONE, STOPPED
from rlhf_studio.jobs.road.begin import begin_road
from rlhf_studio.jobs.road.drive import drive, go_on_command
from rlhf_studio.jobs.road.running import is_over_by_time
from rlhf_studio.jobs.road.state import OwnSettings, read_road
from rlhf_studio.runs.records import TIME_OVER, EventRecord
from rlhf_studio.runs.workspace import Workspace
from tests.road.own_files import own_settings
from tests.road.stand_ins import behave, journal, new_road, stand_in
from tests.runs.stage_helpers import write_stage_run
from tests.runs.test_checkpoints import checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in(monkeypatch)
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_it_stops_after_a_part_that_was_not_worth_it_and_goes_on_anyway(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The stand-in's reward model is right on 70 % of 9 held-out pairs, which may be chance: Wilson's interval begins at 38 %."""
    road, lines = begin_road(workspace, "your road", own_settings(workspace), 5.0), list[str]()
    assert drive(road.folder, workspace, lines.append) == STOPPED
    assert journal(workspace) == ["train sft", "train reward_model"]
    assert any(line.endswith("The held-out loss fell by 57 %: 3.50 → 1.50.") for line in lines)
    weak = "Not surely better than chance: the reward model is right on 70 % of 9 held-out pairs (38 % to 90 %)."
    assert lines[-2].startswith(f"the road stops after this part: {weak} About 30 held-out pairs would tell")
    assert lines[-1] == f"go on all the same with: {go_on_command(road.folder, workspace)} --anyway"
    allowed = go_on_command(road.folder, workspace, Permissions(("/w/mine.py",)))
    assert allowed.endswith(" --allow-custom-rewards /w/mine.py")  # without it the reward of one's own would be refused
    assert [part.state for part in read_road(road.folder).parts] == ["done", "done", "waiting", "waiting"]
    assert drive(road.folder, workspace, lines.append) == STOPPED and len(journal(workspace)) == 2

    assert main(["road", "go", str(road.folder), "--anyway"]) == DONE
    assert journal(workspace)[2:] == ["train ppo", "train evaluation"]
    ended = read_road(road.folder)
    assert isinstance(ended.settings, OwnSettings) and ended.settings.anyway
    comparison = ended.part("evaluation").comparison
    assert comparison is not None and comparison.rate == pytest.approx(2 / 3) and comparison.prompts == 3
    assert comparison.same_answer == 3  # the stand-in's second policy says the same to all three
    out = capsys.readouterr().out
    assert "No sure difference: the trained policy wins 67 % of comparisons with the start (" in out
    assert "  before  first  (0.00)\n  after   second  (−1.00)\n" in out
    assert main(["road", "go", str(new_road(workspace)), "--anyway"]) == BAD_INPUT


def test_a_part_without_files_is_left_out(workspace: Path) -> None:
    own = own_settings(workspace)
    road = begin_road(workspace, "", OwnSettings(own.policy, prompts=own.prompts, reward={"kind": "lexicon"}), 5.0)
    behave(workspace, ppo="failing")
    drive(road.folder, workspace, lambda text: None)
    assert journal(workspace) == ["train ppo"]


def test_a_run_that_its_time_has_ended_is_done(tmp_path: Path) -> None:
    """The event of the time that is over, then the stop; a run that was stopped later, or before its first checkpoint, goes on."""
    over, stopped = EventRecord("info", TIME_OVER, ""), EventRecord("info", "stop", "")
    cases = [
        ([over, stopped], True, True),
        ([over, stopped], False, False),
        ([over, stopped, stopped], True, False),
        ([stopped], True, False),
    ]
    for events, saved, done in cases:
        run = write_stage_run(tmp_path, "sft", [{"sft/loss": 1.0}] * 2, state="stopped", events=events).run_dir
        if saved:
            checkpoint(run, 2)
        assert is_over_by_time(Workspace(tmp_path), run.name) is done, (events, saved)
