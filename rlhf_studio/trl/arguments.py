"""The arguments of TRL that a file holds, as values by TRL's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NotLiteral:
    """A value that is not a literal, as it is written."""

    text: str


@dataclass
class Arguments:
    """The arguments of TRL that were found in a file.

    Attributes:
        values: by TRL's name; :class:`NotLiteral` where the value is computed.
        release: "0.11" or "1.12" where the file itself says so, else empty.
        processes: how many the command starts; 0 when it does not say.
        launcher_file: accelerate's own configuration file, which may say it.
        query_lengths, response_lengths: what a LengthSampler was given, its maximum excluded.
        dataset: our settings of the data that a call of ``load_dataset`` gives, besides the source.
        skipped: parts of the file that were not read, one line each.
        lines: what a person should know about how the file was read, one line each.
    """

    values: dict[str, Any] = field(default_factory=dict)
    release: str = ""
    processes: int = 0
    launcher_file: str = ""
    query_lengths: tuple[int, int] | None = None
    response_lengths: tuple[int, int] | None = None
    dataset: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
