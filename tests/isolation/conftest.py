"""What the tests of the interposer share: everything is compiled once a run, and each test has GPUs of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.isolation import Built, World, build


@pytest.fixture(scope="session")
def isolation_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this process has things that it compiles."""
    return tmp_path_factory.mktemp("isolation")


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes of a run share what one of them compiles: theirs are side by side in the run's own."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def built(builds: Path) -> Built:
    """Interposer, fake driver and tenant."""
    return build(cache=builds)


@pytest.fixture
def world(built: Built, tmp_path: Path) -> Iterator[World]:
    """One GPU of 16 GiB."""
    world = World(built=built, folder=tmp_path)
    yield world
    world.close()
