"""The prompts or examples that a run can read: used before, uploaded, on this disk, of recipes, bundled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlhf_studio.config import DataConfig, DemonstrationsConfig, PairsConfig, StageConfig, short_name
from rlhf_studio.config.bundled import BUNDLED, HELD_OUT, WRITTEN
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.inputs.choices.browsing import is_data
from rlhf_studio.inputs.choices.choice import Choice, ChoiceGroup
from rlhf_studio.inputs.choices.hub_cache import CachedRepo
from rlhf_studio.inputs.choices.used import UsedRun
from rlhf_studio.inputs.prompts.sources.opening import is_remote
from rlhf_studio.units import format_bytes

Data = DataConfig | DemonstrationsConfig | PairsConfig
BUNDLED_ABOUT = {
    "bundled/world-prompts": "beginnings of film reviews",
    "bundled/sums-prompts": "small sums, which are right or wrong",
    "bundled/world-reviews": "film reviews, written by rules",
    "bundled/world-pairs": "two reviews each, of which one is friendlier",
}


def data_groups(base: StageConfig, runs: Iterable[UsedRun], cached: Iterable[CachedRepo], uploads: Path) -> list[ChoiceGroup]:
    """All groups that have a choice, for the stage of ``base``; each source once. ``uploads``: the folder of uploaded files."""
    listed = _Sources(data_of(base))
    before = [(data_of(run.config), run.name) for run in runs if type(data_of(run.config)) is type(listed.base)]
    recipes = [(data_of(recipe.config), recipe.title) for recipe in list_recipes() if type(data_of(recipe.config)) is type(listed.base)]
    remote = [(data, title) for data, title in recipes if is_remote(_source(data))]
    known = {_source(data): data for data, _ in remote}
    there = list(cached)
    groups: list[tuple[str, list[tuple[Data, str]]]] = [
        ("Uploaded", [(listed.of_file(path), "") for path in _files(uploads)]),
        ("Used before", [(data, f"in {name}") for data, name in before if _source(data) not in BUNDLED and _is_there(_source(data))]),
        ("On this disk", [(known.get(repo.name) or listed.of_file(repo.name), format_bytes(repo.bytes)) for repo in there]),
        ("Used by recipes, to be downloaded", [(data, f"recipe {title}") for data, title in remote]),
        ("Comes with RLHF Studio", [(listed.of_file(name), BUNDLED_ABOUT.get(name, "")) for name in _bundled(listed.base)]),
    ]
    made = [ChoiceGroup(title, listed.choices(rows, fetched=title.endswith("downloaded"))) for title, rows in groups]
    return [group for group in made if group.choices]


class _Sources:
    """The sources that were not listed yet, as choices."""

    def __init__(self, base: Data) -> None:
        self.base, self._seen = base, set[str]()

    def of_file(self, source: Path | str) -> Data:
        """The data settings with another source."""
        return self.base.model_copy(update={_name(self.base): str(source)})

    def choices(self, rows: Iterable[tuple[Data, str]], *, fetched: bool) -> list[Choice]:
        made = []
        for data, detail in rows:
            source = _source(data)
            if source and source not in self._seen:
                self._seen.add(source)
                title = source if source in BUNDLED or is_remote(source) or source.startswith("bundled/") else short_name(source)
                known = ", ".join(filter(None, (detail, "" if title == source else str(Path(source).parent))))
                made.append(Choice(source_settings(data), title, known, download="from the hub" if fetched else ""))
        return made


def source_settings(data: Data) -> dict[str, Any]:
    """The settings that say which data there is and where in a row, by dotted name; the source first."""
    dumped: Mapping[str, Any] = data.model_dump(mode="json")
    where = [name for name in dumped if name.endswith("column") or name in ("subset", "split", "revision")]
    return {f"data.{name}": dumped[name] for name in (_name(data), *where)}


def settings_of_source(config: StageConfig, source: str) -> dict[str, Any]:
    """The same for a source about which nothing is known, with the stage's columns."""
    return source_settings(_Sources(data_of(config)).of_file(source))


def data_of(config: StageConfig) -> Any:
    """The data section of a stage that has one; None of one that has none."""
    return getattr(config, "data", None)


def _name(data: Data) -> str:
    return "prompts" if isinstance(data, DataConfig) else "source"


def _source(data: Data) -> str:
    return data.prompts if isinstance(data, DataConfig) else data.source


def _bundled(base: Data) -> list[str]:
    if isinstance(base, DataConfig):
        return [name for name in BUNDLED if "prompts" in name and name not in HELD_OUT]
    return [WRITTEN["pairs" if isinstance(base, PairsConfig) else "demonstrations"][0]]


def _is_there(source: str) -> bool:
    return Path(source).exists() or is_remote(source)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".") and is_data(path)]
    return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)
