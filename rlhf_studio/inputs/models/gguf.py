"""GGUF files, which llama.cpp and the programs around it read: which of them a person means, and how one becomes an ordinary model.

The file is opened in a helper alone (``engine/process/from_gguf.py``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.helper import HelperError, ask_helper
from rlhf_studio.inputs.models.files import ModelError, ModelFiles
from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes, percent

MODULE = "rlhf_studio.engine.process.from_gguf"
SECONDS = 3600.0
PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def gguf_files(files: ModelFiles) -> list[str]:
    """Names of a model's GGUF files, the largest first: the larger, the less was rounded."""
    names = (name for name in files.sizes if name.lower().endswith(".gguf"))
    return sorted(names, key=lambda name: (-files.sizes[name], name))


def choose_file(files: ModelFiles, wanted: str) -> str:
    """The GGUF file to convert: ``wanted``, or the only one. Raises :class:`ModelError` that lists them, and for a part of one."""
    names = gguf_files(files)
    listed = ", ".join(f"{shlex.quote(name)} ({format_bytes(files.sizes[name])})" for name in names)
    if wanted and wanted not in names:
        raise ModelError(f"{files.name} has no {wanted}; its GGUF files are: {listed}", "file")
    parts = {PART.sub("", name) for name in names}
    if not wanted and len(parts) > 1:
        question = S_("say which one with --file NAME (the larger, the less was rounded)")
        raise ModelError(f"{files.name} holds {len(names)} GGUF files; {question}: {listed}", "file")
    chosen = wanted or names[0]
    match = PART.search(chosen)
    if match and int(match[2]) > 1:
        first = PART.sub(f"-00001-of-{match[2]}.gguf", chosen)
        join = shlex.join(["llama-gguf-split", "--merge", first, "whole.gguf"])
        raise ModelError(f"{chosen} is one of {int(match[2])} parts; join them first with llama.cpp: {join}", "file")
    return chosen


def write_dequantized(files: ModelFiles, name: str, dtype: str, folder: Path, report: Callable[[str], None]) -> tuple[str, ...]:
    """Write the model in the GGUF file ``name`` into ``folder``; sentences about what is lost. Raises :class:`ModelError`."""
    report(f"fetching {name}" if files.folder is None else f"reading {name}")
    task = {"source": str(files.fetch(name).absolute()), "target": str(folder), "dtype": dtype}
    answers = ask_helper(MODULE, task, memory_bytes=0, seconds=SECONDS)
    made: dict[str, Any] = {}
    try:
        for message in answers:
            if "problem" in message:
                raise ModelError(f"{name} {message['problem']}", "file")
            made = message["made"]
    except HelperError as error:
        raise ModelError(f"{name} cannot be read: {error}", "file") from None
    finally:
        answers.close()
    return tuple(what_is_lost(made, dtype))


def what_is_lost(made: dict[str, Any], dtype: str) -> list[str]:
    """Sentences about the helper's answer (:func:`rlhf_studio.engine.process.from_gguf.convert`)."""
    types = ", ".join(f"{kind} ({percent(share)})" for kind, share in made["types"].items() if share >= 0.005)
    lines = [S_(f"Its weights were stored as {types}: {made['bits']:.1f} bits a weight.")]
    if made["off"]:
        share = percent(made["off"] / made["size"])
        lines += [
            S_(
                "They were rounded when the file was made, and that does not come back: on average a weight is off by at most about "
                f"{made['off']:.2g}, which is {share} of the size of an average weight ({made['size']:.2g}). The model may answer worse "
                "than the original; if you can get the original with safetensors weights, start from that."
            )
        ]
    bytes_each, other = (2, "") if dtype == "bfloat16" else (4, S_(" (2 with --dtype bfloat16)"))
    grown = format_bytes(bytes_each * made["weights"])
    lines += [S_(f"{format_bytes(made['file'])} became {grown}: {made['weights']:,} weights of {bytes_each} bytes each{other}.")]
    if made["splitter"]:
        lines += [
            S_(
                f"The file says that its tokenizer cuts texts into pieces by the rule {made['splitter']!r}, which is not known here; "
                "GPT-2's is used. Compare the tokens of a few of your texts with the original tokenizer's, or copy its files into the "
                "folder."
            )
        ]
    return lines
