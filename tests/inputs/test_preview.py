"""What a person sees of the prompts before a start, and what is remembered between two looks."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.chat import find_template
from rlhf_studio.inputs.models.files import folder_files
from rlhf_studio.inputs.prompts import Prompts, PromptsError, cached, preview
from rlhf_studio.inputs.prompts.cached import RemoteMemory, read_once
from rlhf_studio.inputs.prompts.cells import Prompt
from rlhf_studio.inputs.prompts.preview import BINS, preview_prompts
from tests.inputs.chat_templates import CHATML
from tests.inputs.conftest import MakeModel


@pytest.fixture
def tokenizer(make_model: MakeModel) -> Path:
    return make_model() / "tokenizer.json"


def write(folder: Path, texts: list[str]) -> Path:
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps({"prompt": text, "label": 1}) + "\n" for text in texts))
    return path


def config(path: Path, **settings: Any) -> DataConfig:
    return DataConfig(prompts=str(path), **settings)


def test_the_first_rows_and_all_lengths(tmp_path: Path, tokenizer: Path) -> None:
    draw = np.random.default_rng(0)
    counts = [int(count) for count in draw.integers(1, 60, size=500)]
    path = write(tmp_path, [" ".join(["film"] * count) for count in counts])
    prompts = preview_prompts(config(path, max_prompt_tokens=40), 9, tokenizer)
    assert [(row.tokens, row.cut) for row in prompts.rows] == [(count, count > 40) for count in counts[:9]]
    assert (prompts.total, prompts.whole, prompts.columns, len(prompts.notes)) == (500, True, ["prompt", "label"], 2)
    assert prompts.lengths is not None
    assert (prompts.lengths.least, prompts.lengths.most) == (min(counts), max(counts))
    assert prompts.lengths.median == statistics.median_low(counts)
    assert prompts.lengths.percentile_95 == np.quantile(counts, 0.95, method="inverted_cdf")
    assert prompts.lengths.bins == np.histogram(counts, BINS, range=(0, max(counts) + 1))[0].tolist()


def test_what_is_left_out_and_cut_is_said(tmp_path: Path, tokenizer: Path) -> None:
    path = write(tmp_path, ["the film was good", "bad", "", "the film", "the film"])
    prompts = preview_prompts(config(path, max_prompt_tokens=3, min_prompt_tokens=2, drop_duplicates=True), 5, tokenizer)
    assert [(row.text, row.tokens, row.cut) for row in prompts.rows] == [("the film was good", 4, True), ("the film", 2, False)]
    assert prompts.notes == [
        "Not used: the column 'label'.",
        "3 of 5 rows were left out: 1 blank, 1 repeated, 1 with fewer than 2 tokens.",
        "1 of 2 prompts have more than 3 tokens and lost their beginning.",
    ]
    nothing = preview_prompts(config(path, min_prompt_tokens=9), 5, tokenizer)
    assert (nothing.rows, nothing.total, nothing.lengths) == ([], 0, None)


def test_without_a_tokenizer_there_are_rows_but_no_lengths(tmp_path: Path) -> None:
    path = write(tmp_path, ["the film", "", "bad"])
    for tokenizer in (None, tmp_path / "missing.json"):
        prompts = preview_prompts(config(path), 1, tokenizer)
        assert [(row.text, row.tokens) for row in prompts.rows] == [("the film", None)]
        assert (prompts.total, prompts.lengths, prompts.notes) == (
            2,
            None,
            ["Not used: the column 'label'.", "1 of 3 rows was left out: 1 blank."],
        )


@pytest.mark.parametrize("counted", [True, False])
def test_chats_are_shown_as_the_policy_reads_them(counted: bool, tmp_path: Path, make_model: MakeModel) -> None:
    folder = make_model()
    (folder / "chat_template.jinja").write_text(CHATML)
    path = write(tmp_path, ["the film"])
    settings = config(path, chat_template=True, system_text="Be brief.")
    prompts = preview_prompts(settings, 5, folder / "tokenizer.json" if counted else None, find_template(folder_files("it", folder)))
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe film<|im_end|>\n<|im_start|>assistant\n"
    assert prompts.rows[0].text == expected
    assert prompts.rows[0].tokens == (len(expected.split()) if counted else None)


def test_a_very_long_prompt_is_shown_by_its_ends(tmp_path: Path, tokenizer: Path) -> None:
    path = write(tmp_path, ["a" * 1500 + "b" * 1500, "c" * 2000])
    for chosen in (tokenizer, None):
        prompts = preview_prompts(config(path), 5, chosen)
        assert prompts.rows[0].text == "a" * 1000 + " [... 1,000 characters ...] " + "b" * 1000
        assert prompts.rows[1].text == "c" * 2000


def test_only_the_first_rows_are_measured(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "MEASURED_ROWS", 10)
    prompts = preview_prompts(config(write(tmp_path, ["the film"] * 11)), 5, tokenizer)
    assert (prompts.total, prompts.whole) == (10, False)


def test_of_long_prompts_fewer_are_measured(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight characters each: the third begins within the first 20 characters, the fourth does not. The first is always measured."""
    for characters, total in ((20, 3), (1, 1)):
        monkeypatch.setattr(preview, "MEASURED_CHARACTERS", characters)
        preview._measured.cache_clear()
        prompts = preview_prompts(config(write(tmp_path, ["the film"] * 11)), 5, tokenizer)
        assert (prompts.total, prompts.whole) == (total, False)


# --- what is remembered -------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path, ["a", "b"])
    first = read_once(config(path))
    assert read_once(config(path, max_prompt_tokens=7, shuffle=False)) is first  # settings that do not matter for reading
    assert read_once(config(path, min_characters=1)) is not first
    write(tmp_path, ["a", "b", "c"])
    assert read_once(config(path)).texts == ["a", "b", "c"]


def test_a_folder_is_read_once_until_a_file_in_it_changes(tmp_path: Path) -> None:
    states = {cached.state_of(str(tmp_path))}
    path = write(tmp_path, ["a"])
    states.add(cached.state_of(str(tmp_path)))
    os.utime(path, (1, 1))
    states.add(cached.state_of(str(tmp_path)))
    assert len(states) == 3
    assert cached.state_of(str(tmp_path / "none")) == cached.state_of("a\0b") == ()


def test_of_a_folder_only_the_first_rows_are_looked_at(tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached, "FOLDER_ROWS", 20)
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.txt").write_text("the film\n" * 21)
    prompts = preview_prompts(config(folder, column="text"), 3, tokenizer)
    assert (prompts.total, prompts.whole, prompts.columns) == (20, False, ["text"])
    # later rows may be long enough, so this is no error yet
    nothing = preview_prompts(config(folder, column="text", min_characters=90), 3, tokenizer)
    assert (nothing.rows, nothing.total, nothing.whole) == ([], 0, False)
    assert nothing.notes == ["20 of 20 rows were left out: 20 with fewer than 90 characters."]


def test_answers_of_the_hub_are_remembered_for_a_while() -> None:
    requests: list[str] = []
    clock = [0.0]
    outcome: list[Any] = [Prompts([Prompt(1, "x")])]

    def ask(data: DataConfig) -> Prompts:
        requests.append(data.split)
        if isinstance(outcome[0], PromptsError):
            raise outcome[0]
        return outcome[0]

    memory = RemoteMemory(ask, lambda: clock[0])
    train, test = DataConfig(prompts="owner/set"), DataConfig(prompts="owner/set", split="test")
    assert memory.get(train) is memory.get(train) is memory.get(test)
    assert requests == ["train", "test"]
    clock[0] = cached.REMEMBER_SECONDS + 1
    outcome[0] = PromptsError("data.split", "no such split")
    for _ in range(3):
        with pytest.raises(PromptsError, match="data.split: no such split"):
            memory.get(train)
    assert requests == ["train", "test", "train"]
    clock[0] += cached.REMEMBER_PROBLEM_SECONDS + 1
    outcome[0] = Prompts([Prompt(1, "y")])
    assert memory.get(train).texts == ["y"]
