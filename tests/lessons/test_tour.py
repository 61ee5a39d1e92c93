"""The tour: its stations lie along a step in order, an anchor that no longer matches is an error, and its tensors are those of the run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlhf_studio.lessons import answers, shelf
from rlhf_studio.lessons.kit import code
from rlhf_studio.lessons.kit.code import CodeError
from rlhf_studio.lessons.kit.text import read_text
from rlhf_studio.lessons.run import lesson_run
from rlhf_studio.lessons.tour.line import MOST, label, line_of, rows_of, shown_places
from rlhf_studio.lessons.tour.pooling import last_non_pad_token

STATIONS = [entry.name for entry in shelf.entries(shelf=shelf.TOUR)]
ORDER = "prompts sampling score pooling reference rewards gae whitening minibatch policy_loss value_loss total optimizer controller record"


def code_of(station: str) -> list[dict[str, object]]:
    return [block for scene in shelf.text_of(station).scenes for block in scene.blocks if block["kind"] == "code"]


def test_the_stations_follow_the_step() -> None:
    assert [name.rpartition(".")[2] for name in STATIONS] == ORDER.split()


@pytest.mark.parametrize("station", STATIONS)
def test_a_station_has_code_a_formula_shapes_tensors_and_questions(station: str) -> None:
    (scene,) = shelf.text_of(station).scenes
    kinds = [block["kind"] for block in scene.blocks]
    assert kinds.count("code") >= 1 and kinds.count("formula") >= 1 and kinds.count("predict") >= 2 and kinds.count("controls") == 1
    source = next((Path(shelf.__file__).parent / "tour").glob(f"{station.rpartition('.')[2]}.en.md")).read_text(encoding="utf-8")
    assert "\nShapes: " in source and "## This line now" in source
    for place, kind in enumerate(kinds):
        assert kind != "code" or kinds[place - 1] == "paragraph", "a note stands before each piece of code"
    shown = answers.computed(station, "line", answers.find(station, "line").start())["pictures"]["tensors"]
    assert len(shown["columns"]) <= MOST and shown["rows"]
    for row in shown["rows"]:
        assert any(kind in row["label"] for kind in ("float", "int", "bool")), f"{row['label']} names no format"
        assert len(row["cells"]) == len(shown["columns"])


@pytest.mark.parametrize("station", STATIONS)
def test_an_anchor_that_no_longer_matches_is_an_error(station: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each anchor in turn is changed in what is read of the source: the station can then not be read."""
    source = next((Path(shelf.__file__).parent / "tour").glob(f"{station.rpartition('.')[2]}.en.md")).read_text(encoding="utf-8")
    read_text(source)
    anchors = [line.partition(": ")[2].strip() for line in source.splitlines() if line.startswith(("from: ", "to: "))]
    real = code._place
    for anchor in anchors:

        def of_changed(lines: list[str], numbers: list[int], text: str, symbol: str, gone: str = anchor) -> int:
            return real([line.replace(gone, "changed") for line in lines], numbers, text, symbol)

        monkeypatch.setattr(code, "_place", of_changed)
        with pytest.raises(CodeError, match="must stand in one"):
            read_text(source)


def test_one_station_is_in_the_installed_transformers() -> None:
    paths = {str(block["path"]) for block in code_of("tour.pooling")}
    assert "transformers/modeling_layers.py" in paths
    others = {str(block["path"]) for name in STATIONS if name != "tour.pooling" for block in code_of(name)}
    assert all(path.startswith("rlhf_studio/") for path in others)


@pytest.mark.parametrize("pad", [7, 0])
def test_the_pooled_token_is_the_one_that_transformers_takes(pad: int) -> None:
    from transformers import GPT2Config, GPT2ForSequenceClassification

    model = GPT2ForSequenceClassification(GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1, n_positions=16, num_labels=1)).eval()
    model.config.pad_token_id = pad
    rows = torch.tensor([[1, 2, 3, 7, pad, pad], [pad, pad, 4, 5, 6, 8], [5, 7, 2, 7, 1, 7]])
    with torch.no_grad():
        hidden = model.transformer(rows).last_hidden_state
        expected = model(rows).logits
    _, _, last = last_non_pad_token(rows, pad)
    assert torch.allclose(model.score(hidden)[torch.arange(3), last], expected)


def test_a_line_shows_at_most_eight_tokens_of_the_recorded_tensors() -> None:
    assert shown_places(3) == (0, 1, 2) and shown_places(8) == tuple(range(8))
    assert shown_places(20) == (0, 1, 2, 3, None, 17, 18, 19)
    run = lesson_run()
    line = line_of(run, 12, 3)
    rollout = run.reader.rollout(12, 2)
    assert rollout.tokens is not None
    kept = rollout.tokens.arrays
    rows = rows_of(line, logprobs=line.of.logprobs, mask=line.of.mask)
    (logprobs_label, cells), (mask_label, real) = rows.items()
    shape = tuple(line.of.mask.shape)
    assert logprobs_label == f"logprobs  float32 {shape}" and mask_label == f"mask  bool {shape}"
    places = [place for place in line.places if place is not None]
    assert [cell for cell in cells if cell is not None] == [float(kept["logprobs"][place]) for place in places]
    assert real == ["True"] * 4 + [None] + ["True"] * 3
    assert label("x", torch.zeros(3, dtype=torch.int64)) == "x  int64 (3,)"


def test_every_number_of_the_rows_is_what_the_run_has_recorded() -> None:
    run, values = lesson_run(), {"step": 12, "sample": 3}
    rollout = run.reader.rollout(12, 2)
    assert rollout.tokens is not None
    places = [place for place in line_of(run, 12, 3).places if place is not None]
    names = {"gae": ("rewards", "deltas", "advantages", "returns"), "rewards": ("kl",), "policy_loss": ("ratio",)}
    for station, wanted in names.items():
        picture = answers.computed(f"tour.{station}", "line", values)["pictures"]["tensors"]
        rows = {row["label"].split()[0]: [cell for cell in row["cells"] if cell is not None] for row in picture["rows"]}
        for name in wanted:
            recorded = [float(rollout.tokens.arrays[name][place]) for place in places]
            assert rows[name] == pytest.approx(recorded, abs=1e-5), f"{station}: {name}"
