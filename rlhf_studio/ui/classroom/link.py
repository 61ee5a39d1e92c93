"""The class link: as text, and as a QR code."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import segno

from rlhf_studio.ui.access import CLASS_QUERY, QUERY
from rlhf_studio.ui.hosts import host_name, is_loopback


def class_link(address: str, token: str) -> str:
    """What students open."""
    return f"{address}?{CLASS_QUERY}={token}"


def operator_link(address: str, token: str) -> str:
    """What the teacher opens, or any other operator."""
    return f"{address}?{QUERY}={token}"


EVERYWHERE = ("0.0.0.0", "::")
"""What a server listens on that answers at all addresses: no address that others can open."""


def address_for(host: str, *, alone: bool = False) -> str:
    """The app's address as others reach it: where the teacher's own is this computer's local name, its address in the network.

    ``alone``: the app listens on this machine only, so there is no such address.
    """
    _, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    here = is_loopback(host_name(host)) or host_name(host) in EVERYWHERE
    if not here:
        return f"http://{host}/"
    name = ("" if alone else lan_address()) or "localhost"
    return f"http://{name}{f':{port}' if port else ''}/"


def only_here(address: str) -> bool:
    """Whether an address of :func:`address_for` answers on this machine alone."""
    return is_loopback(host_name(urlsplit(address).netloc))


def code_of(text: str) -> list[str]:
    """A QR code as rows of 1 (dark) and 0, with no border."""
    return ["".join("1" if dark else "0" for dark in row) for row in segno.make_qr(text, error="m").matrix]


def printed_code(text: str) -> list[str]:
    """A QR code for a terminal, two rows in a line, with the border that cameras need."""
    rows = [list(row) for row in segno.make_qr(text, error="m").matrix_iter(border=2)]
    rows += [[0] * len(rows[0])] if len(rows) % 2 else []
    signs = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # bright on a dark terminal
    return ["".join(signs[bool(a), bool(b)] for a, b in zip(*pair, strict=True)) for pair in zip(rows[::2], rows[1::2], strict=True)]


def lan_address() -> str:
    """This computer's address in its network; empty where there is none. Nothing is sent: only a route is looked up."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # an address for documentation (RFC 5737)
            address = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if address.startswith("127.") else address
