"""What can be checked without running the pages: no way for text to become markup or code, and files that fit together."""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from pathlib import Path

import pytest

from rlhf_studio.ui import html, theme
from rlhf_studio.ui.live import charts

SCRIPTS = sorted(html.ASSETS.rglob("*.js"))
STYLES = sorted(html.ASSETS.rglob("*.css"))
TOKENS = html.ASSETS / "tokens.css"
PAGES = tuple(html.STYLES)
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML")
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|\beval\b|new Function|\bFunction\(|setHTML|srcdoc"
)


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_scripts_never_turn_text_into_markup_or_code():
    assert {path: hit[0] for path in SCRIPTS if (hit := FORBIDDEN.search(text_of(path)))} == {}


def test_scripts_name_nothing_that_is_private_to_plotly_or_another_library():
    """What begins with an underscore behind a dot may be another thing in the next version."""
    private = {str(path): names for path in SCRIPTS if (names := re.findall(r"\._[A-Za-z]\w*", path.read_text(encoding="utf-8")))}
    assert private == {}


def test_charts_are_drawn_by_one_layer():
    """Who draws asks charts/plot.js, which alone knows the theme, the letters and the axes, and gives Plotly no text of others."""
    others = [path for path in SCRIPTS if folder_of(path) != "charts" and "window.Plotly" in text_of(path)]
    assert others == []


def test_files_load_nothing_from_elsewhere():
    for path in (*SCRIPTS, *STYLES):
        outside = [url for url in re.findall(r"https?://[^\s\"'`)]+", text_of(path)) if url not in NAMESPACES]
        assert not outside and "@import" not in text_of(path), (path, outside)


PARTS = {"added", "charts", "classroom", "export", "gallery", "help", "pictures", "playground", "replay", "rounds"}
"""What may stand on more than one page, or is loaded when it is wanted."""


def folder_of(path: Path) -> str:
    """The folder of the assets that a file lies in, whatever folders are in that."""
    return path.relative_to(html.ASSETS).parts[0]


@functools.cache
def imports_of(path: Path) -> dict[Path, set[str]]:
    """The scripts that a script imports, at once or when they are needed, each with the names that it takes."""
    text = text_of(path)
    statements = re.findall(r'^import \{([^}]+)\} from "(\.[\w./]+)";', text, re.M)
    statements += re.findall(r'const \{([^}]+)\} = await import\("(\.[\w./]+)"\);', text)
    assert len(statements) == len(re.findall(r"^import\b|\bimport\(", text, re.M)), f"{path}: an import that this test does not read"
    return {(path.parent / source).resolve(): {name.strip() for name in names.split(",")} - {""} for names, source in statements}


LATER = {"replay", "charts", "train", "talk", "shared", "gallery", "help", "added", "classroom", "rounds"}
"""Folders of scripts that may be loaded when somebody wants them: of Train, the form."""


@functools.cache
def reached_from(page: str) -> set[Path]:
    reached: set[Path] = set()
    waiting = {html.ASSETS / page / f"{page}.js"}
    while waiting:
        path = waiting.pop()
        reached.add(path)
        waiting |= imports_of(path).keys() - reached
    return reached


def test_a_page_reaches_its_own_scripts_and_shared_ones_and_no_script_is_left_over():
    for page in PAGES:
        folders = {folder_of(path) for path in reached_from(page)}
        assert folders - PARTS == {page, "shared"}
        at_once = {html.ASSETS / name for name in html.scripts(page)}
        assert at_once <= reached_from(page) and {folder_of(path) for path in reached_from(page) - at_once} <= LATER
    assert set().union(*map(reached_from, PAGES)) == set(SCRIPTS)


def test_what_is_shared_serves_two_pages():
    tokens = {"tokens.js", "inspector.js", "card.js", "tips.js"}  # every page that shows tokens may use them
    tokens |= {"lasting.js"}  # and every page that has preferences
    for path in (html.ASSETS / "shared").rglob("*.js"):
        assert path.name in tokens or sum(path in reached_from(page) for page in PAGES) >= 2, (
            f"{path.name} belongs to the one page that uses it"
        )


LED = [("tab=evaluate", "evaluate"), ("run=x&step=3", "live"), ("tab=nowhere", None), ("a=1&" * 99, None)]


@pytest.mark.parametrize(("query", "page"), LED)
def test_the_scripts_of_the_page_that_an_address_leads_to_are_begun_early(query: str, page: str | None) -> None:
    named = re.findall(r'content="(.+)"', html.begun_early(query).decode())
    assert named == ([" ".join(html.scripts(page))] if page else [])


STYLED_BY = {"pictures/recorded": "shares", "replay/answer": "replay"}
"""Scripts whose looks stand in the stylesheet of another one."""


def test_every_stylesheet_is_loaded_by_the_pages_of_its_folder():
    tokens = {html.ASSETS / name for name in html.TOKEN_STYLES}
    for page, names in html.STYLES.items():
        parts = [path for path in reached_from(page) if folder_of(path) in PARTS]
        dialogs = {STYLED_BY.get(f"{folder_of(path)}/{path.stem}", path.stem) for path in parts}
        expected = {path for path in STYLES if folder_of(path) in (page, "shared") or (folder_of(path) in PARTS and path.stem in dialogs)}
        draws = {html.ASSETS / "charts" / "plot.js", html.ASSETS / "charts" / "axes.js"} & reached_from(page)
        drawn = {html.ASSETS / "shared" / "colours.css"} if draws else set()
        expected -= set() if html.ASSETS / "shared" / "tokens.js" in reached_from(page) else tokens - drawn
        assert [html.ASSETS / name for name in names] == sorted(expected, key=[html.ASSETS / name for name in names].index)


def test_imported_names_are_exported():
    for path in SCRIPTS:
        for source, names in imports_of(path).items():
            exported = source.read_text(encoding="utf-8")
            for name in names:
                assert re.search(rf"^export (async )?(const|let|function|class) {name}\b", exported, re.M), f"{path.name}: {name}"


def test_exported_names_are_imported_somewhere():
    taken = {(source, name) for path in SCRIPTS for source, names in imports_of(path).items() for name in names}
    for path in SCRIPTS:
        for name in re.findall(r"^export (?:async )?(?:const|let|function|class) (\w+)", path.read_text(encoding="utf-8"), re.M):
            assert (path, name) in taken or re.search(rf"\b{name}\b", html._BOOTSTRAP), f"{path.name}: nobody imports {name}"


# Classes of Gradio's own elements, which our rules must name.
OF_GRADIO = {
    "dark",
    "divider",
    "fillable",
    "gradio-container",
    "html-container",
    "main",
    "pending",
    "tab-container",
    "tab-wrapper",
    "tabitem",
}


def classes_of(style: str) -> set[str]:
    """The classes that a stylesheet's selectors name."""
    plain = re.sub(r"/\*.*?\*/|\"[^\"]*\"", "", style, flags=re.S)
    return {name for head in re.findall(r"[^{};]+(?=\{)", plain) for name in re.findall(r"\.([A-Za-z][\w-]*)", head)}


def test_every_class_of_ours_has_the_prefix_and_is_used():
    scripts = "".join(text_of(path) for path in SCRIPTS) + Path(html.__file__).read_text(encoding="utf-8")
    made = set(re.findall(r"\brs-[\w-]+", scripts))
    begun = tuple(name for name in made if name.endswith("-"))  # `rs-kind-${kind}`
    for path in STYLES:
        for name in classes_of(text_of(path)) - OF_GRADIO:
            assert name.startswith("rs-"), f"{path.name}: .{name}"
            assert name in made or name.startswith(begun), f"{path.name}: no script makes .{name}"


def test_what_all_pages_share_is_said_once():
    """The colour of a verdict, which theme the browser's own elements follow, and how a box to tick looks."""
    for words, only in (("data-kind", "colours.css"), ("color-scheme:", "theme.css"), ('[type="checkbox"]', "page.css")):
        assert [path.name for path in STYLES if words in text_of(path)] == [only]


def heads_of(style: str) -> list[str]:
    """The single selectors of a stylesheet: "a, b" gives two, and so does ":is(a, b)". What ":not(...)" leaves out does not count."""
    plain = re.sub(r":not\([^()]*\)|/\*.*?\*/|\"[^\"]*\"", "", style, flags=re.S)
    heads = []
    for head in re.findall(r"[^{};]+(?=\{)", plain):
        for selector in re.split(r",(?![^(]*\))", head):
            parts = [part.split(",") for part in re.split(r":is\(([^()]*)\)", selector)]
            heads += [" ".join("".join(choice).split()) for choice in itertools.product(*parts)]
    return heads


def test_a_page_has_no_rule_for_the_elements_of_another():
    """All pages stand in one document: a rule of one page that fits what another makes would depend on which was opened first."""
    made = {page: set(re.findall(r"(?<!-)\brs-[\w-]+", "".join(map(text_of, reached_from(page))))) for page in PAGES}
    for path in STYLES:
        page = folder_of(path)
        if page not in PAGES or page == "shell":  # the shell is around all pages, and may name them
            continue
        for head in heads_of(text_of(path)):
            names = set(re.findall(r"\.(rs-[\w-]+)", head)) - {"rs-page"}
            if not names or f"rs-{page}" in names:
                continue
            spoiled = [other for other, classes in made.items() if other != page and names <= classes]
            assert not spoiled, f"{page}/{path.name}: {head} is also on {spoiled}; begin it with .rs-{page}"


def test_heads_are_taken_apart():
    style = "@media (x) { .a, .b :is(.c, .d):not(.e, .f) i { k: v } } /* .g { } */ .h::before { content: '.' }"
    assert {".a", ".b .c i", ".b .d i", ".h::before"} <= set(heads_of(style))


def test_scripts_give_no_class_without_the_prefix():
    given = re.compile(r"(?:\bclass: |\bpushButton\()([\"`])(.+?)\1|classList\.\w+\(([\"`])(.+?)\3")
    for path in SCRIPTS:
        for match in given.finditer(path.read_text(encoding="utf-8")):
            names = re.sub(r"\$\{[^}]*\}", "", match[2] or match[4]).split()
            assert all(name.startswith("rs-") or name in OF_GRADIO for name in names), f"{path.name}: {match[0]}"


def test_templates_hold_no_data():
    for page in PAGES:
        component = html.panel(page, ["stop_run"], [])
        assert "{{" not in component.html_template and "${" not in component.html_template
        assert component.value == "" and component.elem_id == f"{page}-page"
        assert '"stop_run"' in component.js_on_load


def test_a_missing_plotly_is_named(monkeypatch):
    monkeypatch.setattr(html.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="plotly"):
        html.plotly_script()


def blocks(style: str, selector: str) -> str:
    """The declarations of every block of exactly this selector."""
    return " ".join(re.findall(rf"^{re.escape(selector)} \{{(.*?)\}}", style, re.S | re.M))


def test_every_colour_is_defined_for_light_and_dark():
    style = text_of(TOKENS)
    names = {line["colour"] for chart in charts.page_data()["charts"] for line in chart["lines"]}
    names |= {tile["colour"] for tile in charts.page_data()["tiles"]}
    for path in SCRIPTS:
        names |= set(re.findall(r'colour\("([\w-]+)"\)', path.read_text(encoding="utf-8")))
    for selector in (":root", ".dark"):
        defined = set(re.findall(r"--q-([\w-]+):", blocks(style, selector)))
        assert names <= defined, f"{selector}: {names - defined}"


HAIRLINE = 3  # pixels: below a step of the scale
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl)a?\(|: (?:white|black)\b")
SPACE = re.compile(r"[;{\s]((?:(?:padding|margin)[a-z-]*|(?:[a-z]+-)?gap): [^;}]+)")
TEXT = re.compile(r"[;{\s](font(?:-size)?: [^;}]+)")


def off_scale(style: str) -> set[str]:
    """The declarations of a stylesheet that give text a size, or elements a distance, without the names of :data:`TOKENS`."""
    plain = re.sub(r"/\*.*?\*/|calc\([^;]*\)", "", style, flags=re.S)
    own = {words for words in SPACE.findall(plain) if any(float(size) > HAIRLINE for size in re.findall(r"([\d.]+)(?:px|r?em)\b", words))}
    return own | {words for words in TEXT.findall(plain) if "inherit" not in words and "var(--rs-text-" not in words}


def test_sizes_distances_and_colours_are_those_with_a_name():
    """Five sizes of text, five steps of space, and every colour in the one file where it has a value for light and for dark."""
    assert off_scale("a { font-size: 13px; padding: 0 5px } b { font: 12px/2 x; gap: 1px var(--rs-space-s); margin: 0 -3px }") == {
        *("font-size: 13px", "padding: 0 5px ", "font: 12px/2 x"),
    }
    styles = [path for path in STYLES if path != TOKENS]
    assert {path.name: found for path in styles if (found := off_scale(text_of(path)))} == {}
    assert {path.name: found for path in styles if (found := COLOUR.findall(text_of(path)))} == {}
    sizes = set(re.findall(r"--rs-(?:text|space)-[a-z]+: (\d+)px", text_of(TOKENS)))
    assert sizes == {*("12", "14", "16", "20", "28"), *("4", "8", "24", "40")}
    named = set(re.findall(r"(--[\w-]+):", text_of(TOKENS)))
    used = "".join(map(text_of, (*SCRIPTS, *styles)))
    assert {name for name in named if not name.startswith("--q-") and f"var({name})" not in used and f'"{name}"' not in used} == set()


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


@pytest.mark.parametrize(("selector", "ground", "text"), [(":root", "#ffffff", "#1a1d24"), (".dark", "#171b23", "#e6e9ef")])
def test_state_and_token_colours_can_be_read(selector, ground, text):
    states = dict(re.findall(r"--rs-state-(\w+): (#\w{6})", blocks(text_of(TOKENS), selector)))
    assert len(states) == 6
    for name, colour in states.items():
        assert contrast(colour, ground) >= 4.5, name
    scale = dict(re.findall(r"--(minus|plus|even|flat|flag): (#\w{6})", blocks(text_of(TOKENS), selector)))
    for name in ("minus", "plus", "even", "flag"):
        assert contrast(text, scale[name]) >= 4.5, (name, contrast(text, scale[name]))


def test_an_installed_app_has_every_asset():
    root = html.ASSETS.parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["rlhf_studio"]
    packed = {path for pattern in patterns for path in (root / "rlhf_studio").glob(pattern)}
    assert {path for path in html.ASSETS.rglob("*") if path.is_file()} <= packed
