"""The fonts of pictures. Pillow's own has Latin letters alone, so the letters decide which font of this machine is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from PIL import ImageFont

from rlhf_studio.language import ENGLISH, LANGUAGES, language

FONTS = (
    *("DejaVuSans.ttf", "Arial.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSansSC-Regular.otf", "SourceHanSansSC-Regular.otf", "wqy-microhei.ttc", "wqy-zenhei.ttc"),
    *("PingFang.ttc", "Hiragino Sans GB.ttc", "STHeiti Medium.ttc", "Arial Unicode.ttf", "msyh.ttc", "simhei.ttf"),
)
"""Looked for where a picture's texts have letters that Pillow's own font lacks; of two that have them all, the first is taken."""
Fonts = Callable[[int], Any]
"""A font by its size."""


def fonts_for(letters: Iterable[str]) -> Fonts:
    """Pillow's own font, or the one of this machine that lacks the fewest of the letters."""
    wanted = {letter for letter in letters if not letter.isspace()}
    return min(_found(), key=lambda fonts: _lacks(fonts, wanted))


def picture_language() -> str:
    """The language of the words in pictures: the one that is spoken, or English where no font of this machine has its letters."""
    now = language()
    return now if now == ENGLISH or not _lacks(fonts_for(LANGUAGES[now]), set(LANGUAGES[now])) else ENGLISH


def _lacks(fonts: Fonts, letters: set[str]) -> int:
    font = fonts(12)
    none = bytes(font.getmask("\U0010fffe"))
    return sum(bytes(font.getmask(letter)) == none for letter in letters)


@cache
def _found() -> tuple[Fonts, ...]:
    found: list[Fonts] = [lambda size: ImageFont.load_default(size=size)]
    for name in FONTS:
        try:
            ImageFont.truetype(name, 12)
        except OSError:
            continue
        found.append(lambda size, name=name: ImageFont.truetype(name, size))  # type: ignore[misc]
    return tuple(found)
