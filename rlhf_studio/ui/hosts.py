"""The names under which the app answers.

With DNS rebinding, the owner of a website makes its name lead to this machine. A visitor's browser then takes the app for that
website, and lets the website's scripts read what the app answers. Such a request carries the website's name in its Host header, so
the app refuses every name that nobody told it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

HOSTS_VARIABLE = "RLHF_STUDIO_HOSTS"
_NAME = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:]+)(:\d{1,5})?")

_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,=:@%/-]*")


@dataclass(frozen=True)
class Hosts:
    """What the app is called.

    Attributes:
        names: host names and addresses without port, in lower case; loopback names always count as well.
        any_address: every IP address counts, since the app listens on all of them: no foreign name can be an address.
        given: the names that a person gave, with their port if one was given: pages under them are ours.
    """

    names: frozenset[str] = frozenset()
    any_address: bool = False
    given: frozenset[str] = frozenset()

    def knows(self, header: str) -> bool:
        """Whether a Host header names this app. The port is not looked at: a container's or proxy's may differ."""
        name = host_name(header)
        return name in self.names or is_loopback(name) or (self.any_address and is_address(name))


def host_name(header: str) -> str:
    """The name or address of ``name:port`` in lower case, without brackets; empty when it is none."""
    match = _NAME.fullmatch(header)
    return match[1].strip("[]").lower().rstrip(".") if match else ""


def hosts_of(host: str, allowed: Iterable[str], environment: Mapping[str, str]) -> Hosts:
    """The names of an app that listens on ``host``.

    Args:
        host: name or address it listens on.
        allowed: names that a person allowed, each with or without a port.
        environment: a Space's own name and the address of the page behind a proxy are read from it.

    Raises:
        ValueError: an allowed name is not the name of a host.
    """
    root = urlsplit(environment.get("GRADIO_ROOT_PATH", "")).netloc  # the page's full address, where a proxy serves it
    given = [*allowed, *re.split(r"[,\s]+", environment.get(HOSTS_VARIABLE, "")), *environment.get("SPACE_HOST", "").split(","), root]
    names = {name.strip().lower() for name in given if name.strip()}
    for name in names:
        if not host_name(name):
            raise ValueError(f"{name!r} is not the name of a host, such as lab.example or lab.example:8443")
    anywhere = host in ("", "0.0.0.0", "::")
    own = {host.strip("[]").lower()} - {""}
    if anywhere:
        machine = socket.gethostname().lower()
        short = machine.split(".")[0]
        own |= {machine, short, f"{short}.local"} - {"", ".local"}
    return Hosts(frozenset(own | {host_name(name) for name in names}), anywhere, frozenset(names))


def cookie_path(environment: Mapping[str, str]) -> str:
    """The path of the app under its names, for which its cookies are valid: ``/``, or that of ``GRADIO_ROOT_PATH``.

    Raises ValueError for a path that a cookie cannot carry.
    """
    path = "/" + urlsplit(environment.get("GRADIO_ROOT_PATH", "")).path.strip("/")
    if not _PATH.fullmatch(path):
        raise ValueError(f"GRADIO_ROOT_PATH must be a path such as /studio, or an address that ends with one; {path!r} is none")
    return path


def is_address(name: str) -> bool:
    """Whether a name is an IP address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
