"""A checkpoint or snapshot as an ordinary transformers or peft folder: the files of its manifest, checked, with the run's sampling."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rlhf_studio.analysis.logs.shareable import shareable
from rlhf_studio.config import GenerationConfig, StageConfig
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.config.metrics.table import METRICS
from rlhf_studio.config.stages import as_sampled
from rlhf_studio.inputs.chat import find_template
from rlhf_studio.inputs.ends import find_ends, saved_sampling
from rlhf_studio.inputs.models.facts import END_LISTS
from rlhf_studio.inputs.models.files import HUB_ID, folder_files
from rlhf_studio.inputs.trained import KINDS, DamagedError, require_intact, resolve, run_of_model
from rlhf_studio.jobs.export.targets import check_room, make_inside, refuse
from rlhf_studio.language import S_
from rlhf_studio.regular import read_regular
from rlhf_studio.runs import checkpoints
from rlhf_studio.runs.reader import RunReader

BASE = "base"
"""Folder of an exported adapter with the model that it belongs to, where that cannot be had elsewhere."""
_SETTINGS, _WEIGHTS_OF_MODEL = "config.json", "model*.safetensors"
_OF_MODEL = (
    *(_SETTINGS, "generation_config.json", _WEIGHTS_OF_MODEL, "model*.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.*"),
    *("vocab.json", "vocab.txt", "merges.txt", "*.model"),  # of tokenizers without a tokenizer.json
    *("README.md", "LICENSE*", "LICENCE*", "NOTICE*"),  # the terms on which it may be passed on
)
"""What transformers loads of a model's folder, and its terms. What else lies in a person's folder stays there."""
_NOT_COPIED = {"README.md", "training_args.bin"}
_WEIGHTS = ("adapter_model.safetensors", "adapter_config.json")
OnProgress = Callable[[str, float | None], None]
"""Takes a sentence about the work, and how far it is from 0 to 1; None where nobody knows."""


@dataclass(frozen=True)
class Base:
    """The model that an adapter belongs to.

    Attributes:
        name: as others may see it: a hub id, or a short name.
        location: a path on this machine or a hub id, from which it is loaded.
        on_hub: whether ``name`` is a hub id. Any other base is on this machine, and is exported with the adapter.
        files: names, below ``location``, of the files that are exported with the adapter.
    """

    name: str
    location: str
    revision: str | None
    on_hub: bool
    files: tuple[str, ...] = ()

    @property
    def included(self) -> bool:
        return not self.on_hub


@dataclass(frozen=True)
class Chosen:
    """A checkpoint that is complete and belongs to the run. ``why`` says how it was chosen; ``files`` are the model's, by name.

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
    folders = {info.step: Path(info.path) for info in reader.policies()}
    if not folders:
        raise refuse("this run has no checkpoint, so there are no weights to take; its report, CSV and JSON Lines can be written")
    if at == "":
        return _chosen(_newest(reader), S_("the newest"))
    if at == "best":
        step, why = _best(reader, max(folders))
    elif at.isascii() and at.isdecimal() and len(at) < 10 and int(at) in folders:
        step, why = int(at), S_("the one that was asked for")
    else:
        raise refuse(f"there is no checkpoint of step {at[:40]!r}; this run has: {', '.join(map(str, sorted(folders)))}, or say best")
    try:
        checkpoints.require_whole(folders[step])
        return _chosen(folders[step], why)
    except checkpoints.CheckpointError as error:
        raise refuse(str(error)) from error


def _newest(reader: RunReader) -> Path:
    """The newest checkpoint that is whole, or a later snapshot. Raises ConfigError when there is neither, and StoreError."""
    newest, problems = checkpoints.newest_valid(reader.run_dir)
    at = -1 if newest is None else checkpoints.read_manifest(newest)["step"]
    for info in reversed(reader.snapshots()):
        if info.step <= at:
            break
        try:
            checkpoints.require_whole(Path(info.path))
        except checkpoints.CheckpointError as error:
            problems.append(str(error))
            continue
        return Path(info.path)
    if newest is None:
        raise refuse(f"no checkpoint of this run can be used: {'; '.join(problems)[:500]}")
    return newest


def _best(reader: RunReader, newest: int) -> tuple[int, str]:
    """The best of the kept policies, and why. Raises ConfigError when none was measured, and StoreError."""
    best = reader.best_policy()
    if best is None:
        if reader.config().stage == "ppo":
            raise refuse("no step was trained after any kept checkpoint, so no score tells which policy is the best; name a step")
        raise refuse("no kept checkpoint was measured by engine.keep_best eval_loss, so nothing tells which is the best; name a step")
    title = {metric.name: metric.title for metric in METRICS}.get(best.metric, best.metric)
    name = " ".join(word if word.isupper() else word.lower() for word in title.split())
    if best.is_loss:  # on held-out examples, after the step itself
        why = S_(f"the lowest {name} of the kept checkpoints: {best.value:.3g} at step {best.step}")
        not_measured = S_(f"it was not measured at step {newest}")
    else:
        why = S_(f"the highest {name} of the kept policies: {best.value:.3g} in step {best.step + 1}, which sampled with it")
        not_measured = S_(f"no step has measured the policy of step {newest}")
    if newest not in (best.step, *reader.best_first([newest], best.metric)):
        why += f"; {not_measured}"
    return best.step, why


def _chosen(folder: Path, why: str) -> Chosen:
    manifest = checkpoints.read_manifest(folder)
    kind = next((kind for kind in KINDS if any(name.startswith(f"{kind}/") for name in manifest["files"])), KINDS[0])
    files = [name.removeprefix(f"{kind}/") for name in manifest["files"] if name.startswith(f"{kind}/")]
    if not any(name.endswith(".safetensors") for name in files):
        raise refuse(f"{folder.name} holds no model")
    return Chosen(manifest["step"], folder, why, [name for name in files if name not in _NOT_COPIED], kind)


def base_of(run_dir: Path, chosen: Chosen) -> Base:
    """The base of an adapter. Raises ConfigError when the adapter names none, or one that is not on this machine as it was."""
    settings = json.loads(read_regular(chosen.policy / "adapter_config.json"))
    name, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    own = run_dir / BASE
    if not isinstance(name, str) or not name:
        raise refuse("the adapter does not name its base model")
    if own.is_dir() and Path(name).name == BASE and (Path(name).parent.name == run_dir.name or not Path(name).is_dir()):  # or it was moved
        return Base(S_("the starting policy of this run"), str(own), None, on_hub=False, files=_made_here(own))
    for bundled in BUNDLED:
        folder = Path(resolve(bundled)).resolve()
        if name == bundled or Path(name) == folder:
            return Base(bundled, str(folder), None, on_hub=False, files=_made_here(folder))
    if HUB_ID.fullmatch(name) and not Path(name).is_dir():
        return Base(name, name, revision, on_hub=True)
    return _base_in(Path(name))


def _base_in(folder: Path) -> Base:
    """A whole model in a folder of this machine: what another run trained, or a person's own. Raises ConfigError."""
    if not folder.is_dir():
        raise refuse(f"the base of this adapter, {folder}, is no longer there; put it back, or export from a machine that has it")
    try:
        require_intact(folder, read=True)
        # A link counts as what it leads to: the hub's cache is made of links.
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_file() and _is_any_of(entry.name, _OF_MODEL))
    except (DamagedError, OSError) as error:
        raise refuse(f"the base of this adapter, {folder}, cannot be read: {error}") from error
    if _SETTINGS not in names or not any(_is_any_of(name, [_WEIGHTS_OF_MODEL]) for name in names):
        raise refuse(f"the base of this adapter, {folder}, has no config.json with model.safetensors")
    trained = run_of_model(folder)
    name = shareable(str(folder)) if trained is None else S_(f"step {trained[1]} of the run {trained[0].name}")
    return Base(name, str(folder), None, on_hub=False, files=tuple(names))


def _is_any_of(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _made_here(folder: Path) -> tuple[str, ...]:
    """All files of a folder that this program wrote; it makes no links, so a link is not the program's."""
    return tuple(file.relative_to(folder).as_posix() for file in sorted(folder.rglob("*")) if file.is_file() and not file.is_symlink())


# --- writing -----------------------------------------------------------------------------------------------------------------------


def write_policy(chosen: Chosen, folder: Path, config: StageConfig, on_progress: OnProgress) -> None:
    """The policy as it is in the checkpoint: a fully trained model, with the run's way of sampling."""
    check_room(folder, sum((chosen.policy / name).stat().st_size for name in chosen.files))
    _copy(chosen.policy, chosen.files, folder, on_progress)
    write_generation(folder, config)


def write_adapter(chosen: Chosen, base: Base, folder: Path, config: StageConfig, on_progress: OnProgress) -> None:
    """The adapter, naming its base as others can find it; the base itself in ``base/`` where nobody else has it."""
    needed = sum((chosen.policy / name).stat().st_size for name in chosen.files)
    check_room(folder, needed + sum((Path(base.location) / name).stat().st_size for name in base.files))
    _copy(chosen.policy, chosen.files, folder, on_progress)
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"base_model_name_or_path": BASE if base.included else base.name, "revision": base.revision}
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if base.included:
        (folder / BASE).mkdir()
        _copy(Path(base.location), list(base.files), folder / BASE, on_progress)
    write_generation(folder, config)


def write_tokenizer(chosen: Chosen, folder: Path) -> None:
    """The tokenizer's files beside merged weights."""
    _copy(chosen.policy, [name for name in chosen.files if not name.endswith(".safetensors") and name not in _WEIGHTS], folder, _silent)


def _silent(text: str, fraction: float | None) -> None:
    """For work that reports no progress."""


def _copy(source: Path, names: list[str], folder: Path, on_progress: OnProgress) -> None:
    for index, name in enumerate(names):
        on_progress("Copying weights and tokenizer", index / len(names))
        target = folder / name
        make_inside(folder, target.parent)
        shutil.copyfile(source / name, target)


def write_generation(folder: Path, config: StageConfig) -> None:
    """``generation_config.json``: sampling as in the run, with all its end tokens; nothing for a model that judges."""
    generation = getattr(config, "generation", None)
    if not isinstance(generation, GenerationConfig):
        return
    from transformers import AutoTokenizer

    path = folder / "generation_config.json"
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    settings = _model_settings(folder)
    lists = dict(zip(END_LISTS, (known.get("eos_token_id"), settings.get("eos_token_id")), strict=True))
    chat = find_template(folder_files(folder.name, folder)) if as_sampled(config).data.chat_template else None
    stops = find_ends(tokenizer.added_tokens_encoder, tokenizer.eos_token_id, lists, chat).chosen(generation, None)
    sampling, rows = saved_sampling(known, generation, stops), settings.get("vocab_size")
    padding = (tokenizer.pad_token_id, known.get("pad_token_id"), tokenizer.eos_token_id, *stops)
    # transformers adds a pad token to some tokenizers for which the model has no weights
    pad = next((token for token in padding if token is not None and (rows is None or token < rows)), None)
    sampling |= {} if pad is None else {"pad_token_id": pad}
    path.write_text(json.dumps(sampling, indent=2) + "\n", encoding="utf-8")


def _model_settings(folder: Path) -> dict[str, Any]:
    """config.json of the language model in the folder, or of the base in it; empty where its base lies elsewhere."""
    for file in (folder / _SETTINGS, folder / BASE / _SETTINGS):
        if file.exists():
            settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return {**settings, **(settings.get("text_config") or {})}
    return {}
