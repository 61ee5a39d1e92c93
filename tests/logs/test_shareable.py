"""What leaves the machine: no path of it, no secret, and nothing of steps that were trained again; texts of the data as they were."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.analysis.logs.shareable import PATH_SETTINGS, PATH_SETTINGS_OF_COMPONENTS, Shareable
from rlhf_studio.analysis.logs.write import lines_of
from rlhf_studio.config import REWARD_KINDS, RunConfig
from rlhf_studio.config.io import walk_fields
from rlhf_studio.jobs.export.report import report
from rlhf_studio.jobs.export.story import story_of
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, SettingChange, StepRecord
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.live.snapshot import Follower
from tests.export import fakes
from tests.runs.store_helpers import new_run, rollout

HOME = "/home/anna/secret-place"
SETTINGS: dict[str, Any] = {
    "name": f"from {HOME}/run",
    "model": {"policy": f"{HOME}/models/tiny", "reference": "~/anna/reference"},
    "data": {"prompts": f"{HOME}/prompts.jsonl", "eval": "../anna/eval.jsonl"},
    "critic": {"kind": "separate", "start": "model", "model": f"{HOME}/critic"},
    "engine": {"accelerate_config": f"{HOME}/accelerate.yaml"},
    "reward": {
        "components": [
            {"kind": "reward_model", "model": f"{HOME}/rm"},
            {"kind": "ensemble", "models": f"{HOME}/one, owner/two\n{HOME}/three"},
            {"kind": "python", "file": f"{HOME}/reward.py"},
            {"kind": "regex", "pattern": r"^/usr/(bin|lib)/\d+$"},
        ]
    },
}
SHARED: dict[str, Any] = {
    "name": "from run",
    "model": {"policy": "tiny", "reference": "reference"},
    "data": {"prompts": "prompts.jsonl", "eval": "eval.jsonl"},
    "critic": {"kind": "separate", "start": "model", "model": "critic"},
    "engine": {"accelerate_config": "accelerate.yaml"},
    "reward": {
        "components": [
            {"kind": "reward_model", "model": "rm"},
            {"kind": "ensemble", "models": "one, owner/two\nthree"},
            {"kind": "python", "file": "reward.py"},
            {"kind": "regex", "pattern": r"^/usr/(bin|lib)/\d+$"},
        ]
    },
}


def text_of(reader: RunReader) -> str:
    return "".join(lines_of(reader))


def diary_of(reader: RunReader) -> list[str]:
    return [line["text"] for line in map(json.loads, lines_of(reader)) if line["kind"] == "event"]


def test_an_exported_log_names_no_place_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.install(monkeypatch)
    folder = tmp_path / "my work" / "runs" / "run"
    config = RunConfig.model_validate(SETTINGS)
    create_run(folder, config, name=f"from {HOME}/run")
    with_paths = rollout(0, prompt=f"read {HOME}/notes", response="/etc/passwd and/or https://example.org/a/b")
    events = [
        EventRecord("info", "log", f"Read {HOME}/x.txt, wrote '{folder}/checkpoints' (see https://u:p@example.org/a/b), 1/2/3."),
        EventRecord("info", "resume", "again", {"settings": config.model_dump(mode="json"), "path": [f"{HOME}/y"], "value": 0.5}),
    ]
    with RunWriter(folder) as writer:
        writer.commit_step(
            StepRecord(1, {"objective/scores": 1.0}, [with_paths], events=events, changes=[SettingChange(1, "x", f"{HOME}/a", 1)])
        )
        writer.set_state("finished")
    reader = RunReader(folder)
    lines = [json.loads(line) for line in lines_of(reader)]
    other_lines = json.dumps([line for line in lines if line["kind"] != "rollout"])
    assert "anna" not in other_lines and str(tmp_path) not in other_lines and "my work" not in other_lines
    assert diary_of(reader)[0] == "Read x.txt, wrote 'checkpoints' (see https://example.org/a/b), 1/2/3."
    record = next(line for line in lines if line["kind"] == "rollout")
    assert (record["prompt"], record["response"]) == (with_paths.prompt, with_paths.response), "texts of the data are as they were"
    (tmp_path / "log.jsonl").write_text(text_of(reader))
    opened = open_log(tmp_path / "log.jsonl", tmp_path)
    assert Workspace(tmp_path).reader(opened.run_id).config() == RunConfig.model_validate(SHARED)
    page = report(story_of(reader))
    assert "wrote &#x27;checkpoints&#x27;" in page and "(bin|lib)/\\d+$" in page
    assert "anna" not in page.replace(f"{HOME}/notes", "")


def test_an_exported_log_holds_no_secret_but_in_texts_of_the_data(tmp_path: Path) -> None:
    token, address = "hf_abcdefghijklmnop", "https://anna:pw@example.org/a"
    both = f"{token} {address}"
    components = [{"kind": "regex", "pattern": both}]
    create_run(tmp_path / "run", RunConfig.model_validate({"reward": {"components": components}}), name=both)
    event = EventRecord("error", "log", f"Asked {both}", {"headers": [token, {address: both}], both: 1})
    with RunWriter(tmp_path / "run") as writer:
        writer.set_state("running")
        change = SettingChange(1, "model.policy", both, token)
        writer.commit_step(StepRecord(1, {"objective/scores": 1.0}, [rollout(0, prompt=both)], events=[event], changes=[change]))
    lines = [json.loads(line) for line in lines_of(RunReader(tmp_path / "run"))]
    other_lines = json.dumps([line for line in lines if line["kind"] != "rollout"])
    assert token not in other_lines and "anna" not in other_lines and other_lines.count("example.org/a") == 7
    assert diary_of(RunReader(tmp_path / "run"))[0] == "Asked hf_\u2026 https://example.org/a"
    assert next(line for line in lines if line["kind"] == "rollout")["prompt"] == both


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_huge_numbers_are_reported_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums and squares overflow."""
    fakes.install(monkeypatch)
    huge = {"objective/scores": 1e308, "objective/scores_std": 1e308, "loss/value_avg": -1e308, "time/total": 1e308}
    steps = [{"kind": "step", "step": step, "metrics": {n: -v if step == 1 else v for n, v in huge.items()}} for step in range(1, 31)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    reader = Workspace(tmp_path).reader(open_log(tmp_path / "log.jsonl", tmp_path).run_id)
    assert reader.first_and_last(["objective/scores"]) == {"objective/scores": (-1e308, None)}
    assert diagnose(reader).step == 30
    assert report(story_of(reader)).rstrip().endswith("</html>")  # values beyond float32 are gaps in its curves
    follower = Follower(reader, "boot")
    follower.refresh(0.0)
    assert follower.snapshot is not None and json.loads(follower.snapshot.status)["step_seconds"] is None


def test_every_setting_that_names_a_file_or_folder_is_known() -> None:
    """Each text whose help speaks of files or folders is one that may name a place, or is named here as one that may not."""
    not_a_place = {"data.split", "data.eval_split", "data.column", "data.subset", "data.revision"}
    not_a_place |= {"generation.stop_token", "data.reference_column"}

    def speaks(field: Any) -> bool:
        return field.annotation is str and re.search(r"\b(file|folder|path)s?\b", f"{field.title} {field.description}", re.I) is not None

    speaking = {name for name, field in walk_fields() if speaks(field)} - not_a_place
    assert speaking <= {f"{section}.{name}" for section, names in PATH_SETTINGS.items() for name in names}
    of_components = {name for model in REWARD_KINDS.values() for name, field in model.model_fields.items() if speaks(field)}
    assert of_components <= set(PATH_SETTINGS_OF_COMPONENTS)
    assert {"policy", "prompts"} <= {name for names in PATH_SETTINGS.values() for name in names} and of_components


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/a/b", "b"),
        ("at /a/b/, then /c/d: e", "at b, then d: e"),
        ("and/or 1/2 w/o", "and/or 1/2 w/o"),
        ("file:/a/b.txt:12", "file:b.txt:12"),
        ("~/x/y ~5 ~", "y ~5 ~"),
        ("RUN/checkpoints/step-3 in RUN.", "step-3 in a run."),
        ("hf_abcdefghijkl in <</p/q>>", "hf_\u2026 in <<q>>"),
        ("/a" * 20_000, "a"),
    ],
)
def test_paths_in_a_text(text: str, left: str) -> None:
    run = Path("/srv/my work/runs/a run")
    assert Shareable(run).text(text.replace("RUN", str(run))) == left


def test_a_secret_goes_from_all_tokens_over_which_it_goes() -> None:
    data = {"response_tokens": [" key", " hf_abcd", "efgh", "ijkl", " in", " /p/q"], "ids": [1, 2]}
    assert Shareable(Path("/srv/run")).data(data) == {
        "response_tokens": [" key", " hf_\u2026", "\u2026", "\u2026", " in", " q"],
        "ids": [1, 2],
    }


def test_events_of_steps_that_were_trained_again_are_left_out(tmp_path: Path) -> None:
    """What was said of steps 2 and 3 before the resume goes; what was said since stays, and what was said of step 1."""
    run = new_run(tmp_path / "run", steps=4)

    def step(writer: RunWriter, number: int, name: str) -> None:
        event = EventRecord("info", "log", f"{name} {number}")
        writer.commit_step(StepRecord(number, {"objective/scores": 1.0}, [], events=[event]))
        writer.event(EventRecord("info", "checkpoint", f"{name} checkpoint {number}"))

    with RunWriter(run) as writer:
        writer.event(EventRecord("info", "log", "loading"))
        for number in (1, 2, 3):
            step(writer, number, "first")
        writer.go_back(1)
        writer.event(EventRecord("info", "resume", "resumed"))
        reader = RunReader(run)
        expected = ["loading", "first 1", "first checkpoint 1", "resumed"]
        assert diary_of(reader) == expected, "steps 2 and 3 wait to be trained again"
        step(writer, 2, "second")
    assert diary_of(reader) == [*expected, "second 2", "second checkpoint 2"]
    assert [event.text for event in reader.newest_events(3, of="now")] == ["resumed", "second 2", "second checkpoint 2"]
    assert len(reader.events_since(0)) == 10, "the store keeps all of them"
    assert [event.text for event in reader.events_since(0, of="steps")] == ["first 1", "second 2"]
