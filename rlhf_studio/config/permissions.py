"""What a person allowed when starting the program. Never part of a configuration: a settings file from elsewhere must not grant it.

A permission comes from the command line (``--allow-custom-rewards FILE``, ``--reward-url NAME=URL``), and travels from the app to
the processes that it starts in one environment variable that only they are given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

VARIABLE = "RLHF_STUDIO_REWARD_PERMISSIONS"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Permissions:
    """Which Python files may give reward functions, and where the named scoring servers are.

    Attributes:
        files: absolute paths with symbolic links resolved.
        urls: server name -> http or https address; kept out of what is printed, since it may hold a secret.
    """

    files: tuple[str, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)

    def allowed_file(self, name: str) -> str | None:
        """The real path of ``name`` when it is on the list, else None."""
        real = os.path.realpath(name)
        return real if name and real in self.files else None

    def as_text(self) -> str:
        """For :data:`VARIABLE`; empty when nothing is allowed."""
        return json.dumps({"files": list(self.files), "urls": dict(self.urls)}) if self.files or self.urls else ""

    def joined(self, other: Permissions) -> Permissions:
        """Both together; of two addresses for one name ``other``'s counts."""
        return Permissions(tuple(dict.fromkeys([*self.files, *other.files])), {**self.urls, **other.urls})


NOTHING_ALLOWED = Permissions()


def add_permission_flags(parser: argparse.ArgumentParser) -> None:
    """What rewards outside the program may be used. Only the command line gives these, never a configuration."""
    parser.add_argument(
        "--allow-custom-rewards", action="append", default=[], metavar="FILE", help="let rewards call functions of this Python file"
    )
    parser.add_argument(
        "--reward-url", action="append", default=[], metavar="NAME=URL", help="let rewards ask this scoring server, under this name"
    )


def permissions_from_flags(files: Iterable[str], urls: Iterable[str]) -> Permissions:
    """From the values of ``--allow-custom-rewards`` and ``--reward-url``. Raises ValueError that says which is wrong and why."""
    real = []
    for file in files:
        path = os.path.realpath(file)
        if not os.path.isfile(path):
            raise ValueError(f"--allow-custom-rewards: there is no file {file}")
        real.append(path)
    table = {}
    for text in urls:
        name, equals, url = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ValueError("--reward-url: write NAME=URL, the name in letters, digits, dots and dashes")
        if not _is_web_address(url):
            raise ValueError(f"--reward-url {name}: the address must begin with http:// or https:// and name a host")
        table[name] = url
    return Permissions(tuple(real), table)


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False


def permissions_from_environment(environment: Mapping[str, str]) -> Permissions:
    """What the starting process passed on. Raises ValueError when the variable holds something else."""
    text = environment.get(VARIABLE, "")
    if not text:
        return NOTHING_ALLOWED
    try:
        data = json.loads(text)
        return Permissions(tuple(str(file) for file in data["files"]), {str(name): str(url) for name, url in data["urls"].items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{VARIABLE} cannot be read; it is made by the program, so unset it") from error
