"""A node of the tests of the endpoint: its folder, and a kubelet that plays its part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from aliquot_deviceplugin.endpoint import folder_watch
from support.endpoints import short_folder
from support.scripted_kubelet import ScriptedKubelet


@pytest.fixture
def folder() -> Iterator[Path]:
    """Everything of one node."""
    with short_folder() as made:
        yield made


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[ScriptedKubelet]:
    """A kubelet that runs."""
    made = ScriptedKubelet(folder / "dp")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def only_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look at the folder but when something happens."""
    monkeypatch.setattr(folder_watch, "_ANYWAY", 3600.0)
