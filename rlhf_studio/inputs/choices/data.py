"""The prompts or examples that a run can read: used before, uploaded, on this disk, of recipes, bundled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlhf_studio.config import DataConfig, DemonstrationsConfig, PairsConfig, StageConfig, short_name
from rlhf_studio.config.bundled import BUNDLED, HELD_OUT, WRITTEN
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.inputs.choices.browsing import is_data
from rlhf_studio.inputs.choices.choice import FROM_HUB, Choice, ChoiceGroup, distinct
from rlhf_studio.inputs.choices.hub_cache import CachedRepo
from rlhf_studio.inputs.choices.used import UsedRun
from rlhf_studio.inputs.prompts.sources.opening import is_remote
from rlhf_studio.language import N_, _
from rlhf_studio.units import format_bytes

Data = DataConfig | DemonstrationsConfig | PairsConfig
BUNDLED_ABOUT = {
    "bundled/world-prompts": N_("beginnings of film reviews"),
    "bundled/sums-prompts": N_("small sums, which are right or wrong"),
    "bundled/world-reviews": N_("film reviews, written by rules"),
    "bundled/world-pairs": N_("two reviews each, of which one is friendlier"),
}


def data_groups(base: StageConfig, runs: Iterable[UsedRun], cached: Iterable[CachedRepo], uploads: Path) -> list[ChoiceGroup]:
    """All groups that have a choice, for the stage of ``base``; each source once. ``uploads``: the folder of uploaded files."""
    own = data_of(base)
    before = [(data_of(run.config), run.name) for run in runs if type(data_of(run.config)) is type(own)]
    recipes = [(data_of(recipe.config), recipe.title) for recipe in list_recipes() if type(data_of(recipe.config)) is type(own)]
    remote = [(data, title) for data, title in recipes if is_remote(_source(data))]
    known = {_source(data): data for data, _ in remote}
    used = [(data, name) for data, name in before if _source(data) not in BUNDLED and _is_there(_source(data))]
    there = [(known.get(repo.name) or _of_source(own, repo.name), format_bytes(repo.bytes)) for repo in cached]
    groups = [
        ChoiceGroup("Uploaded", [_choice(_of_source(own, path)) for path in _files(uploads)]),
        ChoiceGroup(_("Used before"), [_choice(data, _("in {name}").format(name=name)) for data, name in used]),
        ChoiceGroup(_("On this disk"), [_choice(data, size=size) for data, size in there]),
        ChoiceGroup(
            _("Used by recipes, to be downloaded"),
            [_choice(data, _("recipe {title}").format(title=_(title)), download=_(FROM_HUB)) for data, title in remote],
        ),
        ChoiceGroup(
            _("Comes with RLHF Studio"), [_choice(_of_source(own, name), _(BUNDLED_ABOUT.get(name, ""))) for name in _bundled(own)]
        ),
    ]
    return distinct(groups, lambda choice: next(iter(choice.settings.values())))


def _choice(data: Data, detail: str = "", *, size: str = "", download: str = "") -> Choice:
    source = _source(data)
    title = source if source in BUNDLED or is_remote(source) or source.startswith("bundled/") else short_name(source)
    folder = "" if title == source else str(Path(source).parent)
    return Choice(source_settings(data), title, size, ", ".join(filter(None, (detail, folder))), download=download)


def _of_source(data: Data, source: Path | str) -> Data:
    """The data settings with another source."""
    return data.model_copy(update={_name(data): str(source)})


def source_settings(data: Data) -> dict[str, Any]:
    """The settings that say which data there is and where in a row, by dotted name; the source first."""
    dumped: Mapping[str, Any] = data.model_dump(mode="json")
    where = [name for name in dumped if name.endswith("column") or name in ("subset", "split", "revision")]
    return {f"data.{name}": dumped[name] for name in (_name(data), *where)}


def settings_of_source(config: StageConfig, source: str) -> dict[str, Any]:
    """The same for a source about which nothing is known, with the stage's columns."""
    return source_settings(_of_source(data_of(config), source))


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
    return bool(source) and (Path(source).exists() or is_remote(source))


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".") and is_data(path)]
    return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)
