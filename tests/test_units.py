"""Bytes and shares as people read them."""

from __future__ import annotations

import pytest

from rlhf_studio.units import format_byte_range, format_bytes, percent


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 MB"), (900, "1 MB"), (999_999, "1 MB"), (1_500_000, "1.5 MB"), (62_000_000, "62 MB"), (2.5e9, "2.5 GB"), (3e13, "30 TB")],
)
def test_bytes(count: float, words: str) -> None:
    assert format_bytes(count) == words


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(1_500_000, 1_540_000, "1.5 MB"), (449_000_000, 725_000_000, "449 to 725 MB"), (900_000_000, 1_200_000_000, "900 MB to 1.2 GB")],
)
def test_ranges(low: int, high: int, text: str) -> None:
    assert format_byte_range(low, high) == text


def test_shares_have_a_space_before_their_sign() -> None:
    """As in every text that is written by hand."""
    assert (percent(0.8), percent(0.1234, 1), percent(-0.05), percent(2)) == ("80 %", "12.3 %", "-5 %", "200 %")
