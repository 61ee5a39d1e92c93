"""What a person can choose from: the lists from a made-up cache and workspace, folders below roots, uploads, and the hub's answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.choices import browsing, hub_search, uploads
from rlhf_studio.inputs.choices.browsing import NOWHERE, Roots
from rlhf_studio.inputs.choices.choice import ChoiceGroup, NotOffered
from rlhf_studio.inputs.choices.data import data_groups
from rlhf_studio.inputs.choices.hub_cache import cached
from rlhf_studio.inputs.choices.hub_search import search_hub
from rlhf_studio.inputs.choices.models import ModelChoices
from rlhf_studio.inputs.choices.recommended import RECOMMENDED
from rlhf_studio.inputs.choices.rewards import reward_groups
from rlhf_studio.inputs.choices.used import used_runs
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.learner import remembered_learner
from rlhf_studio.runs.workspace import Workspace
from tests.runs.stage_helpers import write_stage_run
from tests.ui.test_stages import give_model
from tests.ui.train_helpers import install_world

CPU = Device("cpu", "CPU", 8_000_000_000, 8_000_000_000, False, 2)
PUBLISHED = {"gpt2": 124e6, "135M": 134.5e6, "360M": 362e6, "2.5-0.5B": 494e6, "0.6B": 596e6, "1.5B": 1.54e9, "1.7B": 1.71e9, "7B": 7.62e9}
"""Weights of the recommended models as their pages on the hub say."""


def titles(groups: list[ChoiceGroup]) -> dict[str, list[str]]:
    return {group.title: [choice.title for choice in group.choices] for group in groups}


def put_into_cache(cache: Path, kind: str, name: str, files: dict[str, bytes]) -> Path:
    """A repository as the hub's client keeps it."""
    repo, commit = cache / f"{kind}s--{name.replace('/', '--')}", "a" * 40
    snapshot = repo / "snapshots" / commit
    for folder in (repo / "blobs", repo / "refs", snapshot):
        folder.mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    for number, (file, content) in enumerate(files.items()):
        (repo / "blobs" / str(number)).write_bytes(content)
        (snapshot / file).symlink_to(repo / "blobs" / str(number))
    return snapshot


def a_model(folder: Path, architecture: str, **config: Any) -> dict[str, bytes]:
    """The files of a tiny model."""
    save_file({"wte.weight": np.zeros((6, 4), np.float32)}, str(folder / "weights"))
    described = {"architectures": [architecture], "model_type": "gpt2", "vocab_size": 6, "n_positions": 128, **config}
    files = {name: folder / "assets" / "world" / "policy" / name for name in ("tokenizer.json", "tokenizer_config.json")}
    read = {name: path.read_bytes() for name, path in {**files, "model.safetensors": folder / "weights"}.items()}
    return {"config.json": json.dumps(described).encode(), **read}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache, and a workspace with a run of each kind."""
    install_world(tmp_path, monkeypatch)
    cache = tmp_path / "cache"
    put_into_cache(cache, "model", "ann/writer", a_model(tmp_path, "GPT2LMHeadModel"))
    put_into_cache(cache, "model", "ann/judge", a_model(tmp_path, "GPT2ForSequenceClassification", id2label={"0": "BAD", "1": "GOOD"}))
    put_into_cache(cache, "model", "ann/encoder", a_model(tmp_path, "BertModel", model_type="bert"))
    put_into_cache(cache, "model", "ann/only-the-card", {"README.md": b"no weights"})
    put_into_cache(cache, "dataset", "openai/gsm8k", {"data.parquet": b"x"})
    (tmp_path / "mine.jsonl").write_text('{"q": "Hi"}\n')
    (tmp_path / "gone.jsonl").write_text("")
    rows = [{"sft/loss": 1.0}] * 2
    trained = write_stage_run(tmp_path / "ws", "sft", rows, name="my writer", data={"source": str(tmp_path / "mine.jsonl")})
    give_model(trained, "policy")
    judge = write_stage_run(tmp_path / "ws", "reward_model", rows, name="my judge")
    give_model(judge, "reward_model")
    keyword = {"kind": "keywords", "words": "good", "weight": 2.0}
    asked = {"prompts": str(tmp_path / "mine.jsonl"), "column": "q"}
    write_stage_run(tmp_path / "ws", "ppo", rows, name="once", data=asked, reward={"components": [keyword]})
    write_stage_run(tmp_path / "ws", "ppo", rows, name="again", data={"prompts": str(tmp_path / "no-more.jsonl")})
    return tmp_path


def test_models_prompts_and_rewards_that_there_are(disk: Path) -> None:
    runs, models, datasets = used_runs(Workspace(disk / "ws")), cached("model", disk / "cache"), cached("dataset", disk / "cache")

    def facts(_: Any, name: str) -> Any:  # the tiny files are checked in their own tests
        return replace(RECOMMENDED[1].facts(), path=Path(name), download_bytes=0)

    lists = ModelChoices(load_recipe("own").config, CPU, facts).groups(runs, models)
    assert titles(lists)["Trained here"] == ["my writer"]
    assert "ann/writer" in titles(lists)["On this disk"] and "ann/judge" not in titles(lists)["On this disk"]
    choice = lists[0].choices[0]
    assert choice.settings["model.policy"].startswith(str(disk / "ws" / "runs")) and choice.download == ""
    assert choice.needs.startswith("needs ") and choice.room == "fits"
    assert (choice.size, choice.detail) == ("134 M weights", "Supervised fine-tuning, step 2, from world-policy")
    judged = ModelChoices(load_recipe("own-reward").config, CPU, facts).groups(runs, models)
    assert titles(judged)["Trained here"] == ["my judge", "my writer"] and "ann/judge" in titles(judged)["On this disk"]
    real = ModelChoices(load_recipe("own").config, CPU).groups([], models)[0]
    assert [choice.title for choice in real.choices] == ["ann/writer"], "an encoder cannot be trained with PPO"
    assert real.note.startswith("Cannot be used here: ann/encoder (") and "only-the-card" not in real.note

    files = disk / "uploads"
    files.mkdir()
    (files / "new.csv").write_text("prompt\nHi\n")
    (files / "notes.md").write_text("")
    prompts = data_groups(load_recipe("own").config, runs, datasets, files)
    found = titles(prompts)
    assert found["Uploaded"] == ["new.csv"] and found["Used before"] == ["mine.jsonl"], "a file that is gone is not offered"
    assert found["On this disk"] == ["openai/gsm8k"] and "openai/gsm8k" not in found["Used by recipes, to be downloaded"]
    before, gsm8k = prompts[1].choices[0], prompts[2].choices[0]
    assert before.settings["data.column"] == "q" and gsm8k.settings["data.column"] == "question" and gsm8k.settings["data.subset"] == "main"
    assert titles(data_groups(load_recipe("own-dpo").config, runs, [], files))["Comes with RLHF Studio"] == ["bundled/world-pairs"]

    rewards = reward_groups(runs, models)
    assert titles(rewards)["Used before"] == ["2 × the keywords rule"]
    [own] = rewards[0].choices
    assert own.settings["reward.components"][0]["model"].startswith(str(disk / "ws")) and rewards[0].title == "Trained here"
    assert titles(rewards)["On this disk"] == ["judge: BAD", "judge: GOOD"]
    assert cached("model", disk / "nowhere") == []


def test_a_model_whose_file_is_changed_in_its_place_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_world(tmp_path, monkeypatch)
    folder, base = tmp_path / "mine", load_recipe("own").config
    folder.mkdir()
    for name, content in a_model(tmp_path, "GPT2LMHeadModel").items():
        (folder / name).write_bytes(content)
    first = remembered_learner(base, str(folder))
    assert first.max_positions == 128 and remembered_learner(base, str(folder)) is first
    described = folder / "config.json"
    described.write_text(described.read_text().replace("128", "64"))  # the folder's time stays
    assert remembered_learner(base, str(folder)).max_positions == 64


def test_recommended_models_have_the_published_size_and_need_more_the_larger_they_are() -> None:
    counts = {model.name: parameters(model.facts()) or 0 for model in RECOMMENDED}
    for part, published in PUBLISHED.items():
        [count] = [count for name, count in counts.items() if part in name and (part != "7B" or "1.7B" not in name)]
        assert abs(count / published - 1) < 0.01, part
    for recipe in ("own", "own-sft", "own-reward", "own-dpo"):
        lists = ModelChoices(load_recipe(recipe).config, CPU, lambda name, _: RECOMMENDED[0].facts()).groups([], [])
        [choices] = [group.choices for group in lists if group.title.startswith("Recommended")]
        rooms = [("fits", "tight", "too_large").index(choice.room) for choice in choices]
        assert rooms == sorted(rooms) and rooms[-1] == 2 and all(choice.licence and choice.download for choice in choices), recipe


def test_only_folders_below_the_roots_are_shown(tmp_path: Path) -> None:
    root, secret = tmp_path / "root", tmp_path / "secret"
    for folder in (root / "models" / "mine", root / ".ssh", secret):
        folder.mkdir(parents=True)
    (root / "models" / "mine" / "config.json").write_text("{}")
    (root / "prompts.jsonl").write_text("{}")
    (root / "notes.md").write_text("")
    (root / "model.Q4.gguf").write_text("")
    (root / ".ssh" / "id.txt").write_text("key")
    (secret / "prompts.jsonl").write_text("{}")
    (root / "way-out").symlink_to(secret)
    (root / "hidden").symlink_to(root / ".ssh")
    roots = Roots.of([root])
    top = roots.listing("", "data")
    assert ([row["name"] for row in top["folders"]], [row["name"] for row in top["files"]]) == (["models"], ["prompts.jsonl"])
    assert top["parent"] == "" and [row["name"] for row in roots.listing(str(root), "model")["files"]] == ["model.Q4.gguf"]
    [mine] = roots.listing(str(root / "models"), "model")["folders"]
    assert mine == {"name": "mine", "path": str(root / "models" / "mine"), "model": True}
    outside = (
        secret,
        root / "way-out",
        root / ".ssh",
        root / "hidden",
        root / ".." / "secret",
        "/",
        "/etc",
        tmp_path / "none",
        "\0",
        "a\0b",
    )
    for path in (*outside, root / "models" / ".." / ".." / "secret", "x" * 5000, f"{root}x"):
        with pytest.raises(NotOffered, match="There is no such folder, or it is not one"):
            roots.listing(str(path), "data")
    with pytest.raises(NotOffered, match="Nobody may look into folders here"):
        NOWHERE.listing(str(root), "data")
    two = Roots.of([root, secret]).listing("", "data")
    assert [row["path"] for row in two["folders"]] == [str(root), str(secret)]
    with pytest.raises(ValueError, match="there is no folder"):
        Roots.of([tmp_path / "none"])


def test_a_file_is_uploaded_in_parts(tmp_path: Path) -> None:
    key = "0123456789abcdef"

    def add(name: str = "mine.jsonl", offset: int = 0, part: bytes = b"{}\n", last: bool = True, key: str = key) -> Path | None:
        return uploads.add_part(tmp_path, key, name, offset, part, last=last)

    assert add(part=b'{"prompt": ', last=False) is None
    path = add(offset=11, part=b'"Hi"}\n')
    assert path == tmp_path / "uploads" / "mine.jsonl" and path.read_text() == '{"prompt": "Hi"}\n'
    second = add()
    assert second is not None and second.name == "mine-2.jsonl", "a file of the same name stays"
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: add(offset=5), "A part of mine.jsonl is missing"),
        *((lambda name=name: add(name), "name cannot be used") for name in ("", "../a.jsonl", "a/b.csv", "..", ".bashrc.txt", "a\\b.csv")),
        *((lambda name=name: add(name), "must end in") for name in ("model.pt", "a.py", "a.jsonl.exe")),
        (lambda: add("a\u202eb.csv"), "no character that nobody sees"),
        (lambda: add(key="../../x"), "no key"),
        (lambda: add(offset=uploads.MOST_BYTES), "larger than 100 MB"),
    ]
    for ask, expected in refused:
        with pytest.raises(NotOffered, match=expected):
            ask()
    assert sorted(file.name for file in (tmp_path / "uploads").iterdir()) == ["mine-2.jsonl", "mine.jsonl"]


def test_uploads_leave_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, free = tmp_path / "uploads", 10**12
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    def add(number: int, offset: int = 0, part: bytes = b"rows", last: bool = False) -> Path | None:
        return uploads.add_part(tmp_path, f"{number:016x}", "mine.jsonl", offset, part, last=last)

    def parts() -> int:
        return len(list(folder.glob(".*.part")))

    for number in range(3):
        add(number)
    monkeypatch.setattr(uploads, "MOST_OPEN_BYTES", 16)
    with pytest.raises(NotOffered, match="Many other uploads"):
        add(2, 4, b"5 new")
    assert parts() == 2
    free = uploads.LEAST_FREE + 3
    with pytest.raises(NotOffered, match="almost full"):
        add(1, 4)
    free = 10**12
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        add(0, 4, last=True)
    assert list(folder.iterdir()) == [], "nothing stays of an upload that failed"
    monkeypatch.undo()
    add(0)
    os.utime(next(folder.iterdir()), (0, 0))
    monkeypatch.setattr(os, "link", None)
    path = add(1, last=True)
    assert path is not None and path.read_bytes() == b"rows" and list(folder.iterdir()) == [path], "one that was left is removed"


def test_one_bad_entry_does_not_empty_a_list_of_the_cache(disk: Path) -> None:
    cache, classifier = disk / "cache", "GPT2ForSequenceClassification"
    wrong: list[dict[str, Any]] = [
        *({"architectures": value} for value in ({"a": 1}, 5, [], [[]], "GPT2")),
        *({key: ["a"]} for key in ("model_type", "activation_function")),
        {"text_config": {"model_type": {}}},
        {"rope_scaling": {"type": ["a"]}},
        *({"architectures": [classifier], "id2label": {"0": label, "1": "B"}} for label in ("A" * 100_000, "A\ud800")),
        {"architectures": [classifier], "model_type": ["a"], "id2label": ["A", "B"]},
        {"model_type": "\ud800"},
    ]
    for number, config in enumerate(wrong):
        put_into_cache(cache, "model", f"bad/{number}", a_model(disk, "GPT2LMHeadModel", **config))
    (cache / "models--file").write_text("")
    put_into_cache(cache, "model", "bad\udc80/name", a_model(disk, "GPT2LMHeadModel"))
    repos = cached("model", cache)
    assert titles(reward_groups([], repos))["On this disk"] == ["judge: BAD", "judge: GOOD"]
    for recipe in ("own", "own-reward"):
        groups = ModelChoices(load_recipe(recipe).config, CPU).groups([], repos)
        assert "ann/writer" in titles(groups)["On this disk"]
        json.dumps([group.as_json() for group in groups], ensure_ascii=False).encode()
    for value, key in ((["a"], "model_type"), ("\ud800", "model_type"), ({}, "hidden_act")):
        folder = disk / "mine"
        folder.mkdir(exist_ok=True)
        for name, content in a_model(disk, "GPT2LMHeadModel", **{key: value}).items():
            (folder / name).write_bytes(content)
        with pytest.raises(ModelError, match=f"says {key} .*; it must be a word"):
            check_causal_lm(str(folder))
    (disk / "file").write_text("")
    assert cached("model", disk / "file") == []


def test_a_folder_with_odd_or_many_entries_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = Roots.of([tmp_path])
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "deep").symlink_to(tmp_path / ("x" * 250) / ("y" * 250))
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_text("{}")
        (tmp_path / f"link-{number}.jsonl").symlink_to(tmp_path / f"{number}.jsonl")
    listing = roots.listing("", "data")
    assert [row["bytes"] for row in listing["files"]] == [2] * 8 and (listing["folders"], listing["left"]) == ([], 0)
    for path in ("x" * 300, f"{tmp_path}/{'x' * 300}", f"{tmp_path}/circle"):
        with pytest.raises(NotOffered, match="There is no such folder"):
            roots.listing(path, "data")
    monkeypatch.setattr(browsing, "MOST", 3)
    monkeypatch.setattr(browsing, "MOST_LINKS", 3)
    resolved: list[Path] = []
    resolve = Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda path, strict=False: (resolved.append(path), resolve(path, strict))[1])
    listing = roots.listing("", "data")
    assert [row["name"] for row in listing["files"]] == ["0.jsonl", "1.jsonl", "2.jsonl"]
    assert listing["left"] == 5, "2 files more than are listed, and 3 links that were not followed"
    assert len(resolved) == 1 + 3, "the folder itself, and as many links as are followed"


def test_the_hub_is_asked_in_words_and_says_when_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(
        id="ann/writer", downloads=1234, tags=["license:mit"], gated="auto", safetensors=SimpleNamespace(total=1_543_714_304)
    )
    asked: list[dict[str, Any]] = []
    base = load_recipe("own").config
    api = SimpleNamespace(
        list_models=lambda **question: asked.append(question) or [info], list_datasets=lambda **question: [SimpleNamespace(id="ann/rows")]
    )
    [model] = search_hub(" writer ", "model", base, api)
    assert (model.settings["model.policy"], model.licence) == ("ann/writer", "mit")
    assert (model.size, model.detail) == ("1.5 B weights", "1,234 downloads, its terms must be accepted first")
    assert asked[0]["search"] == "writer" and asked[0]["pipeline_tag"] == "text-generation"
    assert search_hub("writer", "reward", base, api)[0].settings["reward.components"][0]["model"] == "ann/writer"
    assert search_hub("rows", "data", base, api)[0].settings["data.prompts"] == "ann/rows"

    def fails(**_: Any) -> Any:
        raise ConnectionError("no route to host")

    with pytest.raises(NotOffered, match="cannot be reached .no route to host.. What is on this disk"):
        search_hub("writer", "model", base, SimpleNamespace(list_models=fails))
    monkeypatch.setattr(hub_search, "SECONDS", 0.01)
    end = Event()
    with pytest.raises(NotOffered, match="no answer within 0.01 seconds"):
        search_hub("writer", "model", base, SimpleNamespace(list_models=lambda **_: end.wait(60)))
    end.set()
    with pytest.raises(NotOffered, match="Type a few words"):
        search_hub("  ", "model", base, api)
