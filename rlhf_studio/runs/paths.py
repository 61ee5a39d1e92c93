"""Names and places: run ids, and paths that cannot leave the folder they belong to.

Run ids are generated, never typed by a person; a person's name for a run is data and never becomes a path.
"""

from __future__ import annotations

import re
import secrets
import time
from pathlib import Path

from rlhf_studio.language import S_

RUNS = "runs"
CONFIG = "config.yaml"
EARLIER_CONFIG = "config-{number}.yaml"  # what config.yaml was before the settings changed for the first, second ... time
DATABASE = "run.db"
LOG = "engine.log"
FAULT = "fault.json"  # of a run that is broken on purpose: which fault it has
TRIAL = "trial.json"  # of a trial: the settings that it tries
TRAINER = "trainer.json"  # of a run that another trainer records: its own settings, as it has them
CHECKPOINTS = "checkpoints"
SNAPSHOTS = "snapshots"
EXPORTS = "exports"
BASE = "base"  # the base of adapters that is in no file of its own
MANIFEST = "manifest.json"
STATE = "state.json"
STUDIO_DATABASE = "studio.db"
TRASH_PREFIX = ".trash-"
DELETED = ".deleted"  # in a workspace: an empty file for each deleted run whose copies are still in a bucket
NEW_PREFIX = ".new-"
EXPORT_PREFIX = ".export-"
RECORDINGS = "recordings"
"""How the folders begin that recordings are unpacked to; and the place in a workspace for what was exported of them."""

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # no l, o, 0, 1: they are read wrongly
_FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OF_RECORDINGS = re.compile(rf"{RECORDINGS}-[0-9a-f]{{16}}")
_CHECKPOINT_NAME = re.compile(r"step-([0-9]{6,9})")
# Nobody here decodes percent signs, but whoever passes a name on might: two advisories of MLflow came from decoding twice.
_SUSPICIOUS = re.compile(r"[\x00-\x1f\x7f\\]|%(?:25)*(?:2e|2f|5c|00)", re.IGNORECASE)


def new_run_id() -> str:
    """A new id such as ``20261121-025433-k3f9xa``: sorts by time (UTC), unique by 30 random bits."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + "".join(secrets.choice(_ALPHABET) for _ in range(6))


def is_plain_path(name: str) -> bool:
    """Whether the name, as it is written, can only lead to a file inside the folder before it: see :func:`contained_path`."""
    parts = name.split("/")
    if not name or _SUSPICIOUS.search(name) or any(part in ("", ".", "..") for part in parts) or name[0] == "~" or ":" in name:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in name)  # half of a pair: no file system name


def contained_path(root: Path, name: str) -> Path:
    """The path of ``name`` inside ``root``, with every link resolved.

    Raises:
        ValueError: when the name is empty, absolute, holds ``..``, a backslash, a control character, a coded dot or slash, a
            drive or home prefix, half a surrogate pair, or leads out of ``root`` through a link.
    """
    if not is_plain_path(name):
        raise ValueError(f"{name!r} cannot be used as a file name here")
    base = Path(root).resolve()
    try:
        path = (base / name).resolve()
    except (OSError, RuntimeError):  # a circle of links
        raise ValueError(f"{name!r} leads nowhere") from None
    if path == base or not path.is_relative_to(base):
        raise ValueError(f"{name!r} leads out of {base}")
    return path


def is_run_name(name: str) -> bool:
    """Whether a folder of this name may be a run: generated ids, and what a person may type as ``--run-dir``."""
    return _FOLDER_NAME.fullmatch(name) is not None


def run_dir(workspace: Path, run_id: str) -> Path:
    """The folder of a run. Raises ValueError for a name that no run can have or that is a link."""
    if not is_run_name(run_id):
        raise ValueError(f"{run_id!r} is not the id of a run")
    path = contained_path(Path(workspace) / RUNS, run_id)
    if path.name != run_id:  # the entry is a link to another folder of the workspace
        raise ValueError(f"{run_id!r} is a link to another folder, not a run")
    return path


def where_shown(folder: Path, workspace: Path) -> str:
    """What to do so that the page shows the run in ``folder``, as a sentence; empty where it lies in ``workspace``, the usual one."""
    place = Path(folder).absolute().parent
    if place.resolve() == (Path(workspace) / RUNS).resolve():
        return ""
    if place.name == RUNS:
        return S_(f"To see it on the page, start that with RLHF_STUDIO_WORKSPACE={place.parent} (or --workspace).")
    shown = Path(workspace).absolute() / RUNS
    return S_(f"The page does not show it: it shows the runs in {shown}, or those of another workspace, named in RLHF_STUDIO_WORKSPACE.")


def named_run(path: Path, workspace: Path) -> Path:
    """The folder that a person names by its path or, where there is no such path, by the id of a run in the workspace.

    Raises LookupError for a plain name that is neither. Whether a path leads to a run is for the caller to find out.
    """
    if path.exists() or not is_run_name(str(path)):
        return path
    if (run := workspace / RUNS / path).is_dir():
        return run
    raise LookupError(S_(f"there is no folder {str(path)!r} here, and no run with this id in the workspace {workspace}"))


def trash_name(run_id: str) -> str:
    """What the folder of a deleted run is called until all of it is removed."""
    return f"{TRASH_PREFIX}{run_id}-{secrets.token_hex(4)}"


def run_in_trash(name: str) -> str:
    """The id of the run in a folder that :func:`trash_name` has named."""
    return name.removeprefix(TRASH_PREFIX).rpartition("-")[0]


def workspace_of(run_folder: Path) -> Path | None:
    """The workspace a run folder lies in, or None when it was made elsewhere (``train --run-dir``)."""
    return run_folder.parent.parent if run_folder.parent.name == RUNS else None


def is_recording(run_folder: Path) -> bool:
    """Whether a run is one of the recordings that came with the program, by the place where it lies: it is only read."""
    return _OF_RECORDINGS.fullmatch(run_folder.parent.name) is not None


def checkpoint_dir(run_folder: Path, step: int) -> Path:
    """Where the checkpoint after ``step`` (0 or more) lies: ``checkpoints/step-000060``."""
    if step < 0:
        raise ValueError(f"a checkpoint's step is 0 or more, not {step}")
    return Path(run_folder) / CHECKPOINTS / f"step-{step:06d}"


def snapshot_dir(run_folder: Path, step: int) -> Path:
    """Where the policy alone after ``step`` lies: ``snapshots/step-000060``."""
    return Path(run_folder) / SNAPSHOTS / checkpoint_dir(run_folder, step).name


def checkpoint_step(name: str) -> int | None:
    """The step in a checkpoint folder's name, or None when it is something else (a temporary folder, a stray file)."""
    match = _CHECKPOINT_NAME.fullmatch(name)
    return int(match[1]) if match else None
