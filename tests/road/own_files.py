"""Files of a person's own, cut out of the bundled world, and the settings of a road on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlhf_studio.jobs.road.state import OwnSettings

PROMPTS = [f"the film number {number} was" for number in range(120)]
GOOD, BAD = "wonderful and i loved it", "boring and i hated it"


def own_files(folder: Path) -> dict[str, str]:
    """Demonstrations, pairs and prompts, by the name of the option that takes each."""
    rows = {
        "demonstrations": [{"prompt": prompt, "response": GOOD} for prompt in PROMPTS[:40]],
        "pairs": [{"prompt": prompt, "chosen": GOOD, "rejected": BAD} for prompt in PROMPTS[:60]],
        "prompts": [{"prompt": prompt} for prompt in PROMPTS],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return {name: str(folder / f"{name}.jsonl") for name in rows}


def own_settings(folder: Path, **more: Any) -> OwnSettings:
    """A road on these files with the bundled policy."""
    given: dict[str, Any] = {**own_files(folder), **more}
    return OwnSettings("bundled/world-policy", **given)
