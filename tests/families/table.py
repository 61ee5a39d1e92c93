"""Writes what was measured of every type into docs/models.md: ``python -m tests.families.table``."""

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
    """Counts, the types that are right, and why others are refused: types of which the same is true stand together."""
    types = known["types"]
    counts = {mode: Counter(found[mode]["outcome"] for found in types.values()) for mode in MODES}
    largest = max(result.get("largest", 0.0) for found in types.values() for result in found.values())
    lines = [
        f"transformers {known['transformers']}, {len(types)} types. In full: {_counted(counts['full'])}. "
        f"With LoRA: {_counted(counts['lora'])}. Largest difference {largest:.1e}, where at most {BOUND:.0e} counts as right.",
        f"LoRA's other starts: {'; '.join(f'{start} {_counted(counts[start])}' for start in STARTS)}.",
        "",
        "| types | |",
        "|---|---|",
    ]
    alike: dict[str, list[str]] = {}
    for model_type, found in sorted(types.items()):
        alike.setdefault(_says(model_type, found), []).append(f"`{model_type}`")
    lines += [f"| {', '.join(names)} | {says} |" for says, names in sorted(alike.items(), key=lambda item: -len(item[1]))]
    return "\n".join(lines)


def _says(model_type: str, found: dict[str, Any]) -> str:
    """What the table says of a type."""
    if found["full"]["outcome"] != "right":
        return _reason(found["full"], model_type)
    if found["lora"]["outcome"] != "right":
        return f"right in full. With LoRA {_reason(found['lora'], model_type)}"
    refused = [start for start in STARTS if found[start]["outcome"] != "right"]
    return "right in full and with LoRA" + (f"; refused: {', '.join(refused)}" if refused else ", with all its starts")


def _counted(counts: Counter[str]) -> str:
    return f"{counts['right']} right, {counts['refused']} refused, {counts['not built']} not built"


def _reason(result: dict[str, Any], model_type: str) -> str:
    text = result["text"].split(": ", 1)[-1] if result["outcome"] == "refused" else result["text"]
    for shortened in (f"the model is a {model_type} model", f"the model is an {model_type} model", "the model is ", "; use another model"):
        text = text.replace(shortened, "")
    return f"{result['outcome']}: {text.strip(' ,').removeprefix('which ')[:160]}"


if __name__ == "__main__":
    DOCS.write_text(insert(DOCS.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
