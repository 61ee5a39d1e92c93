"""The texts of "Break it": all parts in order, and every slot a number that two runs can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config.metrics.table import METRICS as ALL_METRICS
from rlhf_studio.lessons.faults import shelf
from rlhf_studio.lessons.faults.experiment import WHICH
from rlhf_studio.lessons.faults.names import NAMES
from rlhf_studio.lessons.faults.pair import METRICS, Pair, first_difference
from rlhf_studio.lessons.faults.table import EXPERIMENTS
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import TOKEN_QUANTITIES, StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import rollout, token_record


def write(folder: Path, which: str, steps: list[list[Any]]) -> RunReader:
    """A run whose step s has these recorded responses, and as each metric the number s, in the second run ten times as large."""
    create_run(folder, EXPERIMENTS[0].config("first", 5), name=which)
    with RunWriter(folder, wait_for_disk=False) as writer:
        for step, rollouts in enumerate(steps, 1):
            metrics = dict.fromkeys(METRICS.values(), float(step * (10 if which == "second" else 1)))
            writer.commit_step(StepRecord(step, metrics, rollouts))
        writer.set_state("finished")
    return RunReader(folder)


def test_each_text_has_all_parts_and_every_slot_and_picture_is_filled(tmp_path: Path) -> None:
    for experiment in EXPERIMENTS:
        name, text = experiment.name, shelf.text_of(experiment.name)
        assert [scene.name for scene in text.scenes] == list(shelf.SCENES), name
        kinds = {scene.name: [block["kind"] for block in scene.blocks] for scene in text.scenes}
        assert "picture" in kinds["curves"] and {"picture", "code"} <= set(kinds["path"]), name
        (question,) = [block for scene in text.scenes for block in scene.blocks if block["kind"] == "predict"]
        assert sorted(key for key, _ in question["answers"]) == ["higher", "lower", "same"], name
        assert experiment.token in TOKEN_QUANTITIES and experiment.metric in METRICS, name
        tokens = [token_record(4, seed=1), token_record(4, seed=1)]
        tokens[1].arrays[experiment.token][1] += 1
        both = zip(WHICH, tokens, strict=True)
        readers = {which: write(tmp_path / name / which, which, [[rollout(0, tokens=record)]]) for which, record in both}
        content = shelf.content_of(Pair(experiment, readers["first"], readers["second"]))
        assert shelf.NOT_RECORDED not in content["slots"].values(), name
        assert content["slots"]["answer"] == "@higher", name
        words = {"first", "second", "step", "lower", "higher", "same", *(picture for picture in content["pictures"] if picture != "token")}
        assert words <= text.words.keys(), name


def test_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    tokens = token_record(3, seed=2)
    readers = {
        which: write(tmp_path / which, which, [[rollout(0, tokens=tokens)]] * steps) for which, steps in (("first", 7), ("second", 2))
    }
    pair = Pair(EXPERIMENTS[0], readers["first"], readers["second"])
    numbers = pair.numbers()
    assert (numbers["steps_first"], numbers["steps_second"], numbers["seed"]) == (7, 2, 5)
    assert numbers["gold_first"] == 5 and numbers["gold_second"] == 15  # means of 3 to 7, and of 10 and 20
    assert (numbers["gold_first_start"], numbers["gold_second_start"], numbers["gold_second_largest"]) == (1, 10, 20)
    assert numbers["gold_change"] == 10 and numbers["answer"] == "higher"
    assert pair.difference is None and "token_step" not in numbers
    assert [len(series["x"]) for series in pair.picture("kl").data["series"]] == [7, 2]
    assert pair.picture("kl").data["x_range"] == [1, 7]


def test_the_token_is_the_clearest_of_the_first_step_that_differs(tmp_path: Path) -> None:
    def step(*changes: tuple[int, float]) -> list[Any]:
        """Responses of which each differs by a number at a place."""
        made = []
        for sample, (index, change) in enumerate(changes):
            tokens = token_record(4, seed=sample)
            tokens.arrays["rewards"][index:] += change
            made.append(rollout(sample, tokens=tokens))
        return made

    first = write(tmp_path / "first", "first", [step((0, 0), (0, 0), (0, 0)), step((0, 0), (0, 0), (0, 0)), step((0, 0))])
    second = write(tmp_path / "second", "second", [step((0, 0), (0, 1e-5), (0, 0)), step((1, 0.5), (2, -3.0), (0, 0)), step((0, 9.0))])
    actual = first_difference(first, second, "rewards")
    assert actual is not None and (actual.step, actual.sample, actual.position) == (2, 1, 2)
    assert actual.second[2] - actual.first[2] == pytest.approx(-3.0, abs=1e-5)
    assert first_difference(first, second, "values") is None


def test_tokens_behind_the_place_where_texts_part_are_not_compared(tmp_path: Path) -> None:
    one, other = token_record(4, seed=0), token_record(4, seed=0)
    other.response_ids[1] += 1
    for name in ("rewards", "values"):
        other.arrays[name][1:] += 1
    readers = [write(tmp_path / which, which, [[rollout(0, tokens=made)]]) for which, made in zip(WHICH, (one, other), strict=True)]
    assert first_difference(readers[0], readers[1], "rewards") is None
    actual = first_difference(readers[0], readers[1], "values")  # of what stands before the token, which is the same
    assert actual is not None and actual.position == 1


def test_the_table_names_what_there_is() -> None:
    assert len({experiment.name for experiment in EXPERIMENTS}) == len(EXPERIMENTS)
    assert set(METRICS.values()) <= {metric.name for metric in ALL_METRICS}
    assert {side.fault for one in EXPERIMENTS for side in (one.first, one.second)} == {"", *NAMES}
    for experiment in EXPERIMENTS:
        first, second = (experiment.config(which, 7) for which in WHICH)
        assert first.engine.seed == second.engine.seed == 7
        assert (first == second) is bool(experiment.second.fault) and not experiment.first.fault
        assert experiment.second.fault == "" or "broken on purpose" in experiment.run_name("second", 7)
    with pytest.raises(ValueError, match="seed must be"):
        EXPERIMENTS[0].config("first", 1000)
    with pytest.raises(shelf.NoExperiment):
        shelf.text_of("no_such")
