"""What all simulations share: the agent's log is heard only where one seed is looked at, and evictions are counted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from simulation.universe.evictions import Evictions


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Forty agents in a row, each with everything breaking round it, would fill megabytes that nobody reads."""
    if os.environ.get("ALIQUOT_SEED"):
        yield
        return
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def evictions(monkeypatch: pytest.MonkeyPatch) -> Evictions:
    """Every eviction of every leader, for as long as the test runs."""
    return Evictions(monkeypatch)
