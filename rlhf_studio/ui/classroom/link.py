"""The class link: as text, and as a QR code."""

from __future__ import annotations

import socket

import segno

from rlhf_studio.ui.access import CLASS_QUERY, QUERY
from rlhf_studio.ui.hosts import host_name, is_loopback


def class_link(address: str, token: str) -> str:
    """What students open."""
    return f"{address}?{CLASS_QUERY}={token}"


def operator_link(address: str, token: str) -> str:
    """What the teacher opens, or any other operator."""
    return f"{address}?{QUERY}={token}"


def address_for(host: str) -> str:
    """The app's address as others reach it: where the teacher's own is this computer's local name, its address in the network."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    lan = lan_address() if is_loopback(host_name(host)) else ""
    return f"http://{lan}{f':{port}' if port else ''}/" if lan else f"http://{host}/"


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
