"""The rules of accessibility of axe-core, which a package of the development requirements brings along; nothing is asked of the network."""

from __future__ import annotations

from importlib import resources
from typing import Any

QUICK = {"resultTypes": ["violations"], "preload": False}
COLOURS_ALONE = {"runOnly": ["color-contrast"]}
"""What a theme can change; everything else is the same for both."""
NO_COLOURS: dict[str, Any] = {"rules": {"color-contrast": {"enabled": False}}}


NEW_CONTRASTS = """async ([part, known]) => {
    const looks = new Map();
    for (const node of document.querySelectorAll(`${part} *`)) {
        const text = node.matches("input, select, textarea") || [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
        if (!text || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const { color, fill, fontSize, fontWeight } = getComputedStyle(node);
        const below = new Set();
        for (let at = node; at; at = at.parentElement) {
            const { backgroundColor, backgroundImage, opacity } = getComputedStyle(at);
            below.add([backgroundColor, backgroundImage, opacity].join());
        }
        looks.set(node, [color, fill, fontSize, fontWeight, ...below].join(" "));
    }
    const include = [...looks.keys()].filter((node) => !known.includes(looks.get(node)));
    if (!include.length) return { found: [], decided: [] };
    const said = await axe.run({ include }, { runOnly: ["color-contrast"], preload: false, elementRef: true });
    const decided = [...said.passes, ...said.violations].flatMap((rule) => rule.nodes.map((node) => looks.get(node.element)));
    return {
        decided: [...new Set(decided)].filter(Boolean),
        found: said.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 200)}`)),
    };
}"""


def bring(page: Any) -> None:
    """Let the page have axe-core."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))


def violations(page: Any, within: str, options: dict[str, Any] | None = None) -> list[str]:
    """What axe-core finds wrong inside a part of the page: the rule, and the element."""
    bring(page)
    found = page.evaluate("([part, options]) => axe.run(part, options)", [within, {**QUICK, **(options or {})}])
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]


def new_contrasts(page: Any, within: str, seen: set[str]) -> list[str]:
    """What axe-core finds wrong with the contrast of texts, which takes it longer than all its other rules together.

    A contrast depends on a text's colour, size and weight, and on what lies below it. Where that is in ``seen``, axe-core has judged
    it before, and it is left out; what it judges now is added.
    """
    bring(page)
    told = page.evaluate(NEW_CONTRASTS, [within, sorted(seen)])
    seen.update(told["decided"])
    return list(told["found"])


def wear(page: Any, theme: str) -> None:
    """Turn the page's own switch until it has the theme, ``light`` or ``dark``."""
    for _ in range(3):
        if page.evaluate("document.body.classList.contains('dark')") == (theme == "dark"):
            return
        page.locator(".rs-theme").click()
    raise AssertionError(f"the switch of themes never came to {theme}")
