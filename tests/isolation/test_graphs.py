"""Graphs that allocate: launched again and again, by a program that fits; and never more than the limit by any."""

from __future__ import annotations

import os
import random
from contextlib import closing

import pytest

from support.isolation import CONTEXT, MIB, Container, Tenant, World

LIMIT = 1000
# Of a real driver nobody knows when it gives a graph's memory to another one: both are tried.
HOWS = ("keep", "share")
SEEDS = 40 if os.environ.get("ALIQUOT_SOAK") else 3

# Whoever is first compiles everything, which takes a busy machine most of a minute.
pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]


def started(container: Container, *, how: str) -> Tenant:
    """A tenant on a driver of that kind."""
    return container.run(environment={"FAKE_CUDA_GRAPHS": how}).started()


# How a graph's allocations are freed: by nobody, inside it, with its next launch.
NEVER, INSIDE, NEXT = range(3)
# The calls of programs that a GPU of the limit's size serves: `graph-make` how many allocations of what size, freed
# how, and microseconds of work; `graph-launch` and `graph-upload` which graph, in which stream.
LEGAL = {
    "launched ten times": [f"graph-make 1 {{big}} {INSIDE} 0", *["graph-launch 0 0"] * 10],
    "while it runs": [f"graph-make 1 {{big}} {INSIDE} 20000", *["graph-launch 0 1"] * 10],
    "freed with the next": [f"graph-make 1 {{big}} {NEXT} 0", *["graph-launch 0 0"] * 10],
    "freed outside": [f"graph-make 1 {{big}} {NEVER} 0", *["graph-launch 0 0", "graph-free 0 0"] * 3],
    "uploaded": [f"graph-make 1 {{big}} {INSIDE} 0", "graph-upload 0 0", "graph-upload 0 0", *["graph-launch 0 0"] * 3],
    "in other streams": [f"graph-make 1 {{big}} {INSIDE} 20000", *["graph-launch 0 1", "graph-launch 0 2"] * 3],
    "one after the other inside": [f"graph-make 40 {{half}} {INSIDE} 0", *["graph-launch 0 0"] * 3],
    "captured": [f"graph-capture 1 {{big}} {NEXT}", *["graph-launch 0 0"] * 3],
    "captured and freed": [f"graph-capture 40 {{half}} {INSIDE}", *["graph-launch 0 0"] * 3],
    "captured in a full container": ["take linear {big}", f"graph-capture 1 {{big}} {INSIDE}"],
    "two in turn": [*[f"graph-make 1 {{big}} {INSIDE} 20000"] * 2, *["graph-launch 0 0", "graph-launch 1 0"] * 3],
    "two at once": [*[f"graph-make 1 {{half}} {INSIDE} 20000"] * 2, *["graph-launch 0 1", "graph-launch 1 2"] * 4],
    "after one that is gone": [
        *[f"graph-make 1 {{big}} {INSIDE} 20000", "graph-launch 0 0", "graph-end 0"],
        *[f"graph-make 1 {{big}} {INSIDE} 0", "graph-launch 1 0", "graph-launch 1 0"],
    ],
    "in the place of one that took nothing": [
        *[f"graph-make 0 0 {NEVER} 0", "graph-launch 0 0", "graph-end 0", "graph-trim"],
        *[f"graph-make 1 {{big}} {INSIDE} 0", "graph-launch 1 0", "graph-launch 1 0"],
    ],
    "uploaded one after the other": [
        *[f"graph-make 1 {{half}} {INSIDE} 0"] * 8,
        *[f"graph-upload {graph} 0" for graph in range(8)],
    ],
    "after a trim": [f"graph-make 1 {{big}} {INSIDE} 0", *["graph-launch 0 0", "graph-trim"] * 3],
    "after a trim while it runs": [
        *[f"graph-make 1 {{big}} {INSIDE} 20000"] * 2,
        *["graph-launch 0 1", "graph-trim", "graph-launch 1 1"] * 3,
    ],
    "beside what comes and goes": [
        f"graph-make 1 {{big}} {INSIDE} 0",
        *["graph-launch 0 0", "take linear {half}", "take linear 1000", "give 0", "give 0"] * 3,
    ],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("calls", LEGAL.values(), ids=LEGAL)
def test_a_graph_that_fits_is_never_refused(world: World, calls: list[str], how: str) -> None:
    """What a GPU of the limit's size does for a program, it is given; and what is held, the account says."""
    container = world.container(memory_mib=LIMIT)
    tenant = started(container, how=how)
    sizes = {"big": 630 * MIB, "half": 340 * MIB}
    for call in calls:
        answer = tenant.ask(call.format(**sizes))
        assert answer == "0" or (int(answer) > 0 and call.startswith(("graph-make", "graph-capture"))), call
        (charged,) = container.account().processes[tenant.process.pid]
        assert CONTEXT <= container.used <= charged <= LIMIT * MIB
    assert container.peak <= LIMIT * MIB


# Calls that would take more than the limit if what a graph had were taken to be still its own.
TRICKS = {
    "given to another": ["graph-launch 0 1", "graph-launch 1 1", "graph-launch 0 2"],
    "given to one that is gone": ["graph-launch 0 1", "graph-launch 1 1", "graph-end 1", "graph-launch 0 2"],
    "trimmed and taken": ["graph-launch 0 1", "graph-trim", "take linear {big}", "graph-launch 0 1"],
    "uploaded beside one that runs": ["graph-upload 0 1", "graph-launch 1 1", "graph-upload 0 2", "graph-launch 0 2"],
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("calls", TRICKS.values(), ids=TRICKS)
def test_what_a_graph_has_lost_is_claimed_for_again(world: World, calls: list[str], how: str) -> None:
    """Whoever has its memory by now: a launch that takes it anew stays within the limit, or is refused."""
    container = world.container(memory_mib=LIMIT)
    tenant = started(container, how=how)
    for micros in (0, 100_000):
        assert int(tenant.ask(f"graph-make 1 {400 * MIB} {INSIDE} {micros}")) >= 0
    for call in calls:
        assert tenant.ask(call.format(big=600 * MIB)) in ("0", "2")
        (charged,) = container.account().processes[tenant.process.pid]
        assert container.used <= charged <= LIMIT * MIB
    assert container.peak <= LIMIT * MIB


@pytest.mark.parametrize("own", [0, 100 * MIB])
def test_what_bodies_of_conditional_nodes_take_is_charged_when_they_do(world: World, own: int) -> None:
    """Also once the graph has what its other nodes ask for: a body may run for the first time with any launch."""
    container = world.container(memory_mib=LIMIT)
    tenant = container.run().started()
    assert tenant.ask(f"graph-conditional {own} {200 * MIB}") == "0"
    for bodies in (0, 200 * MIB, 200 * MIB):
        assert tenant.ask("graph-launch 0 0") == "0"
        (charged,) = container.account().processes[tenant.process.pid]
        assert charged == container.used == CONTEXT + own + bodies


def test_a_node_that_is_added_while_they_are_listed_hides_none(world: World) -> None:
    """What the graph allocates is charged, and refused beyond the limit, though another thread adds to it meanwhile."""
    container = world.container(memory_mib=LIMIT)
    tenant = container.run(environment={"FAKE_CUDA_NODES": "grow-once"}).started()
    assert tenant.ask(f"graph-make 1 {800 * MIB} {INSIDE} 0") == "0"
    assert tenant.ask("graph-launch 0 0") == "2"
    assert container.peak == CONTEXT


@pytest.mark.parametrize("how", ["grow", "count-untold", "list-untold", "type-untold", "allocation-untold"])
def test_a_graph_of_which_nobody_can_tell_what_it_allocates_is_refused(world: World, how: str) -> None:
    """The driver does not answer, or another thread adds nodes all the time."""
    container = world.container(memory_mib=LIMIT)
    tenant = container.run(environment={"FAKE_CUDA_NODES": how}).started()
    assert tenant.ask(f"graph-make 1 {MIB} {INSIDE} 0") == "-2"
    assert container.account().processes[tenant.process.pid] == (container.used,) == (CONTEXT,)


@pytest.mark.parametrize(("size", "launched"), [(400 * MIB, 0), (800 * MIB, 2)])
def test_a_graph_that_is_not_yet_noted_is_launched_when_it_is(world: World, size: int, launched: int) -> None:
    """Who knows its handle of an earlier one waits until it is known what it allocates: that is charged, or refused."""
    container = world.container(memory_mib=LIMIT)
    tenant = container.run().started()
    assert tenant.ask(f"graph-launch-unnoted {size}") == f"0 {launched} 1"
    (charged,) = container.account().processes[tenant.process.pid]
    assert charged == container.used == container.peak == CONTEXT + (0 if launched else size)


def test_a_graph_that_comes_into_the_place_of_one_that_is_being_launched_is_charged(world: World) -> None:
    """What the driver launches by the handle counts, whatever was there when the call began."""
    container = world.container(memory_mib=LIMIT)
    tenant = container.run().started()
    assert tenant.ask(f"graph-launch-replaced {400 * MIB}") == "0 0 1"
    (charged,) = container.account().processes[tenant.process.pid]
    assert charged == container.used == CONTEXT + 400 * MIB


class Program:
    """A program of any kind that minds its own memory: on a GPU of its own, and in a container of that size."""

    def __init__(self, *, native: Tenant, tenant: Tenant, chance: random.Random) -> None:
        self._native, self._tenant, self._chance = native, tenant, chance
        self._held = 0
        self._lasting: list[bool] = []  # of each graph: whether nobody frees what it allocates

    def step(self) -> None:
        """One call of either; what its own GPU would have refused is given back."""
        whole = self._chance.choice([self._take] * 3 + [self._give] * 2 + [self._make] + [self._run] * 4 + [self._trim])
        whole()

    def _both(self, call: str, *, undo: str) -> bool:
        native, answer = self._native.ask(call), self._tenant.ask(call)
        assert native != "0" or answer == "0", call
        if native != "0" and answer == "0" and undo:
            assert self._tenant.ask(undo) == "0"
        return native == "0"

    def _take(self) -> None:
        way = self._chance.choice(["linear", "linear", "async", "pool", "handle", "managed"])
        size = self._chance.choice([1000, MIB, 3 * MIB, 100 * MIB, 350 * MIB])
        self._held += self._both(f"take {way} {size}", undo=f"give {self._held}")

    def _give(self) -> None:
        if self._held:
            self._both(f"give {self._chance.randrange(self._held)}", undo="")
            self._held -= 1

    def _make(self) -> None:
        if len(self._lasting) == 20:
            return
        lasts, size = self._chance.random() < 0.3, self._chance.choice([MIB, 50 * MIB, 200 * MIB, 350 * MIB])
        line = f"graph-make 1 {size} {NEVER} 0" if lasts else f"graph-make 3 {size} {INSIDE} 0"
        assert self._native.ask(line) == self._tenant.ask(line) == str(len(self._lasting))
        self._lasting.append(lasts)

    def _run(self) -> None:
        if not self._lasting:
            return
        graph, stream = self._chance.randrange(len(self._lasting)), self._chance.randrange(3)
        free = f"graph-free {graph} {stream}" if self._lasting[graph] else ""
        if self._chance.random() < 0.3:
            self._both(f"graph-upload {graph} {stream}", undo="")
        elif self._both(f"graph-launch {graph} {stream}", undo=free) and free:
            self._both(free, undo="")

    def _trim(self) -> None:
        self._both(self._chance.choice(["graph-trim", "graph-wait 0"]), undo="")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_only_what_a_gpu_of_that_size_would_refuse_is_refused(world: World, seed: int, how: str) -> None:
    """Any program that fits on a GPU as large as its limit fits into its slice, and its slice holds no more."""
    (world.folder / "own").mkdir()
    own = World(built=world.built, folder=world.folder / "own", memory_mib=(LIMIT,))
    environment = {"FAKE_CUDA_GRAPHS": how}
    container = world.container(memory_mib=LIMIT)
    with closing(own):
        native = own.container(memory_mib=LIMIT).run(interposed=False, environment=environment).started()
        tenant = started(container, how=how)
        program = Program(native=native, tenant=tenant, chance=random.Random(seed))
        for _ in range(500):
            program.step()
            (charged,) = container.account().processes[tenant.process.pid]
            assert container.used <= charged <= LIMIT * MIB
    assert container.peak <= LIMIT * MIB
