"""What ``python -m rlhf_studio export`` does: it checks the whole request first, then makes one file or folder after the other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.analysis.logs.write import lines_of
from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.config.io import ConfigError
from rlhf_studio.inputs.models.reward_models import RewardFile, read_reward_file
from rlhf_studio.jobs.export import hub, targets
from rlhf_studio.jobs.export.card import Exported, write_card
from rlhf_studio.jobs.export.replay_page import replay_page
from rlhf_studio.jobs.export.report import report
from rlhf_studio.jobs.export.story import story_of
from rlhf_studio.jobs.export.tables import write_csv
from rlhf_studio.jobs.export.weights import Chosen, OnProgress, base_of, choose, write_adapter, write_policy
from rlhf_studio.language import S_, _, language, speaking
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import clear_left
from rlhf_studio.runs.lab.fork import settings_of
from rlhf_studio.runs.reader import RunReader

Kind = Literal["adapter", "merged", "html", "replay", "csv", "jsonl"]
WEIGHTS: tuple[Kind, ...] = ("adapter", "merged")
REPLAYS = (".html", ".gif", ".webp")
PUSHING = "Pushing to the hub"
ONLY_MERGED = S_("this run trained all weights of its model, so there is no adapter to take; --merged gives the model itself")
ONLY_WHOLE = S_(
    "a reward model is kept whole, with what an adapter learned in its weights: there is no adapter to take; --merged gives the model"
)


@dataclass(frozen=True)
class ExportRequest:
    """What shall be exported.

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
class ExportResult:
    """The files that were made, with their sizes in bytes; the address on the hub, empty without a push; and what to know of them."""

    files: list[tuple[Path, int]]
    address: str = ""
    note: str = ""


def export(run_dir: Path, request: ExportRequest, on_progress: OnProgress) -> ExportResult:
    """Make the files of a request. A push comes last: where it fails, the files stay.

    Raises:
        ConfigError: the request cannot be met, and nothing was made; or the hub refuses, and the message says what was made.
        StoreError: the run cannot be read, or the disk is full or may not be written.
    """
    reader = RunReader(run_dir)
    status = reader.status()
    _check(request)
    for target in request.targets.values():
        targets.check_outside_runs(target)
    chosen = choose(reader, request.at) if request.targets.keys() & set(WEIGHTS) else None
    if chosen is not None and not chosen.is_adapter and "adapter" in request.targets:
        raise targets.refuse(ONLY_WHOLE if chosen.kind == "reward_model" else ONLY_MERGED)
    replay = _replay(reader, request.targets["replay"], on_progress) if "replay" in request.targets else {}
    files: dict[Kind, list[tuple[Path, int]]] = {kind: [] for kind in request.targets}
    address = ""
    for kind in sorted(request.targets, key=lambda kind: kind in WEIGHTS and bool(request.push)):
        target = request.targets[kind]
        targets.make_folders(target, reader.run_dir)
        if kind in WEIGHTS:
            assert chosen is not None
            files[kind], address = _weights(reader, kind, chosen, target, request, on_progress, status.device)
        else:
            files[kind] = [_file(reader, kind, target, request.replace, replay, on_progress)]
    spoken = {_language_of(target) for kind, target in request.targets.items() if kind == "replay" or kind in WEIGHTS}
    note = _("No font of this machine has the letters of your language, so pictures are in English.") if spoken - {language()} else ""
    return ExportResult(list(chain.from_iterable(files.values())), address, note)


def _check(request: ExportRequest) -> None:
    if not request.targets:
        raise targets.refuse("say what to take home: --adapter, --merged, --html, --replay, --csv or --jsonl with a path")
    weights = [kind for kind in request.targets if kind in WEIGHTS]
    if request.push and len(weights) != 1:
        raise targets.refuse("--push takes one model: give --adapter PATH or --merged PATH with it")
    if request.push:
        hub.check_name(request.push)
        hub.token_of(os.environ)
    if (request.at or request.zip or request.public) and not weights:
        raise targets.refuse("--at, --zip and --public are for weights: give --adapter PATH or --merged PATH with them")
    replay = request.targets.get("replay")
    if replay is not None and replay.suffix.lower() not in REPLAYS:
        raise targets.refuse(f"--replay {replay}: the name ends with {', '.join(REPLAYS)}, for a page or an animated picture")
    everything = [path for kind, target in request.targets.items() for path in _targets(kind, target, request.zip)]
    if len({path.resolve() for path in everything}) < len(everything):
        raise targets.refuse("two of the targets are the same path; give each its own")
    for path in everything:
        targets.check_target(path, replace=request.replace)


def _targets(kind: Kind, target: Path, zip: bool) -> list[Path]:
    return [target, _zip_beside(target)] if kind in WEIGHTS and zip and target.suffix != ".zip" else [target]


def _zip_beside(folder: Path) -> Path:
    return folder.with_name(folder.name + ".zip")


def _weights(
    reader: RunReader, kind: Kind, chosen: Chosen, target: Path, request: ExportRequest, on_progress: OnProgress, device: str
) -> tuple[list[tuple[Path, int]], str]:
    title = target.name.removesuffix(".zip") or "model"
    only_zip = target.suffix == ".zip"
    with targets.working_folder(target) as working:
        folder = working / "folder"
        folder.mkdir()
        _fill(reader, kind, chosen, folder, request.push or title, on_progress, device)
        zipped = working / "zip"
        if only_zip or request.zip:
            targets.check_room(target, targets.bytes_of(folder))
            targets.write_zip(folder, _plain(title), zipped, partial(on_progress, "Writing the zip"))
        made = []
        if zipped.exists():
            path = target if only_zip else _zip_beside(target)
            targets.check_target(path, replace=request.replace)
            zipped.replace(path)
            made.append((path, path.stat().st_size))
        if not only_zip:
            targets.put_folder(folder, target)
            made.insert(0, (target, targets.bytes_of(target)))
        return made, _push(folder if only_zip else target, made[0][0], request, on_progress) if request.push else ""


def _push(folder: Path, path: Path, request: ExportRequest, on_progress: OnProgress) -> str:
    """Upload the weights; returns their address. What was made here stays, and a refusal says where it lies."""
    on_progress(f"{PUSHING} as {request.push}", None)
    try:
        return hub.push(folder, request.push, public=request.public)
    except ConfigError as error:
        raise targets.refuse(f"{str(error).rstrip('.')}. Nothing is lost: the export itself is done, and lies in {path}") from None


def _plain(title: str) -> str:
    """A name that every system can unpack."""
    name = "".join(character if character.isascii() and (character.isalnum() or character in "._-") else "-" for character in title)
    return name.strip(".-") or "model"


def _fill(reader: RunReader, kind: Kind, chosen: Chosen, folder: Path, title: str, on_progress: OnProgress, device: str) -> None:
    config = settings_of(reader, chosen.folder)
    base, dtype = base_of(reader.run_dir, chosen) if chosen.is_adapter else None, ""
    if base is None:
        write_policy(chosen, folder, config, on_progress)
    elif kind == "adapter":
        write_adapter(chosen, base, folder, config, on_progress)
    else:
        from rlhf_studio.jobs.export.merging import write_merged

        dtype = write_merged(chosen, base, folder, config, device, on_progress)
    on_progress("Writing the model card", None)
    write_card(
        story_of(reader),
        Exported(
            chosen, kind == "adapter", base, dtype, title, getattr(config, "generation", None), read_reward_file(folder) or RewardFile()
        ),
        reader.watched(),
        folder,
    )


def _file(reader: RunReader, kind: Kind, target: Path, replace: bool, replay: dict[str, Any], on_progress: OnProgress) -> tuple[Path, int]:
    with targets.new_file(target, replace=replace) as path:
        if kind == "html":
            on_progress("Writing the report", None)
            path.write_text(report(story_of(reader)), encoding="utf-8")
        elif kind == "replay":
            on_progress("Writing the replay", None)
            _write_replay(replay, path, target)
        elif kind == "csv":
            with path.open("w", encoding="utf-8", newline="") as file:
                write_csv(reader, file, partial(on_progress, "Writing the metrics"))
        else:
            with path.open("w", encoding="ascii") as file:
                file.writelines(lines_of(reader, partial(on_progress, "Writing the responses")))
    return target, target.stat().st_size


def _replay(reader: RunReader, target: Path, on_progress: OnProgress) -> dict[str, Any]:
    on_progress("Reading what the replay shows", None)
    with speaking(_language_of(target)):
        payload = replay_of(reader)
    if "problem" in payload:
        raise targets.refuse(payload["problem"])
    return payload


def _language_of(target: Path) -> str:
    """What a replay says its sentences in: a picture can only have letters that a font of this machine has."""
    if target.suffix.lower() == ".html":
        return language()
    from rlhf_studio.jobs.export.picture_fonts import picture_language  # loads Pillow

    return picture_language()


def _write_replay(payload: dict[str, Any], path: Path, target: Path) -> None:
    if (suffix := target.suffix.lower()) == ".html":
        path.write_text(replay_page(payload), encoding="utf-8")
    else:
        from rlhf_studio.jobs.export.film import write_film  # loads Pillow

        with speaking(_language_of(target)):
            write_film(payload, path, suffix)


def clear(run_dir: Path) -> None:
    """Remove what an export that was killed left in the run's own folder of exports."""
    clear_left(run_dir / paths.EXPORTS, paths.EXPORT_PREFIX)
