"""The four ways in which the app is used. Which one it is, is decided here alone, from the command line and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Mode(StrEnum):
    """How the app is used. Who may do what in each is in :mod:`rlhf_studio.ui.roles`."""

    LOCAL = "local"  # one person, or a few who know each other's token
    CLASSROOM = "classroom"  # a teacher, and students who have opened the class link
    SPACE = "space"  # on Hugging Face Spaces: an owner, and visitors
    READ_ONLY = "read-only"  # nobody changes anything

    @property
    def visitors_play(self) -> bool:
        """Whether people who are no operators may start small runs of their own."""
        return self in (Mode.CLASSROOM, Mode.SPACE)

    @property
    def pace(self) -> float:
        """How many times as long pages wait between two questions as in an app for a few people: on a Space anybody may come."""
        return 2.5 if self is Mode.SPACE else 1.0


def on_a_space(environment: Mapping[str, str]) -> bool:
    """Whether the app runs on Hugging Face Spaces."""
    return bool(environment.get("SPACE_ID")) or environment.get("SYSTEM") == "spaces"


def mode_of(environment: Mapping[str, str], *, read_only: bool = False, classroom: bool = False) -> Mode:
    """The mode of an app that is started with these flags. Raises ValueError for flags that exclude each other."""
    if read_only and classroom:
        raise ValueError("--classroom and --read-only exclude each other: in a read-only app, nobody can do anything but watch")
    if classroom and on_a_space(environment):
        raise ValueError("--classroom is for a computer of your own; a Space has one address, which everyone reaches, and no class link")
    if read_only:
        return Mode.READ_ONLY
    return Mode.CLASSROOM if classroom else Mode.SPACE if on_a_space(environment) else Mode.LOCAL
