"""Shares, counts, times and bytes as people read them, bytes in powers of 1000. Every room may import it."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite

from rlhf_studio.language import _, ngettext


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
    return span(number if last.endswith(f" {unit}") else first, last)


def span(low: str, high: str) -> str:
    """``3`` and ``5 minutes`` -> "3 to 5 minutes"."""
    return _("{low} to {high}").format(low=low, high=high)


def percent(share: float, digits: int = 0) -> str:
    """``0.8`` -> "80 %"; with ``digits`` after the point."""
    return f"{share:.{digits}%}".replace("%", _(" %"))


def short_count(count: int) -> str:
    """``1_150_000`` -> "1.1 M", ``134_515_008`` -> "135 M", ``1200`` -> "1.2 k"."""
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            value = count / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return str(count)


def duration(seconds: float) -> str:
    """``0.42`` -> "0.42 s", ``21`` -> "21 s", ``204`` -> "3.4 minutes", ``12000`` -> "3.3 hours"."""
    if not isfinite(seconds):
        return _("an unknown time")
    if seconds >= 5400:
        text = _two_digits(seconds / 3600)
        return ngettext("{count} hour", "{count} hours", 1 if text == "1" else 2).format(count=text)
    if seconds >= 60:
        text = _two_digits(seconds / 60)
        return ngettext("{count} minute", "{count} minutes", 1 if text == "1" else 2).format(count=text)
    return _("{count} s").format(count=_two_digits(seconds))


def score_text(value: float) -> str:
    """A score in a sentence: two decimals and a real minus sign."""
    return number_text(value, 2)


def decimals(size: float) -> int:
    """How many decimals are needed beside numbers of this size, as the pages' ``decimals``: what they do not show is noise there."""
    return 0 if size >= 100 else 2 if size >= 0.1 or size == 0 else 3 if size >= 0.01 else 4 if size >= 0.001 else 6


def number_text(value: float, digits: int) -> str:
    """A number with ``digits`` decimals and a real minus sign, rounded as the pages' ``number`` rounds (halves away from 0)."""
    if not isfinite(value):
        return str(value).replace("-", "−")
    size = Decimal(float(f"{abs(value):.12g}"))  # what a sum's last bits say is noise, and decides no half
    text = str(size.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, Context(prec=400)))
    return f"−{text}" if value < 0 and float(text) else text


DUST = 1e-12
"""What is smaller is left over where a sum should be 0, and is shown as 0; what is stored stays as it is."""


def without_dust(value: float) -> float:
    """The number, and 0 where only the last bits of a sum are left."""
    return 0.0 if abs(value) < DUST else value


def _two_digits(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
