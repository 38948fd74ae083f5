"""What tests of isolation share: they run on a real GPU where there is one, and always on the fake driver's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.gpu_machine import Containers, FakeMachine, GpuMachine, RealMachine, figures_file, measure_context
from support.isolation import Built, build

Note = Callable[[str, object], None]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Interposer, fake driver and program."""
    return build(cache=tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="session")
def real_machine(built: Built, tmp_path_factory: pytest.TempPathFactory) -> RealMachine:
    """Found once a session; what a context takes is measured."""
    machine = RealMachine(built=built)
    machine.context_mib = measure_context(machine, tmp_path_factory.mktemp("context"))
    return machine


@pytest.fixture(params=[pytest.param("fake", marks=pytest.mark.native), pytest.param("real", marks=pytest.mark.gpu)])
def machine(request: pytest.FixtureRequest, built: Built, tmp_path: Path) -> GpuMachine:
    """The same test on both."""
    if request.param == "fake":
        return FakeMachine(built=built, folder=tmp_path)
    found: GpuMachine = request.getfixturevalue("real_machine")
    return found


@pytest.fixture
def containers(machine: GpuMachine, tmp_path: Path) -> Iterator[Containers]:
    """None yet, and an agent that paces whatever comes."""
    with Containers(machine, tmp_path) as made:
        yield made


@pytest.fixture
def note(request: pytest.FixtureRequest, machine: GpuMachine) -> Note:
    """Write down what was measured: on the output of `-rP`, and in the file that ALIQUOT_GPU_FIGURES names."""

    def write(what: str, value: object) -> None:
        on = f"{machine.model}, driver {machine.version}" if isinstance(machine, RealMachine) else "the fake driver"
        line = f"{time.strftime('%Y-%m-%d %H:%M')} | {on} | {request.node.name} | {what} | {value}"
        print(line)  # noqa: T201 - what the test has to show
        if path := figures_file():
            with path.open("a") as file:
                file.write(f"{line}\n")

    return write
