"""One picture of a replay: the curves up to a step, the sentence of the newest moment, and an answer with its coloured tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from rlhf_studio.jobs.export.curves import axis, tick_text
from rlhf_studio.jobs.export.picture_fonts import Fonts
from rlhf_studio.jobs.export.text import number, readable
from rlhf_studio.language import ENGLISH, LANGUAGES, _, language

WIDTH = 800
SCALE = 2  # drawn twice as large and then made smaller, so that lines are smooth
EDGE, LEFT, RIGHT = 24, 60, 132
GROUND, INK, QUIET, GRID, EVEN = "#ffffff", "#1a1d24", "#566070", "#e3e6eb", "#eef0f3"
SCORE, GOLD, KL, ACCENT, GAP = "#4f46e5", "#b45309", "#0f766e", "#4f46e5", "#f6e3d0"
MINUS, PLUS = (0x4F, 0x94, 0xD8), (0xF0, 0x92, 0x38)
TOP_CHART, KL_CHART = (124, 286), (318, 374)
BAR, SENTENCE, ANSWER, LINE = 58, 74, 416, 24
MOST_LINES, LETTERS = 5, 84
"""Lines of an answer that are shown, and about how many letters a line has."""
_UNBROKEN = re.compile(r"[\u2e80-\ud7ff][\u3001\u3002\u201d\uff01-\uff1f]*|[^\s\u2e80-\ud7ff]+\s*|\s+")
"""What stays in one line: a word, or a letter of a script without spaces, with the signs that may not begin a line."""
INSTEAD = str.maketrans({"\u2212": "-", "\u201c": '"', "\u201d": '"', "\u2019": "'", "\u2192": "to", "\u2026": "...", "\u2013": "-"})
Point = tuple[float, float]


def plain(text: str, limit: int = 400) -> str:
    """A text with signs that every font has, and with nothing hidden in it."""
    text = readable(" ".join(text.split()), limit)
    return text.translate(INSTEAD) if language() == ENGLISH else text  # a font with the letters of another language has these too


def letters_of(payload: Mapping[str, Any]) -> set[str]:
    """The letters of all that the pictures say, their own words among them: those have the letters of their language's name."""
    texts = [payload["title"], LANGUAGES[language()], *(moment["sentence"] for moment in payload["moments"])]
    for answer in payload["answers"][:1]:
        texts += [answer["prompt"], *("".join(frame["tokens"]) for frame in answer["frames"])]
    return {letter for text in texts for letter in plain(text, 4000)}


def lines_of(payload: Mapping[str, Any]) -> int:
    """How many lines the longest text of the answer needs that is shown."""
    answers = payload["answers"][:1]
    longest = max((len(answer["prompt"]) + sum(map(len, frame["tokens"])) for answer in answers for frame in answer["frames"]), default=0)
    return min(MOST_LINES, -(-longest // LETTERS) + 1) if answers else 0


class Frame:
    """The picture of one step; ``row`` is its place in the payload's steps."""

    def __init__(self, payload: Mapping[str, Any], row: int, font: Fonts):
        self._payload, self._row, self._step, self._font = payload, row, payload["steps"][row], font
        self._lines = lines_of(payload)
        self._height = ANSWER + 32 + LINE * self._lines
        self._picture = Image.new("RGB", (WIDTH * SCALE, self._height * SCALE), GROUND)
        self._draw = ImageDraw.Draw(self._picture)

    def image(self) -> Image.Image:
        """The picture, :data:`WIDTH` wide and as high for all steps."""
        self._head()
        self._scores()
        kl = self._payload["series"]["kl"]
        if self._is_known(kl):
            target, usual = self._payload["kl_target"], self._payload["kl_usual"]
            to_target = _("KL from the start, nats per response (dashed: the target, {limit})")
            to_usual = _("KL from the start, nats per response (dashed: where the usual range ends, {limit})")
            title = (to_target if target else to_usual).format(limit=f"{target or usual:g}")
            self._chart(KL_CHART, [("KL", [value and round(value, 2) for value in kl], KL)], title, target or usual)
        self._steps()
        self._answer()
        return self._picture.resize((WIDTH, self._height), Image.Resampling.LANCZOS)

    # --- drawing in the picture's own pixels ---------------------------------------------------------------------------------

    @cached_property
    def _fonts(self) -> dict[int, Any]:
        return {size: self._font(size * SCALE) for size in (12, 14, 16, 20)}

    def _text(self, x: float, y: float, text: str, size: int, colour: str = INK, anchor: str = "ls") -> None:
        self._draw.text((x * SCALE, y * SCALE), text, font=self._fonts[size], fill=colour, anchor=anchor)

    def _width(self, text: str, size: int) -> float:
        return float(self._fonts[size].getlength(text)) / SCALE

    def _line(self, points: Sequence[Point], colour: str, width: float = 1) -> None:
        self._draw.line([(x * SCALE, y * SCALE) for x, y in points], fill=colour, width=round(width * SCALE), joint="curve")

    def _wrapped(self, text: str, size: int, room: float, most: int) -> list[str]:
        lines = [""]
        for word in _UNBROKEN.findall(text):
            longer = f"{lines[-1]}{word}"
            if self._width(longer.rstrip(), size) <= room or not lines[-1]:
                lines[-1] = longer
            else:
                lines.append(word)
        return [*lines[: most - 1], f"{lines[most - 1]} ..."] if len(lines) > most else lines

    # --- what is said --------------------------------------------------------------------------------------------------------

    def _head(self) -> None:
        payload, steps = self._payload, self._payload["steps"]
        self._text(EDGE, 38, plain(payload["title"], 60), 20)
        self._text(WIDTH - EDGE, 38, _("step {step:,} of {last:,}").format(step=self._step, last=steps[-1]), 16, QUIET, "rs")
        left, right = EDGE, WIDTH - EDGE
        self._line([(left, BAR), (right, BAR)], GRID, 4)
        self._line([(left, BAR), (left + (right - left) * self._share(self._step), BAR)], ACCENT, 4)
        for moment in payload["moments"]:
            x, reached = left + (right - left) * self._share(moment["step"]), moment["step"] <= self._step
            diamond = [(x - 6, BAR), (x, BAR - 6), (x + 6, BAR), (x, BAR + 6)]
            self._draw.polygon(
                [(a * SCALE, b * SCALE) for a, b in diamond], fill=ACCENT if reached else GROUND, outline=ACCENT, width=SCALE
            )
        said = [moment for moment in payload["moments"] if moment["step"] <= self._step]
        for at, line in enumerate(self._wrapped(self._sentence(said), 16, WIDTH - 2 * EDGE, 2)):
            self._text(EDGE, SENTENCE + 18 + 20 * at, line, 16)

    def _sentence(self, said: Sequence[Mapping[str, Any]]) -> str:
        """What the newest step with moments has to say, the most telling first where it has several."""
        return plain(_("Step {step:,}: {sentence}").format(**said[-1])) if said else ""

    def _share(self, step: int) -> float:
        first, last = self._payload["steps"][0], self._payload["steps"][-1]
        return float((step - first) / max(1, last - first))

    # --- curves --------------------------------------------------------------------------------------------------------------

    @staticmethod
    def _is_known(values: Sequence[float | None] | None) -> bool:
        return values is not None and any(value is not None for value in values)

    def _scores(self) -> None:
        """Score and gold on one axis with their gap; gold alone beside it in a chart of its own where their scales differ."""
        series = self._payload["series"]
        own = [(_(name), series[name], colour) for name, colour in (("score", SCORE), ("gold", GOLD)) if self._is_known(series[name])]
        if len(own) == 2 and not self._payload["one_scale"]:
            top, bottom = TOP_CHART
            middle = (top + bottom) // 2
            self._chart((top, middle - 12), own[:1], _("Score"), None)
            self._chart((middle + 12, bottom), own[1:], _("Gold, on a scale of its own"), None)
        elif own:
            self._chart(TOP_CHART, own, _("Score and gold") if len(own) == 2 else own[0][0].capitalize(), None)

    def _chart(self, box: tuple[int, int], lines: Sequence[tuple[str, Any, str]], title: str, limit: float | None) -> None:
        top, bottom = box
        known = [value for _, values, _ in lines for value in values if value is not None]
        low, high, ticks = axis(np.array([*known, *([] if limit is None else [limit])]))

        def place(row: int, value: float) -> Point:
            x = LEFT + (WIDTH - LEFT - RIGHT) * self._share(self._payload["steps"][row])
            return x, bottom - (value - low) / (high - low) * (bottom - top)

        self._text(EDGE, top - 10, title, 12, QUIET)
        for tick in ticks[:: 1 if bottom - top > 100 else max(1, len(ticks) - 1)]:
            y = place(0, tick)[1]
            self._line([(LEFT, y), (WIDTH - RIGHT, y)], GRID)
            self._text(LEFT - 8, y, tick_text(tick, ticks).replace("\u2212", "-"), 12, QUIET, "rm")
        if limit is not None:
            y = place(0, limit)[1]
            for x in range(LEFT, WIDTH - RIGHT, 8):
                self._line([(x, y), (x + 4, y)], QUIET)
        drawn = [[place(row, value) for row, value in enumerate(values[: self._row + 1]) if value is not None] for _, values, _ in lines]
        if len(drawn) == 2:
            self._gap(*drawn)
        self._ends([(name, values, colour, points) for (name, values, colour), points in zip(lines, drawn, strict=True) if points])

    def _gap(self, first: Sequence[Point], second: Sequence[Point]) -> None:
        """Shade what lies between two lines, where both are known."""
        below = dict(second)
        both = [(x, y, below[x]) for x, y in first if x in below]
        for (x0, upper0, lower0), (x1, upper1, lower1) in pairwise(both):
            corners = [(x0, upper0), (x1, upper1), (x1, lower1), (x0, lower0)]
            self._draw.polygon([(x * SCALE, y * SCALE) for x, y in corners], fill=GAP)

    def _ends(self, lines: Sequence[tuple[str, Any, str, Sequence[Point]]]) -> None:
        """The lines, and at the end of each its name and number, apart from each other."""
        ends = sorted(((points[-1][1], index) for index, (_, _, _, points) in enumerate(lines)))
        heights = [y for y, _ in ends]
        for at in range(1, len(heights)):
            heights[at] = max(heights[at], heights[at - 1] + 16)
        for height, (_y, index) in zip(heights, ends, strict=True):
            name, values, colour, points = lines[index]
            x, y = points[-1]
            if len(points) > 1:
                self._line(points, colour, 2)
            self._draw.ellipse([(x - 3) * SCALE, (y - 3) * SCALE, (x + 3) * SCALE, (y + 3) * SCALE], fill=colour)
            newest = next(value for value in reversed(values[: self._row + 1]) if value is not None)
            self._text(x + 10, height, f"{name} {number(newest)}".replace("\u2212", "-"), 14, colour, "lm")

    def _steps(self) -> None:
        steps = self._payload["steps"]
        self._text(LEFT, KL_CHART[1] + 18, _("step {first:,}").format(first=steps[0]), 12, QUIET)
        self._text(WIDTH - RIGHT, KL_CHART[1] + 18, f"{steps[-1]:,}", 12, QUIET, "rs")

    # --- one answer ----------------------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        if not self._payload["answers"]:
            return
        answer = self._payload["answers"][0]
        past = [frame for frame in answer["frames"] if frame["step"] <= self._step]
        frame = past[-1] if past else answer["frames"][0]
        x: float = EDGE
        parts = [(_("One answer, at step {step:,}").format(step=frame["step"]), QUIET)]
        parts += [
            (f"{_(name)} {number(frame[name])}", colour) for name, colour in (("score", SCORE), ("gold", GOLD)) if frame[name] is not None
        ]
        for text, colour in parts:
            self._text(x, ANSWER, text.replace("\u2212", "-"), 14, colour)
            x += self._width(text, 14) + 16
        if self._payload["tokens"]:
            self._text(
                WIDTH - EDGE, ANSWER, _("colour: {label} of each token").format(label=_(self._payload["tokens"]["label"])), 12, QUIET, "rs"
            )
        x, line = EDGE, 0
        for text, colour in self._pieces(answer, frame):
            width = self._width(text, 16)
            if x + width > WIDTH - EDGE:
                x, line, text = EDGE, line + 1, text.lstrip()
                width = self._width(text, 16)
            if line == self._lines:
                return
            y = ANSWER + 20 + LINE * line
            if colour != GROUND:
                self._draw.rectangle([x * SCALE, y * SCALE, (x + width) * SCALE, (y + LINE - 3) * SCALE], fill=colour)
            self._text(x, y + 16, text, 16, QUIET if colour == GROUND else INK)
            x += width

    def _pieces(self, answer: Mapping[str, Any], frame: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """(text, colour behind it) of the prompt's words and of each token. A token that ended the answer reads "end", as on the pages."""
        scale = self._payload["tokens"]
        for word in plain(frame.get("prompt") or answer["prompt"]).split(" "):
            yield f"{word} ", GROUND
        ended = frame["stopped"] and not frame["left_out"]
        tokens = [*frame["tokens"][:-1], f" {_('end')}"] if ended else frame["tokens"]
        for token, value in zip(tokens, frame["values"], strict=True):
            words = [token] if value is not None else [f"{word} " for word in token.split(" ")]
            for word in words:
                lead, trail = " " * word[:1].isspace(), " " * (word.strip() != "" and word[-1:].isspace())
                yield f"{lead}{plain(word, 60)}{trail}", _tint(value, scale)


def _tint(value: float | None, scale: Mapping[str, Any] | None) -> str:
    """The colour of a token's value, by the square root of its distance from the centre as on the pages."""
    if value is None or scale is None:
        return EVEN
    share = math.sqrt(min(1.0, abs(value - scale["centre"]) / scale["limit"])) if scale["limit"] > 0 else 0.0
    end = MINUS if value < scale["centre"] else PLUS
    even = (0xEE, 0xF0, 0xF3)
    return "#" + "".join(f"{round(low + (high - low) * share):02x}" for low, high in zip(even, end, strict=True))
