"""The server under test here is the embedded one; tests/cluster puts a real one in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot_kube.clock import SystemClock
from aliquot_standalone.apiserver.log_files import LogFiles
from conformance.contracts.space import Space
from support.embedded_thread import embedded_server
from support.http_api import HttpApi


@pytest.fixture(scope="session")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server finds what containers print, on any node."""
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def api_under_test(log_folder: Path) -> Iterator[HttpApi]:
    """Give the server that the contracts are held against."""
    logs = LogFiles(folder_of=lambda _: log_folder, ended=lambda _: True, clock=SystemClock())
    with embedded_server(logs=logs) as url:
        yield HttpApi(url=url)


@pytest.fixture
def space(api_under_test: HttpApi) -> Iterator[Space]:
    """Give the test a namespace of its own."""
    made = Space.make(api_under_test)
    yield made
    api_under_test.delete(made.path)
