"""What a run is made from: every model and data file that its settings name, with a hash of what they held when it began.

A change of such a file later is then seen (:mod:`rlhf_studio.runs.lineage`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.inputs.bundled import BUNDLED, resolve
from rlhf_studio.inputs.trained import run_of_model

MOST_BYTES = 20_000_000_000  # of one model; hashing more would take minutes
_WEIGHTS = ("*.safetensors", "config.json", "adapter_config.json", "tokenizer.json")
_MODELS = {"model": ("policy", "reference"), "critic": ("model",), "evaluation": ("reference",)}
_DATA = {"data": ("prompts", "source", "eval"), "evaluation": ("text",)}


@dataclass(frozen=True)
class Ingredient:
    """One thing that a run is made from.

    Attributes:
        setting: dotted name of the setting that names it.
        name: as the setting has it.
        kind: ``model`` or ``data``.
        path: the folder or file on this machine; empty for what is on a hub, or written from seeds.
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


def ingredients(config: StageConfig, folder: Path | None = None) -> list[Ingredient]:
    """What these settings name, in the order of the form. ``folder`` is where relative paths start; else the one of this process."""
    return [_found(setting, name, kind, folder or Path.cwd()) for setting, name, kind in _named(config)]


def _named(config: StageConfig) -> Iterator[tuple[str, str, str]]:
    for section in config.sections:
        own = getattr(config, section)
        for kind, table in (("model", _MODELS), ("data", _DATA)):
            for name in table.get(section, ()):
                if value := getattr(own, name, ""):
                    yield f"{section}.{name}", value, kind
        for place, component in enumerate(getattr(own, "components", ())):
            models: Any = getattr(component, "model_names", list)
            for value in models():
                yield f"{section}.components.{place}", value, "model"


def _found(setting: str, name: str, kind: str, folder: Path) -> Ingredient:
    path = Path(resolve(name if name in BUNDLED else _in(folder, name)))
    if not path.exists():
        return Ingredient(setting, name, kind)
    origin = run_of_model(path) if kind == "model" else None
    run, step = (origin[0].name, origin[1]) if origin else ("", None)
    return Ingredient(setting, name, kind, str(path.resolve()), hash_of(path), run, step)


def _in(folder: Path, name: str) -> str:
    """What a relative name is in ``folder``, where it leads somewhere there."""
    place, at, step = name.rpartition("@")
    there = folder / (place if at and step.isdecimal() else name)
    return f"{there}{at}{step}" if there.exists() and at and step.isdecimal() else str(there) if there.exists() else name


def hash_of(path: Path) -> str:
    """SHA-256 over a file, or over a model folder's weights, configuration and tokenizer by name; empty for too much, or for nothing.

    Raises OSError, also where there is nothing.
    """
    path.stat()
    files = [path] if path.is_file() else sorted({file for pattern in _WEIGHTS for file in path.glob(pattern) if file.is_file()})
    if path.is_dir() and not files:  # a folder of data files
        files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files or sum(file.stat().st_size for file in files) > MOST_BYTES:
        return ""
    digest = hashlib.sha256()
    for file in files:
        if path.is_dir():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()
