"""Characters that nobody sees: refused where people name things, and written as their codes where text of others is printed.

Control characters steer a terminal, and characters of direction show a name in another order than it has
(https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing).
"""

from __future__ import annotations

import argparse
import re
import unicodedata
from typing import Any, TextIO

_NOT_SEEN = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and new line
    r"\xad\u115f\u1160\u180e\u200b\u2060-\u2064\u3164\ufeff\uffa0\ufff9-\ufffb"  # no width, or nothing to see
    r"\u061c\u200e\u200f\u2028-\u202e\u2065-\u206f"  # another direction, or another line
    r"\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\U000e0000-\U000e007f]"  # halves of a pair, no characters at all, tags
)
# Persian words and pictures of several parts need the joiners U+200C and U+200D; anywhere else they only make two names look alike.
_JOINERS = r"(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d])"
_HIDDEN = re.compile(f"{_NOT_SEEN}|{_JOINERS}")
_WIDE = r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]"
_OPENS, _CLOSES = r"[\u201c\uff08\u300a]", r"[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f\uff09\u300b\u201d]"
_UNBROKEN = re.compile(rf"{_OPENS}*(?:(?:(?!{_WIDE})[^\s\u201c])+|{_WIDE}){_CLOSES}* ?|\S ?")
_WIDE_HEADING = re.compile(rf"^({_WIDE}+):$", re.MULTILINE)
_HIDDEN_IN_A_LINE = re.compile(f"[\t\n]|{_HIDDEN.pattern}")


def visible(text: str, *, lines: bool = True) -> str:
    """The text with each hidden character written as its code, ``⟨U+202E⟩``; with ``lines`` tabs and new lines stay as they are."""
    return (_HIDDEN if lines else _HIDDEN_IN_A_LINE).sub(lambda found: f"\u27e8U+{ord(found[0]):04X}\u27e9", text)


def text_of(thing: Any) -> str:
    """What an error or another object of somebody else says; the name of its type where it says nothing, or cannot."""
    try:
        return str(thing) or type(thing).__name__
    except Exception:  # noqa: BLE001 - its text may fail in any way
        return type(thing).__name__


def refuse_hidden(text: str, what: str, *, lines: bool = False) -> None:
    """Raises ValueError where ``what`` a person wrote, such as ``a tag``, has a hidden character; ``lines``: it may have several lines."""
    if found := (_HIDDEN if lines else _HIDDEN_IN_A_LINE).search(text):
        place = found.start() + 1
        raise ValueError(f"{what} may hold no character that nobody sees; remove U+{ord(found[0]):04X}, its character {place}")


def say(text: str, file: TextIO | None = None, *, end: str = "\n") -> None:
    """Print for people, on standard output or another stream: the one way to a terminal, which no text of others can steer."""
    print(visible(text), file=file, end=end, flush=True)


def cells(text: str) -> int:
    """How many columns of a terminal the text takes: a Chinese character or sign takes two."""
    return sum(_cells_of(character) for character in text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text with spaces behind it, or with ``right`` before it, up to so many columns of a terminal."""
    space = " " * (width - cells(text))
    return space + text if right else text + space


def _cells_of(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most so many columns. A line ends at a space or a Chinese character; none begins with a closing sign."""
    lines = [""]
    for word in _UNBROKEN.findall(" ".join(text.split())):
        if lines[-1] and cells(lines[-1] + word.rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append("")
        lines[-1] += word
    return [*lines[:-1], lines[-1].rstrip()]


class HelpFormatter(argparse.HelpFormatter):
    """Help that fits the terminal in Chinese too; English is left to argparse."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return super()._split_lines(text, width) if cells(text) == len(text) else wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if cells(text) == len(text):
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in wrapped(text, width - len(indent)))

    def format_help(self) -> str:
        """The whole help; a heading in Chinese ends with a Chinese colon."""
        return _WIDE_HEADING.sub("\\1\uff1a", super().format_help())


class RawHelpFormatter(HelpFormatter):
    """The same, with the lines of descriptions as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "".join(indent + line for line in text.splitlines(keepends=True))
