"""LaTeX as MathML, which every current browser draws and screen readers say."""

from __future__ import annotations

from functools import cache
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert

Tree = list[Any]
"""An element: its tag, its attributes, and its children, which are texts and elements."""


@cache
def formula(latex: str, *, display: bool = False) -> Tree:
    """The MathML of a formula as a tree. Raises ValueError for LaTeX that cannot be read."""
    try:
        element = ElementTree.fromstring(convert(latex, display="block" if display else "inline"))
    except Exception as error:  # noqa: BLE001 - the converter has no common class of errors
        raise ValueError(f"this formula cannot be read: {latex} ({error})") from None
    return _tree(element)


def _tree(element: ElementTree.Element) -> Tree:
    tag = element.tag.rpartition("}")[2]
    children: list[Any] = [element.text] if element.text and element.text.strip() else []
    for child in element:
        children.append(_tree(child))
        if child.tail and child.tail.strip():
            children.append(child.tail)
    return [tag, {name: value for name, value in element.attrib.items() if not name.startswith("xmlns")}, *children]
