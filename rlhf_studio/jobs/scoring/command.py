"""The command ``score``: one text, the score of each component, and the final score that PPO would see."""

from __future__ import annotations

import json
import sys
from typing import Any

import transformers

from rlhf_studio.config import Permissions, RunConfig
from rlhf_studio.exit_codes import DONE, FAILED
from rlhf_studio.jobs.scoring.one_text import TextScorer, TextToScore
from rlhf_studio.language import N_, _, labelled, told
from rlhf_studio.visible import padded, say


def score_text(config: RunConfig, text: TextToScore, permissions: Permissions, *, as_json: bool) -> int:
    """Print the scores; returns 1 when a component failed. Raises :class:`ConfigError`."""
    transformers.utils.logging.disable_progress_bar()
    scorer = TextScorer(permissions, lambda progress, fraction: say(told(progress), sys.stderr))
    result = scorer.score(config, text)
    say(json.dumps(result, indent=1) if as_json else as_table(result))
    return FAILED if any("error" in row for row in result["components"]) else DONE


def as_table(result: dict[str, Any]) -> str:
    """The result for people: a line per component, then the sum and the final score."""
    width = max(len(row["name"]) for row in result["components"])
    width = max(width, 9)
    heads = padded(_("raw"), 10, right=True), padded(_("weight"), 8, right=True), padded(_("weighted"), 10, right=True)
    lines = ["  ".join([padded(_("component"), width), *heads])]
    for row in result["components"]:
        if "error" in row:
            lines.append(f"{row['name']:{width}}  {told(row['error'])}")
            continue
        lines.append(f"{row['name']:{width}}  {row['raw']:10.4f}  {row['weight']:8g}  {row['weighted']:10.4f}")
        lines += ["  " + labelled(name, f"{value:.4f}") for name, value in row["members"].items()]
        lines += ["  " + _("reads {text}").format(text=repr(text)) for text in row["texts"]]
    for name in (N_("sum"), N_("final")):
        lines.append(f"{padded(_(name), width)}  {'':10}  {'':8}  " + ("         -" if result[name] is None else f"{result[name]:10.4f}"))
    return "\n".join([*lines, *map(told, result["notes"])])
