"""What a run is made from: every model and data file that its settings name, with a hash of what they held when it began.

A change of such a file later is then seen (:mod:`rlhf_studio.runs.lineage`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rlhf_studio.config import Component, StageConfig, names_in
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.inputs.prompts.sources.rows import MOST_FILES
from rlhf_studio.inputs.relative_paths import named_in
from rlhf_studio.inputs.trained import resolve, run_of_model

MOST_BYTES = 20_000_000_000  # of one model; hashing more would take minutes
_WEIGHTS = ("*.safetensors", "config.json", "adapter_config.json", "tokenizer.json")


@dataclass(frozen=True)
class Ingredient:
    """One thing that a run is made from.

    Attributes:
        setting: dotted name of the setting that names it.
        name: as the setting has it.
        kind: ``model``, ``data`` or ``code``.
        path: the folder or file on this machine; empty for what is on a hub, or written from seeds. What ships with the project has its
            bundled name: another installation has it elsewhere.
        sha256: over its files; empty where there is no path, or it is too large.
        run, step: the id of the run that trained the model, and the step; empty and None for any other.
    """

    setting: str
    name: str
    kind: str
    path: str = ""
    sha256: str = ""
    run: str = ""
    step: int | None = None


def ingredients(config: StageConfig, folder: Path | None = None, policies: Mapping[str, str] | None = None) -> list[Ingredient]:
    """What these settings name, in the order of the form. ``folder``: where relative paths start; None for the folder of this process.

    ``policies``: name -> folder, file or hub id of each policy that an evaluation's lines stand for.
    """
    named = _named(config, policies or {})
    return [_ingredient(setting, name, kind, value, folder or Path.cwd()) for setting, name, kind, value in named]


def _named(config: StageConfig, policies: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """(setting, name, kind, where it is) of each model and file. How a program is run, as accelerate's settings say, is not among them."""
    for section in config.sections:
        own = getattr(config, section)
        for setting, kind in names_in(type(own)).items():
            if kind == "policies":
                for name, value in policies.items():
                    yield f"{section}.{setting}", name, "data" if os.path.isfile(value) else "model", value
            elif kind in ("model", "data") and (value := getattr(own, setting)):
                yield f"{section}.{setting}", value, kind, value
        components: list[Component] = getattr(own, "components", [])
        for index, component in enumerate(components):
            for kind, values in (("model", component.model_names()), ("code", component.files())):
                yield from ((f"{section}.components.{index}", value, kind, value) for value in values)


def _ingredient(setting: str, name: str, kind: str, value: str, folder: Path) -> Ingredient:
    path = Path(resolve(named_in(folder, value)))
    if not os.path.exists(path):
        return Ingredient(setting, name, kind)
    origin = run_of_model(path) if kind == "model" else None
    run, step = (origin[0].name, origin[1]) if origin else ("", None)
    return Ingredient(setting, name, kind, value if value in BUNDLED else str(path.resolve()), hash_of(path), run, step)


def hash_of(path: Path) -> str:
    """SHA-256 over a file, or over a model folder's weights, configuration and tokenizer by name; empty for too much, or for nothing.

    Raises OSError, also where there is nothing.
    """
    path.stat()
    files = [path] if path.is_file() else sorted({file for pattern in _WEIGHTS for file in path.glob(pattern) if file.is_file()})
    if path.is_dir() and not files:  # a folder of data files
        entries = list(islice(path.rglob("*"), MOST_FILES + 1))
        files = sorted(file for file in entries if file.is_file()) if len(entries) <= MOST_FILES else []
    if not files or sum(file.stat().st_size for file in files) > MOST_BYTES:
        return ""
    digest = hashlib.sha256()
    for file in files:
        if path.is_dir():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
