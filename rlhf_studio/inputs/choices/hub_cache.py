"""What the Hugging Face hub's cache on this disk holds. Only the disk is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.inputs.models.files import DESCRIPTIONS, HUB_ID
from rlhf_studio.regular import read_regular


@dataclass(frozen=True)
class CachedRepo:
    """A model or dataset in the cache.

    Attributes:
        name: its id on the hub.
        folder: its newest revision on this disk.
        bytes: of all its revisions.
        described: what config.json or adapter_config.json says; empty for a dataset.
    """

    name: str
    folder: Path
    bytes: int
    described: dict[str, Any]

    @property
    def is_classifier(self) -> bool:
        """Whether it gives scores for a text, as reward models do."""
        named = self.described.get("architectures")
        classifier = isinstance(named, list) and named and str(named[0]).endswith("ForSequenceClassification")
        return bool(self.described.get("task_type") == "SEQ_CLS" or classifier)


def cached(kind: Literal["model", "dataset"], cache: Path | None = None) -> list[CachedRepo]:
    """The models or datasets in the cache, the one used last first; of models those whose weights are there.

    ``cache``: None is the usual place. A cache that does not exist is an empty one, as is one that the hub's client cannot read, such as a
    file in its place.
    """
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        known = scan_cache_dir(cache)
    except (CacheNotFound, ValueError, OSError):
        return []
    repos = []
    for repo in sorted(known.repos, key=lambda repo: repo.last_accessed, reverse=True):
        if repo.repo_type != kind or not repo.revisions or not HUB_ID.fullmatch(repo.repo_id):
            continue
        newest = max(repo.revisions, key=lambda revision: ("main" in revision.refs, revision.last_modified))
        files = {file.file_name for file in newest.files}
        if kind == "model" and not any(name.endswith(".safetensors") for name in files):
            continue
        repos.append(CachedRepo(repo.repo_id, newest.snapshot_path, repo.size_on_disk, _described(newest.snapshot_path, files)))
    return repos


def _described(folder: Path, files: set[str]) -> dict[str, Any]:
    name = next((name for name in DESCRIPTIONS if name in files), None)
    if name is None:
        return {}
    try:
        data = json.loads(read_regular(folder / name))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
