"""What a lesson is made of.

A lesson's module has a ``NUMBER`` (its place in the list) and ``SCENES``. A :class:`Scene` has controls, a pure function from their
values to numbers, and pictures of those numbers. The text is Markdown, see :mod:`.text`. Tests hold what a scene claims, whatever its
controls say (``tests/lessons/claims``).
"""

from rlhf_studio.lessons.kit.controls import Choice, Control, FromRun, Listed, Slider, Toggle, Typed, around, numbers_of
from rlhf_studio.lessons.kit.options import options
from rlhf_studio.lessons.kit.pictures import Arrow, Bar, Box, Picture, Series, Token, Zone, bars, flow, heat, ledger, line, plane, tokens
from rlhf_studio.lessons.kit.scene import CannotAsk, Numbers, Scene, Word

__all__ = [
    "Arrow",
    "Bar",
    "Box",
    "CannotAsk",
    "Choice",
    "Control",
    "FromRun",
    "Listed",
    "Numbers",
    "Picture",
    "Scene",
    "Series",
    "Slider",
    "Toggle",
    "Token",
    "Typed",
    "Word",
    "Zone",
    "around",
    "bars",
    "flow",
    "heat",
    "ledger",
    "line",
    "numbers_of",
    "options",
    "plane",
    "tokens",
]
