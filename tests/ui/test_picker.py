"""What the picker's script is told: operators only, no folder outside the roots, and no list of the disk in a class or on a Space."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from rlhf_studio.config import permissions_from_flags
from rlhf_studio.inputs.choices.browsing import Roots
from rlhf_studio.inputs.choices.choice import NotOffered
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.picker.page import Picker
from rlhf_studio.ui.picker.roots import roots_of
from rlhf_studio.ui.visiting.modes import Mode
from tests.ui.train_helpers import OPERATOR, VIEWER, install_world


def no_network(words: str, kind: str, base: Any) -> Any:
    raise NotOffered(f"The hub cannot be asked for {words} ({kind}).")


@pytest.fixture
def picker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Picker:
    install_world(tmp_path, monkeypatch)
    (tmp_path / "mine.py").write_text("def score(prompts, responses, **extra): ...")
    permissions = permissions_from_flags([str(tmp_path / "mine.py")], [])
    roots = Roots.of([tmp_path])
    return Picker(Workspace(tmp_path / "ws"), Access(), roots, permissions, scan=lambda kind: [], search=no_network)


def test_each_list_has_what_fills_the_form(picker: Picker, tmp_path: Path) -> None:
    def groups(what: str, stage: str = "ppo") -> dict[str, list[Any]]:
        answer = picker.pick_choices({"what": what, "stage": stage}, OPERATOR)
        assert answer["problem"] == "" and answer["browse"]
        return {group["title"]: group["choices"] for group in answer["groups"]}

    models = groups("model")["Comes with RLHF Studio"]
    assert models[0]["settings"] == {"model.policy": "bundled/world-policy", "model.revision": "main"}
    assert groups("data")["Comes with RLHF Studio"][0]["settings"]["data.prompts"] == "bundled/world-prompts"
    assert "data.source" in groups("data", "sft")["Comes with RLHF Studio"][0]["settings"]
    rewards = groups("reward")
    own = rewards["Your own function or server"]
    assert own[0]["title"] == "mine.py" and own[0]["settings"]["reward.components"][0]["file"] == str(tmp_path / "mine.py")
    assert rewards["Rules"] and rewards["Comes with RLHF Studio"][0]["title"] == "bundled/world-reward"

    facts = picker.pick_model({"model": "bundled/world-policy", "stage": "ppo"}, OPERATOR)
    assert facts["problem"] == "" and facts["sentence"].startswith("gpt2, ") and "reads up to 128 tokens" in facts["sentence"]
    assert picker.pick_model({"model": "/no/such/folder", "stage": "ppo"}, OPERATOR)["problem"] == "There is no folder /no/such/folder."
    for wrong in (None, {}, {"model": 3}, {"model": "x" * 5000}):
        assert picker.pick_model(wrong, OPERATOR)["problem"]

    sent = {"key": "0" * 16, "name": "rows.jsonl", "offset": 0, "part": base64.b64encode(b'{"prompt": "Hi"}').decode(), "last": True}
    uploaded = picker.pick_upload({**sent, "stage": "ppo"}, OPERATOR)
    assert uploaded["settings"]["data.prompts"] == str((tmp_path / "ws" / "uploads" / "rows.jsonl").resolve())
    assert groups("data")["Uploaded"][0]["title"] == "rows.jsonl"
    for changed in (
        {"part": "no base64!"},
        {"part": "für"},
        {"name": "\ud800.jsonl"},
        {"offset": -1},
        {"offset": True},
        {"name": "../rows.jsonl"},
        {"part": None},
    ):
        assert picker.pick_upload({**sent, **changed}, OPERATOR)["problem"], changed
    assert picker.pick_search({"words": "tiny", "what": "model"}, OPERATOR) == {
        "choices": [],
        "problem": "The hub cannot be asked for tiny (model).",
    }
    assert picker.pick_folder({"path": "", "what": "data"}, OPERATOR)["path"] == str(tmp_path.resolve())
    assert picker.pick_folder({"path": "/etc", "what": "data"}, OPERATOR)["problem"]


def test_only_operators_are_answered(picker: Picker, tmp_path: Path) -> None:
    sent = {"what": "data", "stage": "ppo", "path": "", "model": "bundled/world-policy", "words": "x"}
    upload = {"key": "0" * 16, "name": "rows.jsonl", "offset": 0, "part": "", "last": True}
    for ask in picker.functions():
        for data, request in ((sent | upload, VIEWER), (sent | upload | {"view": True}, OPERATOR)):
            with pytest.raises(gr.Error):
                ask(data, request)
    assert not (tmp_path / "ws" / "uploads").exists()


def test_nobody_looks_into_folders_where_others_come(tmp_path: Path) -> None:
    given = [tmp_path / "models"]
    given[0].mkdir()
    for mode in (Mode.CLASSROOM, Mode.SPACE, Mode.READ_ONLY):
        assert roots_of(mode, [], tmp_path, alone=True).folders == ()
        with pytest.raises(ValueError, match="--browse is for an app of one's own"):
            roots_of(mode, given, tmp_path, alone=True)
    assert roots_of(Mode.LOCAL, [], tmp_path, alone=False).folders == (), "an app that others reach shows what --browse names alone"
    assert roots_of(Mode.LOCAL, given, tmp_path, alone=False).folders == (given[0].resolve(),)
    assert tmp_path.resolve() in roots_of(Mode.LOCAL, [], tmp_path, alone=True).folders
    with pytest.raises(ValueError, match="there is no folder"):
        roots_of(Mode.LOCAL, [tmp_path / "none"], tmp_path, alone=True)
