"""The app that the programs of these tests talk to: one for each file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlhf_studio.ui.app import Server
from tests.api.sessions import TOKEN, served
from tests.ui.raw_http import Raw


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("app")
    with served(folder / "workspace", folder / "world", RLHF_STUDIO_TOKEN=TOKEN) as running:
        yield running


@pytest.fixture(scope="module")
def raw(server: Server) -> Raw:
    return Raw(int(server.url.rstrip("/").rpartition(":")[2]))
