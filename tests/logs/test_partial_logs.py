"""Logs that give a part of the numbers: what is computed, what stays unknown, and what the doctor says; and the snippets of the docs."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.learned import what_was_learned
from rlhf_studio.analysis.logs.open_log import open_log
from rlhf_studio.runs import paths
from rlhf_studio.runs.reader import RunReader
from tests.logs.test_open_log import BOARD, opened


def responses(step: int, scores: list[float | None], **more: Any) -> list[dict[str, Any]]:
    """One response to each of as many prompts."""
    line = {"step": step, "response_tokens": ["a", " b", str(step)], **more}
    return [{**line, "prompt": f"prompt {row}", "reward": score} for row, score in enumerate(scores)]


def test_metrics_that_a_step_line_lacks_come_from_its_responses(tmp_path: Path) -> None:
    step = {"kind": "step", "step": 1, "metrics": {"objective/scores": 7.0, "lr": 0.1, "objective/kl": None}}
    result, reader = opened(tmp_path, step, *responses(1, [1.0, 2.0, 6.0], gold=0.5, kl=2.0))
    assert dict(reader.metrics_since(0))[1] == pytest.approx(
        {
            "objective/scores": 7.0,  # as the log says
            "lr": 0.1,
            "objective/scores_std": math.sqrt(7),
            "objective/scores_se": math.sqrt(7 / 3),
            "objective/scores_min": 1.0,
            "objective/scores_max": 6.0,
            "objective/kl": 2.0,
            "gold/score": 0.5,
            "gold/score_se": 0.0,
            "tokens/response_length": 3.0,
        }
    )
    (note,) = [note for note in result.notes if "computed from the responses" in note]
    assert "objective/kl, objective/scores_max" in note and "lr" not in note


def test_a_number_that_one_response_lacks_stays_unknown_and_the_others_count(tmp_path: Path) -> None:
    lines = responses(1, [1.0, None, 4.0], kl=2.0)
    del lines[0]["kl"]
    lines[1]["stopped"], lines[2]["stopped"] = True, False
    _, reader = opened(tmp_path, *lines, *responses(2, [1.0, math.nan]))
    metrics = dict(reader.metrics_since(0))
    assert (metrics[1]["objective/scores"], metrics[1]["objective/kl"], metrics[1]["tokens/cut_off"]) == (2.5, 2.0, 0.5)
    assert reader.non_finite() == [(2, "objective/scores", pytest.approx(math.nan, nan_ok=True))]  # that one says NaN
    assert not any(finding.check == "not-finite" for finding in diagnose(reader, until=1).findings)


def test_errors_count_prompts(tmp_path: Path) -> None:
    """Two responses to each of three prompts: the standard deviation of their means over √3. Of a single prompt nothing is known."""
    rewards = [1.0, 3.0, 5.0, 5.0, 0.0, 1.0]
    lines = [{**line, "prompt": f"prompt {row // 2}"} for row, line in enumerate(responses(1, list(rewards)))]
    _, reader = opened(tmp_path, *lines, *[{**line, "prompt": "the same"} for line in responses(2, [1.0, 2.0])])
    metrics = dict(reader.metrics_since(0))
    assert metrics[1]["objective/scores_se"] == pytest.approx(np.std([2.0, 5.0, 0.5], ddof=1) / math.sqrt(3))
    assert metrics[1]["objective/scores_std"] == pytest.approx(np.std(rewards, ddof=1)) and "objective/scores_se" not in metrics[2]


def test_copies_of_a_prompt_in_a_group_are_no_repeats(tmp_path: Path) -> None:
    """A log does not say how many responses a prompt has: the prompt of a group of four counts once in its step, and again in the next."""

    def repeats(folder: str, of_step: list[str]) -> bool:
        steps = [(prompt, responses(step, [0.0, 1.0] * 4)) for step, prompt in enumerate(of_step, 1)]
        lines = [{**line, "prompt": f"{prompt} {row // 4}"} for prompt, rows in steps for row, line in enumerate(rows)]
        return any(finding.check == "duplicate-prompts" for finding in diagnose(opened(tmp_path / folder, *lines)[1]).findings)

    assert not repeats("fresh", [f"prompt {step}" for step in range(20)])
    assert repeats("again", ["the same"] * 20)


def test_a_short_run_without_noise_is_told_without_ends_that_overlap(tmp_path: Path) -> None:
    verdict = diagnose(opened(tmp_path, *[line for step in range(1, 9) for line in responses(step, [step / 7] * 4)])[1]).verdict
    assert verdict.sentence.endswith("0.14 → 1.14.") and "too few to compare" in verdict.reason
    assert not any(words in verdict.reason for words in ("beside the last", "rose by"))


def test_how_responses_ended_is_not_made_up(tmp_path: Path) -> None:
    """Every response comes to end with the same word, but nothing says that it ended by itself."""
    lines = [line for step in range(1, 25) for line in responses(step, [1.0] * 8)]
    for row, line in enumerate(lines):
        line["response_tokens"] = [f"w{row * 7 % 31}", f"w{row * 5 % 29}", " wow" if row % 24 < row // 8 else f"w{row % 23}"]
    _, reader = opened(tmp_path / "unknown", *lines)
    assert {response.stopped for response in reader.response_tokens(1, 9)} == {None}
    learned = what_was_learned(reader)
    assert "stopped" not in {trait.name for trait in learned.traits}
    assert learned.phrases and not any(phrase.place == "ending" for phrase in learned.phrases)
    _, reader = opened(tmp_path / "known", *[{**line, "stopped": True} for line in lines])
    assert {trait.name: trait.after for trait in what_was_learned(reader).traits}["stopped"] == 1.0


# --- the snippets of the docs -------------------------------------------------------------------------------------------------------


class Words:
    """A tokenizer of words: 0 pads, 1 ends."""

    pad_token_id, eos_token_id = 0, 1

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return " ".join(f"w{int(token)}" for token in ids if not (skip_special_tokens and int(token) < 2))


def snippet(trainer: str, folder: Path) -> Any:
    """The function ``log_batch`` of the docs' section on a trainer."""
    text = Path("docs/logs.md").read_text(encoding="utf-8").split(f"## From {trainer}")[1]
    (folder / "snippet.py").write_text(text.split("```python\n")[1].split("```")[0], encoding="utf-8")
    return runpy.run_path(str(folder / "snippet.py"))["log_batch"]


def test_the_snippet_for_trl_cuts_responses_at_their_end(tmp_path: Path) -> None:
    """As its trainer has them: sampling went on after the stop, and behind it the log-probabilities are filled with 1."""
    ids = torch.arange(20, 44).reshape(3, 8)
    ids[0, 3] = ids[1, 0] = 1
    last = torch.tensor([3, 0, 7])  # the third has no end
    behind = torch.arange(8) > last[:, None]
    logprobs, reference = (torch.full((3, 8), value).masked_fill(behind, 1.0) for value in (-2.0, -3.0))
    rewards = (0.1 * (reference - logprobs)).clone()
    scores = torch.tensor([5.0, 6.0, 7.0])
    rewards[torch.arange(3), torch.where(last + 1 < 8, last + 1, last)] += scores
    with (tmp_path / "log.jsonl").open("w", encoding="utf-8") as file:
        snippet("TRL", tmp_path)(file, 1, Words(), ids[:, :2], ids, last, logprobs, reference, torch.zeros(3, 8), rewards, scores)
    result = open_log(tmp_path / "log.jsonl", tmp_path / "space")
    reader = RunReader(paths.run_dir(tmp_path / "space", result.run_id))
    records = [reader.rollout(1, row) for row in range(3)]
    assert [(record.length, record.stopped, record.kl) for record in records] == [(4, True, 4.0), (1, True, 1.0), (8, False, 8.0)]
    sums = [float(record.tokens.arrays["rewards"].sum()) for record in records if record.tokens is not None]
    assert sums == pytest.approx([5 - 0.4, 6 - 0.1, 7 - 0.8]) and not any("above 0" in note for note in result.notes)


def test_log_probabilities_above_0_are_told(tmp_path: Path) -> None:
    result, _ = opened(tmp_path, {**BOARD, "logprobs": [-1, 1]}, {**BOARD, "step": 2})
    assert any("1 response has log-probabilities above 0, the first in line 1" in note for note in result.notes)
