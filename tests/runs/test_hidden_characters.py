"""Characters that nobody sees: no door takes them in a name, and none that lies in a run reaches a terminal."""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.analysis.logs.apart import open_log_sent
from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.cli.main import main
from rlhf_studio.config.io import config_from_yaml, config_to_yaml
from rlhf_studio.runs import paths
from rlhf_studio.runs.classroom.records import clean_name
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.feedback.tasks import checked_name
from rlhf_studio.runs.people import NotPossible
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.classroom.ready import as_question
from rlhf_studio.ui.feedback.sent import new_task
from tests.runs.store_helpers import config, step_record

BAD = {
    "escape": "a\x1b[2Jb",
    "override": "a\u202eb",
    "isolate": "a\u2066b",
    "no width": "a\u200bb",
    "joiner": "a\u200db",
    "C1": "a\x9b31mb",
}
GOOD = "日本語 می\u200cخواهم 👩\u200d🏫 naïve"  # joiners between characters that need them
LOG = json.dumps({"prompt": "a", "response": "b", "response_tokens": ["b"], "reward": 1.0, "step": 1})
REFUSALS = (ValueError, NotPossible)
"""What a door says no with: each page and command tells it as one sentence."""


def named(name: str) -> Any:
    return config().model_copy(update={"name": name})


def component(name: str) -> Any:
    data = config().model_dump(mode="json")
    data["reward"]["components"][0]["name"] = name
    return type(config()).model_validate(data)


DOORS: dict[str, Callable[[Workspace, str, str], Any]] = {
    "a run's name": lambda workspace, run, bad: workspace.submit(config(), bad),
    "the setting name": lambda workspace, run, bad: workspace.submit(named(bad)),
    "a run of a shell": lambda workspace, run, bad: create_run(workspace.root / "elsewhere", named(bad), name=bad),
    "a component's name": lambda workspace, run, bad: workspace.submit(component(bad)),
    "a new name": lambda workspace, run, bad: workspace.rename(run, bad),
    "a sweep's name": lambda workspace, run, bad: workspace.submit_sweep(config(), {"ppo.kl_coef": [0.1, 0.2]}, bad),
    "a variation's name": lambda workspace, run, bad: workspace.fork(run, None, {"ppo.kl_coef": 0.2}, bad),
    "a tag": lambda workspace, run, bad: workspace.mark(run, tags=["fine", bad]),
    "a note": lambda workspace, run, bad: workspace.mark(run, note=bad),
    "a student's name": lambda workspace, run, bad: clean_name(bad),
    "an annotator's name": lambda workspace, run, bad: checked_name(bad),
    "a task's name": lambda workspace, run, bad: new_task({"settings": {"name": bad}}),
    "a criterion": lambda workspace, run, bad: new_task({"settings": {"name": "fine", "criterion": bad}}),
    "a question": lambda workspace, run, bad: as_question(bad, options=("one", "two")),
    "an option": lambda workspace, run, bad: as_question("fine?", options=("one", bad)),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "ws")


@pytest.fixture
def run(workspace: Workspace) -> str:
    return workspace.submit(config(), "mine")


def test_no_door_takes_a_character_that_nobody_sees(workspace: Workspace, run: str) -> None:
    before = [(status.run_id, status.name, status.marks) for status in workspace.runs()]
    for door, enter in DOORS.items():
        for bad in BAD.values():
            code = next(f"U+{ord(character):04X}" for character in bad if unicodedata.category(character) in ("Cc", "Cf"))
            try:
                answer = str(enter(workspace, run, bad))
            except REFUSALS as error:
                answer = str(error)
            assert code in answer and answer.isprintable() and "at most" not in answer, (door, answer)
    assert [(status.run_id, status.name, status.marks) for status in workspace.runs()] == before
    for enter in DOORS.values():
        enter(workspace, run, GOOD)
    workspace.mark(run, note="two\nlines")


def test_nothing_that_lies_in_a_run_steers_a_terminal(
    workspace: Workspace, run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run folder may come from others, and from versions that took every name."""
    nasty = "".join(BAD.values()) + "\r\n"
    folder = workspace.run_dir(run)
    with RunWriter(folder) as writer:
        writer.set_state("running", nasty, device=nasty)
        writer.commit_step(step_record(1))
        writer.set_state("failed", cause=nasty)
    with sqlite3.connect(folder / paths.DATABASE) as connection:
        connection.execute("UPDATE run SET name = ?", (nasty,))
    (folder / paths.CONFIG).write_text(config_to_yaml(named(nasty[:100])), encoding="utf-8")
    bad_file = folder.parent.parent / "bad.yaml"
    bad_file.write_text(f'{{"name": "fine", "ppo": {json.dumps({nasty: 1})}}}', encoding="utf-8")
    commands = [["runs", "list", "--workspace", str(workspace.root)], ["runs", "show", str(folder)], ["doctor", str(folder)]]
    commands += [["runs", "config", str(folder)], ["train", "--config", str(bad_file)], ["runs", "show", nasty], [nasty]]
    for command in commands:
        main(command)
        output = capsys.readouterr()
        text = output.out + output.err
        assert text and all(line.isprintable() for line in text.split("\n")), command
        if command[:2] == ["runs", "list"]:
            assert text.count("\n") == 1  # a name with a new line looks like one run
        if command[1:2] == ["config"]:
            assert config_from_yaml(text) == RunReader(folder).config()
    copy = workspace.fork(run, None, {"ppo.kl_coef": 0.2})  # a name that is made from another's is clean
    assert workspace.status(copy).name.isprintable()


def test_an_opened_log_is_called_by_what_is_seen(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / f"{BAD['override']}.jsonl"
    file.write_text(LOG, encoding="utf-8")
    with pytest.raises(ValueError, match=r"U\+001B"):
        open_log_sent(LOG.encode(), "log.jsonl", workspace.root, BAD["escape"])
    opened = [open_log(file, workspace.root), open_log_sent(LOG.encode(), file.name, workspace.root)]
    for log in opened:
        status = workspace.status(log.run_id)
        assert status.name == "a⟨U+202E⟩b" and status.origin.imported == "a⟨U+202E⟩b.jsonl"
