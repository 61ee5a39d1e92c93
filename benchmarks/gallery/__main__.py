"""The gallery's experiments, made again; its numbers, and docs/gallery.md with its pictures.

    python -m benchmarks.gallery --folder RUNS            # all cards but the monitors; killed, it goes on by the same command
    python -m benchmarks.gallery epochs --folder RUNS     # one card; the command says beforehand how long it takes
    python -m benchmarks.gallery --tables                 # numbers, document and pictures from the data of the repository
    python -m benchmarks.gallery --check                  # exit code 1 when they are not what the data says

A card that is made again is printed as it would read. The repository's data is not touched: each experiment's own command writes that.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gallery import svg
from benchmarks.gallery.numbers import SOURCES, of_ablations
from rlhf_studio.lessons.gallery import shelf
from rlhf_studio.lessons.gallery.ablations import ARGUMENTS
from rlhf_studio.lessons.gallery.card import Card

ROOT = Path(__file__).resolve().parents[2]
PAGE, IMAGES = ROOT / "docs" / "gallery.md", ROOT / "assets" / "images"
HEAD = """# Gallery

Small experiments on the bundled review world, which a laptop can make again. The app shows them under Learn, Gallery, where a click fills
the form with an experiment's settings. This page is made by `python -m benchmarks.gallery --tables`; a test compares it with the data.
A card is a function in `rlhf_studio/lessons/gallery/`, its numbers an entry of `benchmarks/gallery/numbers.py`.

What they share: one tiny policy, one grammar, one reward model with a known weakness, and a gold score that knows the truth. An answer here
is not yet an answer for a model that people use.

## How the choices are compared

`benchmarks/ablations/plan.py` was written before its first run: the settings, three seeds, the outcomes and the rule. Every choice is
changed alone, and compared with the unchanged run of the same seed.

- *differs*: the 95 % interval of the three paired differences (Student's t, two degrees of freedom) leaves out 0, and their mean is large
  enough to matter: 0.05 for gold and for value fit, 0.5 nats for the KL, 0.01 for clipped tokens.
- *leans*: all three seeds agree in direction, and the interval holds 0. Chance alone does that in one comparison of four, but for the means
  that are too small.
- *no difference seen*: neither, or a mean too small to matter, whatever its interval. Three seeds see large differences only, so this
  proves nothing.

Among some two dozen comparisons about one *differs* by chance. `python -m benchmarks.ablations --folder RUNS` makes the runs.
"""


def card_text(card: Card) -> str:
    """A card as Markdown. Bars are a table."""
    lines = [f"## {card.question}", "", card.answer.replace("\n", "\n\n"), ""]
    if card.picture.kind == "bars":
        of = card.picture.data
        lines += table(
            [of["label"], *of["series"]],
            [
                [row["label"], *(f"{round(each, of['digits']) + 0.0:.{of['digits']}f}".replace("-", "−") for each in row["values"])]
                for row in of["items"]
            ],
        )
    else:
        lines += [f"![{card.caption}](../assets/images/{image_of(card).name})"]
    lines += ["", " ".join([card.caption, *card.notes])]
    if card.rows:
        lines += ["", *table(card.head, card.rows)]
    for one in card.starts:
        options = "".join(f" --{name} {value}" for name, value in one["values"].items())
        lines += ["", f"Run it: `python -m rlhf_studio train --recipe {one['recipe']}{options}`."]
    return "\n".join([*lines, "", f"Make these numbers again: `{card.command}`, {card.takes}.", ""])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows)]


def image_of(card: Card) -> Path:
    """Where its picture is."""
    return IMAGES / f"gallery-{card.name}.svg"


def files(numbers: dict[str, Any]) -> dict[Path, str]:
    """Everything that is written, with its text."""
    cards = shelf.cards(numbers)
    pictures = {image_of(card): svg.drawn(card.picture.data, card.question) for card in cards if card.picture.kind != "bars"}
    stored = "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(own)}" for name, own in numbers.items()) + "\n}\n"
    return {shelf.NUMBERS: stored, PAGE: "\n".join([HEAD, *map(card_text, cards)]), **pictures}


def tables() -> int:
    """Write them from the data of the repository."""
    for path, text in files({name: numbers(None) for name, numbers in SOURCES.items()}).items():
        path.write_text(text, encoding="utf-8")
    return 0


def check() -> int:
    """1 when one of them is out of date."""
    wanted = files({name: numbers(None) for name, numbers in SOURCES.items()})
    old = [path.name for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    print(f"out of date: {', '.join(old)}; run: python -m benchmarks.gallery --tables" if old else "up to date")
    return int(bool(old))


def again(name: str, folder: Path) -> None:
    """Make a card's experiment, and print the card."""
    kept = shelf.card(name, shelf.numbers())
    print(f"{name}: {kept.takes if kept else 'nobody has measured how long it takes'}", flush=True)
    source = shelf.source_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    arms = next((tuple(arm for arm, _ in one.arms) for one in ARGUMENTS if one.name == name), ())
    found = of_ablations(folder, arms) if arms else SOURCES[source](folder)
    made = shelf.card(name, {source: found})
    assert made is not None
    print(card_text(made), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("card", nargs="?", choices=shelf.NAMES, help="only this one")
    parser.add_argument("--folder", type=Path, help="where runs are kept")
    parser.add_argument("--tables", action="store_true", help="make no experiment: write what the data of the repository says")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if options.check or options.tables:
        return check() if options.check else tables()
    if options.folder is None:
        parser.error("--folder is needed: runs are kept there")
    for name in [options.card] if options.card else [name for name in shelf.NAMES if name != "monitors"]:
        again(name, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
