"""The lists of docs/from-trl.md, made from TRL's names in rlhf_studio/trl/table.yaml.

``python -m tools.from_trl_page`` writes them into the page, between its two marks; what stands around them is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlhf_studio.trl.table import SECTIONS, Option, OptionSection, options, otherwise

PAGE = Path(__file__).parents[1] / "docs" / "from-trl.md"
BEGIN, END = "<!-- made by python -m tools.from_trl_page -->", "<!-- end -->"
FILLED_IN = "Filled in by TRL while it runs."


def document() -> str:
    """The whole page, with the lists made anew."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n" + "\n".join([*(line for section in SECTIONS for line in _list(section)), *_otherwise()]) + f"\n{END}{after}"


def _list(section: OptionSection) -> Iterator[str]:
    rows = [option for option in options(section.name) if option.ours and option.note != FILLED_IN]
    same = [f"`{option.ours[0]}`" for option in rows if _is_same(option)]
    yield from ("", f"## {section.title}", "")
    if same:
        yield f"- The same under the same name: {', '.join(same)}."
    for option in rows:
        if not _is_same(option):
            yield f"- `{option.name}`: {', '.join(f'`{name}`' for name in option.ours)}{'. ' if option.note else ''}{option.note}"


def _otherwise() -> Iterator[str]:
    for form, release in (("classic", "0.11"), ("later", "1.12")):
        yield from ("", f"## What is computed otherwise than in TRL {release}", "")
        for row in otherwise(form):
            yield f"- {row.there}. Here: {row.here}." + (f" In a program: {row.program}." if row.program else "")


def _is_same(option: Option) -> bool:
    return not option.note and len(option.ours) == 1 and option.ours[0].rpartition(".")[2] == option.name


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
