"""Our look: one Gradio theme of our own, and the few rules that concern every page.

System fonts only (it works offline), 14 px text, one indigo accent for the next action, and a dark theme that was designed,
not inverted. The pages' own rules lie in the folders of ``assets/`` and use the variables defined here.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes import Base, Color

CJK = ("PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC")  # Chinese, after the Latin letters
FONT = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", *CJK, "sans-serif")
FONT_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Liberation Mono", "monospace")

INDIGO = Color(
    "#eef2ff",
    "#e0e7ff",
    "#c7d2fe",
    "#a5b4fc",
    "#818cf8",
    "#6366f1",
    "#4f46e5",
    "#4338ca",
    "#3730a3",
    "#312e81",
    "#1e1b4b",
    name="studio_indigo",
)
SLATE = Color(
    "#f7f8fa",
    "#eff1f4",
    "#e3e6eb",
    "#cbd2db",
    "#9aa4b2",
    "#6b7687",
    "#4f5a6b",
    "#3a4352",
    "#2a303c",
    "#171b23",
    "#0f1218",
    name="studio_slate",
)

# Gradio's names; those that end in _dark are for the dark theme. Contrast of text on each ground is tested to be AA or better.
_COLOURS = {
    "body_background_fill": "#f7f8fa",
    "body_background_fill_dark": "#0f1218",
    "body_text_color": "#1a1d24",
    "body_text_color_dark": "#e6e9ef",
    "body_text_color_subdued": "#566070",
    "body_text_color_subdued_dark": "#a3adbb",
    "body_text_size": "14px",
    "background_fill_primary": "#ffffff",
    "background_fill_primary_dark": "#171b23",
    "background_fill_secondary": "#f7f8fa",
    "background_fill_secondary_dark": "#0f1218",
    "block_background_fill": "#ffffff",
    "block_background_fill_dark": "#171b23",
    "block_border_color": "#e3e6eb",
    "block_border_color_dark": "#2a303c",
    "block_shadow": "none",
    "block_label_text_color": "#3a4352",
    "block_label_text_color_dark": "#cbd2db",
    "border_color_primary": "#e3e6eb",
    "border_color_primary_dark": "#2a303c",
    "border_color_accent": "#4f46e5",
    "border_color_accent_dark": "#a5b4fc",
    "color_accent": "#4f46e5",
    "color_accent_soft": "#eef2ff",
    "color_accent_soft_dark": "#262a4d",
    "link_text_color": "#4338ca",
    "link_text_color_dark": "#a5b4fc",
    "input_background_fill": "#ffffff",
    "input_background_fill_dark": "#12161d",
    "input_border_color": "#cbd2db",
    "input_border_color_dark": "#3a4352",
    "button_primary_background_fill": "#4f46e5",
    "button_primary_background_fill_dark": "#a5b4fc",
    "button_primary_background_fill_hover": "#4338ca",
    "button_primary_background_fill_hover_dark": "#c7d2fe",
    "button_primary_text_color": "#ffffff",
    "button_primary_text_color_dark": "#14162b",
    "button_secondary_background_fill": "#ffffff",
    "button_secondary_background_fill_dark": "#1f2530",
    "button_secondary_background_fill_hover": "#eff1f4",
    "button_secondary_background_fill_hover_dark": "#2a303c",
    "button_secondary_border_color": "#cbd2db",
    "button_secondary_border_color_dark": "#3a4352",
    "button_secondary_text_color": "#1a1d24",
    "button_secondary_text_color_dark": "#e6e9ef",
    "button_cancel_background_fill": "#ffffff",
    "button_cancel_background_fill_dark": "#1f2530",
    "button_cancel_text_color": "#b42318",
    "button_cancel_text_color_dark": "#ff9c90",
    "button_cancel_border_color": "#e4a9a3",
    "button_cancel_border_color_dark": "#7d3a34",
}


def theme() -> Base:
    """The theme for ``launch(theme=...)``."""
    look = Base(
        primary_hue=INDIGO,
        secondary_hue=INDIGO,
        neutral_hue=SLATE,
        text_size=gr.themes.sizes.text_md,
        radius_size=gr.themes.sizes.Size("2px", "4px", "6px", "8px", "8px", "10px", "12px", name="studio_radius"),
        font=FONT,
        font_mono=FONT_MONO,
    )
    return look.set(**_COLOURS)


def page_css() -> str:
    """The rules for ``launch(css=...)``: the named sizes and colours, and what must hold before any script has run.

    Only plain selectors: Gradio rewrites this text and drops whatever its rewriter does not know (nesting, ``:is``, containers).
    """
    assets = Path(__file__).resolve().parent / "assets"
    return "".join((assets / name).read_text(encoding="utf-8") for name in ("tokens.css", "theme.css"))
