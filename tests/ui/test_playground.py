"""The reward playground without a browser: what it may be asked, and what the process is sent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.child_process.service import Service
from rlhf_studio.config import EnsembleReward, RewardConfig
from rlhf_studio.config.io import config_to_yaml
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.scoring.playground import RewardPlayground
from rlhf_studio.ui.visiting.modes import Mode
from tests.runs.stage_helpers import write_stage_run
from tests.ui.fake_run import FakeRun, config
from tests.ui.scoring_stand_in import COMMAND
from tests.ui.test_stages import give_model
from tests.ui.train_helpers import OPERATOR, VIEWER
from tests.waiting import wait_until

Json = dict[str, Any]
MODEL = "bundled/world-reward"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., RewardPlayground]]:
    service = Service("score", command=COMMAND)
    yield lambda access=None: RewardPlayground(Workspace(tmp_path), access or Access(), service)
    service.close()


def question(**changes: Any) -> Json:
    return {"model": MODEL, "prompt": "A film", "response": " good film.", "candidates": ["superb"], "words": True, **changes}


def finished(page: RewardPlayground, key: str) -> list[Json]:
    def news() -> Json:
        return json.loads(page.playground_news({"key": key, "since": 0}, OPERATOR).body)

    wait_until(lambda: news()["state"] == "done")
    return news()["events"]


def test_a_text_is_scored_and_the_process_is_told_what_it_needs(make: Callable[..., RewardPlayground]) -> None:
    page = make()
    events = finished(page, page.playground_ask(question(), OPERATOR)["key"])
    assert [event["event"] for event in events] == ["progress", "model", "scored", "trying", "words"]
    sent = finished(
        page, page.playground_ask(question(response="echo", prompt=None, candidates=[" two  words", "", "two words"]), OPERATOR)["key"]
    )
    request = json.loads(sent[-1]["error"])
    assert request["model"] == MODEL and (request["prompt"], request["candidates"], request["append_eos"]) == ("", ["two words"], False)
    loaded = finished(page, page.playground_ask({"model": MODEL}, OPERATOR)["key"])
    assert [event["event"] for event in loaded] == ["progress", "model"]
    assert "no longer here" in json.loads(page.playground_news({"key": "other"}, OPERATOR).body)["error"]


REFUSED: list[tuple[Json, str, str]] = [
    ({"model": ""}, "Name a reward model", "model"),
    ({"model": 3}, "Name a reward model", "model"),
    ({"model": "bundled/world-policy"}, "not a sequence-classification model", "model"),
    ({"model": "no such folder"}, "There is no folder", "model"),
    ({"label": 3}, "The label must be", "model"),
    ({"label": "joy"}, "has no label", "model"),
    ({"prompt": 3}, "The prompt must be a text", "prompt"),
    ({"response": "x" * 20_001}, "at most 20,000 characters", "response"),
    ({"response": "  "}, "Type a response", "response"),
    ({"candidates": "good"}, "must be texts", "candidates"),
    ({"candidates": [str(number) for number in range(9)]}, "at most 8 words", "candidates"),
    ({"candidates": ["x" * 61]}, "at most 60 characters", "candidates"),
]


def test_what_cannot_be_asked(make: Callable[..., RewardPlayground]) -> None:
    page = make()
    for changes, part, field in REFUSED:
        reply = page.playground_ask(question(**changes), OPERATOR)
        assert part in reply["error"] and reply["field"] == field, changes


def test_viewers_see_which_models_there_are_and_nothing_else(make: Callable[..., RewardPlayground]) -> None:
    page = make(Access(Mode.READ_ONLY))
    assert page.playground_boot({}, VIEWER)["models"][0]["name"] == MODEL and page.playground_boot({}, VIEWER)["why_not"]
    assert "error" in page.playground_model({"model": MODEL}, VIEWER) and "key" not in page.playground_ask(question(), VIEWER)
    assert "error" in json.loads(page.playground_news({"key": "x"}, VIEWER).body)


def test_models_of_runs_are_offered_and_described(make: Callable[..., RewardPlayground], tmp_path: Path) -> None:
    run = FakeRun(tmp_path, steps=2, name="mine")
    ensemble = EnsembleReward(models="a/one,a/two")
    settings = config(2).model_copy(update={"name": "mine", "reward": RewardConfig(components=[ensemble])})
    (run.folder / "config.yaml").write_text(config_to_yaml(settings))
    run.close()
    reader = write_stage_run(tmp_path, "reward_model", [{}] * 2, name="judge")
    trained = give_model(reader, "reward_model")
    write_stage_run(tmp_path, "reward_model", [{}], name="has kept none")
    page = make()
    assert page.playground_boot({}, OPERATOR)["models"] == [
        {"name": MODEL, "kind": "bundled", "from": "the review world", "run": ""},
        {"name": str(trained), "kind": "trained", "from": "judge, step 2", "run": reader.run_dir.name},
        {"name": "a/one", "kind": "used", "from": "mine", "run": ""}, {"name": "a/two", "kind": "used", "from": "mine", "run": ""},
    ]  # fmt: skip
    model = page.playground_model({"model": MODEL}, OPERATOR)["model"]
    assert model["architecture"] == "GPT2ForSequenceClassification" and model["scored"].startswith("The last token")
    json.dumps(model, allow_nan=False)
    assert "no folder" in page.playground_model({"model": "nowhere at all"}, OPERATOR)["error"]


def test_a_model_that_only_a_snapshot_has_is_found_there(make: Callable[..., RewardPlayground], tmp_path: Path) -> None:
    reader = write_stage_run(tmp_path, "reward_model", [{}] * 2, name="judge")
    checkpoint = give_model(reader, "reward_model").parent
    (reader.run_dir / "snapshots").mkdir()
    moved = checkpoint.rename(reader.run_dir / "snapshots" / checkpoint.name)
    models = make().playground_boot({}, OPERATOR)["models"]
    assert [model["name"] for model in models if model["kind"] == "trained"] == [str(moved / "reward_model")]


def test_the_run_that_the_page_is_asked_for_is_among_the_models(
    make: Callable[..., RewardPlayground], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = [write_stage_run(tmp_path, "reward_model", [{}] * 2, name=f"judge {number}") for number in range(4)]
    for reader in readers:
        give_model(reader, "reward_model")
    monkeypatch.setattr("rlhf_studio.ui.scoring.playground.MOST_RUNS", 2)
    page = make()

    def runs(**data: Any) -> list[str]:
        return [model["run"] for model in page.playground_boot(data, OPERATOR)["models"] if model["run"]]

    newest = runs()
    assert len(newest) == 2
    (old, *_) = (reader.run_dir.name for reader in readers if reader.run_dir.name not in newest)
    assert runs(run=old) == [*newest, old] and runs(run=newest[0]) == newest and runs(run="../elsewhere") == newest


def test_a_measured_model_has_a_report(make: Callable[..., RewardPlayground], tmp_path: Path) -> None:
    page, folder = make(), tmp_path / "model"
    shutil.copytree(resolve(MODEL), folder)
    assert page.playground_model({"model": str(folder)}, OPERATOR)["report"] is None
    pairs = {"chosen": [1.0, 0.0], "rejected": [0.0, 1.0], "chosen_tokens": [3, 3], "rejected_tokens": [3, 3]}
    (folder / "measured.json").write_text(json.dumps({"pairs": pairs, "texts": {"1": ["<b>", "good", "bad"]}}))
    report = page.playground_model({"model": str(folder)}, OPERATOR)["report"]
    assert report["fit"]["accuracy"]["share"] == 0.5 and report["wrong"][0]["texts"] == ("<b>", "good", "bad")
    json.dumps(report, allow_nan=False)
    for damaged, part in (("{", "is not valid JSON"), ("{}", "it has no pairs"), ('{"pairs": {"chosen": 1}}', "no scored pairs")):
        (folder / "measured.json").write_text(damaged)
        assert part in page.playground_model({"model": str(folder)}, OPERATOR)["error"]
