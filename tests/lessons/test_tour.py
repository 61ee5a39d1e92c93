"""The tour: its tensors are those of the run, and its pooled token is the one that transformers takes."""

from __future__ import annotations

import pytest
import torch

from rlhf_studio.lessons import answers
from rlhf_studio.lessons.run import lesson_run
from rlhf_studio.lessons.tour.line import label, line_of, rows_of, shown_columns
from rlhf_studio.lessons.tour.pooling import last_non_pad_token


def test_the_pooled_token_is_the_one_that_transformers_takes() -> None:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    model = GPT2ForSequenceClassification(GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1, n_positions=16, num_labels=1)).eval()
    for pad in (7, 0):
        model.config.pad_token_id = pad
        rows = torch.tensor([[1, 2, 3, 7, pad, pad], [pad, pad, 4, 5, 6, 8], [5, 7, 2, 7, 1, 7]])
        with torch.no_grad():
            hidden = model.transformer(rows).last_hidden_state
            expected = model(rows).logits
        _, _, last = last_non_pad_token(rows, pad)
        assert torch.allclose(model.score(hidden)[torch.arange(3), last], expected), pad


def test_a_line_shows_at_most_eight_tokens_of_the_recorded_tensors() -> None:
    assert shown_columns(3) == (0, 1, 2) and shown_columns(8) == tuple(range(8))
    assert shown_columns(20) == (0, 1, 2, 3, None, 17, 18, 19)
    run = lesson_run()
    line = line_of(run, 12, 3)
    rollout = run.reader.rollout(12, 2)
    assert rollout.tokens is not None
    arrays = rollout.tokens.arrays
    rows = rows_of(line, logprobs=line.of.logprobs, mask=line.of.mask)
    (logprobs_label, cells), (mask_label, real) = rows.items()
    shape = tuple(line.of.mask.shape)
    assert logprobs_label == f"logprobs  float32 {shape}" and mask_label == f"mask  bool {shape}"
    indices = [index for index in line.columns if index is not None]
    assert [cell for cell in cells if cell is not None] == [float(arrays["logprobs"][index]) for index in indices]
    assert real == ["True"] * 4 + [None] + ["True"] * 3
    assert label("x", torch.zeros(3, dtype=torch.int64)) == "x  int64 (3,)"


def test_every_number_of_the_rows_is_what_the_run_has_recorded() -> None:
    run, values = lesson_run(), {"step": 12, "sample": 3}
    rollout = run.reader.rollout(12, 2)
    assert rollout.tokens is not None
    indices = [index for index in line_of(run, 12, 3).columns if index is not None]
    names = {"gae": ("rewards", "deltas", "advantages", "returns"), "rewards": ("kl",), "policy_loss": ("ratio",)}
    for station, tensors in names.items():
        picture = answers.computed(f"tour.{station}", "line", values)["pictures"]["tensors"]
        rows = {row["label"].split()[0]: [cell for cell in row["cells"] if cell is not None] for row in picture["rows"]}
        for name in tensors:
            recorded = [float(rollout.tokens.arrays[name][index]) for index in indices]
            assert rows[name] == pytest.approx(recorded, abs=1e-5), f"{station}: {name}"
