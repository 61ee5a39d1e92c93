"""Which folders people may look into: decided when the app starts, by how it is used and by ``--browse``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlhf_studio.inputs.choices.browsing import NOWHERE, Roots
from rlhf_studio.ui.visiting.modes import Mode


def roots_of(mode: Mode, given: Sequence[Path], workspace: Path, *, alone: bool) -> Roots:
    """What ``--browse`` names; without it, where one person uses the app alone, their home, the present folder and the workspace.

    In a class, on a Space and in a read-only app nobody looks into folders. Raises ValueError for folders that are given there, and for one
    that is none.
    """
    if mode is not Mode.LOCAL:
        if given:
            raise ValueError("--browse is for an app of one's own: in a class, on a Space and with --read-only nobody looks into folders")
        return NOWHERE
    if given:
        return Roots.of(given)
    if not alone:
        return NOWHERE
    return Roots.of([folder for folder in (Path.home(), Path.cwd(), workspace) if folder.is_dir()])
