"""Curves as one PNG, for the model card: the hub shows PNG pictures wherever it shows the card. Pillow comes with Gradio."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

from rlhf_studio.jobs.export.curves import Curve, tick_text
from rlhf_studio.jobs.export.picture_fonts import Fonts, fonts_for
from rlhf_studio.language import LANGUAGES, _, language

SCALE = 3  # drawn three times as large and then made smaller, so that lines are smooth
WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 40, 28
GROUND, INK, QUIET, GRID = "#ffffff", "#1f2430", "#5d6472", "#e4e7ec"


def write_curves(curves: list[Curve], path: Path) -> None:
    """Draw the curves two in a row. Raises OSError, and ValueError without a curve."""
    if not curves:
        raise ValueError("there is no curve to draw")
    columns = min(2, len(curves))
    rows = -(-len(curves) // columns)
    picture = Image.new("RGB", (columns * WIDTH * SCALE, rows * HEIGHT * SCALE), GROUND)
    draw = ImageDraw.Draw(picture)
    font = fonts_for("".join([LANGUAGES[language()], *(curve.title + curve.unit for curve in curves)]))
    for index, curve in enumerate(curves):
        _draw(draw, curve, index % columns * WIDTH * SCALE, index // columns * HEIGHT * SCALE, font)
    picture.resize((columns * WIDTH * 2, rows * HEIGHT * 2), Image.Resampling.LANCZOS).save(path, "PNG", optimize=True)


def _draw(draw: ImageDraw.ImageDraw, curve: Curve, x0: float, y0: float, font: Fonts) -> None:
    big, small = font(15 * SCALE), font(11 * SCALE)
    width, height = (WIDTH - LEFT - RIGHT) * SCALE, (HEIGHT - TOP - BOTTOM) * SCALE
    left, top = x0 + LEFT * SCALE, y0 + TOP * SCALE
    unit = f"  ({curve.unit})" if curve.unit else ""
    draw.text((left, y0 + 12 * SCALE), curve.title, font=big, fill=INK)
    draw.text((left + draw.textlength(curve.title, font=big), y0 + 16 * SCALE), unit, font=small, fill=QUIET)
    for value in curve.ticks:
        y = top + (curve.high - value) / (curve.high - curve.low) * height
        draw.line([(left, y), (left + width, y)], fill=GRID, width=SCALE)
        text = tick_text(value, curve.ticks).replace("\u2212", "-")  # Pillow's own font has no minus sign
        draw.text((left - 6 * SCALE, y), text, font=small, fill=QUIET, anchor="rm")
    under = top + height + 6 * SCALE
    draw.text((left, under), _("step {first:,}").format(first=int(curve.steps[0])), font=small, fill=QUIET)
    draw.text((left + width, under), str(int(curve.steps[-1])), font=small, fill=QUIET, anchor="ra")
    for points in curve.at(width, height):
        placed = [(left + x, top + y) for x, y in points]
        if len(placed) == 1:
            (x, y), size = placed[0], 3 * SCALE
            draw.ellipse([x - size, y - size, x + size, y + size], fill=curve.colour)
        else:
            draw.line(placed, fill=curve.colour, width=2 * SCALE, joint="curve")
