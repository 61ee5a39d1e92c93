"""Held-out prompts at the door: how many there are, where they are read from, and at which setting a problem is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.inputs.prompts import read_prompts
from rlhf_studio.inputs.prompts.held_out import eval_settings

pytestmark = pytest.mark.slow


def looked_at(config: Any, folder: Path) -> tuple[list[str], list[str]]:
    """(fields with a problem, notes about held-out prompts)."""
    report = inspect_run(config, folder, free_bytes=lambda _: 10**15)
    return [problem.field for problem in report.problems], [note for note in report.notes if "held" in note]


def test_how_many_is_said_before_the_start(make_config: Any, tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("\n".join(" ".join(["film"] * (1 + row % 13)) + " was" * (row // 13) for row in range(120)))
    settings = {"data__prompts": str(tmp_path / "many.txt"), "data__max_prompt_tokens": 30, "data__eval_share": 0.1}
    assert looked_at(make_config(**settings), tmp_path)[1][0].startswith("12 of 120 prompts are held out: training never draws them")
    (tmp_path / "few.txt").write_text("the film\n" * 5)
    few = make_config(data__prompts=str(tmp_path / "few.txt"), data__eval_share=0.1)
    assert looked_at(few, tmp_path)[1] == [], "the doctor says it"
    assert inspect_run(few, tmp_path, free_bytes=lambda _: 10**15).known.held_out == 0
    named = make_config(data__eval=str(tmp_path / "few.txt"))
    assert looked_at(named, tmp_path)[1] == []  # as the settings say
    assert looked_at(make_config(), tmp_path) == ([], [])


def test_a_split_of_the_same_dataset(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "learn"}\n')
    (folder / "test.jsonl").write_text('{"prompt": "look"}\n')
    data = DataConfig(prompts=str(folder), eval=str(folder))
    assert (read_prompts(data).texts, read_prompts(eval_settings(data)).texts) == (["learn"], ["look"])
    assert read_prompts(eval_settings(data.model_copy(update={"eval_split": "train"}))).texts == ["learn"]


def test_where_they_are_read_from() -> None:
    data = DataConfig(prompts="owner/set", subset="en", revision="v1", eval="owner/set", max_prompts=50_000)
    same = eval_settings(data)
    assert same is not None and (same.prompts, same.split, same.subset, same.revision, same.max_prompts) == (
        "owner/set",
        "test",
        "en",
        "v1",
        1000,
    )
    other = eval_settings(data.model_copy(update={"eval": "owner/more", "max_prompts": 7}))
    assert other is not None and (other.prompts, other.subset, other.revision, other.max_prompts) == ("owner/more", "", "main", 7)
    assert eval_settings(DataConfig()) is None


@pytest.mark.parametrize(("settings", "field"), [({"eval": "none.txt"}, "data.eval"), ({"eval_split": "dev"}, "data.eval_split")])
def test_what_is_wrong_with_them_is_said_at_their_settings(settings: dict[str, str], field: str, make_config: Any, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "the film"}\n')
    overrides = {f"data__{name}": value for name, value in {"eval": str(folder), **settings}.items()}
    assert looked_at(make_config(**overrides), tmp_path)[0] == [field]
