"""What the tests of the interposer share: everything is compiled once a session, and each test has GPUs of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.isolation import Built, World, build


@pytest.fixture(scope="session")
def isolation_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled things lie."""
    return tmp_path_factory.mktemp("isolation")


@pytest.fixture(scope="session")
def built(isolation_cache: Path) -> Built:
    """Interposer, fake driver and tenant."""
    return build(cache=isolation_cache)


@pytest.fixture
def world(built: Built, tmp_path: Path) -> Iterator[World]:
    """One GPU of 16 GiB."""
    world = World(built=built, folder=tmp_path)
    yield world
    world.close()
