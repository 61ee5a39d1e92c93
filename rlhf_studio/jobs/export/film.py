"""The replay of a run as an animated picture, a GIF or WebP, for a README: it plays where nothing but pictures is shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from rlhf_studio.analysis.series import evenly
from rlhf_studio.jobs.export.film_frame import Frame, letters_of
from rlhf_studio.jobs.export.picture_fonts import fonts_for
from rlhf_studio.runs.errors import StoreError

FORMATS = {".gif": "GIF", ".webp": "WEBP"}
MOST_BYTES = 3_000_000
MOST_FRAMES, FEWEST_FRAMES = 90, 8
STEP, LAST = 250, 4000
"""Milliseconds that a frame stands, and the last one."""
COLOURS = 96
READING = (1600, 3200)
"""Milliseconds that a sentence stands, the least and the most."""
PER_LETTER = 30


def write_film(payload: Mapping[str, Any], path: Path, suffix: str) -> None:
    """Draw what :func:`~rlhf_studio.analysis.replay.replay_of` gives into ``path``, as ``suffix`` says, in at most :data:`MOST_BYTES`.

    One frame for each step. Where that is too much, there are fewer: those of the moments, the first and the last always stay.

    Raises:
        OSError: the file cannot be written.
        StoreError: even few frames are too large.
    """
    font, most = fonts_for(letters_of(payload)), min(MOST_FRAMES, len(payload["steps"]))
    while True:
        rows = rows_of(payload, most)
        _save([Frame(payload, row, font).image() for row in rows], [_stands(payload, row) for row in rows], path, suffix)
        if path.stat().st_size <= MOST_BYTES:
            return
        if most <= FEWEST_FRAMES:
            raise StoreError(
                f"Even with {len(rows)} frames the picture is larger than {MOST_BYTES / 1e6:.0f} MB; take the .html page.", "state"
            )
        most = max(FEWEST_FRAMES, most // 2)


def rows_of(payload: Mapping[str, Any], most: int) -> list[int]:
    """Which of the payload's steps have a frame, ascending: the moments', and at most ``most`` that lie evenly."""
    steps = payload["steps"]
    moments = [steps.index(moment["step"]) for moment in payload["moments"]]
    return sorted({*moments, *evenly(len(steps), most)})


def _stands(payload: Mapping[str, Any], row: int) -> int:
    """How long the frame of a step stands, in milliseconds: as long as people need to read what is said there."""
    step = payload["steps"][row]
    letters = sum(map(_weight, "".join(moment["sentence"] for moment in payload["moments"] if moment["step"] == step)))
    reading = min(max(PER_LETTER * letters, READING[0]), READING[1]) if letters else 0
    return max(STEP, reading, LAST if row == len(payload["steps"]) - 1 else 0)


def _weight(letter: str) -> int:
    """How many letters of a word a letter is worth to a reader: one of Chinese is a word."""
    return 3 if letter > "\u2e80" else 1


def _save(images: list[Image.Image], durations: list[int], path: Path, suffix: str) -> None:
    common: dict[str, Any] = {"save_all": True, "duration": durations, "loop": 0}
    if suffix == ".webp":
        images[0].save(path, FORMATS[suffix], append_images=images[1:], lossless=True, method=1, **common)
        return
    palette = _sheet(images).quantize(COLOURS, method=Image.Quantize.MEDIANCUT)  # one for all, so that nothing flickers
    few = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    few[0].save(path, FORMATS[suffix], append_images=few[1:], optimize=False, **common)


def _sheet(images: list[Image.Image]) -> Image.Image:
    """Some of the frames below each other: their colours are those of all."""
    chosen = [images[index] for index in sorted({0, len(images) // 2, len(images) - 1})]
    width, height = chosen[0].size
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for index, image in enumerate(chosen):
        sheet.paste(image, (0, index * height))
    return sheet
