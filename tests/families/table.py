"""Writes what was measured for every type into docs/models.md: ``python -m tests.families.table``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.families.measure import BOUND, MODES, RESULTS, STARTS

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- families -->", "<!-- end of families -->"


def insert(text: str, known: dict[str, Any]) -> str:
    """``docs/models.md`` with the table between its two marks. Raises ValueError when a mark is missing."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table(known)}\n{rest[rest.index(END) :]}"


def table(known: dict[str, Any]) -> str:
    """Counts, and one row per type."""
    types = known["types"]
    counts = {mode: Counter(found[mode]["outcome"] for found in types.values()) for mode in MODES}
    largest = max(result.get("largest", 0.0) for found in types.values() for result in found.values())
    lines = [
        f"transformers {known['transformers']}, {len(types)} types. In full: {_counted(counts['full'])}. "
        f"With LoRA: {_counted(counts['lora'])}. Largest difference {largest:.1e}, where at most {BOUND:.0e} counts as right.",
        f"LoRA's other starts: {'; '.join(f'{start} {_counted(counts[start])}' for start in STARTS)}.",
        "",
        "| type | in full | with LoRA | with its other starts |",
        "|---|---|---|---|",
    ]
    for model_type, found in sorted(types.items()):
        full, lora = (_cell(found[mode], model_type) for mode in ("full", "lora"))
        lora = "the same" if lora == full and "largest" not in found["full"] else lora
        lines.append(f"| `{model_type}` | {full} | {lora} | {_starts(found)} |")
    return "\n".join(lines)


def _counted(counts: Counter[str]) -> str:
    return f"{counts['right']} right, {counts['refused']} refused, {counts['not built']} not built"


def _starts(found: dict[str, Any]) -> str:
    """The largest difference of the starts that are right, and the names of those that are refused."""
    right = [found[start]["largest"] for start in STARTS if found[start]["outcome"] == "right"]
    refused = [start for start in STARTS if found[start]["outcome"] == "refused"]
    if not right:
        return "the same"
    return f"{max(right):.1e}" + (f"; refused: {', '.join(refused)}" if refused else "")


def _cell(result: dict[str, Any], model_type: str) -> str:
    if result["outcome"] == "right":
        return f"{result['largest']:.1e}"
    text = result["text"].split(": ", 1)[-1] if result["outcome"] == "refused" else result["text"]
    for shortened in (f"the model is a {model_type} model", f"the model is an {model_type} model", "the model is ", "; use another model"):
        text = text.replace(shortened, "")
    return f"{result['outcome']}: {text.strip(' ,').removeprefix('which ')[:160]}"


if __name__ == "__main__":
    DOCS.write_text(insert(DOCS.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
