"""What a person allowed when starting the program. Never part of a configuration: a settings file from elsewhere must not grant it.

A permission comes from the command line (``--allow-custom-rewards FILE``, ``--reward-url NAME=URL``, ``--reward-key NAME=VARIABLE``,
``--notify-url NAME=URL``), and travels from the app to the processes that it starts in one environment variable that only they are given.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from rlhf_studio.language import _

VARIABLE = "RLHF_STUDIO_REWARD_PERMISSIONS"
DESKTOP = "desktop"
"""In ``engine.notify``: a note on the desktop of the machine; no address is called so."""
WITHHELD_VARIABLE = "RLHF_STUDIO_WITHHELD"
"""Names the variables that hold keys of scoring servers. Whatever they are called, a person's own code and helpers do not get them."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class Permissions:
    """Which Python files may give reward functions, where the named scoring servers are, and the keys that they ask for.

    Attributes:
        files: absolute paths with symbolic links resolved.
        urls: server name -> http or https address; kept out of what is printed, since it may hold a secret.
        keys: server name -> key that is sent as ``Authorization: Bearer KEY``; kept out of what is printed.
        notify: name -> http or https address that may be told of a run's end and alarms; kept out of what is printed.
    """

    files: tuple[str, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    notify: Mapping[str, str] = field(default_factory=dict, repr=False)

    def allowed_file(self, name: str) -> str | None:
        """The real path of ``name`` when it is on the list, else None."""
        real = os.path.realpath(name)
        return real if name and real in self.files else None

    def as_text(self) -> str:
        """For :data:`VARIABLE`; empty when nothing is allowed."""
        if not self.files and not self.urls and not self.notify:
            return ""
        tables = {"urls": dict(self.urls), "keys": dict(self.keys), "notify": dict(self.notify)}
        return json.dumps({"files": list(self.files), **tables})

    def joined(self, other: Permissions) -> Permissions:
        """Both together. Where both have an address for the same name, ``other``'s address and key are taken, and the key of the first is
        dropped: a key is sent only to the address that it was given for.
        """
        keys = {name: key for name, key in self.keys.items() if name not in other.urls}
        files = tuple(dict.fromkeys([*self.files, *other.files]))
        return Permissions(files, {**self.urls, **other.urls}, {**keys, **other.keys}, {**self.notify, **other.notify})


NOTHING_ALLOWED = Permissions()


def add_permission_flags(parser: argparse.ArgumentParser) -> None:
    """What rewards outside the program may be used. Only the command line gives these, never a configuration."""
    parser.add_argument(
        "--allow-custom-rewards", action="append", default=[], metavar="FILE", help=_("let rewards call functions of this Python file")
    )
    parser.add_argument(
        "--reward-url", action="append", default=[], metavar="NAME=URL", help=_("let rewards ask this scoring server, under this name")
    )
    parser.add_argument(
        "--reward-key", action="append", default=[], metavar="NAME=VARIABLE",
        help=_("the environment variable that holds the key of this scoring server"),
    )  # fmt: skip
    parser.add_argument(
        "--notify-url", action="append", default=[], metavar="NAME=URL",
        help=_("let runs whose engine.notify has this name tell this address of their end and alarms"),
    )  # fmt: skip


def permissions_from_flags(
    files: Iterable[str],
    urls: Iterable[str],
    keys: Iterable[str] = (),
    environment: MutableMapping[str, str] = os.environ,
    notify: Iterable[str] = (),
) -> Permissions:
    """From the values of ``--allow-custom-rewards``, ``--reward-url``, ``--reward-key``, whose variables are read in ``environment``, and
    ``--notify-url``.

    The names of those variables are written into :data:`WITHHELD_VARIABLE` of ``environment``, for every process that is started later.

    Raises ValueError that says which is wrong and why.
    """
    real = []
    for file in files:
        path = os.path.realpath(file)
        if not os.path.isfile(path):
            raise ValueError(f"--allow-custom-rewards: there is no file {file}")
        real.append(path)
    table, keys = _addresses("--reward-url", urls), list(keys)
    told = _addresses("--notify-url", notify)
    if DESKTOP in told:
        raise ValueError(f"--notify-url: {DESKTOP} is this machine's own; choose another name")
    permissions = Permissions(tuple(real), table, dict(_key(text, table, environment) for text in keys), told)
    if names := withheld_names(environment) | {text.partition("=")[2] for text in keys}:
        environment[WITHHELD_VARIABLE] = ",".join(sorted(names))
    return permissions


def _addresses(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Addresses by name, from texts as NAME=URL. Messages repeat no more than the name: an address may hold a secret."""
    table = {}
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise ValueError(f"{flag}: write NAME=URL, the name in letters, digits, dots and dashes")
        if not _is_web_address(url):
            raise ValueError(f"{flag} {name}: the address must begin with http:// or https:// and name a host")
        if not _is_plain(urlsplit(url).hostname or ""):
            raise ValueError(f"{flag} {name}: the host has characters that stand for others, such as fullwidth digits; write those others")
        table[name] = url
    return table


def withheld_names(environment: Mapping[str, str]) -> set[str]:
    """The variables that a person named with ``--reward-key``, here or where this process was started."""
    return {name for name in environment.get(WITHHELD_VARIABLE, "").split(",") if name}


def _key(text: str, urls: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, str]:
    """The server's name and its key, from ``NAME=VARIABLE``. Messages repeat no more than the name: a key may stand there by mistake."""
    name, _, variable = text.partition("=")
    if not _NAME.fullmatch(name) or not _VARIABLE_NAME.fullmatch(variable):
        raise ValueError("--reward-key: write NAME=VARIABLE, the name of an environment variable and not the key itself")
    if name not in urls:
        raise ValueError(f"--reward-key {name}: give the server's address too, --reward-url {name}=URL")
    if "@" in urlsplit(urls[name]).netloc:
        raise ValueError(f"--reward-key {name}: the server's address has a user name or password already; leave them out, or the key")
    key = environment.get(variable, "").strip()
    if not key:
        raise ValueError(f"--reward-key {name}: the environment variable that it names is not set or empty")
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"--reward-key {name}: what the environment variable holds cannot be a key")
    return name, key


def _is_plain(host: str) -> bool:
    """Whether a host is written as it is looked up: one whose characters become others on the way is compared with the wrong ones."""
    return unicodedata.normalize("NFKC", host) == host and "\N{IDEOGRAPHIC FULL STOP}" not in host


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
        tables = ({str(name): str(value) for name, value in data[table].items()} for table in ("urls", "keys", "notify"))
        return Permissions(tuple(str(file) for file in data["files"]), *tables)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{VARIABLE} cannot be read; it is made by the program, so unset it") from error
