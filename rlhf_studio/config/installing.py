"""What to say where a package is missing: a plain installation brings only what the records and the configuration need."""

from __future__ import annotations

from rlhf_studio.language import S_


def not_installed(package: str) -> str:
    """One sentence on the package, and one with the command that brings it and all others."""
    return S_(
        f"this needs {package}, which is not installed. "
        "All that the app and training need: pip install 'rlhf-studio[all]' (with uvx: [all] behind what --from names)"
    )
