"""The Model Context Protocol: Gradio serves the functions for programs as tools, where its extra is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping


def require_mcp(asked: bool) -> None:
    """Raises ValueError where it is asked for, and Gradio's extra for it is not installed."""
    if asked and importlib.util.find_spec("mcp") is None:
        raise ValueError('--mcp needs a package that is not installed; run: pip install "gradio[mcp]"')


def tool_prefix(environment: Mapping[str, str]) -> str:
    """What Gradio puts before the names of tools: on a Space the Space's name."""
    space = environment.get("SPACE_ID", "").split("/")[-1]
    return f"{space}_" if space else ""
