"""The rules of accessibility of axe-core, which a package of the development requirements brings along; nothing is asked of the network."""

from __future__ import annotations

from importlib import resources
from typing import Any

QUICK = {"resultTypes": ["violations"], "preload": False}
ALIKE = [[".rs-row:nth-child(n + 4)"], ["tbody tr:nth-child(n + 4)"]]
"""Of rows that look alike the first three are looked at: to find the background of each piece of text takes long."""
COLOURS_ALONE = {"runOnly": ["color-contrast"]}
"""What a theme can change; everything else is the same for both."""


def violations(page: Any, within: str, options: dict[str, Any] | None = None) -> list[str]:
    """What axe-core finds wrong inside a part of the page: the rule, and the element."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    report = page.evaluate(
        "([part, options]) => axe.run(part, options)", [{"include": [[within]], "exclude": ALIKE}, {**QUICK, **(options or {})}]
    )
    return [f"{rule['id']}: {node['html'][:200]}" for rule in report["violations"] for node in rule["nodes"]]


def wear(page: Any, theme: str) -> None:
    """Choose a theme in the page's own menu, ``light`` or ``dark``."""
    page.locator(f"#rs-page-menu [data-value={theme}]").evaluate("(button) => button.click()")
    assert page.evaluate("document.body.classList.contains('dark')") == (theme == "dark")
