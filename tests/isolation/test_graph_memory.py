"""What is claimed for a graph's launch: never less than a driver takes, whatever it does, and no more than need be."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pure_c import ROOT, compiled

pytestmark = [pytest.mark.native, pytest.mark.timeout(600)]

GRAPHS = 4


class Memory(ctypes.Structure):
    """As in graphs_core.h."""

    _fields_ = (("reserved", ctypes.c_uint64), ("forgot", ctypes.c_uint32))


class Share(ctypes.Structure):
    """As in graphs_core.h."""

    _fields_ = (("asks", ctypes.c_uint64), ("has", ctypes.c_uint64), ("forgot", ctypes.c_uint32))


@functools.cache
def core() -> ctypes.CDLL:
    """The interposer's own, compiled once."""
    loaded = compiled(ROOT / "isolation" / "graphs_core.c")
    memory, share, number = ctypes.POINTER(Memory), ctypes.POINTER(Share), ctypes.c_uint64
    loaded.graph_claim.restype, loaded.graph_claim.argtypes = number, (memory, share)
    loaded.graph_told.restype, loaded.graph_told.argtypes = None, (memory, number)
    loaded.graph_launched.restype, loaded.graph_launched.argtypes = None, (memory, share, number)
    loaded.graph_refused.restype, loaded.graph_refused.argtypes = None, (memory, number)
    return loaded


@dataclass(kw_only=True)
class Driver:
    """Gives graphs their memory; `chance` says how much of what it may take it takes, from whom."""

    chance: st.DataObject
    memory: Memory = field(default_factory=Memory)
    shares: dict[int, Share] = field(default_factory=dict)
    has: dict[int, int] = field(default_factory=dict)
    # Of graphs that are gone: it may still be in use.
    left: int = 0

    @property
    def reserved(self) -> int:
        """What it tells."""
        return sum(self.has.values()) + self.left

    def _some_of(self, most: int) -> int:
        return self.chance.draw(st.integers(0, most))

    def launch(self, graph: int) -> None:
        """It lacks what it has not: of others, of what is left, or new; of the last no more than was claimed."""
        share = self._share(graph)
        claimed, before = core().graph_claim(self.memory, share), self.reserved
        lacks = share.asks - self.has.get(graph, 0) - self._take_of_others(graph, share)
        self.has[graph] = share.asks
        assert lacks <= claimed <= share.asks
        if claimed:
            core().graph_launched(self.memory, share, self.reserved)
        else:
            assert self.reserved == before
        assert self.memory.reserved == self.reserved

    def _share(self, graph: int) -> Share:
        return self.shares.setdefault(graph, Share(asks=self.chance.draw(st.integers(1, 5))))

    def _take_of_others(self, graph: int, share: Share) -> int:
        """Of what it lacks, as much as the driver likes."""
        lacked: int = share.asks - self.has.get(graph, 0)
        lacks = lacked
        for other in sorted(set(self.has) - {graph}):
            taken = self._some_of(min(lacks, self.has[other]))
            self.has[other] -= taken
            lacks -= taken
        taken = self._some_of(min(lacks, self.left))
        self.left -= taken
        return lacked - lacks + taken

    def refuse(self, graph: int) -> None:
        """It has taken some of others, and finds no more."""
        share = self._share(graph)
        if not core().graph_claim(self.memory, share):
            return
        taken = self._take_of_others(graph, share)
        self.has[graph] = self.has.get(graph, 0) + taken
        core().graph_refused(self.memory, self.reserved)

    def trim(self) -> None:
        """Gives back what is not in use."""
        for graph in sorted(self.has):
            self.has[graph] -= self._some_of(self.has[graph])
        self.left -= self._some_of(self.left)
        core().graph_told(self.memory, self.reserved)

    def end(self, graph: int) -> None:
        """The graph is gone, and what it has is not."""
        if graph in self.shares:
            del self.shares[graph]
            self.left += self.has.pop(graph)


WHAT = st.sampled_from(["launch", "launch", "launch", "trim", "end", "refuse"])
CALLS = st.lists(st.tuples(WHAT, st.integers(0, GRAPHS - 1)))


@settings(max_examples=1000, deadline=None)
@given(calls=CALLS, chance=st.data())
def test_a_launch_takes_no_more_than_was_claimed(calls: list[tuple[str, int]], chance: st.DataObject) -> None:
    """Whoever's memory the driver gives to whom, trims, or keeps for a graph that is gone."""
    driver = Driver(chance=chance)
    for call, graph in calls:
        if call == "trim":
            driver.trim()
        else:
            getattr(driver, call)(graph)
    assert driver.memory.reserved == driver.reserved


@given(launches=st.lists(st.integers(0, GRAPHS - 1)), asks=st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_a_graph_that_keeps_its_memory_is_claimed_for_once(launches: list[int], asks: list[int]) -> None:
    """Where the driver gives each graph its own, a launch after the first claims nothing, whoever was in between."""
    memory, shares, launched = Memory(), [Share(asks=one) for one in asks], set[int]()
    for graph in launches:
        assert core().graph_claim(memory, shares[graph]) == (0 if graph in launched else asks[graph])
        launched.add(graph)
        core().graph_launched(memory, shares[graph], sum(asks[one] for one in launched))


def test_a_trim_that_gives_nothing_back_changes_nothing() -> None:
    """A graph that runs keeps its memory, and what is known of it."""
    memory, share = Memory(), Share(asks=5)
    core().graph_launched(memory, share, 5)
    core().graph_told(memory, 5)
    assert core().graph_claim(memory, share) == 0
    core().graph_told(memory, 4)
    assert core().graph_claim(memory, share) == 5
