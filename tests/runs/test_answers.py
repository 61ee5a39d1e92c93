"""The answers of an evaluation: stored with their step, read back as they were, replaced with it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import NASTY_TEXTS, new_run, rollout, same


def answer(sample: int, policy: str = "start", **changes: Any) -> Answer:
    plain = vars(rollout(sample))
    own = {"policy": policy, "place": sample, "draw": 0, "judge": 0.25, "ref_logprob": -3.5, "ref_length": 4}
    return Answer(**{**plain, **own, **changes})


def test_answers_come_back_as_they_were_stored(tmp_path: Path) -> None:
    given = [answer(sample, policy=text, response=text, prompt=text) for sample, text in enumerate(NASTY_TEXTS)]
    given.append(answer(len(given), judge=math.inf, ref_logprob=-math.inf, gold=1.0, stopped=None, score=-math.inf))
    given.append(answer(len(given), judge=math.nan))
    given.append(answer(len(given), members={"judges": [0.5, -math.inf], "others: 2": [0.0, 1.0, 2.0]}))
    run = new_run(tmp_path / "run")
    with RunWriter(run) as writer:
        writer.commit_step(StepRecord(1, {}, list(given)))
        writer.commit_step(StepRecord(2, {}, [answer(0, "later")]))
        reader = RunReader(run)
        assert same(reader.answers(), [*given, answer(0, "later")])
        assert reader.answers(after=1) == [answer(0, "later")]
        assert [record.response for record in reader.rollouts(1)] == [record.response for record in given]  # plain readers see them too


def test_answers_of_a_step_that_is_done_again_are_replaced(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run")
    with RunWriter(run) as writer:
        writer.commit_step(StepRecord(1, {}, [answer(0, "first")]))
        writer.commit_step(StepRecord(2, {}, [answer(0, "old"), answer(1, "old")]))
        writer.go_back(1)
        assert [record.policy for record in RunReader(run).answers()] == ["first"]  # out of the readers' sight
        writer.commit_step(StepRecord(2, {}, [answer(0, "new")]))
        assert [record.policy for record in RunReader(run).answers()] == ["first", "new"]
