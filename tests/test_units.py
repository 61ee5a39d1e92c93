"""Bytes and shares as people read them."""

from __future__ import annotations

import pytest

from rlhf_studio.units import duration, format_byte_range, format_bytes, percent, short_count


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


@pytest.mark.parametrize(("count", "text"), [(7, "7"), (1200, "1.2 k"), (134_515_008, "135 M"), (6_900_000_000, "6.9 B")])
def test_counts(count: int, text: str) -> None:
    assert short_count(count) == text


DURATIONS = {0.42: "0.42 s", 21: "21 s", 60: "1 minute", 204: "3.4 minutes", 3300: "55 minutes", 5400: "1.5 hours", 1e5: "28 hours"}


@pytest.mark.parametrize("seconds", DURATIONS)
def test_durations(seconds: float) -> None:
    assert duration(seconds) == DURATIONS[seconds]
