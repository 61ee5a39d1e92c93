"""Finding the files of a model: a folder here, the hub's cache on this machine, or the Hugging Face hub.

Nothing heavy is fetched: from the hub come the list of files and the small JSON files only.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.trained import RUN_ID, DamagedError, require_intact, resolve
from rlhf_studio.language import S_
from rlhf_studio.visible import visible

HUB_TIMEOUT_SECONDS = 5.0
HUB_MEMORY_SECONDS = 60.0
SMALL_FILE_BYTES = 40_000_000
DESCRIPTIONS = ("config.json", "adapter_config.json")  # of a whole model, and of an adapter
MOST_ADAPTERS = 4  # LoRA adapters on top of each other, before the whole model below them
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)


class ModelError(ValueError):
    """The model cannot be used. ``setting`` is the last part of the field to blame: ``model``, ``revision``, ``label`` ...

    Characters that nobody sees, of a model's files, are written as their codes: no page can be sent half a character.
    """

    def __init__(self, message: str, setting: str = "model"):
        self.setting = setting
        super().__init__(visible(message))


@dataclass(frozen=True)
class ModelFiles:
    """A model's files by name with their sizes in bytes.

    Attributes:
        folder: where they lie on this machine, or None when they are only on the hub.
        fetch: gives the local path of one file, from the hub if need be.
        revision: of a hub model.
    """

    name: str
    folder: Path | None
    sizes: dict[str, int]
    fetch: Callable[[str], Path] = field(repr=False, compare=False)
    revision: str = "main"

    def small(self, file_name: str) -> Path | None:
        """The local path of a small file, or None when the model has no such file or it is not small."""
        if self.sizes.get(file_name, SMALL_FILE_BYTES) >= SMALL_FILE_BYTES:
            return None
        return self.fetch(file_name)


class Hub:
    """Answers about hub models, remembered for a minute so that a form can ask at every change.

    ``api`` is a ``huggingface_hub.HfApi`` or something like it; None makes one when first needed.
    """

    def __init__(self, api: Any = None, now: Callable[[], float] = time.monotonic):
        self._api = api
        self._now = now
        self._remembered: dict[tuple[str, str], tuple[float, ModelFiles | ModelError]] = {}

    def files(self, name: str, revision: str) -> ModelFiles:
        """The files of a hub model. Raises :class:`ModelError` when it does not exist, is closed to us, or cannot be reached."""
        key = (name, revision)
        stored_at, answer = self._remembered.get(key, (float("-inf"), None))
        if answer is None or self._now() - stored_at > HUB_MEMORY_SECONDS:
            try:
                answer = self._ask(name, revision)
            except ModelError as error:
                answer = error
            self._remembered = {**dict(list(self._remembered.items())[-99:]), key: (self._now(), answer)}
        if isinstance(answer, ModelError):
            raise answer
        return answer

    def _ask(self, name: str, revision: str) -> ModelFiles:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

        # The client looks at this variable once, when it is imported; the app sets it later, when it knows who can reach it.
        self._api = self._api or HfApi(token=False if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN") else None)
        try:
            info = self._api.model_info(name, revision=revision, files_metadata=True, timeout=HUB_TIMEOUT_SECONDS)
            sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
            files = ModelFiles(name, None, sizes, lambda file_name: self._download(name, revision, file_name), revision)
            for described in (file_name for file_name in DESCRIPTIONS if file_name in sizes):
                files.fetch(described)  # shows now whether this machine may download from a gated model
            return files
        except GatedRepoError:
            raise ModelError(f"{name} is gated: accept its terms on its hub page, then set HF_TOKEN and start the app again") from None
        except RepositoryNotFoundError:
            raise ModelError(f"there is no model {name} on the Hugging Face hub; if it is private, set HF_TOKEN") from None
        except RevisionNotFoundError:
            raise ModelError(f"{name} has no revision {revision}; use main, a branch, a tag or a commit", "revision") from None
        except HFValidationError:
            raise ModelError(f"{name} is neither a folder here nor a valid hub id") from None
        except (HfHubHTTPError, OSError, network_error()) as error:
            return self._cached(name, revision, error)

    def _download(self, name: str, revision: str, file_name: str) -> Path:
        return Path(self._api.hf_hub_download(name, file_name, revision=revision, etag_timeout=HUB_TIMEOUT_SECONDS))

    def _cached(self, name: str, revision: str, error: Exception) -> ModelFiles:
        from huggingface_hub import try_to_load_from_cache

        paths = [try_to_load_from_cache(name, file_name, revision=revision) for file_name in DESCRIPTIONS]
        config = next((path for path in paths if isinstance(path, str)), None)
        if config is None:
            reason = first_line(error, longest=120)
            raise ModelError(f"{name} is not on this machine and the Hugging Face hub cannot be reached ({reason})") from None
        return replace(folder_files(name, Path(config).parent), revision=revision)


def network_error() -> type[Exception]:
    """What the HTTP library of the installed hub client raises: the base of the client's own error."""
    from huggingface_hub.errors import HfHubHTTPError

    return HfHubHTTPError.__mro__[1]


_DEFAULT_HUB = Hub()


def find_model(name: str, revision: str = "main", hub: Hub | None = None) -> ModelFiles:
    """The files behind a folder, a bundled name or a hub id. Raises :class:`ModelError` when there are none."""
    if name.startswith("bundled/") and name not in BUNDLED:
        raise ModelError(
            f"there is no {name}; there are: {', '.join(bundled for bundled in BUNDLED if bundled.endswith(('-policy', '-reward')))}"
        )
    path = Path(resolve(name))
    if os.path.isdir(path):
        try:
            require_intact(path, read=False)
        except DamagedError as error:
            raise ModelError(f"{name} cannot be used: {error}") from None
        return folder_files(name, path)
    if os.path.exists(path):
        if path.suffix.lower() == ".gguf":
            out = f"converted/{path.stem}"
            command = shlex.join(["python", "-m", "rlhf_studio", "convert", name, out])
            raise ModelError(f"{name} is a GGUF file, which cannot be trained as it is; convert it first: {command}, then name {out}")
        raise ModelError(f"{name} is a file; give the folder that holds config.json and the safetensors weights")
    if name in BUNDLED or not HUB_ID.fullmatch(name) or name.endswith((".", "-")) or "--" in name or ".." in name:
        raise ModelError(f"there is no folder {name}{_meant_a_run(name)}")
    if meant := _meant_a_run(name):
        raise ModelError(f"there is no folder {name}{meant}")
    return (hub or _DEFAULT_HUB).files(name, revision)


def _meant_a_run(name: str) -> str:
    """What would be right where a person has written the id of a run, as the app makes them; empty for any other name."""
    if not RUN_ID.fullmatch(name.partition("@")[0]):
        return ""
    return S_(f" here. It looks like the id of a run: name the run's folder instead, such as WORKSPACE/runs/{name}")


def moved_base(base: str, adapter: Path) -> str:
    """The base of an adapter in a run's checkpoint, where it lies now if the run folder was moved; any other ``base`` as it is.

    An adapter names a base that its run wrote by its full path, since peft knows no other. In the run it is
    ``base`` beside ``checkpoints/step-.../policy``.
    """
    parents = adapter.resolve().parents
    beside = parents[2] / "base" if len(parents) > 2 and parents[1].name == "checkpoints" else None
    written_by_a_run = os.path.isabs(base) and os.path.basename(base) == "base" and not os.path.isdir(base)
    return str(beside) if written_by_a_run and beside is not None and (beside / "config.json").is_file() else base


def folder_files(name: str, folder: Path) -> ModelFiles:
    """The files of a folder, those of its subfolders left out. Raises :class:`ModelError` when it cannot be read."""
    try:
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()}
    except OSError as error:
        raise ModelError(f"{name} cannot be read: {error.strerror or error}") from None
    return ModelFiles(name, folder, sizes, lambda file_name: folder / file_name)


def read_json(files: ModelFiles, file_name: str) -> dict[str, Any]:
    """A small JSON file as a mapping; empty when the model has no such file. Raises :class:`ModelError` when it is damaged."""
    path = files.small(file_name)
    if path is None:
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ModelError(f"{file_name} of {files.name} is not valid JSON") from None
    if not isinstance(data, dict):
        raise ModelError(f"{file_name} of {files.name} is not a JSON object")
    return data
