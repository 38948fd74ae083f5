"""The server under test here is the embedded one; tests/cluster puts a real one in its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.contracts.space import Space
from support.embedded_thread import embedded_server
from support.http_api import HttpApi


@pytest.fixture(scope="session")
def api_under_test() -> Iterator[HttpApi]:
    """Give the server that the contracts are held against."""
    with embedded_server() as url:
        yield HttpApi(url=url)


@pytest.fixture
def space(api_under_test: HttpApi) -> Iterator[Space]:
    """Give the test a namespace of its own."""
    made = Space.make(api_under_test)
    yield made
    api_under_test.delete(made.path)
