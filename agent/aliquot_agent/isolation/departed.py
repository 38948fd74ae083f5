"""Clears what containers are still charged for by processes that have ended, where nobody in them can tell.

A process judges the others of its account by /proc, and so only those of its own pid namespace. What ended in one that
was made inside the container (a sandbox, a runner of containers) would be charged until a process of that namespace
looks, and when the namespace is gone for ever. The node sees all of them, with their numbers in each namespace.

What must hold: nothing of a living process is cleared. A process is known by its start, and its number in its own pid
namespace; where nobody tells which that is, whoever has start and number may be it. It counts as gone when two looks,
some seconds apart, found it nowhere; and its slot is cleared only if it still says what it said. Where a
process of the same container clears it at that very instant, both write the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Protocol

import msgspec

from aliquot_agent.isolation.limits_file import Slot
from aliquot_agent.isolation.open_slices import OpenSlices
from aliquot_agent.isolation.slice_files import SliceFiles, owner_of
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

LOOK_S = 10.0


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """A process that lives: when it started, its number in its own pid namespace, and which that is (0: not told)."""

    born: int
    pid: int
    namespace: int = 0


class Living(Protocol):
    """Who lives on the node."""

    def living(self, born: Collection[int]) -> set[Life]:
        """The processes that started then."""
        ...


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of the account of a container's present life."""

    container: str
    file: int
    slot: Slot

    def lives(self, there: Mapping[tuple[int, int], Collection[int]]) -> bool:
        """Whether its process may be among these: by start and number, in which namespaces there is one."""
        namespaces = there.get((self.slot.born, self.slot.pid), ())
        return bool(namespaces) and (not self.slot.namespace or 0 in namespaces or self.slot.namespace in namespaces)


class Departed:
    """Those of one node."""

    def __init__(self, *, files: SliceFiles, living: Living, clock: Clock) -> None:
        self._files = files
        self._living = living
        self._clock = clock
        self._missed: set[_Seen] = set()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Clear what was found nowhere at the last look either."""
        seen = {one for container in self._files.tokens() for one in self._slots(container)}
        # On a thread: with thousands of processes a beat would wait for it.
        born = {one.slot.born for one in seen}
        there = _by_number(await asyncio.to_thread(self._living.living, born) if seen else ())
        missed = {one for one in seen if not one.lives(there)}
        for one in sorted(missed & self._missed, key=lambda each: (each.container, each.slot.number)):
            self._clear(one)
        self._missed = missed

    def _slots(self, container: str) -> Iterator[_Seen]:
        try:
            with closing(OpenSlices(self._files.folder_of(container))) as own:
                slots = own.slots()
        except OSError:
            return  # it is no container's, or just being made or removed
        yield from (_Seen(container=container, file=own.file, slot=slot) for slot in slots)

    def _clear(self, one: _Seen) -> None:
        try:
            with closing(OpenSlices(self._files.folder_of(one.container))) as own:
                cleared = own.file == one.file and own.clear(one.slot)
                owner = owner_of(own.own)
        except OSError as error:
            log.debug("an account can't be cleared", extra={"container": one.container, "error": str(error)})
            return
        if cleared:
            log.info("a process that ended is charged no more", extra={"owner": str(owner), "pid": one.slot.pid})


def _by_number(lives: Iterable[Life]) -> Mapping[tuple[int, int], Collection[int]]:
    """The namespaces in which one that started then has that number."""
    found: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    for life in lives:
        found[life.born, life.pid].add(life.namespace)
    return found
