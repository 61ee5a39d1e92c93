"""Which tests are quick: ``pytest -m quick`` runs everything that is not marked otherwise."""

from __future__ import annotations

import pytest

OTHERWISE = ("slow", "browser", "long")


@pytest.hookimpl(tryfirst=True)  # before pytest's own hook drops what ``-m`` does not ask for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in OTHERWISE):
            item.add_marker("quick")
