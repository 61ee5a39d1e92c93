"""What can be checked without running the page: no way for text to become markup or code, and scripts that fit together."""

from __future__ import annotations

import re

import pytest

from rlhf_studio.ui import html, live_charts, theme

SCRIPTS = sorted(html.ASSETS.glob("*.js"))
STYLES = sorted(html.ASSETS.glob("*.css"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|\beval\b|new Function|\bFunction\(|setHTML|srcdoc"
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_never_turn_text_into_markup_or_code(path):
    found = FORBIDDEN.search(path.read_text(encoding="utf-8"))
    assert found is None, f"{path.name}: {found}"


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES], ids=lambda path: path.name)
def test_files_stay_short_and_load_nothing_from_elsewhere(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    outside = [url for url in re.findall(r"https?://[^\s\"'`)]+", text) if url != "http://www.w3.org/2000/svg"]
    assert not outside and "@import" not in text


def imports_of(name: str) -> set[str]:
    return set(re.findall(r'from "\./([\w.]+)"', (html.ASSETS / name).read_text(encoding="utf-8")))


def test_the_bootstrap_knows_exactly_the_scripts_that_are_imported():
    seen: set[str] = set()
    waiting = {"live.js"}
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting |= imports_of(name) - seen
    assert seen == set(html.LIVE_SCRIPTS)


def test_imported_names_are_exported():
    for path in SCRIPTS:
        for names, source in re.findall(r'import \{([^}]+)\} from "\./([\w.]+)"', path.read_text(encoding="utf-8")):
            exported = (html.ASSETS / source).read_text(encoding="utf-8")
            for name in (item.split(" as ")[0].strip() for item in names.split(",")):
                assert not name or re.search(rf"export (async )?(const|let|function|class) {name}\b", exported), f"{path.name}: {name}"


def test_templates_hold_no_data():
    component = html.live_component([])
    assert "{{" not in component.html_template and "${" not in component.html_template
    assert component.value == ""
    for event in html.LIVE_EVENTS:
        assert f'"{event}"' in component.js_on_load


def test_text_blocks_escape():
    hostile = '<img src=x onerror="boom()">${boom()}{{x}}&\''
    markup = html.text_markup(hostile, 'a" onclick="x')
    assert "<img" not in markup and 'onclick="x' not in markup and "&lt;img" in markup
    assert html.text_block(hostile).html_template == "${value}"


def test_a_missing_plotly_is_named(monkeypatch):
    monkeypatch.setattr(html.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="plotly"):
        html.plotly_script()


def blocks(style: str, selector: str) -> str:
    """The declarations of every block of exactly this selector."""
    return " ".join(re.findall(rf"^{re.escape(selector)} \{{(.*?)\}}", style, re.S | re.M))


def test_every_colour_is_defined_for_light_and_dark():
    style = (html.ASSETS / "live.css").read_text(encoding="utf-8")
    names = {line["colour"] for chart in live_charts.page_data()["charts"] for line in chart["lines"]}
    names |= {tile["colour"] for tile in live_charts.page_data()["tiles"]}
    names |= set(re.findall(r'colour\("([\w-]+)"\)', (html.ASSETS / "traces.js").read_text(encoding="utf-8")))
    for selector in (".rs-live", ".dark .rs-live"):
        defined = set(re.findall(r"--q-([\w-]+):", blocks(style, selector)))
        assert names <= defined, f"{selector}: {names - defined}"


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_of_text_is_at_least_aa_in_both_themes():
    look = theme.theme()
    pairs = [
        (look.body_text_color, look.body_background_fill),
        (look.body_text_color_subdued, look.body_background_fill),
        (look.body_text_color_subdued, look.block_background_fill),
        (look.button_primary_text_color, look.button_primary_background_fill),
        (look.button_secondary_text_color, look.button_secondary_background_fill),
        (look.body_text_color_dark, look.body_background_fill_dark),
        (look.body_text_color_subdued_dark, look.block_background_fill_dark),
        (look.button_primary_text_color_dark, look.button_primary_background_fill_dark),
        (look.button_secondary_text_color_dark, look.button_secondary_background_fill_dark),
    ]
    for text, ground in pairs:
        assert contrast(text, ground) >= 4.5, (text, ground)


@pytest.mark.parametrize(("selector", "ground", "text"), [(".rs-live", "#ffffff", "#1a1d24"), (".dark .rs-live", "#171b23", "#e6e9ef")])
def test_state_and_token_colours_can_be_read(selector, ground, text):
    states = dict(re.findall(r"--rs-state-(\w+): (#\w{6})", blocks(theme.page_css(), ":root" if ground == "#ffffff" else ".dark")))
    assert len(states) == 6
    for name, colour in states.items():
        assert contrast(colour, ground) >= 4.5, name
    scale = dict(
        re.findall(
            r"--(minus|plus|even|flat|flag): (#\w{6})", blocks((html.ASSETS / "inspector.css").read_text(encoding="utf-8"), selector)
        )
    )
    for name in ("minus", "plus", "even", "flag"):
        assert contrast(text, scale[name]) >= 4.5, (name, contrast(text, scale[name]))
