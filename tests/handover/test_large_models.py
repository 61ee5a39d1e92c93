"""The table of docs/many-gpus.md is what the planner says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import large_models

PAGE = Path(__file__).parents[2] / "docs" / "many-gpus.md"


def test_the_page_has_the_planners_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    large_models.main()
    weights, table = capsys.readouterr().out.split("\n\n", 1)
    assert table in PAGE.read_text(encoding="utf-8")
    assert "7.62 billion" in weights and "70.55 billion" in weights  # as the models' cards count them
    by_way = {(model[:2], way): lasting for model, way, lasting, _, _ in large_models.rows()}
    # for each weight: itself, its gradient and two numbers of AdamW in float32; a copy, the reference and the captured step in bfloat16
    assert by_way["7 ", "all weights"] == pytest.approx(7.62 * (4 * 4 + 3 * 2), rel=0.02)
