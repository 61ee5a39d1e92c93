"""A checkpoint or snapshot as an ordinary transformers or peft folder: what its manifest names, checked, with the run's sampling."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_studio.config import GenerationConfig, StageConfig
from rlhf_studio.export.places import bytes_of, check_room, make_inside, refuse
from rlhf_studio.inputs.bundled import BUNDLED, resolve
from rlhf_studio.inputs.models.files import HUB_ID
from rlhf_studio.inputs.trained import KINDS
from rlhf_studio.logs.shareable import shareable
from rlhf_studio.metrics.table import METRICS
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.reader import RunReader

BASE = "base"
"""Folder of an exported adapter with the model that it belongs to, where that cannot be had elsewhere."""
_NOT_COPIED = {"README.md", "training_args.bin"}
_WEIGHTS = ("adapter_model.safetensors", "adapter_config.json")
Told = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Base:
    """The model that an adapter belongs to.

    Attributes:
        name: as others may see it: a hub id, or a short name.
        place: a path or hub id to load it from here.
        included: whether it has to travel with the adapter: it ships with this program, or the run made it.
        on_hub: whether ``name`` is a hub id.
    """

    name: str
    place: str
    revision: str | None
    included: bool
    on_hub: bool


@dataclass(frozen=True)
class Chosen:
    """A checkpoint that is whole and belongs to the run. ``why`` says how it was chosen; ``files`` are the model's, by name.

    ``kind`` is the folder that it lies in: ``policy`` or ``reward_model``.
    """

    step: int
    folder: Path
    why: str
    files: list[str]
    kind: str = "policy"

    @property
    def policy(self) -> Path:
        return self.folder / self.kind

    @property
    def is_adapter(self) -> bool:
        return "adapter_config.json" in self.files


def choose(reader: RunReader, at: str = "") -> Chosen:
    """The checkpoint or snapshot to export. ``at``: a step, ``best``, or empty for the newest that is whole.

    Raises ConfigError for a step without one, or a run without any; StoreError.
    """
    kept = {info.step: Path(info.path) for info in reader.policies()}
    if not kept:
        raise refuse("this run has no checkpoint, so there are no weights to take; its report, CSV and JSON Lines can be written")
    if at == "":
        return _chosen(_newest(reader), "the newest")
    if at == "best":
        step, why = _best(reader, max(kept))
    elif at.isascii() and at.isdecimal() and len(at) < 10 and int(at) in kept:
        step, why = int(at), "the one that was asked for"
    else:
        raise refuse(f"there is no checkpoint of step {at[:40]!r}; this run has: {', '.join(map(str, sorted(kept)))}, or say best")
    try:
        checkpoints.require_whole(kept[step])
        return _chosen(kept[step], why)
    except checkpoints.CheckpointError as error:
        raise refuse(str(error)) from error


def _newest(reader: RunReader) -> Path:
    """The newest checkpoint that is whole, or a later snapshot. Raises ConfigError when there is neither, and StoreError."""
    found, problems = checkpoints.newest_valid(reader.run_dir)
    at = -1 if found is None else checkpoints.read_manifest(found)["step"]
    for info in reversed(reader.snapshots()):
        if info.step <= at:
            break
        try:
            checkpoints.require_whole(Path(info.path))
        except checkpoints.CheckpointError as error:
            problems.append(str(error))
            continue
        return Path(info.path)
    if found is None:
        raise refuse(f"no checkpoint of this run can be used: {'; '.join(problems)[:500]}")
    return found


def _best(reader: RunReader, newest: int) -> tuple[int, str]:
    """The best of the kept policies, and why. Raises ConfigError when none was measured, and StoreError."""
    best = reader.best_policy()
    if best is None:
        raise refuse("no step was trained after any kept checkpoint, so no score tells which policy is the best; name a step")
    name = {metric.name: metric.title.lower() for metric in METRICS}.get(best.metric, best.metric)
    why = f"the highest {name} of the kept policies: {best.value:.3g} in step {best.step + 1}, which sampled with it"
    if newest not in (best.step, *reader.best_first([newest], best.metric)):
        why += f"; no step has measured the policy of step {newest}"
    return best.step, why


def _chosen(folder: Path, why: str) -> Chosen:
    manifest = checkpoints.read_manifest(folder)
    kind = next((kind for kind in KINDS if any(name.startswith(f"{kind}/") for name in manifest["files"])), KINDS[0])
    files = [name.removeprefix(f"{kind}/") for name in manifest["files"] if name.startswith(f"{kind}/")]
    if not any(name.endswith(".safetensors") for name in files):
        raise refuse(f"{folder.name} holds no model")
    return Chosen(manifest["step"], folder, why, [name for name in files if name not in _NOT_COPIED], kind)


def base_of(run_dir: Path, chosen: Chosen) -> Base:
    """The base of an adapter. Raises ConfigError when the adapter names none."""
    settings = json.loads((chosen.policy / "adapter_config.json").read_text(encoding="utf-8"))
    name, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    own = run_dir / BASE
    if not isinstance(name, str) or not name:
        raise refuse("the adapter does not name its base model")
    if own.is_dir() and Path(name).name == BASE and Path(name).parent.name == run_dir.name:
        return Base("the starting policy of this run", str(own), None, included=True, on_hub=False)
    for bundled in BUNDLED:
        if name == bundled or Path(name) == Path(resolve(bundled)).resolve():
            return Base(bundled, str(Path(resolve(bundled)).resolve()), None, included=True, on_hub=False)
    if HUB_ID.fullmatch(name) and not Path(name).is_dir():
        return Base(name, name, revision, included=False, on_hub=True)
    return Base(shareable(name), name, None, included=False, on_hub=False)


# --- writing -----------------------------------------------------------------------------------------------------------------------


def write_policy(chosen: Chosen, folder: Path, config: StageConfig, told: Told) -> None:
    """The policy as it is in the checkpoint: a fully trained model, with the run's way of sampling."""
    check_room(folder, sum((chosen.policy / name).stat().st_size for name in chosen.files))
    _copy(chosen.policy, chosen.files, folder, told)
    write_generation(folder, config)


def write_adapter(chosen: Chosen, base: Base, folder: Path, config: StageConfig, told: Told) -> None:
    """The adapter, naming its base as others can find it; the base itself in ``base/`` where nobody else has it."""
    needed = sum((chosen.policy / name).stat().st_size for name in chosen.files)
    check_room(folder, needed + (bytes_of(Path(base.place)) if base.included else 0))
    _copy(chosen.policy, chosen.files, folder, told)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"base_model_name_or_path": BASE if base.included else base.name, "revision": base.revision}
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if base.included:
        source = Path(base.place)
        names = [file.relative_to(source).as_posix() for file in sorted(source.rglob("*")) if file.is_file() and not file.is_symlink()]
        (folder / BASE).mkdir()
        _copy(source, names, folder / BASE, told)
    write_generation(folder, config)


def write_tokenizer(chosen: Chosen, folder: Path) -> None:
    """The tokenizer's files beside merged weights."""
    _copy(chosen.policy, [name for name in chosen.files if not name.endswith(".safetensors") and name not in _WEIGHTS], folder, _silent)


def _silent(text: str, fraction: float | None) -> None:
    """Tell nobody."""


def _copy(source: Path, names: list[str], folder: Path, told: Told) -> None:
    for place, name in enumerate(names):
        told("Copying weights and tokenizer", place / len(names))
        target = folder / name
        make_inside(folder, target.parent)
        shutil.copyfile(source / name, target)


def write_generation(folder: Path, config: StageConfig) -> None:
    """``generation_config.json``: sampling as in the run, with the tokenizer's end and padding tokens; nothing for a model that judges."""
    generation = getattr(config, "generation", None)
    if not isinstance(generation, GenerationConfig):
        return
    path = folder / "generation_config.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    eos, pad = _special_tokens(folder)
    stop = generation.stop_token
    eos = eos if eos is not None else known.get("eos_token_id")
    known |= {
        "_from_model_config": False,
        "do_sample": True,
        "temperature": generation.temperature,
        "top_k": generation.top_k,
        "top_p": generation.top_p,
        "max_new_tokens": generation.response_length,
        "eos_token_id": {"eos": eos, "none": None}.get(stop, int(stop) if stop.isdecimal() else eos),
    }
    padding = next((token for token in (pad, known.get("pad_token_id"), eos) if token is not None), None)
    known["pad_token_id"] = padding[0] if isinstance(padding, list) else padding
    known = {name: value for name, value in known.items() if value is not None}
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def _special_tokens(folder: Path) -> tuple[int | None, int | None]:
    """(end, padding) as the tokenizer in the folder names them."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer.eos_token_id, tokenizer.pad_token_id
