"""Text of models, data and people, made safe for files that others open: nothing in it acts, and nothing in it is hidden."""

from __future__ import annotations

import re
import unicodedata

from rlhf_studio.visible import visible

MOST_MARKS = 4  # combining marks on one letter: more are drawn over the lines above and below
_FORMULA = re.compile("(?:^|(?<=[;,|\t\r\n]))(?=[ \"']*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()#+\-!|<>&~$^:=\"']")


def readable(text: str, limit: int = 4000) -> str:
    """The text with hidden characters written as their codes, few marks on a letter, and at most ``limit`` characters.

    What comes out is valid UTF-8: half a surrogate pair is written as its code too.
    """
    characters: list[str] = []
    marks = 0
    for character in text[:limit]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks > MOST_MARKS:
            continue
        characters.append(character)
    rest = len(text) - limit
    return visible("".join(characters)) + (f"\u2026 (+{rest} characters)" if rest > 0 else "")


def cell(text: str) -> str:
    """A text as a cell of a table for spreadsheets. A text that a spreadsheet would take for a formula gets an apostrophe in front.

    Also behind a semicolon, a comma, a bar, a tab or a new line: some spreadsheets begin a new cell there.
    After https://owasp.org/www-community/attacks/CSV_Injection.
    """
    return readable(_FORMULA.sub("'", text))


def markdown(text: str, limit: int = 600) -> str:
    """A text as part of one line of Markdown, where every character stands for itself: no markup, no link, no new cell."""
    coded = _MARKDOWN.sub(lambda match: f"&#{ord(match[0])};", readable(text, limit))
    coded = coded.replace("www.", "www<!-- -->.").replace("@", "<!-- -->@")  # or readers of Markdown would make a link of it
    return "<br>".join(" ".join(line.split()) for line in coded.split("\n"))


def number(value: float | None, digits: int = 2) -> str:
    """A number as people read it; an en dash when there is none. One that would be 0 gets two decimals more; smaller ones are 0."""
    if value is None or value != value:
        return "\u2013"
    if abs(value) == float("inf"):
        return "\u221e" if value > 0 else "\u2212\u221e"
    size = abs(value)
    if 10**-digits / 200 <= size < 10**-digits:
        digits += 2
    text = f"{size:.1e}" if size >= 1e7 else f"{size:,.{digits}f}"
    return ("\u2212" if value < 0 and float(text.replace(",", "")) else "") + text
