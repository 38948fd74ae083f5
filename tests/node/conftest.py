"""What the tests of the node share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from aliquot_agent.gpus.nvml import NvmlDriver
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.questions import PieceTransport
from aliquot_standalone.kubelet.settings import Folders
from support.fake_nvml import FakeNvml, build_library
from support.gpu_contract import MODELS
from support.kube_ways import WAYS, Connect
from support.kubelets import short_folders
from support.nvml_stage import QUICK
from support.pipes import Pipe
from support.pod_board import PodBoard
from support.scripted_http import ScriptedServer
from support.small_machine import SmallMachine, small_machine


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


@pytest.fixture
def folders() -> Iterator[Folders]:
    """Where a small kubelet keeps everything: a root with a short path."""
    with short_folders() as made:
        yield made


@pytest.fixture
def board() -> PodBoard:
    """Where its pods come from."""
    return PodBoard()


@pytest.fixture
def pipe(folders: Folders) -> Iterator[Callable[[str], Pipe]]:
    """Makes named pipes that a pod's process and the test meet at."""
    with contextlib.ExitStack() as stack:

        def make(name: str) -> Pipe:
            made = Pipe(folders.root / name)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture(params=[*WAYS, "plain"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Make transports to scripted servers, closed at the end: of all ways, which keep one contract."""
    made: list[PieceTransport] = []

    def to(server: ScriptedServer) -> PieceTransport:
        if request.param == "plain":
            made.append(PlainTransport(PlainServer(url=server.url)))
        else:
            made.append(WAYS[request.param](Credentials(lambda: Configuration(host=server.url))))
        return made[-1]

    yield to
    for transport in made:
        await transport.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallMachine]:
    """One machine for all tests: each has pods of its own."""
    with small_machine(tmp_path_factory.mktemp("machine")) as running:
        yield running


@pytest.fixture
async def driver(fake_nvml: FakeNvml) -> AsyncIterator[NvmlDriver]:
    """The driver on four fake GPUs; no test may break a rule of NVML's on the way."""
    driver = NvmlDriver(clock=SystemClock(), patience=QUICK)
    yield driver
    fake_nvml.mend()
    await driver.close()
    assert fake_nvml.violations() == []
