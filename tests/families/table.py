"""Writes what was measured for every type into docs/models.md: ``python -m tests.families.table``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tests.families.measure import BOUND, RESULTS

DOCS = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- families -->", "<!-- end of families -->"


def insert(text: str, known: dict[str, Any]) -> str:
    """``docs/models.md`` with the table between its two marks. Raises ValueError when a mark is missing."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table(known)}\n{rest[rest.index(END) :]}"


def table(known: dict[str, Any]) -> str:
    """Counts, and one row per type."""
    types = known["types"]
    counts = {mode: Counter(found[mode]["outcome"] for found in types.values()) for mode in ("full", "lora")}
    largest = max(result.get("largest", 0.0) for found in types.values() for result in found.values())
    lines = [
        f"transformers {known['transformers']}, {len(types)} types. In full: {_counted(counts['full'])}. "
        f"With LoRA: {_counted(counts['lora'])}. Largest difference {largest:.1e}, where at most {BOUND:.0e} counts as right.",
        "",
        "| type | in full | with LoRA |",
        "|---|---|---|",
    ]
    for model_type, found in sorted(types.items()):
        full, lora = (_cell(found[mode], model_type) for mode in ("full", "lora"))
        lines.append(f"| `{model_type}` | {full} | {'the same' if lora == full and 'largest' not in found['full'] else lora} |")
    return "\n".join(lines)


def _counted(counts: Counter[str]) -> str:
    return f"{counts['right']} right, {counts['refused']} refused, {counts['not built']} not built"


def _cell(result: dict[str, Any], model_type: str) -> str:
    if result["outcome"] == "right":
        return f"{result['largest']:.1e}"
    text = result["text"].split(": ", 1)[-1] if result["outcome"] == "refused" else result["text"]
    for shortened in (f"the model is a {model_type} model", f"the model is an {model_type} model", "the model is ", "; use another model"):
        text = text.replace(shortened, "")
    return f"{result['outcome']}: {text.strip(' ,').removeprefix('which ')[:160]}"


if __name__ == "__main__":
    DOCS.write_text(insert(DOCS.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
