"""Shares and numbers of bytes as people read them, bytes in powers of 1000. Imports nothing of ours: every room may import it."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """``1500000`` -> "1.5 MB", ``62e9`` -> "62 GB"; from 1 byte to a million it is "1 MB"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            value = count / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return "1 MB" if count else "0 MB"


def format_byte_range(low: float, high: float) -> str:
    """``449e6, 725e6`` -> "449 to 725 MB". One figure when both read the same; the unit is written once when both have it."""
    first, last = format_bytes(low), format_bytes(high)
    if first == last:
        return last
    number, unit = first.rsplit(" ", 1)
    return f"{number} to {last}" if last.endswith(f" {unit}") else f"{first} to {last}"


def percent(share: float, digits: int = 0) -> str:
    """``0.8`` -> "80 %"; with ``digits`` after the point."""
    return f"{share:.{digits}%}".replace("%", " %")
