"""What the tests of the node share."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fake_nvml import FakeNvml, build_library
from support.gpu_contract import MODELS


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our libnvidia-ml.so.1, compiled once per session."""
    return build_library(cache=tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def old_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as an old driver has it."""
    return build_library(cache=tmp_path_factory.getbasetemp(), old=True)


@pytest.fixture
def fake_nvml(fake_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A fake driver with the contract's four GPUs, loaded into this process's pynvml."""
    nvml = FakeNvml(library=fake_nvml_library, folder=tmp_path)
    nvml.install(MODELS)
    nvml.load_into_pynvml(monkeypatch)
    return nvml
