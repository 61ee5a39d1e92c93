"""What ``python -m rlhf_studio export`` does: everything that was asked for is checked first, then made, one after the other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from rlhf_studio.analysis.logs.write import lines_of
from rlhf_studio.config.io import ConfigError
from rlhf_studio.inputs.models.reward_models import RewardFile, read_reward_file
from rlhf_studio.jobs.export import hub, places
from rlhf_studio.jobs.export.card import Exported, write_card
from rlhf_studio.jobs.export.report import report
from rlhf_studio.jobs.export.story import story_of
from rlhf_studio.jobs.export.tables import write_csv
from rlhf_studio.jobs.export.weights import Chosen, Told, base_of, choose, write_adapter, write_policy
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import clear_left
from rlhf_studio.runs.lab.fork import settings_of
from rlhf_studio.runs.reader import RunReader

Kind = Literal["adapter", "merged", "html", "csv", "jsonl"]
WEIGHTS: tuple[Kind, ...] = ("adapter", "merged")
PUSHING = "Pushing to the hub"
ONLY_MERGED = "this run trained all weights of its model, so there is no adapter to take; --merged gives the model itself"
ONLY_WHOLE = (
    "a reward model is kept whole, with what an adapter learned in its weights: there is no adapter to take; --merged gives the model"
)


@dataclass(frozen=True)
class Wanted:
    """What a person asked for.

    Attributes:
        targets: kind -> where it goes. Weights go into a folder, or into a zip when the path ends with ``.zip``.
        at: which checkpoint: a step, ``best``, or empty for the newest.
        zip: a zip beside the folder too.
        push: name on the hub that the weights are pushed to; empty for none. ``public``: may others see it.
        replace: a file that an earlier export made may be written anew.
    """

    targets: dict[Kind, Path]
    at: str = ""
    zip: bool = False
    push: str = ""
    public: bool = False
    replace: bool = False


@dataclass(frozen=True)
class Made:
    """What came out: paths with their sizes in bytes, and the address on the hub, empty for none."""

    files: list[tuple[Path, int]]
    address: str = ""


def export(run_dir: Path, wanted: Wanted, told: Told) -> Made:
    """Make what was asked for. ``told`` hears what is being done, and how far that is from 0 to 1, None where nobody knows.

    A push comes last: where it fails, everything is in its place here.

    Raises:
        ConfigError: what was asked for cannot be, and nothing was made; or the hub refuses, and the message says what was made.
        StoreError: the run cannot be read, or the disk is full or may not be written.
    """
    reader = RunReader(run_dir)
    status = reader.status()
    _check(wanted)
    for target in wanted.targets.values():
        places.check_outside_runs(target)
    chosen = choose(reader, wanted.at) if wanted.targets.keys() & set(WEIGHTS) else None
    if chosen is not None and not chosen.is_adapter and "adapter" in wanted.targets:
        raise places.refuse(ONLY_WHOLE if chosen.kind == "reward_model" else ONLY_MERGED)
    files: dict[Kind, list[tuple[Path, int]]] = {kind: [] for kind in wanted.targets}
    address = ""
    for kind in sorted(wanted.targets, key=lambda kind: kind in WEIGHTS and bool(wanted.push)):
        target = wanted.targets[kind]
        places.make_folders(target, reader.run_dir)
        if kind in WEIGHTS:
            assert chosen is not None
            files[kind], address = _weights(reader, kind, chosen, target, wanted, told, status.device)
        else:
            files[kind] = [_file(reader, kind, target, wanted.replace, told)]
    return Made(list(chain.from_iterable(files.values())), address)


def _check(wanted: Wanted) -> None:
    if not wanted.targets:
        raise places.refuse("say what to take home: --adapter, --merged, --html, --csv or --jsonl with a path")
    weights = [kind for kind in wanted.targets if kind in WEIGHTS]
    if wanted.push and len(weights) != 1:
        raise places.refuse("--push takes one model: give --adapter PATH or --merged PATH with it")
    if wanted.push:
        hub.check_name(wanted.push)
        hub.token_of(os.environ)
    if (wanted.at or wanted.zip or wanted.public) and not weights:
        raise places.refuse("--at, --zip and --public are for weights: give --adapter PATH or --merged PATH with them")
    everything = [path for kind, target in wanted.targets.items() for path in _targets(kind, target, wanted.zip)]
    if len({path.resolve() for path in everything}) < len(everything):
        raise places.refuse("two of the targets are the same path; give each its own")
    for path in everything:
        places.check_target(path, replace=wanted.replace)


def _targets(kind: Kind, target: Path, zip: bool) -> list[Path]:
    return [target, _zip_beside(target)] if kind in WEIGHTS and zip and target.suffix != ".zip" else [target]


def _zip_beside(folder: Path) -> Path:
    return folder.with_name(folder.name + ".zip")


def _weights(
    reader: RunReader, kind: Kind, chosen: Chosen, target: Path, wanted: Wanted, told: Told, device: str
) -> tuple[list[tuple[Path, int]], str]:
    title = target.name.removesuffix(".zip") or "model"
    only_zip = target.suffix == ".zip"
    with places.working_folder(target) as working:
        folder = working / "folder"
        folder.mkdir()
        _fill(reader, kind, chosen, folder, wanted.push or title, told, device)
        zipped = working / "zip"
        if only_zip or wanted.zip:
            places.check_room(target, places.bytes_of(folder))
            places.write_zip(folder, _plain(title), zipped, partial(told, "Writing the zip"))
        made = []
        if zipped.exists():
            place = target if only_zip else _zip_beside(target)
            places.check_target(place, replace=wanted.replace)
            zipped.replace(place)
            made.append((place, place.stat().st_size))
        if not only_zip:
            places.put_folder(folder, target)
            made.insert(0, (target, places.bytes_of(target)))
        return made, _push(folder if only_zip else target, made[0][0], wanted, told) if wanted.push else ""


def _push(folder: Path, kept: Path, wanted: Wanted, told: Told) -> str:
    """Upload the weights; returns their address. What was made here stays, and a refusal says where it lies."""
    told(f"{PUSHING} as {wanted.push}", None)
    try:
        return hub.push(folder, wanted.push, public=wanted.public)
    except ConfigError as error:
        raise places.refuse(f"{str(error).rstrip('.')}. Nothing is lost: the export itself is done, and lies in {kept}") from None


def _plain(title: str) -> str:
    """A name that every system can unpack."""
    kept = "".join(character if character.isascii() and (character.isalnum() or character in "._-") else "-" for character in title)
    return kept.strip(".-") or "model"


def _fill(reader: RunReader, kind: Kind, chosen: Chosen, folder: Path, title: str, told: Told, device: str) -> None:
    config = settings_of(reader, chosen.folder)
    base, dtype = base_of(reader.run_dir, chosen) if chosen.is_adapter else None, ""
    if base is None:
        write_policy(chosen, folder, config, told)
    elif kind == "adapter":
        write_adapter(chosen, base, folder, config, told)
    else:
        from rlhf_studio.jobs.export.merging import write_merged

        dtype = write_merged(chosen, base, folder, config, device, told)
    told("Writing the model card", None)
    write_card(
        story_of(reader),
        Exported(
            chosen, kind == "adapter", base, dtype, title, getattr(config, "generation", None), read_reward_file(folder) or RewardFile()
        ),
        reader.watched(),
        folder,
    )


def _file(reader: RunReader, kind: Kind, target: Path, replace: bool, told: Told) -> tuple[Path, int]:
    with places.new_file(target, replace=replace) as path:
        if kind == "html":
            told("Writing the report", None)
            path.write_text(report(story_of(reader)), encoding="utf-8")
        elif kind == "csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                write_csv(reader, file, partial(told, "Writing the metrics"))
        else:
            with path.open("w", encoding="ascii") as file:
                file.writelines(lines_of(reader, partial(told, "Writing the responses")))
    return target, target.stat().st_size


def clear(run_dir: Path) -> None:
    """Remove what an export that was killed left in the run's own folder of exports."""
    clear_left(run_dir / paths.EXPORTS, paths.EXPORT_PREFIX)
